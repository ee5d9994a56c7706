//! `MemoryStore`: bounded, cleaned as it goes, fair in what it forgets, right under threads.

use std::{
    num::NonZeroUsize,
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::Duration,
};

use tollgate::{Clock, Limiter, MemoryStore, Policy, Quota};

fn room(keys: usize) -> NonZeroUsize {
    NonZeroUsize::new(keys).expect("not zero")
}

fn check(limiter: &Limiter, key: impl Into<tollgate::Key>) -> bool {
    limiter.check(key).into_ready().expect("in process").expect("a decision").is_allowed()
}

#[test]
fn it_never_holds_more_than_its_bound() {
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
fn a_flood_of_new_keys_does_not_wash_away_a_drained_one() {
    let store = MemoryStore::builder().max_keys(room(1_000)).build();
    let limiter = Limiter::new(store, Policy::token_bucket("hour", Quota::per_hour(10)));
    while check(&limiter, "victim") {}
    for key in 0..100_000_u64 {
        assert!(check(&limiter, key));
    }
    assert!(!check(&limiter, "victim"));
}

#[test]
fn a_short_drained_policy_outlives_a_long_idle_one() {
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
fn states_that_are_fresh_again_make_room_by_themselves() {
    let clock = Clock::manual(1_000_000_000);
    let store = MemoryStore::builder().max_keys(room(1_000)).clock(clock.clone()).build();
    let limiter = Limiter::new(store.clone(), Policy::token_bucket("second", Quota::per_second(1)));
    for key in 0..1_000_u64 {
        assert!(check(&limiter, key));
    }
    clock.advance(Duration::from_secs(2));
    assert!(check(&limiter, "new"));
    assert_eq!(store.len(), 1, "everything else was fresh");
}

#[test]
fn threads_never_get_more_than_the_burst_together() {
    let store = MemoryStore::builder().clock(Clock::manual(1_000_000_000)).build();
    let set = [Policy::token_bucket("a", Quota::per_hour(1_000)), Policy::fixed_window("b", Quota::per_hour(900))];
    let limiter = Limiter::new(store, set);
    let passed = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..1_000 {
                    passed.fetch_add(u64::from(check(&limiter, "hot")), Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(passed.into_inner(), 900);
}

#[test]
fn clones_of_a_limiter_and_limiters_of_one_name_share_a_counter() {
    let store = MemoryStore::new();
    let policy = || Policy::token_bucket("shared", Quota::per_hour(3));
    let (one, two) = (Limiter::new(store.clone(), policy()), Limiter::new(store, policy()));
    assert!(check(&one, "k") && check(&one.clone(), "k") && check(&two, "k"));
    assert!(!check(&one, "k") && !check(&two, "k"));
}
