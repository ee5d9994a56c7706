//! The permits of one key in a process, without a store.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use crate::{
    clock::Clock,
    limiter::permits::pool::{Granted, PermitPool, PoolRules},
    store::{PermitGrant, PermitOutcome},
};

const POOLED: PoolRules = PoolRules {
    is_pooled: true,
    life_us: 1_000_000,
};
const EXACT: PoolRules = PoolRules {
    is_pooled: false,
    life_us: 1_000_000,
};

/// The time at which the leases of calls at the time 0 end.
const END_US: u64 = 999_000;

fn grant(held: u32, wanted: u64) -> PermitGrant {
    PermitGrant {
        held,
        in_flight: held.into(),
        wanted,
        outcome: PermitOutcome::Decided,
    }
}

/// Returns a pool that holds permits since the time 0.
fn holding(held: u32, rules: PoolRules) -> PermitPool {
    let mut pool = PermitPool::default();
    pool.demand = held;
    let turn = pool.begin(0, 9, rules);
    pool.end(turn, &grant(held, 0), 0, rules);
    pool.demand = 0;
    pool
}

#[test]
fn a_call_asks_for_the_permits_of_all_callers() {
    let mut pool = holding(1, EXACT);
    let _lease = pool.take(1, 9).expect("a permit");
    pool.demand = 3;
    let turn = pool.begin(1, 9, EXACT);
    assert_eq!((turn.used, turn.needed, turn.extra), (1, 4, 0));
}

#[test]
fn a_pool_keeps_what_it_used_lately_until_others_wait() {
    for (wanted, extra) in [(0, 3), (1, 0)] {
        let mut pool = holding(5, POOLED);
        let leases: Vec<_> = (0..4).map(|_| pool.take(1, 9).expect("a permit")).collect();
        assert!(leases[1..].iter().all(|lease| pool.give_back(lease)));
        let turn = pool.begin(1, 9, POOLED);
        assert_eq!(
            (turn.needed, turn.extra),
            (1, 3),
            "four were in use, and one is"
        );
        pool.end(turn, &grant(4, wanted), 1, POOLED);
        let leases: Vec<_> = (0..3).map(|_| pool.take(2, 9).expect("a permit")).collect();
        assert!(leases.iter().all(|lease| pool.give_back(lease)));
        assert_eq!(
            pool.begin(2, 9, POOLED).extra,
            extra,
            "{wanted} permits are waited for"
        );
        assert_eq!(
            pool.take_spare(2, 9).is_some(),
            extra > 0,
            "a permit that goes back is not handed out"
        );
    }
}

#[test]
fn law_p2_above_its_limit_a_pool_hands_out_nothing_and_gives_back_what_is_idle() {
    for rules in [POOLED, EXACT] {
        let mut pool = holding(5, rules);
        let leases: Vec<_> = (0..5).map(|_| pool.take(1, 9).expect("a permit")).collect();
        // The other replicas took more since, which the next reply says.
        let turn = pool.begin(1, 9, rules);
        pool.end(
            turn,
            &PermitGrant {
                in_flight: 20,
                ..grant(5, 0)
            },
            1,
            rules,
        );
        assert!(leases[3..].iter().all(|lease| pool.give_back(lease)));
        assert!(
            pool.take_spare(2, 20)
                .is_some_and(|lease| pool.give_back(&lease)),
            "20 may be held"
        );
        assert!(
            pool.take(2, 8).is_none() && pool.take_spare(2, 8).is_none() && !pool.has_free(2, 8)
        );
        // A call during which another permit comes back.
        pool.demand = 1;
        let turn = pool.begin(2, 8, rules);
        assert_eq!(
            (turn.limit, turn.kept, turn.used, turn.needed, turn.extra),
            (8, 3, 3, 4, 0)
        );
        assert!(pool.give_back(&leases[0]));
        assert!(
            pool.take(2, 8).is_none(),
            "what comes back during the call is not handed out"
        );
        pool.end(
            turn,
            &PermitGrant {
                in_flight: 9,
                ..grant(3, 0)
            },
            2,
            rules,
        );
        assert!(pool.take(2, 8).is_none());
        // Others gave back enough. No permit in use was lost on the way.
        let turn = pool.begin(3, 8, rules);
        assert_eq!((turn.kept, turn.used, turn.needed), (2, 2, 3));
        pool.end(
            turn,
            &PermitGrant {
                in_flight: 8,
                ..grant(3, 0)
            },
            3,
            rules,
        );
        assert!(pool.take(3, 8).is_some());
        assert!(leases[1..3].iter().all(|lease| !lease.is_lost(3)));
    }
}

