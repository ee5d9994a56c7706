//! Leased policies: a stream of calls that go to a server and to the pure functions, and processes
//! that share a key.

mod account;
mod bound;
mod replica;
mod replicas;
mod server;
mod step;

use std::{collections::HashMap, fmt, time::Duration};

use tollgate::{
    Algorithm, CalendarUnit, Cost, Costs, Key, Lease, Policy, PolicySet, Quota, TimeZone,
    reservation::ReservationId,
    testing::{ALGORITHMS, Grant, Report, Stamp},
};

use tollgate_tests::{Reply, expiry_command};

use crate::{
    Dice, InRedis, START_US,
    calls::{Call, LeaseScript, MixedBatch, MixedSubject, Script},
    integers, reserved,
};
pub use account::{Account, Rolled};
pub use bound::{Admission, most_above};
pub use replica::{LEASED_PER_SECOND, MOST_LEASED, run_lease_replica};
pub use replicas::LeaseReplicas;
use server::PureServer;
pub use step::{Answer, decide, step};

/// The steps of a stream. All keys are forgotten then.
const STEPS: u64 = 400;

/// Lists the algorithms that can be leased. A stream with a calendar window crosses the end of its
/// day.
#[must_use]
pub fn leased_algorithms() -> Vec<Algorithm> {
    let calendar = Algorithm::CalendarWindow {
        unit: CalendarUnit::Day,
        zone: TimeZone::UTC,
        anchor: None,
    };
    let few = |algorithm| match algorithm {
        Algorithm::SlidingBuckets { .. } => Algorithm::SlidingBuckets { buckets: 7 },
        other => other,
    };
    let mut algorithms: Vec<_> = ALGORITHMS
        .into_iter()
        .filter(|algorithm| algorithm.is_leasable())
        .map(few)
        .collect();
    algorithms.insert(3, calendar);
    algorithms
}

/// The time zone of calendar windows: a day ends 19 seconds after `START_US`.
const ZONE: &str = "-07:07";

/// Draws calls: reports that are late, repeated, too large or of another birth, generations that
/// end between two calls, changed quotas and terms, clocks that go back, checks and refunds beside
/// the leases.
struct LeaseStream<'a> {
    redis: &'a mut InRedis,
    alter: &'a dyn Fn(&str) -> String,
    /// The scripts that were loaded, by the SHA-1 of what they were before they were altered.
    loaded: HashMap<String, String>,
    dice: Dice,
    pure: PureServer,
    policies: PolicySet,
    now_us: u64,
    held: Vec<(u64, Grant)>,
    /// Tells whether quotas change and clocks go back. Outstanding units may then be forgotten
    /// before they are charged.
    has_events: bool,
}

/// Sends the stream of a seed to a server, with scripts that `alter` may change. Returns the
/// granted units.
///
/// # Errors
///
/// The first difference between the scripts and the pure functions.
pub fn compare_leases(
    redis: &mut InRedis,
    seed: u64,
    algorithms: &[Algorithm],
    alter: &dyn Fn(&str) -> String,
) -> Result<u64, String> {
    redis.run(&["FLUSHALL"]);
    let mut dice = Dice::new(seed);
    let policies = set(&mut dice, algorithms);
    let (loaded, pure, held) = (HashMap::new(), PureServer::default(), Vec::new());
    let mut stream = LeaseStream {
        redis,
        alter,
        loaded,
        dice,
        pure,
        policies,
        now_us: START_US,
        held,
        has_events: seed.is_multiple_of(2),
    };
    let mut granted = 0;
    for step in 0..STEPS {
        let units = stream.step(algorithms);
        granted += units.map_err(|difference| {
            format!(
                "seed {seed} step {step} at {} of {:?}: {difference}",
                stream.now_us, stream.policies
            )
        })?;
    }
    Ok(granted)
}

