//! The calls beside checks: refunds, reservations, permits, and the entries of a log.
//! Checks and batches of them are in files of their own. Calls of housekeeping are in
//! `replicas.rs`.

use redis::Value;
use smallvec::SmallVec;

use super::check::{
    Packed, for_each_number, has_part, invalid, level, packed, push_ceilings, push_charge, time,
    whole,
};
use tollgate_core::{
    Cost, Decision, Error, ErrorKind, PolicySet,
    limiter::Entry,
    raw::{
        AlgorithmParts, Cascade, ChargeRef, CostParts, DecisionParts, PolicyLevels, PolicyParts,
        Span, micros,
    },
    reservation::Settlement,
    store::{PermitGrant, PermitOutcome, PermitRequest},
};

/// Packs the numbers of a refund of units that were spent at `spent`. −1 stands for the time of the
/// refund, and −1 − x for x microseconds before.
///
/// `ahead` returns the time from the request until the bucket of a policy is full, or its queue
/// empty. `is_capped` is true when the request had a ceiling: an interval bucket that went into
/// debt has given out places, too.
pub fn pack_refund(
    now: f64,
    charge: ChargeRef<'_>,
    spent: f64,
    policies: &PolicySet,
    is_capped: bool,
    ahead: impl Fn(usize) -> Option<Span>,
) -> Packed {
    let mut packed = packed(now, now, charge, Some(spent), policies);
    for (at, policy) in policies.iter().enumerate() {
        if policy.algorithm().is_queued(is_capped) {
            let (whole, part) =
                ahead(at).map_or((-1.0, 0.0), |(whole, part)| (whole as f64, part as f64));
            packed.push(whole);
            packed.push(part);
        }
    }
    packed
}

/// Packs the numbers of a reservation that lapses `life` microseconds after it is made, or of a
/// commit with this number.
#[must_use]
pub fn pack_held(now: f64, number: u64, charge: ChargeRef<'_>, policies: &PolicySet) -> Packed {
    let mut packed = Packed::default();
    let mut push = |number: f64| packed.push(number);
    push(now);
    push(number as f64);
    match charge.cascade() {
        Some(cascade) => {
            push(charge.cost.number());
            push(f64::from(u8::from(cascade == Cascade::Whole)));
            for (at, cost) in charge.iter(policies.len()).enumerate() {
                push(if charge.is_beside(at) {
                    cost.number()
                } else {
                    -1.0
                });
            }
            push_ceilings(charge, policies, &mut push);
        }
        None => push_charge(charge, policies, &mut push),
    }
    for_each_number(policies, now, push);
    packed
}

/// The bytes of a record before its policies.
const RECORD_HEAD: usize = 24;

/// The bytes of a policy in a record: its cost and four integers.
const RECORD_POLICY: usize = 40;

/// The status of a reservation that an earlier call has made.
const REPEATED: i64 = 2;

/// Reads the reply of a reservation: the status and the record. `asked` is the charge of the call.
pub fn reserved(
    policies: &PolicySet,
    asked: ChargeRef<'_>,
    reply: &Value,
) -> Result<Decision, Error> {
    let Value::Array(reply) = reply else {
        return Err(invalid(format_args!("no list")));
    };
    let [Value::Int(status @ 0..=2), Value::BulkString(record)] = reply.as_slice() else {
        return Err(invalid(format_args!("no status and record")));
    };
    if record.len() != RECORD_HEAD + policies.len() * RECORD_POLICY {
        return Err(invalid(format_args!("a record of {} bytes", record.len())));
    }
    let (integers, _) = record.as_chunks();
    let at_us = time(whole(&integers[2])?)?;
    let mut costs = SmallVec::<[Cost; 8]>::new();
    let mut levels = SmallVec::<[_; 4]>::new();
    for (policy, entry) in policies
        .iter()
        .zip(integers[3..].chunks_exact(RECORD_POLICY / 8))
    {
        let cost = whole(&entry[0])?;
        costs.push(Cost::new(
            u64::try_from(cost).map_err(|_| invalid(format_args!("a negative cost")))?,
        ));
        let level = level(&entry[1..=policy.reading_len()], whole)?;
        // The integers of an earlier call may be those of another quota.
        levels.push((
            policy,
            if *status == REPEATED {
                level
            } else {
                has_part(policy, level)?
            },
        ));
    }
    let levels = PolicyLevels::collect(levels);
    if levels.fit() != (*status > 0) {
        return Err(invalid(format_args!(
            "a status that is not that of the policies"
        )));
    }
    let charge = asked.divided(costs);
    Ok(Decision::from_levels(
        policies,
        levels,
        charge.borrow(),
        at_us,
    ))
}

/// Reads the reply of a commit.
pub fn settlement(reply: &Value) -> Result<Settlement, Error> {
    match reply {
        Value::Int(0) => Ok(Settlement::Lapsed),
        Value::Int(1) => Ok(Settlement::Settled),
        Value::Int(2) => Ok(Settlement::AlreadySettled),
        _ => Err(invalid(format_args!("no status of a commit"))),
    }
}

/// Reads the entries of a log: the server's time, then the list. Leaves out entries older than
/// `period_us`, and elements that are not entries.
pub fn entries(period_us: u64, reply: Value) -> Result<Vec<Entry>, Error> {
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

/// Packs the numbers of a call for permits, as doubles. A time of −1 stands for the server's own
/// clock.
#[must_use]
pub fn pack_permits(now: f64, request: &PermitRequest<'_>) -> [u8; 72] {
    let numbers = [
        now,
        request.limit.into(),
        request.number as f64,
        request.kept.into(),
        request.used.into(),
        request.needed.into(),
        request.extra.into(),
        u8::from(request.waits).into(),
        micros(request.life) as f64,
    ];
    let mut packed = [0; 72];
    for (bytes, number) in packed.as_chunks_mut().0.iter_mut().zip(numbers) {
        *bytes = number.to_le_bytes();
    }
    packed
}

/// Reads the reply to a call for permits.
pub fn permit_grant(reply: &Value) -> Result<PermitGrant, Error> {
    read(reply).ok_or_else(|| {
        Error::new(
            ErrorKind::Protocol,
            "redis sent a reply about permits that is not valid",
        )
    })
}

fn read(reply: &Value) -> Option<PermitGrant> {
    let Value::Array(integers) = reply else {
        return None;
    };
    let number = |at: usize| match integers.get(at) {
        Some(Value::Int(number)) => u64::try_from(*number).ok(),
        _ => None,
    };
    let outcome = match number(3)? {
        0 => PermitOutcome::Decided,
        1 => PermitOutcome::Overtaken,
        2 => PermitOutcome::Lost,
        3 => PermitOutcome::TooManyReplicas,
        _ => return None,
    };
    Some(PermitGrant {
        held: u32::try_from(number(0)?).ok()?,
        in_flight: number(1)?,
        wanted: number(2)?,
        outcome,
    })
}
