use std::time::Instant;

use redis::Value;
use smallvec::SmallVec;

use crate::{
    Algorithm, Cost, Decision, Error, ErrorKind, Policy, PolicySet,
    model::{
        Entry,
        algorithm::{PolicyLevel, most_spent, unspent},
        cost::{Charge, ChargeRef},
        lease::{Grant, Stamp},
        policy_levels::PolicyLevels,
        quota::MAX_EXACT,
        shape::Shape,
    },
    store::Settlement,
};

/// The bound of all numbers of a script: from here on a double cannot hold every integer.
const EXACT: i64 = MAX_EXACT as i64;

/// Reads the reply of a check: the words of each policy, then the server's time. The first word of a policy that
/// denies is sent as −1 − word. A bare integer is the first word of a single policy, and carries no time: `sent`
/// stands for it.
pub(crate) fn decision(
    policies: &PolicySet,
    charge: ChargeRef<'_>,
    sent: Instant,
    reply: &Value,
) -> Result<Decision, Error> {
    let (words, at_us) = match reply {
        Value::Array(reply) => timed(reply)?,
        bare => (std::slice::from_ref(bare), Decision::here_us(sent)),
    };
    let count = words_of_check(policies, charge.is_capped());
    if words.len() != count {
        return Err(invalid(format_args!("expected {count} numbers, got {}", words.len())));
    }
    Ok(Decision::from_levels(policies, levels(policies, words, integer)?, charge, at_us))
}

/// Returns the number of words in the reply to a check, and for each key in the reply to a batch.
fn words_of_check(policies: &PolicySet, is_capped: bool) -> usize {
    policies.shape().words() - usize::from(policies.is_short() && !is_capped)
}

/// Holds the outcome of a batch for one key, or of a run of checks in a mixed batch.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// The number of requests that were admitted. They are the first ones.
    granted: usize,
    /// The levels after the last admitted request, and the policies that deny the next one.
    levels: PolicyLevels,
    at_us: u64,
}

/// Reads the reply of a batch: packed doubles. Each key has the number of admitted requests, if they were counted, and
/// the words as for a check. The server's time comes last. `counts` holds the number of requests of each key, and
/// `is_capped` is true when they had ceilings.
pub(crate) fn outcomes<'a>(
    policies: &'a PolicySet,
    counts: impl ExactSizeIterator<Item = usize>,
    counted: bool,
    is_capped: bool,
    reply: &'a Value,
) -> Result<impl Iterator<Item = Result<Outcome, Error>>, Error> {
    let each = words_of_check(policies, is_capped) + usize::from(counted);
    let (words, at_us) = unpacked(counts.len() * each, reply)?;
    let outcome = move |(words, count): (&[[u8; 8]], usize)| match counted {
        true => counted_outcome(policies, count, words, at_us),
        false => {
            let levels = levels(policies, words, word)?;
            Ok(Outcome { granted: usize::from(levels.fit()), levels, at_us })
        }
    };
    Ok(words.chunks_exact(each).zip(counts).map(outcome))
}

/// Reads the reply of a mixed batch: packed doubles. Each run has the number of admitted requests and all words of each
/// policy. The server's time comes last.
#[derive(Debug)]
pub(crate) struct MixedReply<'a> {
    words: &'a [[u8; 8]],
    /// The number of words of a run.
    each: usize,
    at_us: u64,
}

impl<'a> MixedReply<'a> {
    /// Creates the reader of a reply over `runs` runs, of all subjects together.
    ///
    /// # Errors
    ///
    /// The reply has no time, or another number of words.
    pub(crate) fn new(shape: &Shape, runs: usize, reply: &'a Value) -> Result<Self, Error> {
        Self::with_words(shape, runs * (shape.words() + 1), reply)
    }

    /// Creates the reader of a reply that also grants units to `subjects` subjects, each of `policies` policies.
    ///
    /// # Errors
    ///
    /// The reply has no time, or another number of words.
    pub(crate) fn leasing(
        shape: &Shape,
        runs: usize,
        [subjects, policies]: [usize; 2],
        reply: &'a Value,
    ) -> Result<Self, Error> {
        Self::with_words(shape, runs * (shape.words() + 1) + subjects * (2 + 2 * policies), reply)
    }

    fn with_words(shape: &Shape, count: usize, reply: &'a Value) -> Result<Self, Error> {
        let (words, at_us) = unpacked(count, reply)?;
        Ok(Self { words, each: shape.words() + 1, at_us })
    }

