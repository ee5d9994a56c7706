//! A hostile stream of checks: decided by the Rust functions, repeated at a server, and compared.

use std::{collections::HashMap, env, mem, ops::Range, time::Duration};

use tollgate::{
    Algorithm, Cost, Costs, Decision, Key, Policy, PolicySet,
    limiter::PolicyState,
    reservation::{ReservationId, Settlement},
    store::Ceiling,
    testing,
};

use tollgate_tests::expiry_command;

use crate::{
    Dice, InMemory, InRedis, START_US, Stored, Subject, calls::Script, integers, own_keys,
    policies, reserved, state_commands, stored_state,
};

/// The number of steps that one comparison takes.
pub const BATCH: usize = 2_000;

/// The number of steps that travel to the server together. Most mutants are found by the first
/// ones, and few steps stay in the processor's cache.
const AT_ONCE: usize = 200;

/// Returns the number of steps with each algorithm: 36 000 with all of them.
///
/// The variable `STREAM_STEPS` names another number. `cargo xtask test --full` makes five times as
/// many, and who has changed a script more.
///
/// # Panics
///
/// When the variable is no number.
#[must_use]
pub fn steps() -> usize {
    env::var("STREAM_STEPS").map_or(4_000, |steps| {
        steps.parse().expect("STREAM_STEPS is a number of steps")
    })
}

/// Returns the part of these tries that a run makes: a 25th, a fifth in a [full](is_full) one, and
/// all of them with a hundred thousand [`steps`].
#[must_use]
pub fn part_of(tries: u64) -> u64 {
    (tries * steps() as u64).div_ceil(100_000).min(tries)
}

/// Returns whether a run makes as many [`steps`] as `cargo xtask test --full`.
#[must_use]
pub fn is_full() -> bool {
    steps() >= 20_000
}

/// Returns the seeds of the streams with each algorithm.
#[must_use]
pub fn seeds() -> Range<u64> {
    0..steps().div_ceil(BATCH) as u64
}

/// The figures of a decision: whether it is allowed, and of each policy the remaining units and the
/// three waits.
pub type Figures = (bool, Vec<(u64, Option<Duration>, Duration, Duration)>);

/// Returns the figures of a decision.
#[must_use]
pub fn figures(decision: &Decision) -> Figures {
    (decision.is_allowed(), states(decision.states()))
}

/// Returns the figures of each policy.
#[must_use]
pub fn states<'a>(
    states: impl Iterator<Item = PolicyState<'a>>,
) -> Vec<(u64, Option<Duration>, Duration, Duration)> {
    let figures = |state: PolicyState<'_>| {
        (
            state.remaining(),
            state.retry_after(),
            state.reset_after(),
            state.next_unit_after(),
        )
    };
    states.map(figures).collect()
}

#[derive(Debug)]
enum Step {
    Check {
        costs: Costs,
        ceilings: Option<Vec<Ceiling>>,
        expected: Figures,
    },
    Look {
        costs: Costs,
        ceilings: Option<Vec<Ceiling>>,
        expected: Figures,
    },
    Refund {
        costs: Costs,
        spent_us: u64,
    },
    RefundDecision {
        costs: Costs,
        ceilings: Option<Vec<Ceiling>>,
        decision: Decision,
    },
    Reserve {
        id: ReservationId,
        costs: Costs,
        ceilings: Option<Vec<Ceiling>>,
        life_us: u64,
        expected: (Figures, Vec<u64>),
    },
    Commit {
        id: ReservationId,
        costs: Costs,
        number: u64,
        expected: Settlement,
    },
    Reset,
}

impl Step {
    /// Returns the id of a reservation.
    fn id(&self) -> Option<&ReservationId> {
        match self {
            Self::Reserve { id, .. } | Self::Commit { id, .. } => Some(id),
            Self::Check { .. }
            | Self::Look { .. }
            | Self::Refund { .. }
            | Self::RefundDecision { .. }
            | Self::Reset => None,
        }
    }
}

