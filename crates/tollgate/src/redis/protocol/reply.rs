use redis::Value;
use smallvec::SmallVec;

use super::ScriptSet;
use crate::{
    Algorithm, Cost, Decision, Entry, Error, ErrorKind, Policy, PolicySet,
    algorithm::{PolicyLevel, unspent},
    policy_levels::PolicyLevels,
    quota::MAX_EXACT,
};

/// The bound of all numbers of a script: from here on a double cannot hold every integer.
const EXACT: i64 = MAX_EXACT as i64;

/// Reads the reply of a check: the words of each policy, then the server's time. The first word of a policy that
/// denies is sent as −1 − word. A bare integer is the first word of a single policy.
pub(crate) fn decision(
    scripts: &ScriptSet,
    policies: &PolicySet,
    cost: Cost,
    reply: &Value,
) -> Result<Decision, Error> {
    let (words, at_us) = match reply {
        Value::Array(reply) => timed(reply)?,
        bare => (std::slice::from_ref(bare), 0),
    };
    if words.len() != scripts.words_in_all() {
        return Err(invalid(format_args!("{} words where {} belong", words.len(), scripts.words_in_all())));
    }
    Ok(Decision::from_levels(policies, levels(scripts, policies, words, integer)?, cost, at_us))
}

/// Holds the outcome of a batch for one key.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// The number of requests that were admitted. They are the first ones.
    granted: usize,
    /// The levels after the last admitted request, and the policies that deny the next one.
    levels: PolicyLevels,
    at_us: u64,
}

/// Reads the reply of a batch: packed doubles. Each key has the number of admitted requests, if they were counted, and
/// the words as for a check. The server's time comes last. `counts` holds the number of requests of each key.
pub(crate) fn outcomes<'a>(
    scripts: &'a ScriptSet,
    policies: &'a PolicySet,
    counts: impl ExactSizeIterator<Item = usize>,
    counted: bool,
    reply: &'a Value,
) -> Result<impl Iterator<Item = Result<Outcome, Error>>, Error> {
    let Value::BulkString(reply) = reply else {
        return Err(invalid(format_args!("no numbers")));
    };
    let (words, []) = reply.as_chunks() else {
        return Err(invalid(format_args!("half a number")));
    };
    let [words @ .., at] = words else {
        return Err(invalid(format_args!("no time")));
    };
    let at_us = time(word(at)?)?;
    let each = scripts.words_in_all() + usize::from(counted);
    if words.len() != counts.len() * each {
        return Err(invalid(format_args!("{} words where {} belong", words.len(), counts.len() * each)));
    }
    let outcome = move |(words, count): (&[[u8; 8]], usize)| {
        let (granted, words) = if counted { (Some(word(&words[0])?), &words[1..]) } else { (None, words) };
        let levels = levels(scripts, policies, words, word)?;
        let granted = match granted {
            // A request that was not admitted was denied.
            Some(granted) => match usize::try_from(granted) {
                Ok(granted) if granted == count || granted < count && !levels.fit() => granted,
                _ => return Err(invalid(format_args!("{granted} of {count} requests admitted"))),
            },
            None => usize::from(levels.fit()),
        };
        Ok(Outcome { granted, levels, at_us })
    };
    Ok(words.chunks_exact(each).zip(counts).map(outcome))
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
    pub(crate) fn decision(&self, at: usize, policies: &PolicySet, cost: Cost) -> Decision {
        // The last admitted request, and every denied one, has the levels that the script sent.
        if at + 1 >= self.granted && (at >= self.granted || self.levels.fit()) {
            return Decision::from_levels(policies, self.levels.clone(), cost, self.at_us);
        }
        // The script cannot have admitted more than all bursts hold.
        let later = ((self.granted - 1 - at) as u64).saturating_mul(cost.units()).min(policies.most().units());
        let earlier = |(policy, level): (_, PolicyLevel)| {
            (policy, PolicyLevel { fits: true, words: unspent(policy, &level.words, later) })
        };
        let levels = PolicyLevels::collect(self.levels.iter(policies).map(earlier));
        Decision::from_levels(policies, levels, cost, self.at_us)
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

fn levels<W>(
    scripts: &ScriptSet,
    policies: &PolicySet,
    words: &[W],
    word: impl Fn(&W) -> Result<i64, Error> + Copy,
) -> Result<PolicyLevels, Error> {
    let mut all = policies.iter().zip(&scripts.words).map(|(policy, range)| {
        let level = level(policy, &words[range.clone()], word)?;
        Ok::<_, Error>((policy, level))
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
fn level<W>(policy: &Policy, words: &[W], word: impl Fn(&W) -> Result<i64, Error>) -> Result<PolicyLevel, Error> {
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
    // The second word of a bucket counts parts of 1/amount µs.
    let is_bucket = matches!(policy.algorithm(), Algorithm::TokenBucket | Algorithm::LeakyBucket);
    if is_bucket && level.words[1] >= policy.quota_ref().amount() {
        return Err(invalid(format_args!("a part that is a whole")));
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

fn invalid(what: std::fmt::Arguments<'_>) -> Error {
    Error::new(ErrorKind::Protocol, format!("the rate limit script sent a reply that is not valid: {what}"))
}