    /// Returns the outcome of the next run, which had `count` checks over these policies.
    ///
    /// # Errors
    ///
    /// The words are not those that the script makes, or there is no further run.
    pub(crate) fn next(&mut self, policies: &PolicySet, count: usize) -> Result<Outcome, Error> {
        let words = self.take(self.each)?;
        counted_outcome(policies, count, words, self.at_us)
    }

    /// Returns the units that were granted to a subject, after its runs were read. `None` when none were.
    ///
    /// # Errors
    ///
    /// The words are not those that the script makes, or there is no further subject.
    pub(crate) fn grant(&mut self, policies: &PolicySet) -> Result<Option<Grant>, Error> {
        let words = self.take(2 + 2 * policies.len())?;
        let number = |at: usize| word(&words[at]).and_then(count);
        let [units, life_us] = [number(0)?, number(1)?];
        let stamp = |at: usize| Ok(Stamp { birth: number(at)?, generation: number(at + 1)? });
        let stamps = (0..policies.len()).map(|at| stamp(2 + 2 * at)).collect::<Result<_, Error>>()?;
        Ok((units > 0).then_some(Grant { stamps, units, life_us }))
    }

    fn take(&mut self, count: usize) -> Result<&'a [[u8; 8]], Error> {
        let (taken, rest) =
            self.words.split_at_checked(count).ok_or_else(|| invalid(format_args!("words are missing")))?;
        self.words = rest;
        Ok(taken)
    }
}

/// Splits a reply of packed doubles into its words, of which there must be `count`, and the time at its end.
fn unpacked(count: usize, reply: &Value) -> Result<(&[[u8; 8]], u64), Error> {
    let Value::BulkString(reply) = reply else {
        return Err(invalid(format_args!("no numbers")));
    };
    let (words, []) = reply.as_chunks() else {
        return Err(invalid(format_args!("the length is no multiple of 8")));
    };
    let [words @ .., at] = words else {
        return Err(invalid(format_args!("no time")));
    };
    let at_us = time(word(at)?)?;
    if words.len() != count {
        return Err(invalid(format_args!("expected {count} numbers, got {}", words.len())));
    }
    Ok((words, at_us))
}

/// Reads the number of admitted requests, of `count`, and the words behind it.
fn counted_outcome(policies: &PolicySet, count: usize, words: &[[u8; 8]], at_us: u64) -> Result<Outcome, Error> {
    let [granted, words @ ..] = words else {
        return Err(invalid(format_args!("no number of admitted requests")));
    };
    let granted = word(granted)?;
    let levels = levels(policies, words, word)?;
    match usize::try_from(granted) {
        // A request that was not admitted was denied.
        Ok(granted) if granted == count || granted < count && !levels.fit() => Ok(Outcome { granted, levels, at_us }),
        _ => Err(invalid(format_args!("{granted} of {count} requests admitted"))),
    }
}

/// Reads a whole number that was packed as a double.
#[inline]
fn word(bytes: &[u8; 8]) -> Result<i64, Error> {
    let number = f64::from_le_bytes(*bytes);
    let word = number as i64;
    if word as f64 == number { Ok(word) } else { Err(invalid(format_args!("a number that is not whole"))) }
}

impl Outcome {
    /// Returns the decision on request number `at`, counted from zero.
    pub(crate) fn decision(&self, at: usize, policies: &PolicySet, charge: ChargeRef<'_>) -> Decision {
        // The last admitted request, and every denied one, has the levels that the script sent.
        if at + 1 >= self.granted && (at >= self.granted || self.levels.fit()) {
            return Decision::from_levels(policies, self.levels.clone(), charge, self.at_us);
        }
        let later = (self.granted - 1 - at) as u64;
        let earlier = |(at, (policy, level)): (usize, (_, PolicyLevel))| {
            let policy: &Policy = policy;
            // The script cannot have admitted more than a policy spends, also in debt.
            let spent = later.saturating_mul(charge.of(at).units()).min(most_spent(policy));
            (policy, PolicyLevel { fits: true, words: unspent(policy, &level.words, spent) })
        };
        let levels = PolicyLevels::collect(self.levels.iter(policies).enumerate().map(earlier));
        Decision::from_levels(policies, levels, charge, self.at_us)
    }
}

