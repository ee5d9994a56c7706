//! A hostile stream of checks: decided by the Rust functions, repeated at a server, and compared.

use std::{collections::HashMap, time::Duration};

use tollgate::{
    Algorithm, Cost, Costs, Decision, Key, Policy, PolicySet,
    testing::{Script, Stored},
};

use crate::{Dice, InMemory, InRedis, START_US, Subject, integers, own_keys, policies, state_commands, stored_state};

/// The number of steps that travel to the server together.
pub const BATCH: usize = 4_000;

/// The figures of a decision: whether it is allowed, and of each policy the remaining units and the three waits.
pub type Figures = (bool, Vec<(u64, Option<Duration>, Duration, Duration)>);

/// Returns the figures of a decision.
#[must_use]
pub fn figures(decision: &Decision) -> Figures {
    let states = decision.states();
    let states = states.map(|state| (state.remaining(), state.retry_after(), state.reset_after(), state.more_after()));
    (decision.is_allowed(), states.collect())
}

#[derive(Debug)]
enum Step {
    Check { costs: Costs, expected: Figures },
    Refund { costs: Costs, spent_us: u64 },
    Reset,
}

/// A step that the Rust functions took, with the states that it left.
struct Taken {
    step: Step,
    policies: PolicySet,
    key: Key,
    now_us: u64,
    states: Vec<Option<Stored>>,
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
    last: Option<(u64, Decision)>,
}

impl Stream {
    /// Creates the stream of this seed. The first policy of its sets is of this algorithm.
    #[must_use]
    pub fn new(seed: u64, first: Algorithm) -> Self {
        Self::over(seed, first, policies::set, |dice| Key::from(dice.below(3)))
    }

    /// Creates a stream over keys of three levels, and policies that meter the whole key or outer levels.
    #[must_use]
    pub fn nested(seed: u64, first: Algorithm) -> Self {
        let key = |dice: &mut Dice| Key::from(dice.below(2)).child(dice.below(2)).child(dice.below(2));
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
        Self { dice, oracle: InMemory::new(), first, draw_set, draw_key, policies, last: None }
    }

    fn take(&mut self) -> Taken {
        let dice = &mut self.dice;
        if dice.below(400) == 0 {
            // Another configuration, over the states that the old one left.
            self.policies = match dice.below(2) {
                0 => (self.draw_set)(dice, self.first, 5),
                _ => self.policies.iter().map(policies::same_rate).collect::<Vec<_>>().into(),
            };
        }
        let quotas: Vec<_> = self.policies.iter().map(|policy| policy.quota()).collect();
        let quota = dice.pick(&quotas);
        let period = quota.period().as_micros() as u64;
        let unit = period / quota.amount();
        let aim = self.last.as_ref().and_then(|(at, decision)| {
            let states: Vec<_> = decision.states().collect();
            let state = dice.pick(&states);
            let waits = [state.retry_after(), Some(state.reset_after()), Some(state.more_after())];
            let wait = dice.pick(&waits)?.as_micros() as u64;
            Some((at + wait).saturating_sub(dice.below(2)))
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
            13 => now - [1, unit, period, 2 * period][dice.below(4) as usize].min(1_000_000_000_000),
            _ => aim.filter(|&aim| aim >= now).unwrap_or(now + 1_000),
        };
        // The clock wanders within some 60 years around the start.
        let now_us = next.clamp(START_US - 1_000_000_000_000_000, START_US + 1_000_000_000_000_000);
        self.oracle.set_now(now_us);
        let key = (self.draw_key)(&mut self.dice);
        let costs = self.draw_costs();
        let step = match self.dice.below(64) {
            0..=2 => {
                let spent_us = now_us - self.dice.below(2) * self.dice.below(period.min(1_000_000_000));
                self.oracle.refund_costs(&self.policies, &key, &costs, spent_us);
                Step::Refund { costs, spent_us }
            }
            3 => {
                self.oracle.reset(&self.policies, &key);
                Step::Reset
            }
            _ => {
                let decision = self.oracle.check_costs(&self.policies, &key, &costs, "");
                let expected = figures(&decision);
                self.last = Some((now_us, decision));
                Step::Check { costs, expected }
            }
        };
        let states = self.policies.iter().map(|policy| self.oracle.stored(policy, &key)).collect();
        Taken { step, policies: self.policies.clone(), key, now_us, states }
    }

    /// Draws one cost for all policies, or a cost for each.
    fn draw_costs(&mut self) -> Costs {
        let policies = self.policies.clone();
        let states = || self.last.iter().flat_map(|(_, decision)| decision.states());
        let left: Vec<u64> = states().map(|state| state.remaining()).collect();
        let burst = policies.iter().map(|policy| policy.quota().burst()).min().unwrap_or(1);
        let is_logged = |policy: &Policy| policy.algorithm() == Algorithm::SlidingLog;
        let one = self.draw_cost(burst, left.iter().min().copied(), policies.iter().any(is_logged));
        let costs = Costs::new(Cost::new(one));
        if self.dice.below(2) == 0 {
            return costs;
        }
        policies.iter().enumerate().fold(costs, |costs, (at, policy)| {
            let cost = self.draw_cost(policy.quota().burst(), left.get(at).copied(), is_logged(policy));
            costs.with(policy.name().to_owned(), cost)
        })
    }

    /// Draws a cost for a burst of which this was left at the last check. `is_logged` tells whether a log stores the units.
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
        if is_dear && self.dice.below(8) > 0 { 1 + cost % 1_000 } else { cost }.min(burst)
    }
}