/// Returns the costs of each policy in a decision.
fn costs_of(decision: &Decision) -> Vec<u64> {
    decision
        .states()
        .map(|state| state.cost().units())
        .collect()
}

/// Returns the number of the commit in a record.
fn settled_by(taken: &Taken) -> Option<u64> {
    let number = taken.record.as_ref()?.value.get(8..16)?.try_into().ok()?;
    Some(f64::from_le_bytes(number) as u64)
}

/// A step that the Rust functions took, with the states that it left.
struct Taken {
    step: Step,
    policies: PolicySet,
    key: Key,
    now_us: u64,
    states: Vec<Option<Stored>>,
    /// The record of a reservation, when the step is about one that is held.
    record: Option<Stored>,
}

/// A stream of steps that aims at the instants at which answers change.
#[derive(Debug)]
pub struct Stream {
    dice: Dice,
    oracle: InMemory,
    first: Algorithm,
    draw_set: fn(&mut Dice, Algorithm, u64) -> PolicySet,
    draw_key: fn(&mut Dice) -> Key,
    policies: PolicySet,
    /// The policies before the last change, whose decisions and reservations are still settled.
    former: PolicySet,
    last: Option<(u64, Decision)>,
    last_key: Option<Key>,
    /// The ceilings of the last check.
    last_ceilings: Option<Vec<Ceiling>>,
    /// Tells whether some steps are looks, and some checks, looks and reservations have ceilings.
    is_capped: bool,
    /// Tells whether the quotas change often.
    changes: bool,
    /// The number of ids of reservations; 0 when the stream makes none.
    ids: u64,
}

impl Stream {
    /// Creates the stream of this seed. The first policy of its sets is of this algorithm.
    #[must_use]
    pub fn new(seed: u64, first: Algorithm) -> Self {
        Self::over(seed, first, policies::set, |dice| Key::from(dice.below(3)))
    }

    /// Creates a stream that also reserves and commits, so that keys fall into debt.
    #[must_use]
    pub fn reserving(seed: u64, first: Algorithm) -> Self {
        Self {
            ids: 5,
            ..Self::new(seed, first)
        }
    }

    /// Creates a stream that also looks at what checks would decide. Some checks, looks and
    /// reservations have ceilings, below the burst and above: the kind of the step, the costs and
    /// the ceilings are drawn by themselves.
    #[must_use]
    pub fn capped(seed: u64, first: Algorithm) -> Self {
        Self {
            is_capped: true,
            ..Self::reserving(seed, first)
        }
    }

    /// Creates a stream as [`capped`](Self::capped) does, with many changes of the quotas.
    #[must_use]
    pub fn changing(seed: u64, first: Algorithm) -> Self {
        Self {
            changes: true,
            ..Self::capped(seed, first)
        }
    }

    /// Creates a stream over keys of three levels, and policies that meter the whole key or outer
    /// levels.
    #[must_use]
    pub fn nested(seed: u64, first: Algorithm) -> Self {
        let key = |dice: &mut Dice| {
            Key::from(dice.below(2))
                .child(dice.below(2))
                .child(dice.below(2))
        };
        Self::over(seed, first, policies::nested_set, key)
    }

    /// Creates a stream over keys of three branches, and policies that meter one branch each.
    #[must_use]
    pub fn branched(seed: u64, first: Algorithm) -> Self {
        Self::over(seed, first, policies::branched_set, policies::branched_key)
    }

    fn over(
        seed: u64,
        first: Algorithm,
        draw_set: fn(&mut Dice, Algorithm, u64) -> PolicySet,
        draw_key: fn(&mut Dice) -> Key,
    ) -> Self {
        let mut dice = Dice::new(seed);
        let policies = draw_set(&mut dice, first, 5);
        Self {
            dice,
            oracle: InMemory::new(),
            first,
            draw_set,
            draw_key,
            former: policies.clone(),
            policies,
            last: None,
            last_key: None,
            last_ceilings: None,
            is_capped: false,
            changes: false,
            ids: 0,
        }
    }

