use redis::Value;
use smallvec::SmallVec;

use super::plan::Plan;
use crate::{
    Algorithm, Cost, Decision, Entry, Error, ErrorKind, PolicySet,
    algorithm::{Reading, unspent},
    quota::MAX_EXACT,
    readings::Readings,
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
    Ok(Decision::from_readings(policies, readings(plan, policies, words)?, cost, at_us))
}

/// What a batch says of one subject.
#[derive(Debug)]
pub(super) struct Outcome {
    /// How many of the requests were admitted, the first ones.
    granted: usize,
    /// The level after the last of them, and who denies the next.
    readings: Readings,
    at_us: u64,
}

/// Reads the reply of a batch: for each subject the number of requests that were admitted, if they
/// were counted, and the words as for a check; last the server's time.
pub(super) fn outcomes(
    plan: &Plan,
    policies: &PolicySet,
    subjects: usize,
    counted: bool,
    reply: &Value,
) -> Result<Vec<Outcome>, Error> {
    let Value::Array(reply) = reply else {
        return Err(nonsense(format_args!("no list")));
    };
    let (words, at_us) = timed(reply)?;
    let each = plan.words_in_all() + usize::from(counted);
    if words.len() != subjects * each {
        return Err(nonsense(format_args!("{} words where {} belong", words.len(), subjects * each)));
    }
    let outcome = |words: &[Value]| {
        let (granted, words) = match words {
            [Value::Int(granted), words @ ..] if counted => (Some(*granted), words),
            words => (None, words),
        };
        let readings = readings(plan, policies, words)?;
        let granted = match granted {
            // No more can be asked for in one call.
            Some(granted) => match u32::try_from(granted) {
                Ok(granted) => granted as usize,
                Err(_) => return Err(nonsense(format_args!("{granted} requests admitted"))),
            },
            None => usize::from(readings.fit()),
        };
        Ok(Outcome { granted, readings, at_us })
    };
    words.chunks_exact(each).map(outcome).collect()
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
        let earlier = |(policy, reading): (_, Reading)| {
            (policy, Reading { fits: true, words: unspent(policy, &reading.words, later) })
        };
        let readings = Readings::collect(self.readings.iter(policies).map(earlier));
        Decision::from_readings(policies, readings, cost, self.at_us)
    }
}

/// The words of a reply, and the time that ends it.
fn timed(reply: &[Value]) -> Result<(&[Value], u64), Error> {
    match reply {
        [words @ .., Value::Int(now)] if (0..EXACT).contains(now) => Ok((words, now.unsigned_abs())),
        _ => Err(nonsense(format_args!("no time"))),
    }
}

fn readings(plan: &Plan, policies: &PolicySet, words: &[Value]) -> Result<Readings, Error> {
    let mut readings = SmallVec::<[_; 4]>::new();
    for (policy, range) in policies.iter().zip(&plan.words) {
        let mut reading = Reading { fits: true, words: [0; 4] };
        for (at, value) in words[range.clone()].iter().enumerate() {
            let Value::Int(word) = *value else {
                return Err(nonsense(format_args!("a word that is no integer")));
            };
            let fits = word >= 0;
            if at > 0 && !fits {
                return Err(nonsense(format_args!("a negative word")));
            }
            reading.fits &= fits;
            let word = if fits { word } else { -1 - word };
            if word >= EXACT {
                return Err(nonsense(format_args!("a word beyond 2^53")));
            }
            reading.words[at] = word.unsigned_abs();
        }
        // Of a bucket the second word is a part of 1/amount µs.
        let is_bucket = matches!(policy.algorithm(), Algorithm::TokenBucket | Algorithm::LeakyBucket);
        if is_bucket && reading.words[1] >= policy.quota_ref().amount_u64() {
            return Err(nonsense(format_args!("a part that is a whole")));
        }
        readings.push((policy, reading));
    }
    Ok(Readings::collect(readings))
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
