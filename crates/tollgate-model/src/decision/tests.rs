use super::*;
use crate::{ErrorKind, Lease, Policy, PolicySet, Quota};

#[test]
fn what_replicas_held_is_not_missing_after_the_decision() {
    let policy = Policy::token_bucket("bucket", Quota::per_hour(3_600));
    let ahead = |policy: Policy| {
        let levels = PolicyLevels::one(PolicyLevel {
            fits: true,
            reading: [900_000_000, 0, 0, 0],
        });
        Decision::from_levels(&PolicySet::from(policy), levels, Cost::new(5).into(), 1).ahead_of(0)
    };
    assert_eq!(ahead(policy.clone()), Some((900_000_000, 0)));
    assert_eq!(ahead(policy.leased(Lease::new())), Some((5_000_000, 0)));
}

#[test]
fn collected_levels_are_returned_unchanged() {
    let quota = Quota::per_second(5);
    let policies = PolicySet::from([
        Policy::sliding_log("log", quota),
        Policy::token_bucket("bucket", quota),
        Policy::sliding_window("window", quota),
        Policy::fixed_window("fixed", quota),
    ]);
    let mut expected = Vec::new();
    for (at, policy) in (1..).zip(policies.iter()) {
        let mut reading = [0; 4];
        for (word, value) in reading[..policy.reading_len()].iter_mut().zip(1..) {
            *word = at * 10 + value;
        }
        expected.push((
            policy,
            PolicyLevel {
                fits: at % 2 == 0,
                reading,
            },
        ));
    }
    let levels = PolicyLevels::collect(expected.iter().copied());
    let read: Vec<_> = levels.iter(&policies).collect();
    assert_eq!(read, expected);
    assert!(!levels.fit());
    let one = PolicyLevels::one(expected[1].1);
    let set = PolicySet::from(expected[1].0.clone());
    assert_eq!(
        one.iter(&set).map(|(_, level)| level).collect::<Vec<_>>(),
        [expected[1].1]
    );
    assert!(one.fit());
    assert_eq!(PolicyLevels::new().iter(&policies).len(), 0);
}

#[test]
fn map_changes_each_level() {
    let quota = Quota::per_second(5);
    let [bucket, log] = [
        Policy::token_bucket("bucket", quota),
        Policy::sliding_log("log", quota),
    ];
    let level = |policy: &Policy, first| {
        let reading = std::array::from_fn(|at| {
            if at < policy.reading_len() {
                first + at as u64
            } else {
                0
            }
        });
        PolicyLevel {
            fits: true,
            reading,
        }
    };
    for set in [
        PolicySet::from(bucket.clone()),
        PolicySet::from([bucket, log]),
    ] {
        let levels = PolicyLevels::collect(set.iter().map(|policy| (policy, level(policy, 10))));
        let denied = levels.map(&set, |_, policy, read| {
            assert_eq!(*read, level(policy, 10));
            PolicyLevel {
                fits: false,
                ..level(policy, 20)
            }
        });
        let expected = set.iter().map(|policy| {
            (
                policy,
                PolicyLevel {
                    fits: false,
                    ..level(policy, 20)
                },
            )
        });
        assert_eq!(
            denied.iter(&set).collect::<Vec<_>>(),
            expected.collect::<Vec<_>>()
        );
    }
}

fn policies() -> PolicySet {
    let quota = Quota::per_hour(10);
    PolicySet::from([
        Policy::sliding_log("log", quota).at_branch(2),
        Policy::token_bucket("bucket", quota),
        Policy::fixed_window("outer", quota)
            .at_branch(2)
            .at_level(1),
    ])
}

#[test]
fn a_part_without_the_store_says_so() {
    let set = policies();
    let open = Decision::open(&set, Cost::ONE.into(), ErrorKind::Timeout);
    let part = open.branch(2).expect("policies of the branch");
    assert!(part.is_allowed() && part.degraded() == Some(ErrorKind::Timeout));
    assert_eq!(part.states().len(), 0);
}
