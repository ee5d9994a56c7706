//! Reads the descriptors of a request.
//! What a descriptor means is decided by the rules, in tollgate-rules.

use tollgate_rules::{Descriptor, LimitOverride, Unit};
use tonic::Status;

use crate::proto::ratelimit::RateLimitDescriptor;

/// The most entries for each descriptor that a request may have. Real requests have fewer than ten.
const ENTRIES: usize = 10;

/// Returns the descriptors, which borrow their texts from the request.
pub(super) fn descriptors(
    messages: &[RateLimitDescriptor],
    max: usize,
) -> Result<Vec<Descriptor<'_>>, Status> {
    let count = messages.len();
    if count > max {
        return Err(Status::invalid_argument(format!(
            "a request must have at most {max} descriptors, got {count}"
        )));
    }
    let entries: usize = messages
        .iter()
        .map(|descriptor| descriptor.entries.len())
        .sum();
    if entries > max.saturating_mul(ENTRIES) {
        let max = max.saturating_mul(ENTRIES);
        return Err(Status::invalid_argument(format!(
            "a request must have at most {max} entries, got {entries}"
        )));
    }
    let mut descriptors = Vec::with_capacity(count);
    for (at, message) in messages.iter().enumerate() {
        descriptors.push(descriptor(at, message)?);
    }
    Ok(descriptors)
}

fn descriptor(at: usize, message: &RateLimitDescriptor) -> Result<Descriptor<'_>, Status> {
    let entries = message
        .entries
        .iter()
        .map(|entry| (entry.key.as_str(), entry.value.as_str()));
    let mut descriptor: Descriptor<'_> = entries.collect();
    if let Some(limit) = &message.limit {
        let Some(unit) = unit(limit.unit) else {
            let unit = limit.unit;
            let message = format!(
                "descriptors[{at}].limit.unit: expected SECOND, MINUTE, HOUR, DAY, WEEK, MONTH or YEAR, got {unit}"
            );
            return Err(Status::invalid_argument(message));
        };
        descriptor = descriptor.with_limit(LimitOverride::new(limit.requests_per_unit, unit));
    }
    if let Some(hits) = message.hits_addend {
        descriptor = descriptor.with_hits(hits);
    }
    Ok(if message.is_negative_hits {
        descriptor.refunding()
    } else {
        descriptor
    })
}

/// Returns the unit with this number. The type of the field has no week, but Envoy's service reads
/// it as the type that has.
fn unit(number: i32) -> Option<Unit> {
    Some(match number {
        1 => Unit::Second,
        2 => Unit::Minute,
        3 => Unit::Hour,
        4 => Unit::Day,
        5 => Unit::Month,
        6 => Unit::Year,
        7 => Unit::Week,
        _ => return None,
    })
}