    fn take(&mut self) -> Taken {
        let dice = &mut self.dice;
        if dice.below(if self.changes { 20 } else { 400 }) == 0 {
            // Another configuration, over the states that the old one left.
            let policies = match dice.below(2) {
                0 => (self.draw_set)(dice, self.first, 5),
                _ => self
                    .policies
                    .iter()
                    .map(policies::same_rate)
                    .collect::<Vec<_>>()
                    .into(),
            };
            self.former = mem::replace(&mut self.policies, policies);
        }
        let quotas: Vec<_> = self.policies.iter().map(|policy| policy.quota()).collect();
        let quota = dice.pick(&quotas);
        let period = quota.period().as_micros() as u64;
        let unit = period / quota.amount();
        let aim = self.last.as_ref().and_then(|(at, decision)| {
            let states: Vec<_> = decision.states().collect();
            let state = dice.pick(&states);
            let waits = [
                state.retry_after(),
                Some(state.reset_after()),
                Some(state.next_unit_after()),
            ];
            let wait = dice.pick(&waits)?.as_micros() as u64;
            Some(at.saturating_add(wait).saturating_sub(dice.below(2)))
        });
        let now = self.oracle.now();
        let next = match dice.below(16) {
            0..=3 => now,
            4 => now + 1,
            5 => now + unit.saturating_sub(1),
            6 => now + unit,
            7 => now + unit + 1,
            8 => now + period - 1,
            9 => now + period,
            10 => now + period + 1,
            11 => now + dice.below(2 * period),
            12 => now - dice.below(period.min(1_000_000_000)),
            13 => {
                now - [1, unit, period, 2 * period][dice.below(4) as usize].min(1_000_000_000_000)
            }
            _ => aim.filter(|&aim| aim >= now).unwrap_or(now + 1_000),
        };
        // The clock wanders within some 60 years around the start.
        let now_us = next.clamp(
            START_US - 1_000_000_000_000_000,
            START_US + 1_000_000_000_000_000,
        );
        self.oracle.set_now(now_us);
        let key = (self.draw_key)(&mut self.dice);
        let mut costs = self.draw_costs();
        let mut policies = self.policies.clone();
        let drawn = if self.ids > 0 && self.dice.below(3) == 0 {
            64
        } else {
            self.dice.below(64)
        };
        let step = match drawn {
            5..24 if self.is_capped => {
                let ceilings = self.draw_ceilings(&costs);
                let under = ceilings.as_deref();
                let look = self.oracle.look_with(&self.policies, &key, &costs, under);
                Step::Look {
                    costs,
                    ceilings,
                    expected: figures(&look),
                }
            }
            64 => {
                // A reservation is settled by the policies that made it.
                if self.dice.below(4) == 0 && self.former != policies {
                    policies = self.former.clone();
                    costs = Costs::new(Cost::new(self.dice.below(12)));
                }
                self.take_held(&policies, &key, costs, now_us, period)
            }
            4 if self.ids > 0 => match self
                .last
                .clone()
                .filter(|_| self.last_key.as_ref() == Some(&key))
            {
                Some((_, decision)) if decision.is_allowed() => {
                    if *decision.policies() != policies {
                        policies = decision.policies().clone();
                        costs = Costs::new(Cost::new(1 + self.dice.below(12)));
                    }
                    self.oracle.refund_decision(
                        &policies,
                        &key,
                        &costs,
                        &decision,
                        testing::at_us(&decision),
                    );
                    Step::RefundDecision {
                        costs,
                        ceilings: self.last_ceilings.clone(),
                        decision,
                    }
                }
                _ => {
                    self.oracle.reset(&self.policies, &key);
                    Step::Reset
                }
            },
            0..=2 => {
                let spent_us =
                    now_us - self.dice.below(2) * self.dice.below(period.min(1_000_000_000));
                self.oracle
                    .refund_costs(&self.policies, &key, &costs, spent_us);
                Step::Refund { costs, spent_us }
            }
            3 => {
                self.oracle.reset(&self.policies, &key);
                Step::Reset
            }
            _ => {
                let ceilings = self.draw_ceilings(&costs);
                let under = ceilings.as_deref();
                let oracle = &mut self.oracle;
                let decision = oracle.check_with(&self.policies, &key, &costs, under, "");
                let expected = figures(&decision);
                self.last = Some((now_us, decision));
                self.last_key = Some(key.clone());
                self.last_ceilings.clone_from(&ceilings);
                Step::Check {
                    costs,
                    ceilings,
                    expected,
                }
            }
        };
        let states = policies
            .iter()
            .map(|policy| self.oracle.stored(policy, &key))
            .collect();
        let record = step
            .id()
            .and_then(|id| self.oracle.record(&policies, &key, id));
        Taken {
            step,
            policies,
            key,
            now_us,
            states,
            record,
        }
    }

