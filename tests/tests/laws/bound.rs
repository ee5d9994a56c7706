//! Law 1: never more than the bound. Laws 7 and 8: exactly the amount accrues, and idling restores
//! the burst.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::Duration,
};

use tollgate::{Limiter, MemoryStore, Policy, PolicySet, Quota, store::Clock, testing::ALGORITHMS};
use tollgate_test_support::{Dice, InMemory, InRedis, Subject, policies};

use crate::{drain, key, on_every_store, wander};

#[test]
fn law_01_never_more_than_the_bound_is_admitted() {
    on_every_store(|subject, dice, algorithm| {
        let policy = policies::small_policy(dice, "p", algorithm);
        let set = PolicySet::from(policy.clone());
        let period = policy.quota().period().as_micros() as u64;
        let mut admitted: BTreeMap<u64, u64> = BTreeMap::new();
        for _ in 0..60 {
            // Spends what passes, then moves to the next instant at which the answer changes, or
            // near it.
            *admitted.entry(subject.now()).or_default() += drain(subject, &set);
            let now = subject.now();
            let edge = period - now % period;
            let look = subject.peek(&set, &key());
            let state = look.states().next().expect("a state");
            let more = state.next_unit_after().as_micros() as u64;
            let waits = [
                1,
                more.max(1),
                edge,
                edge.saturating_sub(1).max(1),
                period,
                period - 1,
                1 + dice.below(period),
            ];
            subject.advance(dice.pick(&waits).max(1));
        }
        let times: Vec<(u64, u64)> = admitted.into_iter().collect();
        for (first, &(from, _)) in times.iter().enumerate() {
            let mut sum = 0;
            for &(to, count) in &times[first..] {
                sum += count;
                // The shortest half-open interval (s, s + L] that holds both ends has L = to − from + 1.
                let most = policies::bound(&policy, to - from + 1);
                assert!(
                    sum <= most,
                    "{policy:?}: {sum} in {} µs, {most} allowed",
                    to - from + 1
                );
            }
        }
    });
}

/// The in-process store under eight threads. Four processes at one server: `processes/bound.rs`.
#[test]
fn law_01_threads_never_get_more_than_the_burst_together() {
    let store = MemoryStore::builder()
        .clock(Clock::manual(1_000_000_000))
        .build();
    let set = [
        Policy::token_bucket("a", Quota::per_hour(1_000)),
        Policy::fixed_window("b", Quota::per_hour(900)),
    ];
    let limiter = Limiter::new(store, set);
    let passed = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..1_000 {
                    let decision = limiter
                        .check("hot")
                        .into_future()
                        .into_ready()
                        .expect("in process")
                        .expect("a decision");
                    passed.fetch_add(u64::from(decision.is_allowed()), Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(passed.into_inner(), 900);
}

#[test]
fn law_07_over_whole_periods_exactly_the_amount_accrues() {
    on_every_store(|subject, dice, algorithm| {
        if !policies::accrues_exactly(algorithm) {
            return;
        }
        let policy = policies::small_policy(dice, "p", algorithm);
        accrues_exactly(subject, dice, &policy);
    });
}

fn accrues_exactly(subject: &mut dyn Subject, dice: &mut Dice, policy: &Policy) {
    let quota = policy.quota();
    // A burst below the amount overflows within a period.
    let quota = quota.with_burst(quota.burst().max(quota.amount()));
    let set = PolicySet::from(Policy::try_new("p", policy.algorithm(), quota).expect("a policy"));
    let (amount, period) = (quota.amount(), quota.period().as_micros() as u64);
    // From an edge of the clock's windows, so that the aligned ones count whole periods too.
    let now = subject.now();
    subject.set_now(now - now % period + period);
    drain(subject, &set);
    let mut passed = 0;
    let rounds = 7;
    for _ in 0..rounds {
        let first = dice.below(period + 1);
        subject.advance(first);
        passed += drain(subject, &set);
        subject.advance(period - first);
        passed += drain(subject, &set);
    }
    assert_eq!(passed, rounds * amount, "{policy:?}");
}

#[test]
fn law_07_over_whole_periods_exactly_a_large_amount_accrues() {
    on_every_store(|subject, dice, algorithm| {
        if policies::accrues_exactly(algorithm) {
            let policy = policies::large_policy(dice, "p", algorithm);
            accrues_exactly(subject, dice, &policy);
        }
    });
}

#[test]
fn law_07_a_client_that_polls_each_millisecond_gets_its_rate() {
    polls(
        &mut InMemory::new(),
        5,
        &[
            Quota::per_second(1),
            Quota::per_second(3),
            Quota::new(10, Duration::from_secs(7)),
        ],
    );
    polls(&mut InRedis::new(), 2, &[Quota::per_second(3)]);
}

/// Polls each millisecond for so many periods, and counts the units.
fn polls(subject: &mut dyn Subject, rounds: u64, quotas: &[Quota]) {
    for algorithm in ALGORITHMS
        .into_iter()
        .filter(|&algorithm| policies::accrues_exactly(algorithm))
    {
        for &quota in quotas {
            let set = PolicySet::from(Policy::try_new("p", algorithm, quota).expect("a policy"));
            let period = quota.period().as_micros() as u64;
            let now = subject.now();
            subject.set_now(now - now % period + period);
            subject.reset(&set, &key());
            drain(subject, &set);
            let mut passed = 0;
            // The units of a window are spent one poll at a time, from its first millisecond on.
            for _ in 0..rounds * period / 1_000 + quota.amount() {
                subject.advance(1_000);
                passed += u64::from(subject.check(&set, &key(), 1).is_allowed());
            }
            assert_eq!(passed, rounds * quota.amount(), "{set:?}");
        }
    }
}

#[test]
fn law_08_idling_restores_the_burst_and_no_more() {
    on_every_store(|subject, dice, algorithm| {
        let policy = policies::policy(dice, "p", algorithm);
        let set = PolicySet::from(policy.clone());
        wander(subject, dice, &set);
        drain(subject, &set);
        let drained = subject.peek(&set, &key());
        let reset = drained
            .states()
            .next()
            .expect("a state")
            .reset_after()
            .as_micros() as u64;
        let period = policy.quota().period().as_micros() as u64;
        subject.advance(reset + dice.below(10 * period + 10));
        assert_eq!(drain(subject, &set), policy.quota().burst(), "{policy:?}");
    });
}
