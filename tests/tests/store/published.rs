//! Limiters show their policies to operators in Redis, and obey the shares that operators set
//! there.

use std::time::Duration;

use tollgate::{
    Enforcement, Limiter, LimiterHandle, MemoryStore, Policy, Quota, RedisStore, Store,
    store::Publication,
};
use tollgate_test_support::{PATIENCE, connected_store, decided, patient_limiter};
use tollgate_tests::{Log, RedisServer, wait};

const LIMITS: &str = "tollgate:{replicas}:limits";
const SHARES: &str = "tollgate:{replicas}:shares";
const API: Policy = Policy::token_bucket("api", Quota::per_hour(5));
const TEXT: &str = "api=5/hour, token_bucket; limiter search";

fn published(store: impl Store, policy: Policy) -> Limiter {
    Limiter::builder(store)
        .policies(policy)
        .name("search")
        .deadline(PATIENCE)
        .published()
        .build()
}

fn operated(store: &RedisStore, enforcement: &Enforcement) -> Limiter {
    let builder = Limiter::builder(store.clone())
        .policies(API)
        .name("search")
        .deadline(PATIENCE);
    builder.published_with(enforcement.clone()).build()
}

/// Returns what is published, in the order of the alphabet.
fn texts(server: &RedisServer) -> Vec<String> {
    let reply = server.command(&["ZRANGE", LIMITS, "0", "-1"]);
    let mut texts: Vec<_> = reply
        .items()
        .iter()
        .map(|text| text.text().to_owned())
        .collect();
    texts.sort();
    texts
}

async fn until_published(server: &RedisServer, expected: &[&str]) {
    wait::until_async(format!("{expected:?}"), PATIENCE, async || {
        texts(server) == expected
    })
    .await;
}

async fn until_enforced(enforcement: &Enforcement, percent: u8) {
    wait::until_async(format!("{percent} %"), PATIENCE, async || {
        enforcement.percent() == percent
    })
    .await;
}

#[tokio::test]
async fn replicas_share_a_text_that_is_renewed_and_gone_with_the_last_of_them() {
    let server = RedisServer::start();
    // A process that was killed a minute ago.
    server.command(&[
        "ZADD",
        LIMITS,
        "1000000",
        "old=1/hour, token_bucket; limiter old",
    ]);
    let mut replicas = Vec::new();
    for _ in 0..2 {
        let store = connected_store(server.url()).await;
        replicas.push((published(store.clone(), API), store));
    }
    until_published(&server, &[TEXT]).await;
    // Where the machine has stood still, the set has expired and is made again.
    wait::until_async("an expiry", PATIENCE, async || {
        (1..=8_000).contains(&server.command(&["PTTL", LIMITS]).int())
    })
    .await;
    // The other replica goes on.
    drop(replicas.pop());
    server.command(&["DEL", LIMITS]);
    until_published(&server, &[TEXT]).await;
    // A clone is a use of the limiter, the store alone is none.
    let (limiter, _store) = replicas.pop().expect("a replica");
    let clone = limiter.clone();
    drop(limiter);
    server.command(&["DEL", LIMITS]);
    until_published(&server, &[TEXT]).await;
    drop(clone);
    wait::until_async("the limits to be gone", PATIENCE, async || {
        server.command(&["EXISTS", LIMITS]).int() == 0
    })
    .await;
}

#[tokio::test]
async fn replicas_with_other_policies_are_all_shown_and_replaced_policies_are() {
    let server = RedisServer::start();
    let store = connected_store(server.url()).await;
    let _old = published(store.clone(), API);
    let new = LimiterHandle::new(published(
        store.clone(),
        API.with_quota(Quota::per_hour(10)).expect("a policy"),
    ));
    until_published(
        &server,
        &["api=10/hour, token_bucket; limiter search", TEXT],
    )
    .await;

    // The policies of a tenant are no others of the limiter.
    let tenant = new
        .load()
        .with_policies(API.with_quota(Quota::per_hour(99)).expect("a policy"));
    assert!(tenant.check("acme").await.expect("a decision").is_allowed());
    new.replace_policies([API, Policy::fixed_window("day", Quota::per_day(50))]);
    let both = "api=5/hour, token_bucket; day=50/day, fixed_window; limiter search";
    until_published(&server, &[both, TEXT]).await;
    // A limiter that shares everything else may be replaced as a whole.
    new.replace(tenant);
    until_published(
        &server,
        &[TEXT, "api=99/hour, token_bucket; limiter search"],
    )
    .await;
}

