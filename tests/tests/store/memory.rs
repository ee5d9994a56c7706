//! `MemoryStore` keeps its bound, removes fresh states, and evicts no exhausted key for a new one.

use std::{num::NonZeroUsize, time::Duration};

use tollgate::{Clock, Limiter, MemoryStore, Policy, Quota};

fn room(keys: usize) -> NonZeroUsize {
    NonZeroUsize::new(keys).expect("not zero")
}

fn check(limiter: &Limiter, key: impl Into<tollgate::Key>) -> bool {
    limiter.check(key).into_ready().expect("in process").expect("a decision").is_allowed()
}

#[test]
fn the_store_never_holds_more_keys_than_its_bound() {
    for bound in [1, 2, 100, 5_000, 20_000] {
        let store = MemoryStore::builder().max_keys(room(bound)).build();
        let limiter = Limiter::new(store.clone(), Policy::fixed_window("day", Quota::per_day(3)));
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
    let store = MemoryStore::builder().max_keys(room(100)).clock(clock).build();
    let short = Limiter::new(store.clone(), Policy::token_bucket("short", Quota::per_second(5)));
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
    let store = MemoryStore::builder().max_keys(room(1_000)).clock(clock.clone()).build();
    let limiter = Limiter::new(store.clone(), Policy::token_bucket("second", Quota::per_second(1)));
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
    let (one, two) = (Limiter::new(store.clone(), policy()), Limiter::new(store, policy()));
    assert!(check(&one, "k") && check(&one.clone(), "k") && check(&two, "k"));
    assert!(!check(&one, "k") && !check(&two, "k"));
}