fn policy(dice: &mut Dice, at: usize, algorithm: Algorithm) -> Policy {
    let amount = [40, 97, 100, 333][dice.below(4) as usize];
    let period = Duration::from_micros([1_000_000, 999_983, 3_000_000][dice.below(3) as usize]);
    let (algorithm, period) = match algorithm {
        Algorithm::CalendarWindow { unit, .. } => (
            Algorithm::CalendarWindow {
                unit,
                zone: ZONE.parse().expect("a zone"),
                anchor: None,
            },
            unit.nominal(),
        ),
        other => (other, period),
    };
    let length = [500, 700][usize::from(dice.below(8) == 0)];
    let lease = Lease::new()
        .generation(Duration::from_millis(length))
        .share([1, 2, 4][dice.below(3) as usize]);
    Policy::try_new(format!("p{at}"), algorithm, Quota::new(amount, period))
        .and_then(|policy| policy.try_leased(lease))
        .expect("a policy")
}

fn set(dice: &mut Dice, algorithms: &[Algorithm]) -> PolicySet {
    let policies: Vec<_> = algorithms
        .iter()
        .enumerate()
        .map(|(at, &algorithm)| policy(dice, at, algorithm))
        .collect();
    PolicySet::try_new(policies).expect("a set")
}

impl LeaseStream<'_> {
    fn step(&mut self, algorithms: &[Algorithm]) -> Result<u64, String> {
        match self.dice.below(40) {
            0 | 3 | 4 if !self.has_events => {}
            0 => self.policies = set(&mut self.dice, algorithms),
            1 => self.now_us += self.dice.below(5_000_000),
            2 => self.now_us = self.now_us / 500_000 * 500_000 + 500_000,
            3 => self.now_us -= self.dice.below(300_000),
            4 => self.now_us -= self.dice.below(2_000_000),
            5..12 => {}
            _ => self.now_us += self.dice.below(60_000),
        }
        let key = self.dice.below(2);
        let cost = [0, 1, 1, 1, self.dice.below(30), self.dice.below(400)]
            [self.dice.below(6) as usize]
            .min(40);
        let granted = match self.dice.below(16) {
            0 => self.check(key, cost)?,
            1 => self.batch(key, cost)?,
            2 => self.mixed(key, cost)?,
            3 => self.refund(key, cost)?,
            4 => self.reservation(key, cost)?,
            _ => self.lease(key, cost)?,
        };
        self.compare_books(key)?;
        Ok(granted)
    }

    /// Checks, reports and asks for units in one call.
    fn lease(&mut self, key: u64, cost: u64) -> Result<u64, String> {
        let reports = self.reports(key);
        let (want, birth) = (
            [0, 3, 50, 1_000][self.dice.below(4) as usize],
            1 + self.dice.below(1 << 40),
        );
        let call = Call {
            cost,
            want,
            birth,
            reports,
        };
        let script = LeaseScript::new(self.policies.clone());
        let words = script.call(&Key::new(key), &call, Some(self.now_us));
        let reply = self.run(script.sha(), script.text(), words)?;
        let (decision, grant) = script
            .read(reply.bytes(), &call)
            .map_err(|error| format!("{call:?}: {error}"))?;
        let expected = self.pure.decide(&self.policies, key, self.now_us, &call);
        differ(&call, &(format!("{decision:?}"), grant.clone()), &expected)?;
        let Some(grant) = grant else { return Ok(0) };
        let units = grant.units;
        self.held.push((key, grant));
        Ok(units)
    }

    /// Draws reports of units that were granted. Some are repeated, too large, or of another state.
    fn reports(&mut self, key: u64) -> Vec<Report> {
        // After the clock went back a state has no birth, and a hostile report claims it.
        let first = self.policies.iter().next().expect("a policy");
        let without_birth = self.pure.book(first, key).filter(|book| book[0] == 0.0);
        let (mut reports, dice) = (Vec::new(), &mut self.dice);
        for at in (0..self.held.len()).rev() {
            if self.held[at].0 != key || dice.below(4) > 0 {
                continue;
            }
            let grant = &self.held[at].1;
            let spent = dice.below(grant.units + 1);
            let returned = if dice.below(2) == 0 {
                grant.units - spent
            } else {
                0
            };
            let mut stamps = grant.stamps.clone();
            match dice.below(12) {
                0 => stamps[0].birth += 1,
                1 => stamps[0].generation += 1,
                2 => stamps[0].birth = 0,
                _ => {}
            }
            if let Some(book) = without_birth.filter(|_| dice.below(2) == 0) {
                stamps[0] = Stamp {
                    birth: 0,
                    generation: book[2] as u64,
                };
            }
            let times = if dice.below(10) == 0 { 3 } else { 1 };
            reports.push(Report {
                stamps,
                spent: spent * times,
                returned,
            });
            if dice.below(8) > 0 {
                self.held.swap_remove(at);
            }
        }
        reports
    }

    /// Checks without a lease.
    fn check(&mut self, key: u64, cost: u64) -> Result<u64, String> {
        let script = Script::new(self.policies.clone());
        let words = script.check(&Key::new(key), Cost::new(cost), Some(self.now_us));
        let reply = self.run(script.sha(), script.text(), words)?;
        let decision = script
            .decision(Cost::new(cost), &integers(&reply))
            .map_err(|error| error.to_string())?;
        self.expect("a check", key, &[(cost, vec![format!("{decision:?}")])])
    }

    /// Checks several times in a batch.
    fn batch(&mut self, key: u64, cost: u64) -> Result<u64, String> {
        let (script, keys) = (
            Script::new(self.policies.clone()),
            [(Key::new(key), 1 + self.dice.below(4) as usize)],
        );
        let words = script.batch(&keys, Cost::new(cost), Some(self.now_us));
        let reply = self.run(script.batch_sha(), script.batch_text(), words)?;
        let decisions = script
            .batch_decisions(&keys, Cost::new(cost), reply.bytes())
            .map_err(|error| error.to_string())?;
        let texts = decisions[0]
            .iter()
            .map(|decision| format!("{decision:?}"))
            .collect();
        self.expect("a batch", key, &[(cost, texts)])
    }

    /// Checks in a mixed batch, at two costs if no policy is a log.
    fn mixed(&mut self, key: u64, cost: u64) -> Result<u64, String> {
        let is_logged = self
            .policies
            .iter()
            .any(|policy| policy.algorithm() == Algorithm::SlidingLog);
        let costs = [cost, self.dice.below(5)];
        let costs = &costs[usize::from(is_logged)..];
        let mut run = |&cost: &u64| (Costs::new(Cost::new(cost)), 1 + self.dice.below(3) as usize);
        let runs = costs.iter().map(&mut run).collect();
        let subject = MixedSubject {
            policies: self.policies.clone(),
            key: Key::new(key),
            tag: String::new(),
            runs,
        };
        let batch = MixedBatch::new(vec![subject]);
        let reply = self.run(batch.sha(), batch.text(), batch.call(Some(self.now_us)))?;
        let decisions = batch
            .decisions(reply.bytes())
            .map_err(|error| error.to_string())?;
        let texts = decisions[0]
            .iter()
            .map(|run| run.iter().map(|decision| format!("{decision:?}")).collect());
        self.expect(
            "a mixed batch",
            key,
            &costs.iter().copied().zip(texts).collect::<Vec<_>>(),
        )
    }

    fn refund(&mut self, key: u64, cost: u64) -> Result<u64, String> {
        let spent_us = self.now_us - self.dice.below(400_000);
        let script = Script::new(self.policies.clone());
        let words = script.refund(&Key::new(key), Cost::new(cost), Some(self.now_us), spent_us);
        self.run(script.refund_sha(), script.refund_text(), words)?;
        self.pure
            .refund(&self.policies, key, self.now_us, spent_us, cost);
        Ok(0)
    }

    /// Reserves units, and commits another cost: often more than the burst.
    fn reservation(&mut self, key: u64, cost: u64) -> Result<u64, String> {
        let (script, subject) = (Script::new(self.policies.clone()), Key::new(key));
        let number = 1 + self.dice.below(1 << 40);
        let id = ReservationId::try_new(number.to_string()).map_err(|error| error.to_string())?;
        let words = script.reserve(&subject, &id, Cost::new(cost), 1_000_000, Some(self.now_us));
        let reply = self.run(script.reserve_sha(), script.reserve_text(), words)?;
        let decision = reserved(&script, Cost::ZERO, &reply).map_err(|error| error.to_string())?;
        self.expect(
            "a reservation",
            key,
            &[(cost, vec![format!("{decision:?}")])],
        )?;
        if decision.is_denied() {
            return Ok(0);
        }
        if cost > 0 {
            self.pure.remember(&self.policies, key, self.now_us);
        }
        let last =
            [0, cost, self.dice.below(100), self.dice.below(4_000)][self.dice.below(4) as usize];
        let words = script.commit(&subject, &id, Cost::new(last), number, Some(self.now_us));
        self.run(script.commit_sha(), script.commit_text(), words)?;
        match last.checked_sub(cost) {
            Some(0) => {}
            Some(more) => self.pure.owe(&self.policies, key, self.now_us, more),
            None => self
                .pure
                .refund(&self.policies, key, self.now_us, self.now_us, cost - last),
        }
        Ok(0)
    }

    /// Compares decisions at costs with those of the pure functions, which decide one after
    /// another.
    fn expect(
        &mut self,
        frame: &str,
        key: u64,
        decisions: &[(u64, Vec<String>)],
    ) -> Result<u64, String> {
        for (cost, texts) in decisions {
            for text in texts {
                let call = Call {
                    cost: *cost,
                    ..Call::default()
                };
                let (expected, _) = self.pure.decide(&self.policies, key, self.now_us, &call);
                differ(&(frame, cost), text, &expected)?;
            }
        }
        Ok(0)
    }

    /// Compares what is stored of the outstanding units of each policy.
    fn compare_books(&mut self, key: u64) -> Result<(), String> {
        let keys = LeaseScript::new(self.policies.clone()).keys(&Key::new(key));
        let books = keys.chunks(2).map(|keys| keys[1].clone());
        let looks =
            books.flat_map(|book| [vec!["GET".to_owned(), book.clone()], expiry_command(book)]);
        let replies = self.redis.run_all(looks);
        for (policy, [reply, expires]) in self.policies.iter().zip(replies.as_chunks().0) {
            let found = (!reply.is_nil()).then(|| {
                let words = reply.bytes().as_chunks().0;
                std::array::from_fn(|at| f64::from_le_bytes(words[at]))
            });
            differ(&policy.name(), &found, &self.pure.book(policy, key))?;
            let expires_ms = expires.int();
            let fresh_ms = self.pure.fresh_us(policy, key) / 1000;
            let is_early = !self.has_events && (expires_ms as u64) < fresh_ms;
            if found.is_some() && (expires_ms < 0 || is_early) {
                return Err(format!(
                    "{} expires at {expires_ms} ms, and is fresh at {fresh_ms} ms",
                    policy.name()
                ));
            }
        }
        Ok(())
    }

    fn run(&mut self, sha: &str, text: &str, mut words: Vec<Vec<u8>>) -> Result<Reply, String> {
        let (redis, alter) = (&mut *self.redis, self.alter);
        let loaded = self.loaded.entry(sha.to_owned()).or_insert_with(|| {
            let reply = redis.run(&["SCRIPT", "LOAD", &alter(text)]);
            assert!(!reply.is_error(), "{}", reply.text());
            reply.text()
        });
        words[1] = loaded.clone().into_bytes();
        let reply = redis.run(&words);
        if reply.is_error() {
            Err(reply.text())
        } else {
            Ok(reply)
        }
    }
}

fn differ<T: PartialEq + fmt::Debug>(
    call: &dyn fmt::Debug,
    answer: &T,
    expected: &T,
) -> Result<(), String> {
    if answer == expected {
        return Ok(());
    }
    Err(format!(
        "{call:?}:\n  answered {answer:?}\n  expected {expected:?}"
    ))
}
