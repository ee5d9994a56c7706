//! The events of a limiter: what raises them, what does not, and that no observer harms a request.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use http::{Request, Response};
use tollgate::{
    Cost, Key, KeySecret, Lease, Limiter, MemoryStore, Outage, Policy, Quota, Store,
    limiter::{
        DeniedKeys,
        events::{self, Event, Observer},
    },
    store::Clock,
    testing::ALGORITHMS,
};
use tollgate_rules::{Descriptor, Format, RuleLimiter, RuleSet, Rules};
use tollgate_test_support::{Dice, PATIENCE, connected_store, decided, decided_at};
use tollgate_tests::{Log, RedisServer, wait};
use tollgate_tower::{RateLimitLayer, key::Header};
use tower::{Layer, ServiceExt, service_fn};

const DAY: Policy = Policy::fixed_window("day", Quota::per_day(5));
const LOGIN: Policy = Policy::lockout(
    "login",
    Quota::per_hour(3),
    Duration::from_secs(60),
    Duration::from_secs(3_600),
);

/// Keeps each event in a line: its name, the policy and the key.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<Vec<String>>>);

impl Observer for Seen {
    fn event(&self, event: &Event<'_>) {
        let line = match event {
            Event::Denied(of) | Event::NearLimit(of) | Event::LockedOut(of) => {
                assert_eq!(
                    of.retry_after().is_none(),
                    matches!(event, Event::NearLimit(_))
                );
                assert!(
                    of.remaining() < of.cost().units() || !matches!(event, Event::Denied(_)),
                    "{event:?}"
                );
                format!(
                    "{} {} {} {}",
                    event.name(),
                    of.limiter(),
                    of.policy().name(),
                    of.key().encoded()
                )
            }
            _ => event.name().to_owned(),
        };
        self.0.lock().expect("no panic").push(line);
    }
}

impl Seen {
    /// Returns the events since the last call.
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().expect("no panic"))
    }

    fn limiter(&self, store: impl Store, policies: impl Into<tollgate::PolicySet>) -> Limiter {
        let builder = Limiter::builder(store)
            .policies(policies)
            .name("api")
            .deadline(PATIENCE);
        builder.observer(self.clone()).build()
    }
}

fn frozen() -> MemoryStore {
    MemoryStore::builder()
        .clock(Clock::manual(1_000_000_000))
        .build()
}

/// Returns both stores, the second one on a server that lives as long as the first value.
async fn stores() -> (RedisServer, [Arc<dyn Store>; 2]) {
    let server = RedisServer::start();
    let redis = connected_store(server.url()).await;
    (server, [Arc::new(frozen()), Arc::new(redis)])
}

#[tokio::test]
async fn the_check_that_crosses_the_line_and_each_denial_are_events_on_both_stores_and_nothing_else_is()
 {
    let (_server, stores) = stores().await;
    for store in stores {
        let seen = Seen::default();
        let limiter = seen.limiter(store, DAY);
        for _ in 0..4 {
            let _ = limiter.check("acme").await.expect("a decision");
        }
        let _ = limiter.peek("acme").await.expect("a state");
        let _ = limiter
            .peek("acme")
            .cost(Cost::new(2))
            .await
            .expect("a state");
        let _ = decided_at(&limiter, "acme", Cost::ZERO).await;
        let _ = limiter
            .check("acme")
            .cost(Cost::new(6))
            .await
            .expect_err("the cost never fits");
        assert_eq!(
            seen.take(),
            [""; 0],
            "four of five units are 80 %, and not beyond"
        );
        let fifth = limiter.check("acme").await.expect("a decision");
        assert_eq!(seen.take(), ["near_limit api day acme"]);
        for _ in 0..2 {
            assert!(limiter.check("acme").await.expect("a decision").is_denied());
        }
        assert_eq!(
            seen.take(),
            ["denied api day acme"; 2],
            "also the denial that the process remembers"
        );
        limiter
            .refund("acme", Cost::ONE)
            .of(&fifth)
            .await
            .expect("a refund");
        assert_eq!(seen.take(), [""; 0]);
        let _ = limiter.check("acme").await.expect("a decision");
        assert_eq!(
            seen.take(),
            ["near_limit api day acme"],
            "the refund brought the key back below the line"
        );
        limiter.reset("acme").await.expect("a reset");
        let reservation = limiter
            .reserve("acme", Cost::new(5))
            .await
            .expect("a decision");
        assert_eq!(seen.take(), ["near_limit api day acme"]);
        reservation.commit(Cost::new(2)).await.expect("settled");
        let _ = limiter
            .with_policies(DAY.with_quota(Quota::per_day(2)).expect("a policy"))
            .check("acme")
            .await;
        assert_eq!(
            seen.take(),
            ["denied api day acme"],
            "limiters with other policies share the observer"
        );
    }
}

