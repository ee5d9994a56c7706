//! The keys that are denied most.

use std::{collections::HashMap, env, process::Command};

use tollgate::{
    Cost, Key, KeySecret, Limiter, MemoryStore, Outage, Policy, Quota, RedisStore, Store,
    limiter::DeniedKeys, store::Clock,
};
use tollgate_test_support::{Dice, PATIENCE, connected_store};
use tollgate_tests::RedisServer;

const TWO: Policy = Policy::fixed_window("two", Quota::per_day(2));

fn limiter(store: impl Store, denied_keys: &DeniedKeys) -> Limiter {
    Limiter::builder(store)
        .policies(TWO)
        .deadline(PATIENCE)
        .denied_keys(denied_keys.clone())
        .build()
}

/// Checks `acme` five times and `other` three times.
async fn check_both(limiter: &Limiter) {
    for key in [
        "acme", "acme", "acme", "other", "acme", "acme", "other", "other",
    ] {
        let _ = limiter.check(key).await.expect("a decision");
    }
}

fn names(denied_keys: &DeniedKeys) -> Vec<(String, u64)> {
    denied_keys
        .top(10)
        .iter()
        .map(|key| (key.name().to_owned(), key.denials()))
        .collect()
}

#[tokio::test]
async fn denials_are_counted_by_key_and_nothing_else_is() {
    let denied_keys = DeniedKeys::with_plain_keys(10);
    let limiter = limiter(
        MemoryStore::builder().clock(Clock::manual(0)).build(),
        &denied_keys,
    );
    check_both(&limiter).await;
    let _ = limiter.peek("acme").await.expect("a state");
    let _ = limiter
        .check("acme")
        .cost(Cost::new(3))
        .await
        .expect_err("the cost never fits");
    assert_eq!(
        names(&denied_keys),
        [("acme".to_owned(), 3), ("other".to_owned(), 1)]
    );
    assert_eq!(denied_keys.total(), 4);

    denied_keys.clear();
    assert_eq!((names(&denied_keys).len(), denied_keys.total()), (0, 0));
    let _ = limiter.check("other").await.expect("a decision");
    assert_eq!(names(&denied_keys), [("other".to_owned(), 1)]);
}

#[tokio::test]
async fn denials_over_redis_and_those_of_an_outage_are_counted() {
    let server = RedisServer::start();
    let denied_keys = DeniedKeys::with_plain_keys(10);
    let store = connected_store(server.url()).await;
    let limiter = limiter(store, &denied_keys);
    // Some of the denials are remembered, and do not reach the server.
    check_both(&limiter).await;
    assert_eq!(
        names(&denied_keys),
        [("acme".to_owned(), 3), ("other".to_owned(), 1)]
    );

    denied_keys.clear();
    server.kill();
    for _ in 0..3 {
        let decision = limiter.check("new").await.expect("a decision in process");
        assert!(decision.is_degraded());
    }
    assert_eq!(names(&denied_keys), [("new".to_owned(), 1)]);
}

#[tokio::test]
async fn limiters_that_share_a_sketch_are_counted_together_and_an_open_outage_denies_nothing() {
    let denied_keys = DeniedKeys::with_plain_keys(10);
    let (one, other) = (
        limiter(MemoryStore::new(), &denied_keys),
        limiter(MemoryStore::new(), &denied_keys),
    );
    check_both(&one).await;
    check_both(&other.with_policies(Policy::fixed_window("one", Quota::per_day(1)))).await;
    assert_eq!(
        names(&denied_keys),
        [("acme".to_owned(), 3 + 4), ("other".to_owned(), 1 + 2)]
    );

    let store = RedisStore::open("redis://127.0.0.1:1").expect("a store");
    let builder = Limiter::builder(store)
        .policies(TWO)
        .on_outage(Outage::Open);
    check_both(&builder.denied_keys(denied_keys.clone()).build()).await;
    assert_eq!(denied_keys.total(), 10);
}