/// Returns the commands that repeat a step at the server and show the states that it left.
fn commands(taken: &Taken, names: &HashMap<String, String>) -> Vec<Vec<Vec<u8>>> {
    let script = Script::new(taken.policies.clone());
    let keys = script.keys(&taken.key);
    let mut step = match &taken.step {
        Step::Check { costs, .. } => script.check(&taken.key, costs.clone(), Some(taken.now_us)),
        Step::Refund { costs, spent_us } => script.refund(&taken.key, costs.clone(), Some(taken.now_us), *spent_us),
        Step::Reset => {
            // `DEL` needs a key, also where no state belongs to the key alone.
            let names = ["DEL", "absent"].map(str::to_owned).into_iter();
            names.chain(own_keys(&taken.policies, &taken.key)).map(String::into_bytes).collect()
        }
    };
    if let Some(name) = names.get(&*String::from_utf8_lossy(&step[1])) {
        step[1] = name.as_bytes().to_vec();
    }
    let looks = taken.policies.iter().zip(keys).flat_map(|(policy, key)| state_commands(policy, key));
    std::iter::once(step).chain(looks.map(|look| look.into_iter().map(String::into_bytes).collect())).collect()
}

/// Repeats the next [`BATCH`] steps of a stream at the server, with scripts that `alter` may change.
///
/// # Errors
///
/// Describes the first step at which the server and the Rust functions disagree.
///
/// # Panics
///
/// When a script does not compile or the server does not answer.
pub fn compare(redis: &mut InRedis, stream: &mut Stream, alter: impl Fn(&str) -> String) -> Result<(), String> {
    redis.run(&["FLUSHALL".to_owned()]);
    let taken: Vec<Taken> = (0..BATCH).map(|_| stream.take()).collect();
    let mut names = HashMap::new();
    for taken in &taken {
        let script = Script::new(taken.policies.clone());
        for (sha, text) in [(script.sha(), script.text()), (script.refund_sha(), script.refund_text())] {
            if !names.contains_key(sha) {
                let reply = redis.run(&["SCRIPT".to_owned(), "LOAD".to_owned(), alter(text)]);
                assert!(!reply.is_error(), "the script does not compile: {}", reply.text());
                names.insert(sha.to_owned(), reply.text());
            }
        }
    }
    let calls: Vec<Vec<Vec<u8>>> = taken.iter().flat_map(|taken| commands(taken, &names)).collect();
    let mut replies = redis.client.pipeline(&calls).expect("replies").into_iter();
    for (at, taken) in taken.iter().enumerate() {
        let place = || format!("step {at} now {} {:?} {:?}", taken.now_us, taken.step, taken.policies);
        let reply = replies.next().expect("a reply");
        if reply.is_error() {
            return Err(format!("{}: {}", place(), reply.text()));
        }
        if let Step::Check { costs, expected } = &taken.step {
            let script = Script::new(taken.policies.clone());
            match script.decision(costs.clone(), &integers(&reply)) {
                Ok(decision) if figures(&decision) == *expected => {}
                other => return Err(format!("{}: decided {other:?}", place())),
            }
        }
        for expected in &taken.states {
            let (bytes, expires) = (replies.next().expect("a reply"), replies.next().expect("a reply"));
            let stored = stored_state(&bytes, &expires);
            if stored != *expected {
                return Err(format!("{}: stored {stored:?}, not {expected:?}", place()));
            }
        }
    }
    Ok(())
}
