use redis::Value;

use super::plan::Plan;
use crate::{Cost, Decision, Entry, Error, ErrorKind, PolicySet, algorithm::Reading, decision::Readings};

/// Reads the reply of a check: per policy its words, the first as −1 − word where it denies; last
/// the server's time. A bare integer is the first word of a policy that is alone.
pub(super) fn decision(plan: &Plan, policies: &PolicySet, cost: Cost, reply: &Value) -> Result<Decision, Error> {
    let words: &[Value] = match reply {
        Value::Array(words) => words,
        bare => std::slice::from_ref(bare),
    };
    let places = plan.words.last().map_or(0, |last| last.end);
    if words.len() != 1 && words.len() != places + 1 || words.len() == 1 && policies.len() != 1 {
        return Err(nonsense(format_args!("{} words where {} belong", words.len(), places + 1)));
    }
    let mut readings = Readings::new();
    for range in &plan.words {
        let mut reading = Reading { fits: true, words: [0; 4] };
        for (at, place) in range.clone().take(words.len()).enumerate() {
            let Value::Int(word) = words[place] else {
                return Err(nonsense(format_args!("a word that is no integer")));
            };
            let fits = word >= 0;
            if at > 0 && !fits {
                return Err(nonsense(format_args!("a negative word")));
            }
            reading.fits &= fits;
            reading.words[at] = if fits { word as u64 } else { (-1 - word) as u64 };
        }
        readings.push(reading);
    }
    let at_us = match words.get(places) {
        Some(&Value::Int(now)) if now >= 0 => now as u64,
        Some(_) => return Err(nonsense(format_args!("a time that is no integer"))),
        None => 0,
    };
    Ok(Decision::from_readings(policies, readings, cost, at_us))
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