/// Makes the test below print the name of its process, and no more.
const IS_ASKED: &str = "TOLLGATE_TEST_PRINTS_A_NAME";
const THIS_TEST: &str =
    "denied_keys::names_are_digests_whose_secret_is_random_unless_told_otherwise";

#[test]
fn names_are_digests_whose_secret_is_random_unless_told_otherwise() {
    let key = Key::new("192.0.2.7");
    let name = |denied_keys: DeniedKeys| {
        denied_keys.record(&key);
        assert!(!format!("{denied_keys:?}").contains("192.0.2.7"));
        denied_keys.top(1)[0].name().to_owned()
    };
    let secret = KeySecret::new(b"from the configuration");
    let random = name(DeniedKeys::new(10));
    assert_eq!(
        random,
        name(DeniedKeys::new(10)),
        "a process has one secret"
    );
    // A name of hexadecimal digits has no dot, so it does not show the address. Any digits may
    // stand in it by chance.
    assert!(random.len() == 32 && random.bytes().all(|byte| byte.is_ascii_hexdigit()));
    if env::var_os(IS_ASKED).is_some() {
        println!("name={random}");
        return;
    }
    let other = Command::new(env::current_exe().expect("this program"))
        .args(["--exact", "--nocapture", THIS_TEST])
        .env(IS_ASKED, "1")
        .output()
        .expect("another process");
    let other = String::from_utf8_lossy(&other.stdout).into_owned();
    let other = other.split_once("name=").expect("a name").1;
    assert_ne!(other.get(..32), Some(&*random), "another has its own");
    assert_eq!(
        name(DeniedKeys::with_secret(10, secret.clone())),
        DeniedKeys::digest(&key, &secret)
    );
    assert_eq!(name(DeniedKeys::with_plain_keys(10)), "192.0.2.7");
}

/// Compares the counts with exact ones, after every denial.
#[test]
fn counts_are_within_their_bounds_and_frequent_keys_are_found() {
    for seed in 0..256 {
        let mut dice = Dice::new(seed);
        let capacity = 1 + dice.below(19) as usize;
        let (denied_keys, mut exact) = (
            DeniedKeys::with_plain_keys(capacity),
            HashMap::<String, u64>::new(),
        );
        for number in 1..=dice.below(400) {
            // Small numbers are frequent.
            let key = Key::from(dice.below(40) >> dice.below(4));
            denied_keys.record(&key);
            *exact.entry(key.encoded().to_string()).or_default() += 1;

            let top = denied_keys.top(usize::MAX);
            assert_eq!(top.len(), exact.len().min(capacity), "seed {seed}");
            assert_eq!(
                top.iter().map(|key| key.denials()).sum::<u64>(),
                number,
                "seed {seed}"
            );
            assert_eq!(denied_keys.total(), number, "seed {seed}");
            assert!(
                top.is_sorted_by(|one, other| one.denials() >= other.denials()),
                "seed {seed}"
            );
            for key in &top {
                let denials = exact[key.name()];
                assert!(
                    key.denials() >= denials && key.denials() - key.overcount() <= denials,
                    "seed {seed}"
                );
                assert!(key.overcount() <= number / capacity as u64, "seed {seed}");
            }
            for (name, denials) in &exact {
                let is_found = top.iter().any(|key| key.name() == name);
                assert!(
                    is_found || *denials <= number / capacity as u64,
                    "seed {seed}"
                );
            }
        }
    }
}

#[test]
fn a_flood_of_new_keys_does_not_hide_a_frequent_key() {
    let denied_keys = DeniedKeys::with_plain_keys(100);
    for number in 0..100_000_u64 {
        denied_keys.record(&Key::from(number));
        if number % 20 == 0 {
            denied_keys.record(&Key::new("busy"));
        }
    }
    let top = denied_keys.top(usize::MAX);
    assert_eq!((top.len(), top[0].name()), (100, "busy"));
    assert!(top[0].denials() >= 5_000 && top[0].denials() - top[0].overcount() <= 5_000);
}