#[tokio::test]
async fn the_line_is_crossed_exactly_where_the_units_before_and_after_say_so_in_every_algorithm() {
    let (mut dice, mut crossed) = (Dice::new(35), 0);
    for algorithm in ALGORITHMS {
        let clock = Clock::manual(1_000_000_000);
        let store = MemoryStore::builder().clock(clock.clone()).build();
        let quota = Quota::new(10, Duration::from_secs(3_600));
        let Ok(policy) = Policy::try_new("one", algorithm, quota) else {
            continue;
        };
        let (burst, seen) = (policy.quota().burst(), Seen::default());
        let limiter = seen.limiter(store, policy);
        for _ in 0..400 {
            let is_beyond = |remaining: u64| (burst - remaining) * 5 > burst * 4;
            let left = |state: Option<tollgate::limiter::PolicyState<'_>>| {
                state.expect("a policy").remaining()
            };
            let before = left(limiter.peek("key").await.expect("a state").state("one"));
            let decision = decided_at(&limiter, "key", Cost::new(1 + dice.below(4))).await;
            let crosses = decision.is_allowed()
                && !is_beyond(before)
                && is_beyond(left(decision.state("one")));
            let near = seen
                .take()
                .iter()
                .filter(|line| line.starts_with("near_limit"))
                .count();
            assert_eq!(
                near,
                usize::from(crosses),
                "{algorithm:?}: {before} before, {decision:?}"
            );
            crossed += near;
            clock.advance(Duration::from_secs(dice.below(1_500)));
        }
    }
    assert!(crossed > 100, "{crossed}");
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_goes_into_debt_crosses_the_line_only_if_it_comes_from_below() {
    let seen = Seen::default();
    let store = MemoryStore::builder().clock(Clock::tokio()).build();
    let limiter = seen.limiter(store, Policy::token_bucket("ten", Quota::per_hour(10)));
    for (first, events) in [(9, 1), (7, 1)] {
        let key = Key::from(first);
        let _ = decided_at(&limiter, &key, Cost::new(first)).await;
        let waited = limiter
            .check(&key)
            .cost(Cost::new(5))
            .wait(Duration::from_secs(3_600))
            .await
            .expect("a decision");
        assert!(
            waited.is_allowed() && !waited.delay().is_zero(),
            "{waited:?}"
        );
        assert_eq!(seen.take().len(), events, "after {first} units");
    }
}

#[tokio::test]
async fn the_failure_that_locks_a_key_is_an_event_on_both_stores() {
    let (_server, stores) = stores().await;
    for store in stores {
        let seen = Seen::default();
        let limiter = seen.limiter(store, LOGIN);
        for _ in 0..2 {
            let _ = limiter.check("ann").await.expect("a decision");
        }
        assert_eq!(seen.take(), [""; 0]);
        let _ = limiter.check("ann").await.expect("a decision");
        assert_eq!(
            seen.take(),
            ["near_limit api login ann", "locked_out api login ann"]
        );
        let _ = limiter.check("ann").await.expect("a decision");
        assert_eq!(seen.take(), ["denied api login ann"]);
        limiter.reset("ann").await.expect("a reset");
        let _ = decided_at(&limiter, "ann", Cost::new(3)).await;
        assert_eq!(
            seen.take(),
            ["near_limit api login ann", "locked_out api login ann"]
        );
    }
}