/// Splits a reply into its words and the time at its end.
fn timed(reply: &[Value]) -> Result<(&[Value], u64), Error> {
    match reply {
        [words @ .., Value::Int(now)] => Ok((words, time(*now)?)),
        _ => Err(invalid(format_args!("no time"))),
    }
}

fn time(number: i64) -> Result<u64, Error> {
    if (0..EXACT).contains(&number) { Ok(number.unsigned_abs()) } else { Err(invalid(format_args!("no time"))) }
}

/// Reads a number that is not below zero.
fn count(number: i64) -> Result<u64, Error> {
    u64::try_from(number).map_err(|_| invalid(format_args!("{number} units")))
}

/// Reads the words of all policies. Words that were left out count as zero.
fn levels<W>(
    policies: &PolicySet,
    mut words: &[W],
    word: impl Fn(&W) -> Result<i64, Error> + Copy,
) -> Result<PolicyLevels, Error> {
    let mut all = policies.iter().map(|policy| {
        let (own, rest) = words.split_at(policy.words().min(words.len()));
        words = rest;
        Ok::<_, Error>((policy, has_part(policy, level(own, word)?)?))
    });
    if policies.len() == 1
        && let Some(one) = all.next()
    {
        return one.map(|(_, level)| PolicyLevels::one(level));
    }
    let all: SmallVec<[_; 4]> = all.collect::<Result<_, _>>()?;
    Ok(PolicyLevels::collect(all))
}

/// Reads the words of one policy.
#[inline]
fn level<W>(words: &[W], word: impl Fn(&W) -> Result<i64, Error>) -> Result<PolicyLevel, Error> {
    let mut level = PolicyLevel { fits: true, words: [0; 4] };
    for (at, (value, place)) in words.iter().zip(&mut level.words).enumerate() {
        let word = word(value)?;
        if at > 0 && word < 0 {
            return Err(invalid(format_args!("a negative word")));
        }
        level.fits &= word >= 0;
        let word = if word >= 0 { word } else { -1 - word };
        if word >= EXACT {
            return Err(invalid(format_args!("a word beyond 2^53")));
        }
        *place = word.unsigned_abs();
    }
    Ok(level)
}

/// Refuses the words of a bucket whose second word, which counts parts of 1/amount µs, is a whole.
#[inline]
fn has_part(policy: &Policy, level: PolicyLevel) -> Result<PolicyLevel, Error> {
    let is_bucket = matches!(policy.algorithm(), Algorithm::TokenBucket | Algorithm::LeakyBucket);
    if is_bucket && level.words[1] >= policy.quota_ref().amount() {
        return Err(invalid(format_args!("remainder too large")));
    }
    Ok(level)
}

fn integer(value: &Value) -> Result<i64, Error> {
    match value {
        Value::Int(word) => Ok(*word),
        _ => Err(invalid(format_args!("a word that is no integer"))),
    }
}

/// Reads the entries of a log: the server's time, then the list. Leaves out entries older than `period_us`, and elements
/// that are not entries.
pub(crate) fn entries(period_us: u64, reply: Value) -> Result<Vec<Entry>, Error> {
    let Value::Array(reply) = reply else {
        return Err(invalid(format_args!("no list")));
    };
    let Ok([Value::Int(now), Value::Array(list)]) = <[Value; 2]>::try_from(reply) else {
        return Err(invalid(format_args!("no time and list")));
    };
    let inside = |value: Value| {
        let Value::BulkString(bytes) = value else {
            return None;
        };
        let (at, tag) = bytes.split_first_chunk()?;
        let at_us = f64::from_le_bytes(*at) as u64;
        (at_us.saturating_add(period_us) > now.unsigned_abs()).then(|| Entry::new(at_us, tag))
    };
    Ok(list.into_iter().filter_map(inside).collect())
}

/// The bytes of a record before those of its policies.
const RECORD_HEAD: usize = 24;

/// The bytes of a policy in a record: its cost and four words.
const RECORD_POLICY: usize = 40;

/// The status of a reservation that an earlier call has made.
const REPEATED: i64 = 2;