    /// Reserves, or commits at costs that may be far above the burst.
    fn take_held(
        &mut self,
        policies: &PolicySet,
        key: &Key,
        costs: Costs,
        now_us: u64,
        period: u64,
    ) -> Step {
        let id = ReservationId::try_new(self.dice.below(self.ids).to_string()).expect("an id");
        if *policies == self.policies && self.dice.below(2) == 0 {
            let lives = [1, 1_000, period, 2 * period, 600_000_000];
            let life_us = self.dice.pick(&lives).min(1_000_000_000_000);
            let ceilings = self.draw_ceilings(&costs);
            let decision = self.oracle.reserve_under(
                &self.policies,
                key,
                &id,
                &costs,
                ceilings.as_deref(),
                life_us,
            );
            let expected = (figures(&decision), costs_of(&decision));
            self.last = Some((now_us, decision));
            self.last_key = Some(key.clone());
            self.last_ceilings.clone_from(&ceilings);
            return Step::Reserve {
                id,
                costs,
                ceilings,
                life_us,
                expected,
            };
        }
        let is_logged = policies
            .iter()
            .any(|policy| policy.algorithm() == Algorithm::SlidingLog);
        let burst = policies
            .iter()
            .map(|policy| policy.quota().burst())
            .max()
            .unwrap_or(1);
        let costs = match self.dice.below(8) {
            0 if !is_logged => Costs::new(Cost::new(u64::MAX)),
            1 | 2 if !is_logged || burst < 1_000 => {
                Costs::new(Cost::new(self.dice.below(10 * burst)))
            }
            3 => Costs::new(Cost::new(burst.min(2_000) + self.dice.below(3))),
            4 => Costs::new(Cost::ZERO),
            _ => costs,
        };
        let number = 1 + self.dice.below(3);
        let expected = self.oracle.commit(policies, key, &id, &costs, number);
        Step::Commit {
            id,
            costs,
            number,
            expected,
        }
    }

    /// Draws a ceiling for each policy, for every second check, look or reservation of a stream
    /// that has ceilings.
    fn draw_ceilings(&mut self, costs: &Costs) -> Option<Vec<Ceiling>> {
        let is_capped = self.is_capped && self.dice.below(2) == 0;
        is_capped.then(|| policies::ceilings(&mut self.dice, &self.policies, costs))
    }