#[tokio::test]
async fn a_lockout_tells_how_long_it_takes() {
    let clock = Clock::manual(1_000_000_000);
    let (observer, mut events) = events::channel(100);
    let store = MemoryStore::builder().clock(clock.clone()).build();
    let limiter = Limiter::builder(store)
        .policies(LOGIN)
        .observer(observer)
        .build();
    for seconds in [60, 120, 240] {
        let _ = decided_at(&limiter, "ann", Cost::new(3)).await;
        let locked = std::iter::from_fn(|| events.try_recv()).find_map(|event| match event {
            Event::LockedOut(locked) => locked.retry_after(),
            _ => None,
        });
        assert_eq!(locked, Some(Duration::from_secs(seconds)));
        clock.advance(Duration::from_secs(seconds));
    }
}

#[tokio::test]
async fn each_branch_that_denies_is_an_event_and_is_counted_once() {
    let (seen, denied_keys) = (Seen::default(), DeniedKeys::with_plain_keys(10));
    let one = Quota::per_day(1);
    let policies = [
        Policy::fixed_window("address", one),
        Policy::fixed_window("user", one).at_branch(2),
        Policy::sliding_log("user-log", one).at_branch(2),
    ];
    let builder = Limiter::builder(frozen()).policies(policies).name("api");
    let limiter = builder
        .observer(seen.clone())
        .denied_keys(denied_keys.clone())
        .build();
    let both = Key::new("192.0.2.7").with_branch("ann");
    let _ = limiter.check(&both).await.expect("a decision");
    assert_eq!(
        seen.take(),
        [
            "near_limit api address 192.0.2.7",
            "near_limit api user ann",
            "near_limit api user-log ann"
        ]
    );
    let _ = limiter.check(&both).await.expect("a decision");
    let lines = seen.take();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert_eq!(lines[0], "denied api address 192.0.2.7");
    assert!(
        lines[1].starts_with("denied api user") && lines[1].ends_with(" ann"),
        "{lines:?}"
    );
    let _ = decided(&limiter, Key::new("192.0.2.8").with_branch("ann")).await;
    assert_eq!(seen.take().len(), 1, "the other address is not denied");
    assert_eq!(denied_keys.total(), 3);
}

#[tokio::test]
async fn a_policy_that_blocks_denies_without_a_wait_and_a_leased_policy_comes_near_nothing() {
    let (observer, mut events) = events::channel(100);
    let nothing = Policy::token_bucket("nothing", Quota::per_minute(0));
    let limiter = Limiter::builder(frozen())
        .policies(nothing)
        .observer(observer.clone())
        .build();
    let _ = limiter.check("acme").await.expect("a decision");
    assert!(
        matches!(events.try_recv(), Some(Event::Denied(denied)) if denied.retry_after().is_none())
    );

    let server = RedisServer::start();
    let store = connected_store(server.url()).await;
    let leased = Policy::token_bucket("leased", Quota::per_hour(500)).leased(Lease::new());
    for store in [Arc::new(frozen()) as Arc<dyn Store>, Arc::new(store)] {
        let builder = Limiter::builder(store)
            .policies(leased.clone())
            .deadline(PATIENCE);
        let limiter = builder.observer(observer.clone()).build();
        while decided(&limiter, "acme").await.is_allowed() {}
        assert_eq!(events.try_recv().map(|event| event.name()), Some("denied"));
        assert!(events.try_recv().is_none());
    }
}

