//! A batch on the wire: many checks in one call, and the outcome for each key or run in its reply.
//! Which checks are in a batch is decided in `dispatch/batch/`; the numbers of one check are in
//! `check.rs`.

use std::ops::Range;

use redis::Value;

use super::check::{for_each_number, integers_of_check, invalid, levels, push_charge, time, whole};
use crate::lease::{Grant, Report, Stamp};
use tollgate_core::{
    Decision, Error, Policy, PolicySet,
    raw::{
        ChargeRef, DecisionParts, PolicyLevel, PolicyLevels, PolicySetParts, most_spent, unspent,
    },
};

/// The size of a double.
const DOUBLE: usize = size_of::<f64>();

/// Packs the numbers of a mixed batch: many subjects, each with policies of its own, and with runs
/// of checks at costs of their own.
///
/// All policy sets must have one [`Shape`](super::script::Shape). The runs of a subject are
/// given in the order in which its checks came, at least one, and exactly one if a policy is a
/// sliding log.
#[derive(Debug)]
pub struct MixedArgs<'a> {
    packed: Vec<u8>,
    now: f64,
    row: Option<EqualSubjects<'a>>,
    /// The last policies whose numbers were written, and where these are.
    quotas: Option<(&'a PolicySet, Range<usize>)>,
}

/// The last subjects, if they differ in their costs alone: their other numbers are sent once.
#[derive(Debug)]
struct EqualSubjects<'a> {
    policies: &'a PolicySet,
    /// The number of checks in the only run of each.
    count: usize,
    /// The index of the number of subjects.
    at: usize,
    subjects: u32,
}

impl<'a> MixedArgs<'a> {
    /// Creates the numbers of a batch at `now`, with space for `subjects` subjects of one run and a
    /// few policies. A time of −1 stands for the server's own clock.
    #[must_use]
    pub fn new(now: f64, subjects: usize) -> Self {
        let mut packed = Vec::with_capacity((1 + 7 * subjects) * DOUBLE);
        packed.extend_from_slice(&now.to_le_bytes());
        Self {
            packed,
            now,
            row: None,
            quotas: None,
        }
    }

    /// Creates the numbers of a batch that takes reports and grants units. `birth` is a random
    /// number above zero.
    #[must_use]
    pub fn leasing(now: f64, birth: u64, subjects: usize) -> Self {
        let mut args = Self::new(now, 2 * subjects);
        args.push(birth as f64);
        args
    }

    /// Adds a subject, and its runs: the charge on the policies, and the number of checks, at least
    /// one.
    pub fn subject<'c>(
        &mut self,
        policies: &'a PolicySet,
        mut runs: impl Iterator<Item = (ChargeRef<'c>, usize)>,
    ) {
        let first = runs.next();
        let mut others = runs.peekable();
        let alone = first.filter(|_| others.peek().is_none());
        if let (Some((charge, count)), Some(row)) = (alone, &mut self.row)
            && row.count == count
            && row.policies.is_same(policies)
        {
            row.subjects += 1;
            let (at, subjects) = (row.at, row.subjects);
            self.set(at, subjects);
            return push_charge(charge, policies, |number| self.push(number));
        }
        self.quotas(policies);
        self.row = alone.map(|(_, count)| EqualSubjects {
            policies,
            count,
            at: self.packed.len(),
            subjects: 1,
        });
        self.push(1.0);
        self.runs(policies, first.into_iter().chain(others));
    }

    /// Adds a subject of a batch that takes reports and grants units. `want` is the number of
    /// wanted units.
    pub fn leased_subject<'c>(
        &mut self,
        policies: &'a PolicySet,
        reports: &[Report],
        want: u64,
        runs: impl Iterator<Item = (ChargeRef<'c>, usize)>,
    ) {
        self.quotas(policies);
        self.push(reports.len() as f64);
        for report in reports {
            self.push(report.spent as f64);
            self.push(report.returned as f64);
            for stamp in &report.stamps {
                self.push(stamp.birth as f64);
                self.push(stamp.generation as f64);
            }
        }
        self.push(want as f64);
        self.runs(policies, runs);
    }

