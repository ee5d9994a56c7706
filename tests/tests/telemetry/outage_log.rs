//! The log lines of an outage.

use std::{num::NonZeroU32, sync::Arc, time::Duration};

use metrics_util::debugging::DebuggingRecorder;
use tollgate::{
    Decision, Error, ErrorKind, Key, Limiter, MemoryStore, Policy, Quota, RedisStore, Store,
    permits::{Concurrency, ConcurrencyLimiter},
    store::{Check, CheckFuture, ReplicaGroup, StoreFuture},
    test_util::FaultyStore,
};
use tollgate_test_support::{PATIENCE, connected_store, opened_store};
use tollgate_tests::{Log, RedisServer, wait};

const HOURLY: Policy = Policy::token_bucket("hourly", Quota::per_hour(5));

const BEGIN: &str = "decided without the store";
const END: &str = "decides again";

fn limiter(store: impl Store) -> Limiter {
    Limiter::builder(store)
        .policies(HOURLY)
        .deadline(PATIENCE)
        .build()
}

async fn is_degraded(limiter: &Limiter, key: impl Into<Key>) -> bool {
    limiter.check(key).await.expect("a decision").is_degraded()
}

/// Answers through a future of its own, as a store that measures the time of a check does.
struct Measured(RedisStore);

impl Store for Measured {
    fn check(&self, check: Check<'_>) -> CheckFuture {
        let answer = self.0.check(check);
        StoreFuture::pending(answer)
    }

    fn refund(&self, check: Check<'_>, decision: Option<&Decision>) -> StoreFuture<()> {
        self.0.refund(check, decision)
    }

    fn reset(&self, check: Check<'_>) -> StoreFuture<()> {
        self.0.reset(check)
    }

    fn inner(&self) -> Option<&dyn Store> {
        Some(&self.0)
    }
}

/// Refuses all checks but those of the key `first`, as a store with too many waiting checks does.
/// 20 ms have passed then.
struct Overloaded(MemoryStore);

impl Store for Overloaded {
    fn check(&self, check: Check<'_>) -> CheckFuture {
        let answer = match *check.key == Key::new("first") {
            true => self
                .0
                .check(check)
                .into_ready()
                .expect("a store in the process"),
            false => Err(Error::new(ErrorKind::Overloaded, "too many checks wait")),
        };
        StoreFuture::pending(async move {
            if answer.is_err() {
                tokio::time::advance(Duration::from_millis(20)).await;
            }
            answer
        })
    }

    fn refund(&self, check: Check<'_>, decision: Option<&Decision>) -> StoreFuture<()> {
        self.0.refund(check, decision)
    }

    fn reset(&self, check: Check<'_>) -> StoreFuture<()> {
        self.0.reset(check)
    }
}

#[tokio::test(start_paused = true)]
async fn an_overload_is_logged_once_as_it_begins_and_once_as_it_ends_and_is_no_outage() {
    let (log, _guard) = Log::of_this_thread();
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _recording = metrics::set_default_local_recorder(&recorder);
    let limiter = limiter(Overloaded(MemoryStore::new()));
    for caller in 0..20_u64 {
        assert!(is_degraded(&limiter, caller).await);
        assert!(!is_degraded(&limiter, "first").await);
    }
    tokio::time::advance(Duration::from_secs(2)).await;
    let _ = limiter.check("first").await.expect("a decision");
    let text = log.text();
    assert_eq!(
        text.matches("more checks than it can answer in time")
            .count(),
        1,
        "{text}"
    );
    assert!(text.contains("deadline=60s left=59.98s"), "{text}");
    assert_eq!(
        text.matches("decides all checks again").count(),
        1,
        "{text}"
    );
    assert_eq!(text.matches(END).count(), 0, "{text}");
    let series = snapshotter.snapshot().into_vec();
    let value = |name: &str| {
        let found = series
            .iter()
            .find(|(key, ..)| key.key().name() == name)
            .expect("a series");
        let labels: Vec<_> = found
            .0
            .key()
            .labels()
            .map(|label| label.value().to_owned())
            .collect();
        (labels.join(" "), format!("{:?}", found.3))
    };
    assert_eq!(
        value("tollgate_degraded_total"),
        ("hourly overload".into(), "Counter(20)".into())
    );
    assert_eq!(
        value("tollgate_outages_total"),
        ("hourly".into(), "Counter(0)".into())
    );
}

