//! Costs that policies pay one after the other: a plan, then credits, then a pool.

use std::time::Duration;

use tollgate::{
    Algorithm, CalendarUnit, Costs, PolicySet, Quota, TimeZone, reservation::ReservationId,
};
use tollgate_test_support::{Dice, InMap, InMemory, InRedis, START_US, Subject, policies, stream};

use crate::{key, micros};

const WINDOWS: [Algorithm; 3] = [
    Algorithm::FixedWindow,
    Algorithm::WindowFromFirstHit,
    Algorithm::CalendarWindow {
        unit: CalendarUnit::Day,
        zone: TimeZone::UTC,
        anchor: None,
    },
];

/// Draws a set of two to four windows with few units.
fn drawn(dice: &mut Dice) -> PolicySet {
    let policies = (0..2 + dice.below(3)).map(|at| {
        let algorithm = dice.pick(&WINDOWS);
        let policy = policies::policy(dice, &format!("p{at}"), algorithm);
        let period = policy.quota().period().max(Duration::from_millis(1));
        let quota = Quota::new(1 + dice.below(12), period);
        policy.with_quota(quota).expect("a policy")
    });
    PolicySet::try_new(policies.collect::<Vec<_>>()).expect("a set")
}

fn costs(cost: u64, is_split: bool) -> Costs {
    let costs = Costs::cascading(cost);
    if is_split { costs } else { costs.undivided() }
}

/// Returns what each policy has left.
fn left(subject: &mut dyn Subject, set: &PolicySet) -> Vec<u64> {
    let state = subject.peek(set, &key());
    state.states().map(|state| state.remaining()).collect()
}

/// Returns what each policy should give, by the words of the law.
fn expected(cost: u64, is_split: bool, left: &[u64]) -> Option<Vec<u64>> {
    let mut given = vec![0; left.len()];
    if !is_split {
        given[left.iter().position(|left| *left >= cost)?] = cost;
        return Some(given);
    }
    for _ in 0..cost {
        let at = (0..left.len()).find(|&at| given[at] < left[at])?;
        given[at] += 1;
    }
    Some(given)
}

fn on_every_store(law: impl Fn(&mut dyn Subject, &mut Dice)) {
    let mut redis = InRedis::new();
    for seed in 0..stream::part_of(1_000) {
        law(&mut InMemory::new(), &mut Dice::new(seed));
        if seed < 60 {
            law(&mut InMap::new(), &mut Dice::new(seed));
            redis.run(&["FLUSHALL"]);
            redis.set_now(START_US);
            law(&mut redis, &mut Dice::new(seed));
        }
    }
}

#[test]
fn law_24_a_cascade_takes_what_is_left_in_order_and_its_denial_is_exact() {
    on_every_store(|subject, dice| {
        let set = drawn(dice);
        let shortest = set.iter().map(|policy| policy.quota().period()).min();
        let shortest = shortest.expect("a policy").as_micros() as u64;
        for at in 0..12 {
            let amounts = set.iter().map(|policy| policy.quota().amount());
            let is_split = dice.below(3) > 0;
            let most = if is_split {
                amounts.sum()
            } else {
                amounts.max().expect("a policy")
            };
            let cost = 1 + dice.below(most);
            let before = left(subject, &set);
            let id = |name: &str| ReservationId::try_new(format!("{at}-{name}")).expect("an id");
            let asked = costs(cost, is_split);
            let decision = subject.reserve(&set, &key(), &id("a"), &asked, 1);
            let gave: Vec<u64> = decision
                .states()
                .map(|state| state.cost().units())
                .collect();
            match expected(cost, is_split, &before) {
                Some(given) => {
                    assert!(decision.is_allowed(), "{cost} of {before:?} in {set:?}");
                    assert_eq!((&gave, decision.cost().units()), (&given, cost));
                    let after: Vec<u64> = before
                        .iter()
                        .zip(&given)
                        .map(|(left, gave)| left - gave)
                        .collect();
                    assert_eq!(left(subject, &set), after);
                }
                None => {
                    assert!(decision.is_denied(), "{cost} of {before:?} in {set:?}");
                    assert_eq!(left(subject, &set), before, "a denial takes nothing");
                    // 3. The time to retry is exact.
                    let wait = micros(decision.retry_after());
                    subject.advance(wait - 1);
                    assert!(
                        subject
                            .reserve(&set, &key(), &id("b"), &asked, 1)
                            .is_denied(),
                        "{cost} of {before:?} in {set:?} after {wait}"
                    );
                    subject.advance(1);
                    assert!(
                        subject
                            .reserve(&set, &key(), &id("c"), &asked, 1)
                            .is_allowed(),
                        "{cost} of {before:?} in {set:?} after {wait}"
                    );
                }
            }
            subject.advance(dice.below(shortest / 2 + 1));
        }
    });
}