    fn quotas(&mut self, policies: &'a PolicySet) {
        if let Some((last, at)) = &self.quotas
            && last.is_same(policies)
        {
            return self.packed.extend_from_within(at.clone());
        }
        let start = self.packed.len();
        for_each_number(policies, self.now, |number| {
            self.packed.extend_from_slice(&number.to_le_bytes());
        });
        self.quotas = Some((policies, start..self.packed.len()));
    }

    fn runs<'c>(
        &mut self,
        policies: &PolicySet,
        runs: impl Iterator<Item = (ChargeRef<'c>, usize)>,
    ) {
        let at = self.packed.len();
        self.push(0.0);
        for (number, (charge, count)) in (1..).zip(runs) {
            push_charge(charge, policies, |number| self.push(number));
            self.push(count as f64);
            self.set(at, number);
        }
    }

    /// Returns the packed numbers: the first argument of the call.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.packed
    }

    fn push(&mut self, number: f64) {
        self.packed.extend_from_slice(&number.to_le_bytes());
    }

    fn set(&mut self, at: usize, number: u32) {
        self.packed[at..at + DOUBLE].copy_from_slice(&f64::from(number).to_le_bytes());
    }
}

/// The outcome of a batch for one key, or of a run of checks in a mixed batch.
#[derive(Debug)]
pub struct Outcome {
    /// The number of requests that were admitted. They are the first ones.
    granted: usize,
    /// The levels after the last admitted request, and the policies that deny the next one.
    levels: PolicyLevels,
    at_us: u64,
}

/// Reads the reply of a batch: packed doubles. Each key, or each run of a mixed batch, has the
/// number of admitted requests, if it has several, and its integers. The server's time comes last.
#[derive(Debug)]
pub struct BatchReply<'a> {
    integers: &'a [[u8; 8]],
    is_capped: bool,
    at_us: u64,
}

impl<'a> BatchReply<'a> {
    /// Creates the reader of a reply over these runs: the policies of each, and the number of its
    /// checks. A key of a batch with one charge is a run. `is_capped` is true when the checks have
    /// ceilings.
    ///
    /// # Errors
    ///
    /// The reply has no time, or another number of integers.
    pub fn new<'r>(
        runs: impl Iterator<Item = (&'r PolicySet, usize)>,
        is_capped: bool,
        reply: &'a Value,
    ) -> Result<Self, Error> {
        let each = runs.map(|(policies, count)| integers_of_run(policies, is_capped, count));
        Self::of(each.sum(), is_capped, reply)
    }

    /// Creates the reader of a reply that also grants units to these subjects: the policies of
    /// each, and the number of checks in each of its runs.
    ///
    /// # Errors
    ///
    /// The reply has no time, or another number of integers.
    pub fn leasing<'r, R: Iterator<Item = usize>>(
        subjects: impl Iterator<Item = (&'r PolicySet, R)>,
        reply: &'a Value,
    ) -> Result<Self, Error> {
        let each = subjects.map(|(policies, runs)| {
            let runs = runs.map(|count| integers_of_run(policies, false, count));
            runs.sum::<usize>() + integers_of_grant(policies)
        });
        Self::of(each.sum(), false, reply)
    }

    fn of(count: usize, is_capped: bool, reply: &'a Value) -> Result<Self, Error> {
        let (integers, at_us) = unpacked(count, reply)?;
        Ok(Self {
            integers,
            is_capped,
            at_us,
        })
    }

    /// Returns the outcome of the next key or run, which had `count` checks over these policies.
    ///
    /// # Errors
    ///
    /// The integers are not those that the script makes, or there is no further run.
    pub fn next(&mut self, policies: &PolicySet, count: usize) -> Result<Outcome, Error> {
        let integers = self.take(integers_of_run(policies, self.is_capped, count))?;
        if count > 1 {
            return counted_outcome(policies, count, integers, self.at_us);
        }
        let levels = levels(policies, integers, whole)?;
        Ok(Outcome {
            granted: usize::from(levels.fit()),
            levels,
            at_us: self.at_us,
        })
    }

