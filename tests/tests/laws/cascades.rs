//! Costs that policies pay one after the other: a plan, then credits, then a pool. Others may stand
//! beside them, such as tokens a minute.

use std::time::Duration;

use tollgate::{
    Algorithm, CalendarUnit, Costs, Limiter, MemoryStore, PolicySet, Quota, TimeZone,
    reservation::ReservationId, store::Clock,
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

/// Policies of which some are spent one after the other, and the others stand beside them.
struct Joined {
    set: PolicySet,
    beside: Vec<bool>,
}

/// What a request asks of them: a cost that is shared, and what it asks of each beside.
struct Asked {
    cost: u64,
    is_split: bool,
    own: Vec<u64>,
}

impl Joined {
    /// Draws one to three windows, and one or two policies of any algorithm beside them, in any
    /// order.
    fn drawn(dice: &mut Dice) -> Self {
        let mut beside = vec![false; 1 + dice.below(3) as usize];
        for _ in 0..1 + dice.below(2) {
            beside.insert(dice.below(beside.len() as u64 + 1) as usize, true);
        }
        let policies = beside.iter().enumerate().map(|(at, is_beside)| {
            let name = format!("p{at}");
            if *is_beside {
                let algorithm = dice.pick(policies::ALGORITHMS);
                return policies::small_policy(dice, &name, algorithm);
            }
            let algorithm = dice.pick(&WINDOWS);
            let policy = policies::policy(dice, &name, algorithm);
            let period = policy.quota().period().max(Duration::from_millis(1));
            let quota = Quota::new(1 + dice.below(12), period);
            policy.with_quota(quota).expect("a policy")
        });
        let set = PolicySet::try_new(policies.collect::<Vec<_>>()).expect("a set");
        Self { set, beside }
    }

    /// Returns those that share, or those beside.
    fn only<'a, T: Copy>(&'a self, is_beside: bool, each: &'a [T]) -> impl Iterator<Item = T> + 'a {
        let each = each.iter().zip(&self.beside);
        each.filter(move |(_, beside)| **beside == is_beside)
            .map(|(value, _)| *value)
    }

    fn ask(&self, dice: &mut Dice) -> Asked {
        let bursts: Vec<u64> = self
            .set
            .iter()
            .map(|policy| policy.quota().burst())
            .collect();
        let is_split = dice.below(3) > 0;
        let shared = self.only(false, &bursts);
        let most = if is_split {
            shared.sum()
        } else {
            shared.max().expect("a window")
        };
        let own = bursts.iter().map(|&burst| dice.below(burst + 1)).collect();
        Asked {
            cost: 1 + dice.below(most),
            is_split,
            own,
        }
    }

    fn costs(&self, asked: &Asked) -> Costs {
        let named = self.set.iter().zip(&asked.own).zip(&self.beside);
        let named = named.filter(|(_, is_beside)| **is_beside);
        named.fold(
            costs(asked.cost, asked.is_split),
            |costs, ((policy, &own), _)| costs.with(policy.name().to_owned(), own),
        )
    }

    /// Returns what each policy should give, by the words of the law.
    fn expected(&self, asked: &Asked, left: &[u64]) -> Option<Vec<u64>> {
        let shared: Vec<u64> = self.only(false, left).collect();
        let mut shared = expected(asked.cost, asked.is_split, &shared)?.into_iter();
        let each = left.iter().zip(&asked.own).zip(&self.beside);
        each.map(|((&left, &own), &is_beside)| match is_beside {
            true => (own <= left).then_some(own),
            false => shared.next(),
        })
        .collect()
    }
}

#[test]
fn law_24_policies_beside_a_cascade_are_charged_in_full_or_none_is() {
    on_every_store(|subject, dice| {
        let joined = Joined::drawn(dice);
        let set = &joined.set;
        let shortest = set.iter().map(|policy| policy.quota().period()).min();
        let shortest = shortest.expect("a policy").as_micros() as u64;
        for at in 0..12 {
            let asked = joined.ask(dice);
            let costs = joined.costs(&asked);
            let before = left(subject, set);
            let id = |name: &str| ReservationId::try_new(format!("{at}-{name}")).expect("an id");
            let reserve = |subject: &mut dyn Subject, name: &str| {
                subject.reserve(set, &key(), &id(name), &costs, 1)
            };
            let decision = reserve(subject, "a");
            match joined.expected(&asked, &before) {
                Some(given) => {
                    assert!(decision.is_allowed(), "{costs:?} of {before:?} in {set:?}");
                    let gave = decision.states().map(|state| state.cost().units());
                    assert_eq!(gave.collect::<Vec<_>>(), given);
                    let after = before.iter().zip(&given).map(|(left, gave)| left - gave);
                    assert_eq!(left(subject, set), after.collect::<Vec<_>>());
                }
                None => {
                    assert!(decision.is_denied(), "{costs:?} of {before:?} in {set:?}");
                    assert_eq!(left(subject, set), before, "a denial takes nothing");
                    // 3. The time to retry is exact over both.
                    let wait = micros(decision.retry_after());
                    let about = format!("{costs:?} of {before:?} in {set:?} after {wait}");
                    subject.advance(wait - 1);
                    assert!(reserve(subject, "b").is_denied(), "{about}");
                    subject.advance(1);
                    assert!(reserve(subject, "c").is_allowed(), "{about}");
                }
            }
            subject.advance(dice.below(shortest / 2 + 1));
        }
    });
}

/// Whatever the final cost is, each unit that was spent is found once.
#[tokio::test]
async fn law_24_a_commit_of_any_final_cost_conserves_each_unit() {
    for seed in 0..stream::part_of(4_000) {
        let dice = &mut Dice::new(seed);
        let joined = Joined::drawn(dice);
        let clock = Clock::manual(START_US);
        let store = MemoryStore::builder().clock(clock).build();
        let limiter = Limiter::new(store, joined.set.clone());
        let left = async || {
            let state = limiter.peek(key()).await.expect("a state");
            let left = state.states().map(|state| state.remaining());
            left.collect::<Vec<_>>()
        };
        for _ in 0..4 {
            let asked = joined.ask(dice);
            let before = left().await;
            let job = limiter.reserve(key(), joined.costs(&asked)).await;
            let job = job.expect("a decision");
            let Some(given) = joined.expected(&asked, &before) else {
                assert!(job.is_denied());
                continue;
            };
            // Each policy beside may have a final cost of its own, or that of all.
            let total = dice.below(2 * asked.cost + 1);
            let mut last = Costs::from(total);
            let mut spent: Vec<u64> = Vec::new();
            let mut rest = total;
            for (at, policy) in joined.set.iter().enumerate() {
                if joined.beside[at] && dice.below(2) == 0 {
                    let own = dice.below(2 * asked.own[at] + 1);
                    last = last.with(policy.name().to_owned(), own);
                    spent.push(own);
                } else if joined.beside[at] {
                    spent.push(total);
                } else {
                    spent.push(given[at].min(rest));
                    rest -= spent[at];
                }
            }
            let owes = (0..spent.len()).rev().find(|&at| !joined.beside[at]);
            spent[owes.expect("a window")] += rest;
            job.commit(last.clone()).await.expect("settled");
            let after = before.iter().zip(&spent);
            let after = after.map(|(left, spent)| left.saturating_sub(*spent));
            assert_eq!(
                left().await,
                after.collect::<Vec<_>>(),
                "seed {seed}: {last:?} after {given:?} of {before:?} in {:?}",
                joined.set
            );
        }
    }
}
