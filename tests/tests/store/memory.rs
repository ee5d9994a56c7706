//! `MemoryStore` keeps its bound, removes fresh states, and evicts no exhausted key for a new one.
//! A check of it is made by a builder.

use std::{num::NonZeroUsize, time::Duration};

use tollgate::{
    Cost, ErrorKind, Key, Limiter, LimiterHandle, MemoryStore, Policy, Quota, store::Clock,
};
use tollgate_test_support::{decided_at, remaining_of_each};

fn room(keys: usize) -> NonZeroUsize {
    NonZeroUsize::new(keys).expect("not zero")
}

fn check(limiter: &Limiter, key: impl Into<tollgate::Key>) -> bool {
    limiter
        .check(key)
        .into_future()
        .into_ready()
        .expect("in process")
        .expect("a decision")
        .is_allowed()
}

#[test]
fn the_store_never_holds_more_keys_than_its_bound() {
    for bound in [1, 2, 100, 5_000, 20_000] {
        let store = MemoryStore::builder().max_keys(room(bound)).build();
        let limiter = Limiter::new(
            store.clone(),
            Policy::fixed_window("day", Quota::per_day(3)),
        );
        for key in 0..3 * bound as u64 {
            assert!(check(&limiter, key));
            assert!(store.len() <= bound);
        }
        assert!(store.len() >= bound / 2, "{} of {bound}", store.len());
    }
}

#[test]
fn a_flood_of_new_keys_does_not_evict_an_exhausted_one() {
    let store = MemoryStore::builder().max_keys(room(1_000)).build();
    let limiter = Limiter::new(store, Policy::token_bucket("hour", Quota::per_hour(10)));
    while check(&limiter, "victim") {}
    for key in 0..100_000_u64 {
        assert!(check(&limiter, key));
    }
    assert!(!check(&limiter, "victim"));
}

#[test]
fn an_exhausted_key_of_a_short_period_outlives_idle_keys_of_a_long_one() {
    let clock = Clock::manual(1_000_000_000);
    let store = MemoryStore::builder()
        .max_keys(room(100))
        .clock(clock)
        .build();
    let short = Limiter::new(
        store.clone(),
        Policy::token_bucket("short", Quota::per_second(5)),
    );
    let long = Limiter::new(store, Policy::fixed_window("long", Quota::per_day(1_000)));
    while check(&short, "victim") {}
    for key in 0..10_000_u64 {
        assert!(check(&long, key));
    }
    assert!(!check(&short, "victim"));
}

#[test]
fn states_that_are_fresh_again_are_removed() {
    let clock = Clock::manual(1_000_000_000);
    let store = MemoryStore::builder()
        .max_keys(room(1_000))
        .clock(clock.clone())
        .build();
    let limiter = Limiter::new(
        store.clone(),
        Policy::token_bucket("second", Quota::per_second(1)),
    );
    for key in 0..1_000_u64 {
        assert!(check(&limiter, key));
    }
    clock.advance(Duration::from_secs(2));
    assert!(check(&limiter, "new"));
    assert_eq!(store.len(), 1, "all other keys were fresh");
}

#[test]
fn clones_of_a_limiter_and_limiters_of_one_name_share_a_counter() {
    let store = MemoryStore::new();
    let policy = || Policy::token_bucket("shared", Quota::per_hour(3));
    let (one, two) = (
        Limiter::new(store.clone(), policy()),
        Limiter::new(store, policy()),
    );
    assert!(check(&one, "k") && check(&one.clone(), "k") && check(&two, "k"));
    assert!(!check(&one, "k") && !check(&two, "k"));
}

#[test]
fn a_flood_of_inner_keys_behind_a_spent_outer_level_adds_no_state() {
    let store = MemoryStore::new();
    let site = Policy::fixed_window("site", Quota::per_day(100)).at_level(1);
    let limiter = Limiter::new(
        store.clone(),
        [site, Policy::token_bucket("client", Quota::per_day(10))],
    );
    let admitted = (0..100_000_u64)
        .filter(|&inner| check(&limiter, Key::new("one /48").child(inner)))
        .count();
    assert_eq!((admitted, store.len()), (100, 101));
    assert!(check(&limiter, Key::new("another /48").child(7_u64)));
}

#[tokio::test]
async fn keys_around_the_longest_that_is_stored_in_place_are_told_apart() {
    let long = [29, 30, 31, 64].map(|length| "x".repeat(length));
    // Some equal another one and its padding.
    let texts = ["a", "a0", "a00"]
        .into_iter()
        .chain(long.iter().map(String::as_str));
    let keys: Vec<_> = (1_u64..).zip(texts.map(Key::new)).collect();
    let outer = Policy::fixed_window("outer", Quota::per_day(100)).at_level(1);
    let limiter = Limiter::new(
        MemoryStore::new(),
        [outer, Policy::fixed_window("whole", Quota::per_day(100))],
    );
    for (cost, key) in &keys {
        for key in [key.clone(), key.clone().child("inner")] {
            let _ = decided_at(&limiter, &key, Cost::new(*cost)).await;
        }
    }
    for (cost, key) in keys {
        for key in [key.clone(), key.child("inner")] {
            assert_eq!(
                remaining_of_each(&limiter, &key).await,
                [100 - 2 * cost, 100 - cost]
            );
        }
    }
}