    /// Returns the units that were granted to a subject, after its runs were read. `None` when none
    /// were.
    ///
    /// # Errors
    ///
    /// The integers are not those that the script makes, or there is no further subject.
    pub fn grant(&mut self, policies: &PolicySet) -> Result<Option<Grant>, Error> {
        let integers = self.take(integers_of_grant(policies))?;
        let number = |at: usize| whole(&integers[at]).and_then(count);
        let [units, life_us] = [number(0)?, number(1)?];
        if units == 0 {
            return Ok(None);
        }
        let stamp = |at: usize| {
            Ok(Stamp {
                birth: number(at)?,
                generation: number(at + 1)?,
            })
        };
        let stamps = (0..policies.len())
            .map(|at| stamp(2 + 2 * at))
            .collect::<Result<_, Error>>()?;
        Ok(Some(Grant {
            stamps,
            units,
            life_us,
        }))
    }

    fn take(&mut self, count: usize) -> Result<&'a [[u8; 8]], Error> {
        let (taken, rest) = self
            .integers
            .split_at_checked(count)
            .ok_or_else(|| invalid(format_args!("integers are missing")))?;
        self.integers = rest;
        Ok(taken)
    }
}

/// Returns the number of integers in the reply to a run of `count` checks.
fn integers_of_run(policies: &PolicySet, is_capped: bool, count: usize) -> usize {
    integers_of_check(policies, is_capped) + usize::from(count > 1)
}

/// Returns the number of integers that grant units to a subject.
fn integers_of_grant(policies: &PolicySet) -> usize {
    2 + 2 * policies.len()
}

/// Splits a reply of packed doubles into its integers, of which there must be `count`, and the time at
/// its end.
fn unpacked(count: usize, reply: &Value) -> Result<(&[[u8; 8]], u64), Error> {
    let Value::BulkString(reply) = reply else {
        return Err(invalid(format_args!("no numbers")));
    };
    let (integers, []) = reply.as_chunks() else {
        return Err(invalid(format_args!("the length is no multiple of 8")));
    };
    let [integers @ .., at] = integers else {
        return Err(invalid(format_args!("no time")));
    };
    let at_us = time(whole(at)?)?;
    if integers.len() != count {
        return Err(invalid(format_args!(
            "expected {count} numbers, got {}",
            integers.len()
        )));
    }
    Ok((integers, at_us))
}

/// Reads the number of admitted requests, of `count`, and the integers behind it.
fn counted_outcome(
    policies: &PolicySet,
    count: usize,
    integers: &[[u8; 8]],
    at_us: u64,
) -> Result<Outcome, Error> {
    let [granted, integers @ ..] = integers else {
        return Err(invalid(format_args!("no number of admitted requests")));
    };
    let granted = whole(granted)?;
    let levels = levels(policies, integers, whole)?;
    match usize::try_from(granted) {
        // A request that was not admitted was denied.
        Ok(granted) if granted == count || granted < count && !levels.fit() => Ok(Outcome {
            granted,
            levels,
            at_us,
        }),
        _ => Err(invalid(format_args!(
            "{granted} of {count} requests admitted"
        ))),
    }
}

/// Reads a number that is not below zero.
fn count(number: i64) -> Result<u64, Error> {
    u64::try_from(number).map_err(|_| invalid(format_args!("{number} units")))
}

