use redis::Value;
use smallvec::SmallVec;

use super::plan::Plan;
use crate::{
    Cost, Decision, Entry, Error, ErrorKind, PolicySet,
    algorithm::{Reading, unspent},
    readings::Readings,
};

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
    readings: Readings,
    at_us: u64,
}

/// Reads the reply of a batch, doubles side by side: for each subject the number of requests that were admitted, if they
/// were counted, and the words as for a check; last the server's time.
pub(super) fn outcomes<'a>(
    plan: &'a Plan,
    policies: &'a PolicySet,
    subjects: usize,
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
    let at_us = u64::try_from(word(at)?).map_err(|_| nonsense(format_args!("no time")))?;
    let each = plan.words_in_all() + usize::from(counted);
    if words.len() != subjects * each {
        return Err(nonsense(format_args!("{} words where {} belong", words.len(), subjects * each)));
    }
    let outcome = move |words: &[[u8; 8]]| {
        let (granted, words) = if counted { (Some(word(&words[0])?), &words[1..]) } else { (None, words) };
        let readings = readings(plan, policies, words, word)?;
        let granted = match granted {
            Some(granted) => usize::try_from(granted).map_err(|_| nonsense(format_args!("a negative number")))?,
            None => usize::from(readings.fit()),
        };
        Ok(Outcome { granted, readings, at_us })
    };
    Ok(words.chunks_exact(each).map(outcome))
}

/// A whole number that was packed as a double.
fn word(bytes: &[u8; 8]) -> Result<i64, Error> {
    let number = f64::from_le_bytes(*bytes);
    let word = number as i64;
    if word as f64 == number && word.unsigned_abs() <= MOST_EXACT {
        Ok(word)
    } else {
        Err(nonsense(format_args!("a number that is not whole")))
    }
}

/// Beyond it doubles are not all the whole numbers there are.
const MOST_EXACT: u64 = 1 << 53;

impl Outcome {
    /// The decision on the request that came as number `at`, counted from zero.
    pub(super) fn decision(&self, at: usize, policies: &PolicySet, cost: Cost) -> Decision {
        // Who came last reads what the script says, as do those who came after it and were denied.
        if at + 1 >= self.granted && (at >= self.granted || self.readings.fit()) {
            return Decision::from_readings(policies, self.readings.clone(), cost, self.at_us);
        }
        let later = (self.granted - 1 - at) as u64 * cost.get();
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
        [words @ .., Value::Int(now)] if *now >= 0 => Ok((words, now.unsigned_abs())),
        _ => Err(nonsense(format_args!("no time"))),
    }
}

fn readings<W>(
    plan: &Plan,
    policies: &PolicySet,
    words: &[W],
    word: fn(&W) -> Result<i64, Error>,
) -> Result<Readings, Error> {
    if policies.len() == 1 {
        return reading(words, word).map(Readings::one);
    }
    let mut readings = SmallVec::<[_; 4]>::new();
    for (policy, range) in policies.iter().zip(&plan.words) {
        readings.push((policy, reading(&words[range.clone()], word)?));
    }
    Ok(Readings::collect(readings))
}

/// What one policy says.
#[inline]
fn reading<W>(words: &[W], word: fn(&W) -> Result<i64, Error>) -> Result<Reading, Error> {
    let mut reading = Reading { fits: true, words: [0; 4] };
    for (at, (value, place)) in words.iter().zip(&mut reading.words).enumerate() {
        let word = word(value)?;
        *place = match u64::try_from(word) {
            Ok(word) => word,
            Err(_) if at > 0 => return Err(nonsense(format_args!("a negative word"))),
            Err(_) => {
                reading.fits = false;
                (-1 - word).unsigned_abs()
            }
        };
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