#[tokio::test]
async fn an_outage_is_logged_once_as_it_begins_and_once_as_it_ends() {
    let (log, _guard) = Log::of_this_thread();
    let server = RedisServer::start();
    let limiter = limiter(opened_store(server.url()));
    assert!(!is_degraded(&limiter, "sk_live_key").await);
    server.kill();
    for _ in 0..20 {
        assert!(is_degraded(&limiter, "sk_live_key").await);
    }
    let text = log.text();
    let away: Vec<_> = text
        .lines()
        .filter(|line| line.contains("no check is sent"))
        .collect();
    let named = format!("server=\"redis at {}\"", server.addr());
    assert!(
        matches!(away[..], [line] if line.contains("WARN") && line.contains(&named)),
        "{named}: {text}"
    );
    server.restart();
    let mut fresh = 0_u64;
    wait::until_async("the end of the outage to be logged", PATIENCE, async || {
        fresh += 1;
        !is_degraded(&limiter, fresh).await && log.text().contains(END)
    })
    .await;
    assert!(!is_degraded(&limiter, "sk_live_key").await);
    let text = log.text();
    assert_eq!(text.matches(BEGIN).count(), 1, "{text}");
    assert_eq!(text.matches(END).count(), 1, "{text}");
    assert!(!text.contains("sk_live_key"), "{text}");
}

#[tokio::test]
async fn a_remembered_denial_neither_ends_an_outage_nor_begins_another() {
    let (log, _guard) = Log::of_this_thread();
    let server = RedisServer::start();
    let store = RedisStore::builder(server.url())
        .deny_cache_cap(PATIENCE)
        .connect()
        .await
        .expect("a store");
    let forms: [Box<dyn Store>; 3] = [
        Box::new(store.clone()),
        Box::new(Arc::new(store.clone()) as Arc<dyn Store>),
        Box::new(Measured(store.clone())),
    ];
    let limiters = forms.map(limiter);
    while limiters[0]
        .check("denied")
        .await
        .expect("a decision")
        .is_allowed()
    {}
    server.kill();
    for (at, limiter) in limiters.iter().enumerate() {
        let before = log.text().matches(BEGIN).count();
        for caller in 0..40_u64 {
            assert!(is_degraded(limiter, caller).await, "store {at}");
            let remembered = limiter.check("denied").await.expect("a decision");
            assert!(
                remembered.is_denied() && !remembered.is_degraded(),
                "store {at}"
            );
        }
        // So much later that an answer of the store would end the outage.
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(5)).await;
        for _ in 0..3 {
            let remembered = limiter.check("denied").await.expect("a decision");
            assert!(
                remembered.is_denied() && !remembered.is_degraded(),
                "store {at}"
            );
        }
        tokio::time::resume();
        let text = log.text();
        assert_eq!(
            text.matches(BEGIN).count() - before,
            1,
            "store {at}: {text}"
        );
        assert_eq!(text.matches(END).count(), 0, "store {at}: {text}");
    }
}