#[tokio::test]
async fn an_outage_is_an_event_as_it_begins_and_as_it_ends_and_so_are_its_denials() {
    let server = RedisServer::start();
    let store = connected_store(server.url()).await;
    for outage in [Outage::local(1), Outage::Closed] {
        let (observer, mut events) = events::channel(100);
        let builder = Limiter::builder(store.clone())
            .policies(DAY)
            .on_outage(outage)
            .deadline(PATIENCE);
        let limiter = builder.observer(observer).build();
        let _ = limiter.check("other").await.expect("a decision");
        server.kill();
        let mut failed = 0;
        for _ in 0..7 {
            failed += u64::from(limiter.check("acme").await.is_err());
        }
        assert!(matches!(events.try_recv(), Some(Event::OutageBegan { .. })));
        if outage == Outage::Closed {
            assert_eq!(failed, 7, "an error is no denial");
        } else {
            for name in ["near_limit", "denied", "denied"] {
                let Some(event) = events.try_recv() else {
                    panic!("no {name}")
                };
                assert_eq!(event.name(), name);
                let (Event::Denied(of) | Event::NearLimit(of)) = event else {
                    panic!("{name}")
                };
                assert!(of.degraded().is_some());
            }
        }
        assert!(events.try_recv().is_none());
        server.restart();
        let mut fresh = 0_u64;
        wait::until_async("the end of the outage", PATIENCE, async || {
            fresh += 1;
            let _ = limiter.check(fresh).await;
            matches!(events.try_recv(), Some(Event::OutageEnded { lasted, .. }) if lasted >= Duration::from_secs(1))
        })
        .await;
        let _ = limiter.check("more").await.expect("a decision");
        assert!(events.try_recv().is_none());
    }
}

#[tokio::test]
async fn a_panic_in_an_observer_harms_no_request_and_the_observer_is_called_again() {
    let (_server, stores) = stores().await;
    for store in stores {
        let calls = Arc::new(Mutex::new(0));
        let counted = calls.clone();
        let builder = Limiter::builder(store).policies(DAY).deadline(PATIENCE);
        let limiter = builder
            .observe(move |_| {
                *counted.lock().expect("released before the panic") += 1;
                panic!("an observer that fails on purpose");
            })
            .build();
        let mut allowed = 0;
        for _ in 0..8 {
            allowed += u64::from(decided(&limiter, "acme").await.is_allowed());
        }
        assert_eq!((allowed, *calls.lock().expect("a number")), (5, 1 + 3));
    }
}

#[tokio::test]
async fn a_limiter_with_an_observer_that_sees_nothing_allocates_as_much_as_one_without() {
    let with = Seen::default().limiter(
        frozen(),
        Policy::token_bucket("many", Quota::per_hour(1_000)),
    );
    let without = Limiter::new(
        frozen(),
        Policy::token_bucket("many", Quota::per_hour(1_000)),
    );
    let key = Key::new("acme");
    let counts = [with, without].map(|limiter| {
        let check = || {
            limiter
                .check_key(&key)
                .into_future()
                .into_ready()
                .expect("in process")
                .expect("a decision")
        };
        assert!(check().is_allowed());
        allocation_counter::measure(|| assert!(check().is_allowed())).count_total
    });
    assert_eq!(counts, [0, 0]);
}

