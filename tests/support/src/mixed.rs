//! A stream of mixed batches: each is one call of a script, and is compared with the same checks
//! one by one.

use std::collections::HashMap;

use tollgate::{Algorithm, Cost, Costs, Key, Policy, PolicySet, store::Ceiling, testing};

use crate::{
    Dice, InRedis, START_US, Subject,
    calls::{MixedBatch, MixedSubject, Script},
    policies, state_commands, stored_state,
    stream::figures,
};

/// The number of keys that the batches are drawn from.
const KEYS: u64 = 10;

/// Draws mixed batches: keys with quotas that differ and change, runs of every cost, damaged
/// states.
#[derive(Debug)]
pub struct MixedStream {
    dice: Dice,
    first: Algorithm,
    algorithms: Vec<Algorithm>,
    /// Tells whether every second batch has ceilings.
    is_capped: bool,
    /// The policies of each key at its last check.
    held: HashMap<u64, PolicySet>,
}

impl MixedStream {
    /// Creates the stream of this seed. The first policy of its sets is of this algorithm.
    #[must_use]
    pub fn new(seed: u64, first: Algorithm) -> Self {
        Self {
            dice: Dice::new(seed),
            first,
            algorithms: Vec::new(),
            is_capped: false,
            held: HashMap::new(),
        }
    }

    /// Creates a stream in which every second batch has ceilings, below the burst and above.
    #[must_use]
    pub fn capped(seed: u64, first: Algorithm) -> Self {
        Self {
            is_capped: true,
            ..Self::new(seed, first)
        }
    }

    /// Draws a ceiling for each policy of each subject. None is below the cost of a run. Checks
    /// under ceilings have no tag.
    fn draw_ceilings(&mut self, subjects: &mut [MixedSubject]) -> Option<Vec<Vec<Ceiling>>> {
        if !self.is_capped || self.dice.below(2) == 0 {
            return None;
        }
        let draw = |subject: &mut MixedSubject| {
            subject.tag.clear();
            let most = |policy: &Policy| {
                let of_run = |(costs, _): &(Costs, usize)| {
                    costs.cost_of(policy.name()).unwrap_or(Cost::ZERO)
                };
                subject.runs.iter().map(of_run).max().unwrap_or(Cost::ZERO)
            };
            let costs = subject
                .policies
                .iter()
                .fold(Costs::new(Cost::ZERO), |costs, policy| {
                    costs.with(policy.name().to_owned(), most(policy))
                });
            policies::ceilings(&mut self.dice, &subject.policies, &costs)
        };
        Some(subjects.iter_mut().map(draw).collect())
    }

    fn draw(&mut self) -> Vec<MixedSubject> {
        let dice = &mut self.dice;
        if self.algorithms.is_empty() || dice.below(15) == 0 {
            let set = policies::set(dice, self.first, 4);
            self.algorithms = set.iter().map(Policy::algorithm).collect();
            self.held.clear();
        }
        let is_tagged = self.algorithms.contains(&Algorithm::SlidingLog);
        // The numbers of such a reply are packed in several parts.
        let is_long = !is_tagged && dice.below(20) == 0;
        let mut subjects = Vec::new();
        for at in 0..KEYS {
            if dice.below(2) == 0 && !is_long {
                continue;
            }
            if dice.below(4) == 0 {
                self.held.remove(&at);
            }
            // The numbers of subjects in a row are sent once if they are the same.
            let last = subjects.last();
            let policies = self
                .held
                .entry(at)
                .or_insert_with(|| match last {
                    Some(MixedSubject { policies, .. }) if dice.below(2) == 0 => policies.clone(),
                    _ => policies::set_of(dice, &self.algorithms),
                })
                .clone();
            let most = policies
                .iter()
                .map(|policy| policy.quota().burst())
                .min()
                .expect("a policy");
            let runs = if is_tagged {
                1
            } else {
                let few = dice.pick(&[1, 1, 1, 2, 3, 5]);
                if is_long { 1 + dice.below(400) } else { few }
            };
            let runs = (0..runs).map(|_| {
                let costs = Costs::new(draw_cost(dice, most, is_tagged));
                let costs = match dice.below(2) {
                    0 => costs,
                    _ => policies.iter().fold(costs, |costs, policy| {
                        costs.with(
                            policy.name().to_owned(),
                            draw_cost(dice, policy.quota().burst(), is_tagged),
                        )
                    }),
                };
                let count = if is_long {
                    1
                } else {
                    dice.pick(&[1, 1, 1, 2, 5, 30])
                };
                (costs, count)
            });
            let runs = runs.collect();
            subjects.push(MixedSubject {
                policies,
                key: Key::from(at),
                tag: format!("caller {at}"),
                runs,
            });
        }
        subjects
    }

    /// Returns the time from one batch to the next, in microseconds, and the part of it that the
    /// clock goes back.
    fn step(&mut self, policies: &PolicySet) -> (u64, u64) {
        let dice = &mut self.dice;
        let quota = policies.iter().next().expect("a policy").quota();
        let period = quota.period().as_micros() as u64;
        let some = dice.below(period);
        let step = dice.pick(&[0, 1, period / quota.amount(), period, some]);
        (
            step,
            if dice.below(10) == 0 {
                2 * step.min(1_000_000_000)
            } else {
                0
            },
        )
    }