    /// Draws one cost for all policies, or a cost for each.
    fn draw_costs(&mut self) -> Costs {
        let policies = self.policies.clone();
        let states = || self.last.iter().flat_map(|(_, decision)| decision.states());
        let left: Vec<u64> = states().map(|state| state.remaining()).collect();
        let burst = policies
            .iter()
            .map(|policy| policy.quota().burst())
            .min()
            .unwrap_or(1);
        let is_logged = |policy: &Policy| policy.algorithm() == Algorithm::SlidingLog;
        let one = self.draw_cost(
            burst,
            left.iter().min().copied(),
            policies.iter().any(is_logged),
        );
        let costs = Costs::new(Cost::new(one));
        if self.dice.below(2) == 0 {
            return costs;
        }
        policies
            .iter()
            .enumerate()
            .fold(costs, |costs, (at, policy)| {
                let cost = self.draw_cost(
                    policy.quota().burst(),
                    left.get(at).copied(),
                    is_logged(policy),
                );
                costs.with(policy.name().to_owned(), cost)
            })
    }

    /// Draws a cost for a burst of which this was left at the last check. `is_logged` tells whether
    /// a log stores the units.
    fn draw_cost(&mut self, burst: u64, left: Option<u64>, is_logged: bool) -> u64 {
        let cost = match self.dice.below(16) {
            0 | 1 => 0,
            2 => burst,
            3 => burst - 1,
            4 => [1 << 31, 1 << 32][self.dice.below(2) as usize],
            // All that was left at the last check, and one more.
            5 | 6 => left.unwrap_or(1) + self.dice.below(2),
            7 => 1 + self.dice.below(burst),
            _ => 1,
        };
        // A log stores each unit, so large costs would take most of the time.
        let is_dear = cost > 1_000 && is_logged;
        if is_dear && self.dice.below(8) > 0 {
            1 + cost % 1_000
        } else {
            cost
        }
        .min(burst)
    }
}

/// Returns the commands that repeat a step at the server and show the states that it left.
fn commands(taken: &Taken, names: &HashMap<String, String>) -> Vec<Vec<Vec<u8>>> {
    let script = Script::new(taken.policies.clone());
    let keys = script.keys(&taken.key);
    let under = |ceilings: &Option<Vec<Ceiling>>| script.clone().under(ceilings.clone());
    let mut step = match &taken.step {
        Step::Check {
            costs, ceilings, ..
        } => under(ceilings).check(&taken.key, costs.clone(), Some(taken.now_us)),
        Step::Look {
            costs, ceilings, ..
        } => under(ceilings).look(&taken.key, costs.clone(), Some(taken.now_us)),
        Step::Refund { costs, spent_us } => {
            script.refund(&taken.key, costs.clone(), Some(taken.now_us), *spent_us)
        }
        Step::RefundDecision {
            costs,
            ceilings,
            decision,
        } => {
            let spent_us = testing::at_us(decision);
            under(ceilings).refund_decision(
                &taken.key,
                costs.clone(),
                Some(taken.now_us),
                decision,
                spent_us,
            )
        }
        Step::Reserve {
            id,
            costs,
            ceilings,
            life_us,
            ..
        } => under(ceilings).reserve(&taken.key, id, costs.clone(), *life_us, Some(taken.now_us)),
        Step::Commit {
            id, costs, number, ..
        } => script.commit(&taken.key, id, costs.clone(), *number, Some(taken.now_us)),
        Step::Reset => {
            // `DEL` needs a key, also where no state belongs to the key alone.
            let names = ["DEL", "absent"].map(str::to_owned).into_iter();
            names
                .chain(own_keys(&taken.policies, &taken.key))
                .map(String::into_bytes)
                .collect()
        }
    };
    if let Some(name) = names.get(&*String::from_utf8_lossy(&step[1])) {
        step[1] = name.as_bytes().to_vec();
    }
    let record = taken.step.id().map(|id| script.record_key(&taken.key, id));
    let record = record.map(|at| [vec!["GET".to_owned(), at.clone()], expiry_command(at)]);
    let looks = taken
        .policies
        .iter()
        .zip(keys)
        .flat_map(|(policy, key)| state_commands(policy, key));
    let looks = looks.chain(record.into_iter().flatten());
    std::iter::once(step)
        .chain(looks.map(|look| look.into_iter().map(String::into_bytes).collect()))
        .collect()
}