impl Outcome {
    /// Returns the decision on request number `at`, counted from zero.
    pub fn decision(&self, at: usize, policies: &PolicySet, charge: ChargeRef<'_>) -> Decision {
        // The last admitted request, and every denied one, has the levels that the script sent.
        if at + 1 >= self.granted && (at >= self.granted || self.levels.fit()) {
            return Decision::from_levels(policies, self.levels.clone(), charge, self.at_us);
        }
        let later = (self.granted - 1 - at) as u64;
        let earlier = |(at, (policy, level)): (usize, (_, PolicyLevel))| {
            let policy: &Policy = policy;
            // The script cannot have admitted more than a policy spends, also in debt.
            let spent = later
                .saturating_mul(charge.of(at).units())
                .min(most_spent(policy));
            (
                policy,
                PolicyLevel {
                    fits: true,
                    reading: unspent(policy, &level.reading, spent),
                },
            )
        };
        let levels = PolicyLevels::collect(self.levels.iter(policies).enumerate().map(earlier));
        Decision::from_levels(policies, levels, charge, self.at_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::check::tests::{doubles, set};
    use tollgate_core::{Cost, Quota, raw::Charge};

    fn packed(numbers: &[f64]) -> Value {
        Value::BulkString(
            numbers
                .iter()
                .flat_map(|number| number.to_le_bytes())
                .collect(),
        )
    }

    /// Returns for each run the number of admitted checks and the integers of the last one, or the
    /// error.
    fn read(counts: &[usize], reply: &Value) -> Result<Vec<usize>, String> {
        // A second has no seventh part in whole microseconds, so the second integer is sent.
        let policies = PolicySet::from(Policy::token_bucket("bucket", Quota::per_second(7)));
        let runs = counts.iter().map(|&count| (&policies, count));
        let mut reply = BatchReply::new(runs, false, reply).map_err(|error| error.to_string())?;
        let outcome = |&count| {
            reply
                .next(&policies, count)
                .map(|outcome: Outcome| outcome.granted)
        };
        counts
            .iter()
            .map(outcome)
            .collect::<Result<_, _>>()
            .map_err(|error| error.to_string())
    }

    #[test]
    fn each_run_of_a_mixed_batch_has_its_own_outcome() {
        let reply = packed(&[2.0, 100.0, 0.0, 1.0, -101.0, 3.0, -1.0, 0.0, 77.0]);
        assert_eq!(read(&[2, 4, 1], &reply), Ok(vec![2, 1, 0]));
    }

    #[test]
    fn a_reply_that_no_mixed_batch_makes_is_refused() {
        let cases: [(&[f64], &str); 8] = [
            (&[], "no time"),
            (&[77.5], "a number that is not whole"),
            (&[1.0, 100.0, 77.0], "expected 3 numbers, got 2"),
            (
                &[1.0, 100.0, 0.0, 1.0, 100.0, 0.0, 77.0],
                "expected 3 numbers, got 6",
            ),
            (&[3.0, 100.0, 0.0, 77.0], "3 of 2 requests admitted"),
            (&[1.0, 100.0, 0.0, 77.0], "1 of 2 requests admitted"),
            (&[2.0, 100.0, -1.0, 77.0], "a negative integer"),
            (&[2.0, 100.0, 7.0, 77.0], "remainder too large"),
        ];
        for (numbers, reason) in cases {
            let error = read(&[2], &packed(numbers)).unwrap_err();
            assert!(error.ends_with(&format!("not valid: {reason}")), "{error}");
        }
        assert!(
            read(&[2], &Value::Int(3))
                .unwrap_err()
                .ends_with("no numbers")
        );
        assert!(
            read(&[2], &Value::BulkString(vec![0; 7]))
                .unwrap_err()
                .ends_with("the length is no multiple of 8")
        );
    }

    #[test]
    fn subjects_that_differ_in_their_costs_alone_have_their_other_numbers_once() {
        let (five, one, same) = (set(5), set(1), set(1));
        let most = Charge::each([Cost::new(u64::from(u32::MAX)), Cost::ZERO]);
        let of = |charge: ChargeRef<'static>, count| [(charge, count)].into_iter();
        let mut args = MixedArgs::new(9.0, 5);
        let two = [(Cost::ONE.into(), 7), (most.borrow(), 1)];
        args.subject(&five, two.into_iter());
        args.subject(&one, of(Cost::ZERO.into(), 2));
        args.subject(&same, of(Cost::ONE.into(), 2));
        args.subject(&same, of(Cost::ONE.into(), 3));
        args.subject(&five, of(Cost::ONE.into(), 3));
        let quotas = |amount| [amount, 1e6, 40.0, amount + 1.0, 60e6];
        let all = [
            &[9.0],
            &quotas(5.0)[..],
            &[1.0, 2.0, 1.0, 1.0, 7.0, 4_294_967_295.0, 0.0, 1.0],
            &quotas(1.0),
            &[2.0, 1.0, 0.0, 0.0, 2.0, 1.0, 1.0],
            &quotas(1.0),
            &[1.0, 1.0, 1.0, 1.0, 3.0],
            &quotas(5.0),
            &[1.0, 1.0, 1.0, 1.0, 3.0],
        ];
        assert_eq!(doubles(&args.into_bytes()), all.concat());
    }
}