    /// Plants what is no state at one key of the subject, and removes the states that `single`
    /// holds for it.
    fn damage(&mut self, subject: &MixedSubject, redis: &mut InRedis, single: &mut dyn Subject) {
        redis.reset(&subject.policies, &subject.key);
        single.reset(&subject.policies, &subject.key);
        let names = Script::new(subject.policies.clone()).keys(&subject.key);
        let at = self.dice.pick(&names);
        match self.dice.below(2) {
            0 => redis.run(&["SET", &at, "no state"]),
            _ => redis.run(&["SADD", &at, "no state"]),
        };
    }
}

/// Draws a cost up to the burst of a policy.
fn draw_cost(dice: &mut Dice, most: u64, is_tagged: bool) -> Cost {
    let few = 1 + dice.below(most.min(5));
    let some = 1 + dice.below(most);
    let cost = dice
        .pick(&[
            0,
            1,
            1,
            1,
            few,
            few,
            some,
            most,
            (1 << 32) - 1,
            999_999_999_999_999,
        ])
        .min(most);
    // A log stores each unit, so large costs would take most of the time.
    let is_cut = is_tagged && cost > 1_000 && dice.below(8) > 0;
    Cost::new(if is_cut { 1 + cost % 1_000 } else { cost })
}

/// Sends the next `rounds` batches of a stream to a server, with a script that `alter` may change,
/// and the same checks one by one to `single`. Returns the number of checks.
///
/// # Errors
///
/// Describes the first check at which both disagree.
///
/// # Panics
///
/// When a script does not compile or the server does not answer.
pub fn compare(
    redis: &mut InRedis,
    single: &mut dyn Subject,
    stream: &mut MixedStream,
    rounds: usize,
    alter: &dyn Fn(&str) -> String,
) -> Result<u64, String> {
    redis.run(&["FLUSHALL"]);
    single.set_now(START_US);
    let mut names: HashMap<String, String> = HashMap::new();
    let mut checks = 0;
    for round in 0..rounds {
        let mut subjects = stream.draw();
        let ceilings = stream.draw_ceilings(&mut subjects);
        let Some(first) = subjects.first() else {
            continue;
        };
        let (step, back) = stream.step(&first.policies);
        let now = (single.now() + step - back).min(START_US + 1_000_000_000_000_000);
        single.set_now(now);
        let mut damaged = Vec::new();
        for subject in &subjects {
            if stream.dice.below(12) == 0 {
                stream.damage(subject, redis, single);
                damaged.push(subject.key.clone());
            }
        }
        if stream.dice.below(8) == 0 {
            let most = first
                .policies
                .iter()
                .map(|policy| policy.quota().burst())
                .max()
                .unwrap_or(1);
            let units = stream.dice.below(3 * most);
            redis.set_now(now);
            redis.owe(&first.policies, &first.key, units);
            single.owe(&first.policies, &first.key, units);
        }
        let batch = MixedBatch::new(subjects.clone()).under(ceilings.clone());
        let mut call = batch.call(Some(now));
        let sha = names.entry(batch.sha().to_owned()).or_insert_with(|| {
            let reply = redis.run(&["SCRIPT", "LOAD", &alter(batch.text())]);
            assert!(
                !reply.is_error(),
                "the script does not compile: {}",
                reply.text()
            );
            reply.text()
        });
        call[1] = sha.as_bytes().to_vec();
        let reply = redis.run(&call);
        if reply.is_error() {
            return Err(format!("round {round}: {}", reply.text()));
        }
        let decided = batch
            .decisions(reply.bytes())
            .map_err(|error| format!("round {round}: {error}"))?;
        for (at, (subject, decided)) in subjects.iter().zip(decided).enumerate() {
            let ceilings = ceilings.as_ref().map(|ceilings| &*ceilings[at]);
            let place = || format!("round {round} at {now}: {subject:?} under {ceilings:?}");
            for ((costs, count), decided) in subject.runs.iter().zip(decided) {
                assert_eq!(decided.len(), *count);
                for (at, decision) in decided.iter().enumerate() {
                    let expected = match ceilings {
                        Some(ceilings) => {
                            single.check_under(&subject.policies, &subject.key, costs, ceilings)
                        }
                        None => {
                            single.check_costs(&subject.policies, &subject.key, costs, &subject.tag)
                        }
                    };
                    checks += 1;
                    let is_alike = figures(decision) == figures(&expected)
                        && decision.delay() == expected.delay();
                    if !is_alike || testing::at_us(decision) != now {
                        let place = place();
                        return Err(format!(
                            "{place}: check {at} of {costs:?}: {decision:?}, not {expected:?}"
                        ));
                    }
                }
            }
            let names = Script::new(subject.policies.clone()).keys(&subject.key);
            let states = subject.policies.iter().zip(names.clone());
            let states =
                redis.run_all(states.flat_map(|(policy, name)| state_commands(policy, name)));
            let states = states.as_chunks().0;
            for ((policy, name), [value, expires]) in subject.policies.iter().zip(names).zip(states)
            {
                let expected = single.stored(policy, &subject.key);
                if expected.is_none() && damaged.contains(&subject.key) {
                    redis.run(&["DEL", &name]);
                    continue;
                }
                if value.is_error() {
                    return Err(format!("{}: {}", place(), value.text()));
                }
                let stored = stored_state(value, expires);
                if stored != expected {
                    return Err(format!("{}: stored {stored:?}, not {expected:?}", place()));
                }
            }
        }
    }
    Ok(checks)
}