/// Repeats the next [`BATCH`] steps of a stream at the server, with scripts that `alter` may
/// change.
///
/// # Errors
///
/// Describes the first step at which the server and the Rust functions disagree.
///
/// # Panics
///
/// When a script does not compile or the server does not answer.
// Not generic, so that it is compiled here, with optimisation, and not into each test program.
pub fn compare(
    redis: &mut InRedis,
    stream: &mut Stream,
    alter: &dyn Fn(&str) -> String,
) -> Result<(), String> {
    redis.run(&["FLUSHALL".to_owned()]);
    let mut names = HashMap::new();
    for first in (0..BATCH).step_by(AT_ONCE) {
        let taken: Vec<Taken> = (0..AT_ONCE).map(|_| stream.take()).collect();
        taken
            .iter()
            .for_each(|taken| load(redis, taken, alter, &mut names));
        compare_taken(redis, first, &taken, &names)?;
    }
    Ok(())
}

/// Repeats the next `steps` steps of a stream on a store, and compares what is decided and what is
/// stored.
///
/// # Errors
///
/// Describes the first step at which the store and the Rust functions disagree.
pub fn compare_on(
    subject: &mut dyn Subject,
    stream: &mut Stream,
    steps: usize,
) -> Result<(), String> {
    for at in 0..steps {
        let Taken {
            step,
            policies,
            key,
            now_us,
            states,
            ..
        } = stream.take();
        subject.set_now(now_us);
        let place = || format!("step {at} now {now_us} {step:?} {policies:?}");
        let is_as_expected = match &step {
            Step::Check {
                costs,
                ceilings,
                expected,
            } => {
                let under = ceilings.as_deref();
                let decision = subject.check_with(&policies, &key, costs, under, "");
                figures(&decision) == *expected
            }
            Step::Look {
                costs,
                ceilings,
                expected,
            } => {
                let decision = subject.look_with(&policies, &key, costs, ceilings.as_deref());
                figures(&decision) == *expected
            }
            Step::Reserve {
                id,
                costs,
                ceilings,
                life_us,
                expected,
            } => {
                let decision = subject.reserve_under(
                    &policies,
                    &key,
                    id,
                    costs,
                    ceilings.as_deref(),
                    *life_us,
                );
                (figures(&decision), costs_of(&decision)) == *expected
            }
            Step::Commit {
                id,
                costs,
                number,
                expected,
            } => subject.commit(&policies, &key, id, costs, *number) == *expected,
            Step::Refund { costs, spent_us } => {
                subject.refund_costs(&policies, &key, costs, *spent_us);
                true
            }
            Step::RefundDecision {
                costs, decision, ..
            } => {
                subject.refund_decision(&policies, &key, costs, decision, testing::at_us(decision));
                true
            }
            Step::Reset => {
                subject.reset(&policies, &key);
                true
            }
        };
        if !is_as_expected {
            return Err(format!("{}: decided otherwise", place()));
        }
        for (policy, expected) in policies.iter().zip(&states) {
            let stored = subject.stored(policy, &key);
            if stored != *expected {
                return Err(format!("{}: stored {stored:?}, not {expected:?}", place()));
            }
        }
    }
    Ok(())
}