/// Reads the reply of a reservation: the status and the record. `asked` is the charge of the call.
pub(crate) fn reserved(policies: &PolicySet, asked: ChargeRef<'_>, reply: &Value) -> Result<Decision, Error> {
    let Value::Array(reply) = reply else {
        return Err(invalid(format_args!("no list")));
    };
    let [Value::Int(status @ 0..=2), Value::BulkString(record)] = reply.as_slice() else {
        return Err(invalid(format_args!("no status and record")));
    };
    if record.len() != RECORD_HEAD + policies.len() * RECORD_POLICY {
        return Err(invalid(format_args!("a record of {} bytes", record.len())));
    }
    let (words, _) = record.as_chunks();
    let at_us = time(word(&words[2])?)?;
    let mut costs = SmallVec::<[Cost; 8]>::new();
    let mut levels = SmallVec::<[_; 4]>::new();
    for (policy, entry) in policies.iter().zip(words[3..].chunks_exact(RECORD_POLICY / 8)) {
        let cost = word(&entry[0])?;
        costs.push(Cost::new(u64::try_from(cost).map_err(|_| invalid(format_args!("a negative cost")))?));
        let level = level(&entry[1..=policy.words()], word)?;
        // The words of an earlier call may be those of another quota.
        levels.push((policy, if *status == REPEATED { level } else { has_part(policy, level)? }));
    }
    let levels = PolicyLevels::collect(levels);
    if levels.fit() != (*status > 0) {
        return Err(invalid(format_args!("a status that is not that of the policies")));
    }
    let charge = Charge::each(costs).under_those_of(asked);
    Ok(Decision::from_levels(policies, levels, charge.borrow(), at_us))
}

/// Reads the reply of a commit.
pub(crate) fn settlement(reply: &Value) -> Result<Settlement, Error> {
    match reply {
        Value::Int(0) => Ok(Settlement::Lapsed),
        Value::Int(1) => Ok(Settlement::Settled),
        Value::Int(2) => Ok(Settlement::AlreadySettled),
        _ => Err(invalid(format_args!("no status of a commit"))),
    }
}

fn invalid(what: std::fmt::Arguments<'_>) -> Error {
    Error::new(ErrorKind::Protocol, format!("the rate limit script sent a reply that is not valid: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Quota;

    fn packed(numbers: &[f64]) -> Value {
        Value::BulkString(numbers.iter().flat_map(|number| number.to_le_bytes()).collect())
    }

    /// Returns for each run the number of admitted checks and the words of the last one, or the error.
    fn read(counts: &[usize], reply: &Value) -> Result<Vec<usize>, String> {
        // The amount divides the period, and the second word is sent all the same.
        let policies = PolicySet::from(Policy::token_bucket("bucket", Quota::per_second(5)));
        let mut reply = MixedReply::new(policies.shape(), counts.len(), reply).map_err(|error| error.to_string())?;
        let outcome = |&count| reply.next(&policies, count).map(|outcome: Outcome| outcome.granted);
        counts.iter().map(outcome).collect::<Result<_, _>>().map_err(|error| error.to_string())
    }

    #[test]
    fn each_run_of_a_mixed_batch_has_its_own_outcome() {
        let reply = packed(&[2.0, 100.0, 0.0, 1.0, -101.0, 3.0, 0.0, -1.0, 0.0, 77.0]);
        assert_eq!(read(&[2, 4, 1], &reply), Ok(vec![2, 1, 0]));
    }

    #[test]
    fn a_reply_that_no_mixed_batch_makes_is_refused() {
        let cases: [(&[f64], &str); 8] = [
            (&[], "no time"),
            (&[77.5], "a number that is not whole"),
            (&[1.0, 100.0, 77.0], "expected 3 numbers, got 2"),
            (&[1.0, 100.0, 0.0, 1.0, 100.0, 0.0, 77.0], "expected 3 numbers, got 6"),
            (&[3.0, 100.0, 0.0, 77.0], "3 of 2 requests admitted"),
            (&[1.0, 100.0, 0.0, 77.0], "1 of 2 requests admitted"),
            (&[2.0, 100.0, -1.0, 77.0], "a negative word"),
            (&[2.0, 100.0, 5.0, 77.0], "remainder too large"),
        ];
        for (numbers, reason) in cases {
            let error = read(&[2], &packed(numbers)).unwrap_err();
            assert!(error.ends_with(&format!("not valid: {reason}")), "{error}");
        }
        assert!(read(&[2], &Value::Int(3)).unwrap_err().ends_with("no numbers"));
        assert!(read(&[2], &Value::BulkString(vec![0; 7])).unwrap_err().ends_with("the length is no multiple of 8"));
    }
}
