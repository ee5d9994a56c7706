use redis::Value;
use smallvec::SmallVec;

use super::plan::Plan;
use crate::{
    Algorithm, Cost, Decision, Entry, Error, ErrorKind, Policy, PolicySet,
    algorithm::{PolicyLevel, unspent},
    policy_levels::PolicyLevels,
    quota::MAX_EXACT,
};

/// No number of a script reaches it: a double could not hold the next.
const EXACT: i64 = MAX_EXACT as i64;

/// Reads the reply of a check: per policy its words, the first as −1 − word where it denies; last
/// the server's time. A bare integer is the first word of a policy that is alone.
pub(super) fn decision(plan: &Plan, policies: &PolicySet, cost: Cost, reply: &Value) -> Result<Decision, Error> {
    let (words, at_us) = match reply {
        Value::Array(reply) => timed(reply)?,
        bare => (std::slice::from_ref(bare), 0),
    };
    if words.len() != plan.words_in_all() {
        return Err(nonsense(format_args!("{} words where {} belong", words.len(), plan.words_in_all())));
    }
    Ok(Decision::from_readings(policies, readings(plan, policies, words, integer)?, cost, at_us))
}

/// What a batch says of one subject.
#[derive(Debug)]
pub(super) struct Outcome {
    /// How many of the requests were admitted, the first ones.
    granted: usize,
    /// The level after the last of them, and who denies the next.
    readings: PolicyLevels,
    at_us: u64,
}

/// Reads the reply of a batch, doubles side by side: for each subject the number of requests that were admitted, if they
/// were counted, and the words as for a check; last the server's time. `counts` are the requests of each subject.
pub(super) fn outcomes<'a>(
    plan: &'a Plan,
    policies: &'a PolicySet,
    counts: impl ExactSizeIterator<Item = usize>,
    counted: bool,
    reply: &'a Value,
) -> Result<impl Iterator<Item = Result<Outcome, Error>>, Error> {
    let Value::BulkString(reply) = reply else {
        return Err(nonsense(format_args!("no numbers")));
    };
    let (words, []) = reply.as_chunks() else {
        return Err(nonsense(format_args!("half a number")));
    };
    let [words @ .., at] = words else {
        return Err(nonsense(format_args!("no time")));
    };
    let at_us = time(word(at)?)?;
    let each = plan.words_in_all() + usize::from(counted);
    if words.len() != counts.len() * each {
        return Err(nonsense(format_args!("{} words where {} belong", words.len(), counts.len() * each)));
    }
    let outcome = move |(words, count): (&[[u8; 8]], usize)| {
        let (granted, words) = if counted { (Some(word(&words[0])?), &words[1..]) } else { (None, words) };
        let readings = readings(plan, policies, words, word)?;
        let granted = match granted {
            // Who is not admitted is denied.
            Some(granted) => match usize::try_from(granted) {
                Ok(granted) if granted == count || granted < count && !readings.fit() => granted,
                _ => return Err(nonsense(format_args!("{granted} of {count} requests admitted"))),
            },
            None => usize::from(readings.fit()),
        };
        Ok(Outcome { granted, readings, at_us })
    };
    Ok(words.chunks_exact(each).zip(counts).map(outcome))
}

/// A whole number that was packed as a double.
#[inline]
fn word(bytes: &[u8; 8]) -> Result<i64, Error> {
    let number = f64::from_le_bytes(*bytes);
    let word = number as i64;
    if word as f64 == number { Ok(word) } else { Err(nonsense(format_args!("a number that is not whole"))) }
}

impl Outcome {
    /// The decision on the request that came as number `at`, counted from zero.
    pub(super) fn decision(&self, at: usize, policies: &PolicySet, cost: Cost) -> Decision {
        // Who came last reads what the script says, as do those who came after it and were denied.
        if at + 1 >= self.granted && (at >= self.granted || self.readings.fit()) {
            return Decision::from_readings(policies, self.readings.clone(), cost, self.at_us);
        }
        // More than all bursts hold was not admitted, whatever the reply says.
        let later = ((self.granted - 1 - at) as u64 * cost.get()).min(policies.most().get());
        let earlier = |(policy, reading): (_, PolicyLevel)| {
            (policy, PolicyLevel { fits: true, words: unspent(policy, &reading.words, later) })
        };
        let readings = PolicyLevels::collect(self.readings.iter(policies).map(earlier));
        Decision::from_readings(policies, readings, cost, self.at_us)
    }
}

/// The words of a reply, and the time that ends it.
fn timed(reply: &[Value]) -> Result<(&[Value], u64), Error> {
    match reply {
        [words @ .., Value::Int(now)] => Ok((words, time(*now)?)),
        _ => Err(nonsense(format_args!("no time"))),
    }
}

fn time(number: i64) -> Result<u64, Error> {
    if (0..EXACT).contains(&number) { Ok(number.unsigned_abs()) } else { Err(nonsense(format_args!("no time"))) }
}

fn readings<W>(
    plan: &Plan,
    policies: &PolicySet,
    words: &[W],
    word: impl Fn(&W) -> Result<i64, Error> + Copy,
) -> Result<PolicyLevels, Error> {
    let mut all = policies.iter().zip(&plan.words).map(|(policy, range)| {
        let reading = reading(policy, &words[range.clone()], word)?;
        Ok::<_, Error>((policy, reading))
    });
    if policies.len() == 1
        && let Some(one) = all.next()
    {
        return one.map(|(_, reading)| PolicyLevels::one(reading));
    }
    let all: SmallVec<[_; 4]> = all.collect::<Result<_, _>>()?;
    Ok(PolicyLevels::collect(all))
}

/// What one policy says.
#[inline]
fn reading<W>(policy: &Policy, words: &[W], word: impl Fn(&W) -> Result<i64, Error>) -> Result<PolicyLevel, Error> {
    let mut reading = PolicyLevel { fits: true, words: [0; 4] };
    for (at, (value, place)) in words.iter().zip(&mut reading.words).enumerate() {
        let word = word(value)?;
        if at > 0 && word < 0 {
            return Err(nonsense(format_args!("a negative word")));
        }
        reading.fits &= word >= 0;
        let word = if word >= 0 { word } else { -1 - word };
        if word >= EXACT {
            return Err(nonsense(format_args!("a word beyond 2^53")));
        }
        *place = word.unsigned_abs();
    }
    // Of a bucket the second word is a part of 1/amount µs.
    let is_bucket = matches!(policy.algorithm(), Algorithm::TokenBucket | Algorithm::LeakyBucket);
    if is_bucket && reading.words[1] >= policy.quota_ref().amount_u64() {
        return Err(nonsense(format_args!("a part that is a whole")));
    }
    Ok(reading)
}

fn integer(value: &Value) -> Result<i64, Error> {
    match value {
        Value::Int(word) => Ok(*word),
        _ => Err(nonsense(format_args!("a word that is no integer"))),
    }
}

/// Reads the entries of a log: the server's time, and the list. What left a `period_us` ago is left
/// out, and so is what is no entry.
pub(super) fn entries(period_us: u64, reply: Value) -> Result<Vec<Entry>, Error> {
    let Value::Array(reply) = reply else {
        return Err(nonsense(format_args!("no list")));
    };
    let Ok([Value::Int(now), Value::Array(list)]) = <[Value; 2]>::try_from(reply) else {
        return Err(nonsense(format_args!("no time and list")));
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

fn nonsense(what: std::fmt::Arguments<'_>) -> Error {
    Error::new(ErrorKind::Protocol, format!("the rate limit script replied with {what}"))
}