/// The gauge of the metrics follows the log.
#[test]
fn the_end_of_an_outage_shows_in_the_log_and_in_the_metrics() {
    let (log, _guard) = Log::of_this_thread();
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let outage = async {
        let server = RedisServer::start();
        let store = connected_store(server.url()).await;
        let limiter = Limiter::builder(store)
            .policies(HOURLY)
            .name("api")
            .deadline(PATIENCE)
            .build();
        server.kill();
        assert!(is_degraded(&limiter, "acme").await);
        server.restart();
        wait::until_async("the end of the outage", PATIENCE, async || {
            is_degraded(&limiter, "acme").await;
            log.text().contains(END)
        })
        .await;
    };
    metrics::with_local_recorder(&recorder, || runtime.block_on(outage));
    let text = log.text();
    for line in [BEGIN, END] {
        let named = text
            .lines()
            .filter(|it| it.contains(line) && it.contains(r#"limiter="api""#))
            .count();
        assert_eq!(named, 1, "{text}");
    }
    // A snapshot takes the values, so this is the only one.
    let series: Vec<_> = snapshotter.snapshot().into_vec();
    let value = |name: &str| {
        let found = series.iter().find(|(key, ..)| key.key().name() == name);
        found
            .map(|(.., value)| format!("{value:?}"))
            .unwrap_or_default()
    };
    assert_eq!(value("tollgate_outages_total"), "Counter(1)");
    assert_eq!(value("tollgate_outage"), "Gauge(0.0)");
}

/// A limiter that is rarely used gets no check that could show the end.
#[tokio::test(start_paused = true)]
async fn an_outage_ends_without_a_further_check_once_the_store_answers() {
    let (log, _guard) = Log::of_this_thread();
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _recording = metrics::set_default_local_recorder(&recorder);
    let store = FaultyStore::default();
    let limiter = limiter(store.clone());
    let permits = ConcurrencyLimiter::new(store.clone(), Concurrency::new("jobs", 4));
    store.fail();
    assert!(is_degraded(&limiter, "acme").await);
    drop(permits.try_acquire("acme").await.expect("a permit"));
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(
        (
            log.text().matches(BEGIN).count(),
            log.text().matches(END).count()
        ),
        (2, 0)
    );
    store.recover();
    tokio::time::sleep(Duration::from_secs(3)).await;
    let text = log.text();
    assert_eq!(
        (text.matches(BEGIN).count(), text.matches(END).count()),
        (2, 2),
        "{text}"
    );
    let series = snapshotter.snapshot().into_vec();
    let gauges = series
        .iter()
        .filter(|(key, ..)| key.key().name() == "tollgate_outage");
    assert_eq!(
        gauges
            .map(|(.., value)| format!("{value:?}"))
            .collect::<Vec<_>>(),
        ["Gauge(0.0)", "Gauge(0.0)"]
    );
    let left = limiter.peek("acme").await.expect("a state");
    assert_eq!(
        left.state("hourly").expect("a policy").remaining(),
        5,
        "what asked the store charged nothing"
    );
}

#[tokio::test]
async fn a_limiter_that_is_dropped_in_an_outage_leaves_no_outage_behind() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _recording = metrics::set_default_local_recorder(&recorder);
    let store = FaultyStore::default();
    let limiter = limiter(store.clone());
    store.fail();
    assert!(is_degraded(&limiter, "acme").await);
    drop(limiter);
    let series = snapshotter.snapshot().into_vec();
    let gauges = series
        .iter()
        .filter(|(key, ..)| key.key().name() == "tollgate_outage");
    assert_eq!(
        gauges
            .map(|(.., value)| format!("{value:?}"))
            .collect::<Vec<_>>(),
        ["Gauge(0.0)"]
    );
}

#[tokio::test]
async fn a_refused_count_of_replicas_is_logged_once_and_leaves_the_last_number() {
    let (log, _guard) = Log::of_this_thread();
    let server = RedisServer::start();
    let acl = |rights: &[&str]| {
        let reply = server.command(&[&["ACL", "SETUSER", "tollgate"], rights].concat());
        assert!(!reply.is_error(), "{}", reply.text());
    };
    acl(&["on", ">secret", "~tollgate:*", "+@all"]);
    let store = RedisStore::builder(format!("redis://tollgate:secret@{}", server.addr()))
        .connect_timeout(PATIENCE)
        .build()
        .expect("a store");
    let group = ReplicaGroup::new("hourly", &HOURLY.into());
    let (limiter, count) = (
        limiter(store.clone()),
        store.replicas(group).expect("a store that counts"),
    );
    wait::until_async("both processes to be counted", PATIENCE, async || {
        let seconds = server.command(&["TIME"]).items()[0].text();
        server.command(&[
            "ZADD",
            &format!("tollgate:{{replicas}}:{group}"),
            &format!("{seconds}000000"),
            "another",
        ]);
        count.get() == NonZeroU32::new(2)
    })
    .await;
    acl(&["-zadd"]);
    let calls = server.calls("evalsha");
    wait::until_async("three refused calls", PATIENCE, async || {
        server.calls("evalsha") >= calls + 3
    })
    .await;
    let text = log.text();
    // One for the count, and one for the report of what the replica enforces.
    assert_eq!(text.matches("TOLLGATE-ACL").count(), 2, "{text}");
    assert_eq!(text.matches("cannot count themselves").count(), 1, "{text}");
    assert!(
        text.contains("+zadd +zremrangebyscore +zcard +pexpire") && text.contains("replicas=2"),
        "{text}"
    );
    assert_eq!(count.get(), NonZeroU32::new(2));
    assert!(
        !is_degraded(&limiter, "acme").await,
        "checks are decided by the store all the same"
    );
}