#[tokio::test]
async fn the_share_of_an_operator_reaches_all_replicas_and_outlives_them() {
    let server = RedisServer::start();
    let (log, _guard) = Log::of_this_thread();
    let store = || async { connected_store(server.url()).await };
    let (first, second) = (Enforcement::share(10), Enforcement::share(10));
    let _limiters = [
        operated(&store().await, &first),
        operated(&store().await, &second),
    ];
    until_published(
        &server,
        &["api=5/hour, token_bucket; enforced 10%; limiter search"],
    )
    .await;
    for percent in [60, 0, 100] {
        server.command(&[
            "HSET",
            SHARES,
            "search",
            &format!("{percent}%"),
            "other",
            "7%",
        ]);
        until_enforced(&first, percent).await;
        until_enforced(&second, percent).await;
    }
    // Operators see that it is in force. The code waits.
    second.set(20).expect("a share");
    until_published(
        &server,
        &["api=5/hour, token_bucket; enforced 100%; limiter search"],
    )
    .await;
    let restarted = Enforcement::share(0);
    let _restarted = operated(&store().await, &restarted);
    until_enforced(&restarted, 100).await;
    assert!(
        log.text().contains("share of enforced keys has changed"),
        "{}",
        log.text()
    );
    assert!(!log.text().contains("WARN"), "{}", log.text());

    // A share that is none counts as none, on each replica, and is logged once by each.
    server.command(&["HSET", SHARES, "search", "\u{1b}[31mall"]);
    until_enforced(&first, 10).await;
    until_enforced(&second, 20).await;
    until_enforced(&restarted, 0).await;
    server.command(&["HSET", SHARES, "search", "5%"]);
    until_enforced(&first, 5).await;
    server.command(&["HDEL", SHARES, "search"]);
    until_enforced(&first, 10).await;
    until_enforced(&second, 20).await;
    assert_eq!(
        log.text().matches("must be 0% to 100%").count(),
        3,
        "{}",
        log.text()
    );
    assert!(!log.text().contains('\u{1b}'), "{:?}", log.text());
}

#[tokio::test]
async fn a_failed_renewal_disturbs_no_check_and_no_count() {
    let server = RedisServer::start();
    let (log, _guard) = Log::of_this_thread();
    server.command(&["SET", LIMITS, "of another program"]);
    let store = connected_store(server.url()).await;
    let enforcement = Enforcement::share(30);
    let limiter = operated(&store, &enforcement);
    wait::until_async("the replicas to be counted", PATIENCE, async || {
        server.calls("zcard") > 1
    })
    .await;
    wait::until_async("a warning", PATIENCE, async || {
        log.text().contains("limits are not published")
    })
    .await;
    assert!(decided(&limiter, "acme").await.degraded().is_none());

    // A hash of another type is read after the limits are shown.
    server.command(&["DEL", LIMITS]);
    server.command(&["SET", SHARES, "of another program"]);
    until_published(
        &server,
        &["api=5/hour, token_bucket; enforced 30%; limiter search"],
    )
    .await;
    server.command(&["DEL", SHARES]);
    server.command(&["HSET", SHARES, "search", "40%"]);
    until_enforced(&enforcement, 40).await;
    // A server that is away changes no share, and comes back without data.
    server.kill();
    let decision = limiter.check("acme").await.expect("a decision");
    assert!(decision.is_degraded() && enforcement.percent() == 40);
    server.restart();
    until_published(
        &server,
        &["api=5/hour, token_bucket; enforced 30%; limiter search"],
    )
    .await;
    assert_eq!(
        log.text().matches("limits are not published").count(),
        1,
        "{}",
        log.text()
    );
}