/// Loads the script of a step if the server does not have it, and notes its name.
fn load(
    redis: &mut InRedis,
    taken: &Taken,
    alter: &dyn Fn(&str) -> String,
    names: &mut HashMap<String, String>,
) {
    let script = Script::new(taken.policies.clone());
    let ceilings = match &taken.step {
        Step::Check { ceilings, .. }
        | Step::Look { ceilings, .. }
        | Step::Reserve { ceilings, .. }
        | Step::RefundDecision { ceilings, .. } => ceilings.clone(),
        _ => None,
    };
    let script = script.under(ceilings);
    let (sha, text) = match &taken.step {
        Step::Check { .. } => (script.sha(), script.text()),
        Step::Look { .. } => (script.look_sha(), script.look_text()),
        Step::Refund { .. } | Step::RefundDecision { .. } => {
            (script.refund_sha(), script.refund_text())
        }
        Step::Reserve { .. } => (script.reserve_sha(), script.reserve_text()),
        Step::Commit { .. } => (script.commit_sha(), script.commit_text()),
        Step::Reset => return,
    };
    if names.contains_key(sha) {
        return;
    }
    let reply = redis.run(&["SCRIPT".to_owned(), "LOAD".to_owned(), alter(text)]);
    assert!(
        !reply.is_error(),
        "the script does not compile: {}",
        reply.text()
    );
    names.insert(sha.to_owned(), reply.text());
    let set = || taken.policies.clone();
    redis.kept.entry(sha.to_owned()).or_insert_with(set);
}

/// Repeats steps at the server. `first` is the number of the first one.
fn compare_taken(
    redis: &mut InRedis,
    first: usize,
    taken: &[Taken],
    names: &HashMap<String, String>,
) -> Result<(), String> {
    let calls: Vec<Vec<Vec<u8>>> = taken
        .iter()
        .flat_map(|taken| commands(taken, names))
        .collect();
    let mut replies = redis.client.pipeline(&calls).expect("replies").into_iter();
    for (at, taken) in taken.iter().enumerate() {
        let place = || {
            format!(
                "step {} now {} {:?} {:?}",
                first + at,
                taken.now_us,
                taken.step,
                taken.policies
            )
        };
        let reply = replies.next().expect("a reply");
        if reply.is_error() {
            return Err(format!("{}: {}", place(), reply.text()));
        }
        let script = Script::new(taken.policies.clone());
        match &taken.step {
            Step::Check {
                costs,
                ceilings,
                expected,
            }
            | Step::Look {
                costs,
                ceilings,
                expected,
            } => {
                match script
                    .under(ceilings.clone())
                    .decision(costs.clone(), &integers(&reply))
                {
                    Ok(decision) if figures(&decision) == *expected => {}
                    other => return Err(format!("{}: decided {other:?}", place())),
                }
            }
            Step::Reserve {
                ceilings, expected, ..
            } => match reserved(&script.under(ceilings.clone()), Cost::ZERO, &reply) {
                Ok(decision) if (figures(&decision), costs_of(&decision)) == *expected => {}
                other => return Err(format!("{}: reserved {other:?}", place())),
            },
            Step::Commit {
                expected, number, ..
            } => {
                let settlement = script.settlement(reply.int());
                // A commit that repeats the number of the first one is the same call, sent again.
                let is_again =
                    *expected == Settlement::AlreadySettled && settled_by(taken) == Some(*number);
                let expected = if is_again {
                    Settlement::Settled
                } else {
                    *expected
                };
                if !settlement
                    .as_ref()
                    .is_ok_and(|settlement| *settlement == expected)
                {
                    return Err(format!("{}: settled {settlement:?}", place()));
                }
            }
            Step::Refund { .. } | Step::RefundDecision { .. } | Step::Reset => {}
        }
        for expected in &taken.states {
            let (bytes, expires) = (
                replies.next().expect("a reply"),
                replies.next().expect("a reply"),
            );
            let stored = stored_state(&bytes, &expires);
            if stored != *expected {
                return Err(format!("{}: stored {stored:?}, not {expected:?}", place()));
            }
        }
        if taken.step.id().is_some() {
            let (bytes, expires) = (
                replies.next().expect("a reply"),
                replies.next().expect("a reply"),
            );
            let stored = stored_state(&bytes, &expires);
            // A record that has lapsed may still be stored.
            if taken.record.is_some() && stored != taken.record {
                return Err(format!(
                    "{}: recorded {stored:?}, not {:?}",
                    place(),
                    taken.record
                ));
            }
        }
    }
    Ok(())
}
