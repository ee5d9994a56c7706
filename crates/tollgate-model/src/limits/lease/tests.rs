use super::*;
use crate::{Policy, policy::PolicyParts};

const TERMS: Lease = Lease::new().generation(Duration::from_millis(500)).share(4);

fn bucket() -> Policy {
    let quota = Quota::new(100, Duration::from_secs(1));
    Policy::token_bucket("p", quota).leased(TERMS)
}

#[test]
fn wrong_terms_are_refused_with_their_numbers() {
    let quota = Quota::per_second(1_000);
    let refused = |algorithm, quota, lease: Lease| {
        Policy::try_new("p", algorithm, quota)
            .unwrap()
            .try_leased(lease)
            .unwrap_err()
            .to_string()
    };
    let generation = |time| refused(Algorithm::TokenBucket, quota, Lease::new().generation(time));
    let text = "lease generation must be 100 ms to 60 s, in whole milliseconds, got";
    assert_eq!(
        generation(Duration::ZERO),
        format!("{text} 0ns in policy p")
    );
    assert_eq!(
        generation(Duration::from_millis(99)),
        format!("{text} 99ms in policy p")
    );
    assert_eq!(
        generation(Duration::from_millis(60_001)),
        format!("{text} 60.001s in policy p")
    );
    assert_eq!(
        generation(Duration::from_micros(100_001)),
        format!("{text} 100.001ms in policy p")
    );
    assert_eq!(
        refused(Algorithm::TokenBucket, quota, Lease::new().share(0)),
        "lease share must be at least 1: one share-th of the burst may be outstanding, got 0 in policy p"
    );
    assert_eq!(
        refused(Algorithm::LeakyBucket, quota, Lease::new()),
        "a leaky bucket cannot be leased: a leased unit has no place in its queue, in policy p"
    );
    assert_eq!(
        refused(Algorithm::SlidingLog, Quota::per_second(63), Lease::new()),
        "lease share of the burst must be at least 8 units, got 7 (1/8 of 63 per 1s) in policy p"
    );
}

#[test]
fn the_terms_of_a_policy_are_those_that_were_given() {
    for lease in [
        Lease::new(),
        TERMS,
        Lease::new().generation(Duration::from_secs(60)).share(1),
    ] {
        assert_eq!(
            Policy::token_bucket("p", Quota::per_second(100))
                .leased(lease)
                .lease(),
            Some(lease)
        );
    }
    assert_eq!(
        Policy::token_bucket("p", Quota::per_second(100)).lease(),
        None
    );
}

/// A tenant may have a policy of its own, so the terms stand in bytes that were padding.
#[test]
fn the_terms_make_no_policy_larger() {
    let words = size_of::<Quota>() + size_of::<Algorithm>() + size_of::<u8>() + size_of::<Terms>();
    assert_eq!(
        size_of::<Policy>(),
        words.next_multiple_of(size_of::<u64>()) + size_of::<(u64, &str)>()
    );
}

#[test]
fn another_quota_keeps_the_lease_or_is_refused() {
    let policy = bucket();
    assert_eq!(
        policy.with_quota(Quota::per_second(50)).unwrap().lease(),
        Some(TERMS)
    );
    assert_eq!(
        policy
            .with_quota(Quota::per_second(10))
            .unwrap_err()
            .to_string(),
        "lease share of the burst must be at least 8 units, got 2 (1/4 of 10 per 1s) in policy p"
    );
}

#[test]
fn leased_and_other_states_of_one_name_are_kept_apart() {
    let plain = Policy::token_bucket("p", Quota::per_second(100));
    assert!(bucket().shares_state(&bucket().with_quota(Quota::per_second(500)).unwrap()));
    assert!(!bucket().shares_state(&plain));
    assert_eq!(
        (plain.tag().concat(), bucket().tag().concat()),
        ("t1".to_owned(), "t1l1".to_owned())
    );
}