#[tokio::test]
async fn a_user_who_may_not_read_shares_publishes_and_the_log_names_the_right() {
    let server = RedisServer::start();
    let (log, _guard) = Log::of_this_thread();
    let rights = [
        "ACL",
        "SETUSER",
        "tollgate",
        "on",
        ">secret",
        "~tollgate:*",
        "+@all",
        "-hmget",
    ];
    assert!(!server.command(&rights).is_error());
    let store =
        RedisStore::open(format!("redis://tollgate:secret@{}", server.addr())).expect("a store");
    let _limiter = published(store, API);
    until_published(&server, &[TEXT]).await;
    wait::until_async("a warning", PATIENCE, async || {
        log.text().contains("+hmget")
    })
    .await;
}

#[tokio::test]
async fn a_limiter_that_is_not_published_makes_no_call_and_a_store_publishes_a_bounded_number() {
    let server = RedisServer::start();
    let (log, _guard) = Log::of_this_thread();
    let store = connected_store(server.url()).await;
    let silent = patient_limiter(store.clone(), API);
    assert!(silent.check("acme").await.expect("a decision").is_allowed());
    let counted = Limiter::builder(store.clone())
        .policies(API)
        .deadline(PATIENCE)
        .build();
    wait::until_async("the replicas to be counted", PATIENCE, async || {
        server.calls("zcard") > 2
    })
    .await;
    assert_eq!((server.calls("hmget"), texts(&server).len()), (0, 0));
    drop((silent, counted));

    let limiters: Vec<_> = (0..80)
        .map(|at| {
            Limiter::builder(store.clone())
                .policies(API)
                .name(format!("limiter-{at}"))
                .published()
                .build()
        })
        .collect();
    wait::until_async("64 limiters", PATIENCE, async || texts(&server).len() == 64).await;
    assert_eq!(
        log.text().matches("publishes 64 limiters").count(),
        1,
        "{}",
        log.text()
    );
    // Each beat is one call for all of them.
    let (calls, texts_before) = (server.calls("hmget"), server.calls("zadd"));
    wait::until_async("another call", PATIENCE, async || {
        server.calls("hmget") > calls
    })
    .await;
    assert!(server.calls("zadd") - texts_before >= 64);
    // What is dropped makes room, once the call that is under way has ended.
    drop(limiters);
    until_published(&server, &[]).await;
    let _limiter = published(store, API);
    until_published(&server, &[TEXT]).await;
}

#[tokio::test]
async fn a_store_in_the_process_shows_nothing_and_decides_as_without() {
    let enforcement = Enforcement::share(5);
    let builder = Limiter::builder(MemoryStore::new()).policies(API);
    let limiter = LimiterHandle::new(builder.published_with(enforcement.clone()).build());
    limiter.replace_policies(API.with_quota(Quota::per_hour(1)).expect("a policy"));
    assert!(
        limiter
            .load()
            .check("acme")
            .await
            .expect("a decision")
            .is_allowed()
    );
    assert!(
        limiter
            .load()
            .check("acme")
            .await
            .expect("a decision")
            .is_denied()
    );
    assert_eq!(enforcement.percent(), 5);
}

#[test]
fn a_name_with_every_sign_is_read_as_it_is_written() {
    let policy = Policy::lockout(
        "log-in",
        Quota::per_minute(5),
        Duration::from_secs(60),
        Duration::from_secs(3600),
    );
    for name in [
        "a",
        "",
        "burst+daily",
        "a; limiter b; enforced 7%",
        "a\nb\u{1b}[0m",
        "ü",
    ] {
        for enforcement in [None, Some(Enforcement::share(0))] {
            let published = Publication::new(name, policy.clone(), enforcement.clone());
            let read: Publication = published.to_string().parse().expect("what was written");
            assert_eq!((read.name(), read.policies()), (name, published.policies()));
            assert_eq!(
                read.enforcement().map(Enforcement::percent),
                enforcement.map(|share| share.percent())
            );
        }
    }
}

#[test]
fn another_text_is_refused() {
    for text in [
        "",
        "api=1/s, token_bucket",
        "; limiter api",
        "enforced 5%; limiter api",
        "api=1/s, token_bucket; enforced 101%; limiter api",
        "api=1/s, token_bucket; enforced x%; limiter api",
        "api=1/s, token_bucket; from the future; limiter api",
        "api=1/s, token_bucket; api=2/s, token_bucket; limiter api",
    ] {
        assert!(text.parse::<Publication>().is_err(), "{text}");
    }
}
