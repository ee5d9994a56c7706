//! Callers that wait in a queue, and come back after `retry_after` when they are refused.

use std::{cmp::Reverse, collections::BinaryHeap, time::Duration};

use tollgate::{Cost, Costs, Policy, PolicySet, Quota, testing::ceiling};
use tollgate_test_support::{InMemory, InRedis, Subject};

use super::{key, micros};

const PER_SECOND: u64 = 50;
const TURN_US: u64 = 1_000_000 / PER_SECOND;

/// More callers than there are turns.
#[derive(Clone, Copy, Debug)]
struct Crowd {
    callers: u64,
    max_wait_us: u64,
    /// The pause of a caller after its turn.
    work_us: u64,
    span_us: u64,
}

/// An answer: the time of the question, the caller, and the delay or, when it was refused, the time
/// until it comes back.
#[derive(Debug, PartialEq, Eq)]
struct Answer {
    asked: u64,
    caller: u64,
    is_turn: bool,
    after: u64,
}

impl Crowd {
    /// Creates a crowd that asks for this many tenths of the turns that there are.
    fn new(callers: u64, max_wait_ms: u64, tenths: u64) -> Self {
        let work_us = callers * TURN_US * 10 / tenths;
        Self {
            callers,
            max_wait_us: max_wait_ms * 1_000,
            work_us,
            span_us: (1_000 + max_wait_ms) * 1_000,
        }
    }

    /// Runs the callers on the clock of the store, and returns all answers in order.
    fn run(self, subject: &mut dyn Subject, policies: &PolicySet) -> Vec<Answer> {
        let begin = subject.now();
        let mut due: BinaryHeap<_> = (0..self.callers)
            .map(|caller| Reverse((begin, caller)))
            .collect();
        let (costs, ceilings) = (Costs::new(Cost::ONE), [ceiling(1, self.max_wait_us)]);
        let mut answers = Vec::new();
        while let Some(Reverse((asked, caller))) = due.pop()
            && asked < begin + self.span_us
        {
            subject.set_now(asked);
            let decision = subject.check_under(policies, &key(), &costs, &ceilings);
            let is_turn = decision.is_allowed();
            let after = if is_turn {
                decision.delay().as_micros() as u64
            } else {
                micros(decision.retry_after())
            };
            due.push(Reverse((
                asked + after + if is_turn { self.work_us } else { 0 },
                caller,
            )));
            answers.push(Answer {
                asked: asked - begin,
                caller,
                is_turn,
                after,
            });
        }
        answers
    }
}

#[test]
fn law_17_both_stores_refuse_the_same_callers_and_no_turn_stays_unused() {
    let mut redis = InRedis::new();
    let quota = Quota::per_second(PER_SECOND).with_burst(1_000);
    let policies: PolicySet = Policy::leaky_bucket("queue", quota).into();
    for (callers, max_wait_ms) in [
        (8, 40),
        (16, 40),
        (16, 100),
        (64, 250),
        (160, 3_000),
        (400, 40),
    ] {
        for tenths in [12, 200] {
            let crowd = Crowd::new(callers, max_wait_ms, tenths);
            redis.run(&["FLUSHALL"]);
            redis.set_now(tollgate_test_support::START_US);
            let ours = crowd.run(&mut InMemory::new(), &policies);
            assert_eq!(ours, crowd.run(&mut redis, &policies), "{crowd:?}");

            // From the first turn on, which nobody waits for.
            let turns = ours
                .iter()
                .filter(|answer| answer.is_turn && answer.asked + answer.after < crowd.span_us);
            let (used, offered) = (turns.count() as u64, crowd.span_us / TURN_US);
            assert!(
                used * 100 >= offered * 95,
                "{crowd:?}: {used} turns of {offered}"
            );
            let longest = ours
                .iter()
                .filter(|answer| answer.is_turn)
                .map(|answer| answer.after)
                .max();
            assert!(
                longest <= Some(crowd.max_wait_us),
                "{crowd:?}: {:?}",
                longest.map(Duration::from_micros)
            );
        }
    }
}