#[test]
fn a_permit_that_a_caller_waits_for_is_not_spare() {
    let mut pool = holding(2, POOLED);
    pool.demand = 1;
    assert!(pool.take_spare(1, 9).is_some());
    assert!(pool.take_spare(1, 9).is_none());
    assert!(pool.take(1, 9).is_some());
}

#[test]
fn idle_permits_of_an_exact_limit_go_back_at_once_unless_a_caller_waits() {
    assert!(!holding(2, POOLED).has_surplus(POOLED));
    let mut pool = holding(2, EXACT);
    assert!(pool.has_surplus(EXACT) && pool.is_due(1, EXACT));
    pool.demand = 2;
    assert!(!pool.has_surplus(EXACT) && !pool.is_due(1, EXACT));
}

#[test]
fn permits_that_have_lapsed_are_not_free_and_take_no_part_of_the_share() {
    let mut pool = holding(2, POOLED);
    let lease = pool.take(1, 9).expect("a permit");
    assert!(pool.has_free(END_US - 1, 9) && !pool.has_free(END_US, 9));
    assert!(!pool.give_back(&lease));
    let mut pool = holding(2, POOLED);
    let _lease = pool.take(1, 9).expect("a permit");
    assert!(
        !pool.take_share(END_US - 1, 1),
        "the permit in use is the share"
    );
    assert!(pool.take_share(END_US, 1));
}

#[test]
fn the_share_of_an_outage_is_counted() {
    let mut pool = PermitPool::default();
    assert_eq!([(); 3].map(|()| pool.take_share(0, 2)), [true, true, false]);
    assert_eq!((pool.in_flight(), pool.is_idle(0)), (2, false));
    pool.unshared = 0;
    assert!(pool.is_idle(0));
    pool.demand = 1;
    assert!(!pool.is_idle(0));
}

#[test]
fn a_reply_that_comes_after_the_end_of_the_lease_does_not_bring_back_its_permits() {
    let mut pool = holding(1, POOLED);
    let lease = pool.take(1, 9).expect("a permit");
    let turn = pool.begin(END_US - 1, 9, POOLED);
    assert!(!lease.is_lost(END_US - 1));
    pool.end(turn, &grant(1, 0), END_US, POOLED);
    assert!(lease.is_lost(END_US), "the work may have been cancelled");
    assert!(!pool.give_back(&lease));
    assert_eq!(
        pool.capacity(END_US),
        1,
        "the permit of the reply is another one"
    );
}

#[tokio::test(start_paused = true)]
async fn a_holder_is_told_when_the_lease_ends_or_the_store_has_lost_it() {
    let clock = Clock::tokio();
    for is_lost_at_once in [true, false] {
        let (began, lease) = (
            Instant::now(),
            Arc::new(Granted::new(clock.now_us() + 2_500_000)),
        );
        let losing = Arc::clone(&lease);
        let lose = async move {
            if is_lost_at_once {
                tokio::time::sleep(Duration::from_millis(100)).await;
                losing.lose();
            }
        };
        tokio::join!(lease.lost(|| clock.now_us()), lose);
        let waited = began.elapsed().as_millis();
        let expected = if is_lost_at_once {
            100..=102
        } else {
            2_500..=2_510
        };
        assert!(expected.contains(&waited), "{waited} ms");
    }
}
