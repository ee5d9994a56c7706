use redis::Value;

use super::plan::Plan;
use crate::{Cost, Decision, Error, ErrorKind, PolicySet, algorithm::Reading, decision::Readings};

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

fn nonsense(what: std::fmt::Arguments<'_>) -> Error {
    Error::new(ErrorKind::Protocol, format!("the rate limit script replied with {what}"))
}