#[tokio::test]
async fn a_key_with_too_few_levels_is_an_error_that_names_both_numbers() {
    let store = MemoryStore::new();
    let log = Policy::sliding_log("team", Quota::per_day(5)).at_level(2);
    let limiter = Limiter::new(
        store.clone(),
        [log, Policy::token_bucket("user", Quota::per_day(5))],
    );
    let flat = Key::new("acme");
    let errors = [
        limiter.check(&flat).await.expect_err("no decision"),
        limiter.peek(&flat).await.expect_err("no state"),
        limiter
            .refund(&flat, Cost::ONE)
            .await
            .expect_err("no refund"),
        limiter.entries(&flat, 10).await.expect_err("no entries"),
        limiter
            .check(&flat)
            .wait(Duration::from_secs(9))
            .await
            .expect_err("no wait"),
    ];
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::KeyLevels);
        assert_eq!(
            error.to_string(),
            "policy team meters 2 levels of a key, got a key of 1"
        );
    }
    assert!(store.is_empty());
    let user = flat.child("sales").child("ann");
    assert!(limiter.check(&user).await.expect("a decision").is_allowed());
    // The entries of a log at an outer level are those of all its keys.
    let colleague = Key::new("acme").child("sales").child("bob");
    assert_eq!(
        limiter.entries(colleague, 10).await.expect("entries").len(),
        1
    );
}

const LOG: Policy = Policy::sliding_log("log", Quota::per_minute(2));

async fn remaining(limiter: &Limiter) -> u64 {
    limiter
        .peek("acme")
        .await
        .expect("a state")
        .state("log")
        .expect("a policy")
        .remaining()
}

#[tokio::test]
async fn a_builder_that_is_not_awaited_spends_and_refunds_nothing() {
    let limiter = Limiter::new(MemoryStore::new(), LOG);
    let decision = limiter.check("acme").await.expect("an answer");
    let (check, refund) = (
        limiter.check("acme"),
        limiter.refund("acme", Cost::ONE).of(&decision),
    );
    assert_eq!(remaining(&limiter).await, 1);
    // A store in the process decides as soon as there is a future.
    drop(check.into_future());
    assert_eq!(remaining(&limiter).await, 0);
    drop(refund.into_future());
    assert_eq!(remaining(&limiter).await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_check_takes_a_cost_a_tag_and_a_wait_together() {
    let store = MemoryStore::builder().clock(Clock::tokio()).build();
    let limiter = Limiter::new(store, LOG);
    assert!(
        limiter
            .check("acme")
            .cost(Cost::new(2))
            .tag("ann")
            .await
            .expect("an answer")
            .is_allowed()
    );
    let check = |longest| {
        limiter
            .check("acme")
            .cost(Cost::new(2))
            .tag("bob")
            .wait(Duration::from_secs(longest))
    };
    assert!(check(59).await.expect("an answer").is_denied());
    assert!(check(60).await.expect("an answer").is_allowed());
    let entries = limiter.entries("acme", 10).await.expect("an answer");
    assert_eq!(
        entries.iter().map(|entry| entry.tag()).collect::<Vec<_>>(),
        [b"bob", b"bob"]
    );
    let error = limiter
        .check("acme")
        .tag(&[0; 65])
        .wait(Duration::from_secs(1))
        .await
        .expect_err("an error");
    assert_eq!(error.kind(), ErrorKind::Config);
}

#[tokio::test]
async fn the_futures_of_a_handle_are_sent_to_another_task_and_outlive_it() {
    let handle = LimiterHandle::new(Limiter::new(MemoryStore::new(), LOG));
    let check = tokio::spawn(handle.load().check("acme").into_future());
    assert!(
        check
            .await
            .expect("an answer")
            .expect("an answer")
            .is_allowed()
    );
    let other = handle.clone();
    let asking = tokio::spawn(async move { other.load().check("acme").await });
    assert!(
        asking
            .await
            .expect("an answer")
            .expect("an answer")
            .is_allowed()
    );
    let peek = handle.load().peek("acme").cost(Cost::ONE).into_future();
    drop(handle);
    assert!(
        tokio::spawn(peek)
            .await
            .expect("an answer")
            .expect("an answer")
            .retry_after()
            .is_some()
    );
}
