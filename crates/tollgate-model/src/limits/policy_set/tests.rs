use super::*;
use crate::Quota;

#[test]
fn two_policies_of_the_same_name_are_refused() {
    let policy = Policy::token_bucket("a", Quota::per_second(1));
    let error = PolicySet::try_new([policy.clone(), policy]).unwrap_err();
    assert_eq!(
        error.to_string(),
        r#"policies of a set must differ in name, got "a" twice"#
    );
    let error = PolicySet::try_new([]).unwrap_err();
    assert_eq!(error.to_string(), "policies must be 1 to 8 in a set, got 0");
}

#[test]
fn a_share_is_computed_once_for_each_number_of_replicas() {
    let set = PolicySet::from(Policy::token_bucket("day", Quota::per_day(12)));
    let burst = |replicas| {
        let replicas = NonZeroU32::new(replicas).expect("not zero");
        set.with_share(replicas, |share| {
            (
                share.iter().next().expect("a policy").quota().burst(),
                Arc::as_ptr(&share.0),
            )
        })
    };
    let four = burst(4);
    assert_eq!(four.0, 3);
    assert_eq!(burst(4), four);
    assert_eq!(burst(3).0, 4);
    assert_eq!(burst(1).0, 12);
}

#[test]
fn sets_are_equal_when_their_policies_are() {
    let policy = |name, amount| {
        Policy::try_new(
            name,
            crate::Algorithm::TokenBucket,
            Quota::per_second(amount),
        )
    };
    let set = |policies: [_; 2]| {
        PolicySet::try_new(policies.map(|(name, amount)| policy(name, amount).unwrap()))
    };
    let one = set([("a", 1), ("b", 2)]).unwrap();
    assert_eq!(one, set([("a", 1), ("b", 2)]).unwrap());
    for other in [
        [("a", 1), ("b", 3)],
        [("b", 2), ("a", 1)],
        [("a", 1), ("c", 2)],
    ] {
        assert_ne!(one, set(other).unwrap());
    }
}