#[tokio::test]
async fn a_layer_in_shadow_mode_or_not_its_handler_limiter_and_rules_show_their_denials() {
    for is_shadow in [false, true] {
        let seen = Seen::default();
        let one = Policy::fixed_window("one", Quota::per_day(1));
        let limiter = seen.limiter(frozen(), one);
        let builder = RateLimitLayer::builder(limiter.clone(), Header::new("x-tenant"));
        let layer = builder.shadow(is_shadow).build();
        let service = layer.layer(service_fn(async |_: Request<String>| {
            Ok::<_, std::convert::Infallible>(Response::new(String::new()))
        }));
        let request = || {
            Request::builder()
                .header("x-tenant", "acme")
                .body(String::new())
                .expect("a request")
        };
        let Ok(first) = service.clone().oneshot(request()).await;
        assert_eq!(
            (first.status(), seen.take()),
            (http::StatusCode::OK, vec!["near_limit api one acme".into()])
        );
        let Ok(second) = service.oneshot(request()).await;
        assert_eq!(second.status() == 429, !is_shadow);
        assert_eq!(
            seen.take(),
            ["denied api one acme"],
            "the limiter does not know shadow mode"
        );

        let handler = layer.handler_limiter::<String>(limiter);
        let (mut parts, _) = request().into_parts();
        assert_eq!(handler.check(&mut parts, "acme").await.is_err(), !is_shadow);
        assert_eq!(seen.take(), ["denied api one acme"]);
    }

    let seen = Seen::default();
    let text = "{domain: shop, descriptors: [{key: tenant, rate_limit: {quota: 1/d}}]}";
    let rules = Rules::new(RuleSet::parse(text, Format::Yaml).expect("rules"));
    let limiter = RuleLimiter::builder(rules.clone(), frozen())
        .observer(seen.clone())
        .build();
    for _ in 0..2 {
        let _ = limiter
            .check("shop", &[Descriptor::from([("tenant", "acme")])], 1)
            .await
            .expect("a decision");
    }
    let key = Key::new("shop").join(("tenant", "acme"));
    let lines = seen.take();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(
        lines[0].starts_with("near_limit rules") && lines[0].ends_with(key.encoded()),
        "{lines:?}"
    );
    assert!(
        lines[1].starts_with("denied rules") && lines[1].ends_with(key.encoded()),
        "{lines:?}"
    );
}

/// Refuses the rules that are in force, by a load of its own, and then fails.
struct Meddler(Seen, Rules, std::path::PathBuf);

impl Observer for Meddler {
    fn event(&self, event: &Event<'_>) {
        self.0.event(event);
        assert_eq!(self.1.loads().succeeded, 2, "the rules are in force");
        std::fs::write(&self.2, "domain: [").expect("a file");
        self.1.reload().expect_err("the file is spoilt");
        panic!("the load does not see it");
    }
}

#[test]
fn rules_show_each_reload_and_no_refusal_and_the_observer_may_load_and_panic() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("rules.yaml");
    let text = "domain: shop\ndescriptors:\n- {key: tenant, rate_limit: {quota: 5/s}}\n";
    std::fs::write(&path, text).expect("a file");
    let (rules, seen) = (Rules::load(&path).expect("rules"), Seen::default());
    rules.set_observer(Meddler(seen.clone(), rules.clone(), path));
    rules.reload().expect("the file is right");
    assert_eq!(seen.take(), ["rules_reloaded"]);
    assert!(rules.last_error().is_some() && rules.current().has_domain("shop"));
}

#[tokio::test]
async fn the_log_names_the_key_of_no_event() {
    let (log, _guard) = Log::of_this_thread_from(tracing::Level::DEBUG);
    let (observer, mut events) = events::channel(10);
    let limiter = Limiter::builder(frozen())
        .policies(LOGIN)
        .observer(observer)
        .build();
    for _ in 0..4 {
        let _ = limiter.check("sk_live_key").await.expect("a decision");
    }
    let text = log.text();
    assert!(
        text.contains("a key was locked out") && text.contains("a key came near its limit"),
        "{text}"
    );
    while let Some(event) = events.try_recv() {
        assert!(!format!("{event:?}").contains("sk_live_key"), "{event:?}");
        let Event::Denied(denied) = event else {
            continue;
        };
        assert_eq!(
            DeniedKeys::digest(denied.key(), &KeySecret::new(b"secret")).len(),
            32
        );
    }
    assert!(!text.contains("sk_live_key"), "{text}");
}
