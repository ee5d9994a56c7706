//! A check on the wire: the numbers and the keys of its call, and the integers of its reply. The other
//! calls use the same ones.
//! When it is sent is not known here. Several checks in one call are in `batch.rs`.

use std::ops::Deref;

use redis::Value;
use smallvec::SmallVec;

use crate::protocol::ScriptsOf;
use tollgate_core::{
    Algorithm, Decision, Error, ErrorKind, Policy, PolicySet,
    raw::{
        ChargeRef, CostParts, DecisionParts, MAX_EXACT, PolicyLevel, PolicyLevels, PolicyParts,
        PolicySetParts, ceiling_numbers, for_each_number as for_each_number_of, micros,
        runtime::since_epoch,
    },
};

/// The numbers of a call as doubles, with room for a few policies.
///
/// All are whole numbers below 2^53, so they are exact. A time of −1 stands for the server's own
/// clock.
#[derive(Debug, Default)]
pub struct Packed(SmallVec<[[u8; size_of::<f64>()]; 16]>);

impl Packed {
    #[inline]
    pub(super) fn push(&mut self, number: f64) {
        self.0.push(number.to_le_bytes());
    }
}

impl Deref for Packed {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.0.as_flattened()
    }
}

/// Packs the numbers of a check, or of a batch of checks that have the same policies and costs.
#[inline]
#[must_use]
pub fn pack(now: f64, charge: ChargeRef<'_>, policies: &PolicySet) -> Packed {
    packed(now, now, charge, None, policies)
}

/// Packs the numbers of a check by a process whose clock differs from the time of the check.
#[must_use]
pub fn pack_seen(now: f64, seen: f64, charge: ChargeRef<'_>, policies: &PolicySet) -> Packed {
    packed(now, seen, charge, None, policies)
}

#[inline]
pub(super) fn packed(
    now: f64,
    seen: f64,
    charge: ChargeRef<'_>,
    spent: Option<f64>,
    policies: &PolicySet,
) -> Packed {
    let mut packed = Packed::default();
    let mut push = |number: f64| packed.push(number);
    push(now);
    match spent {
        None => push_charge(charge, policies, &mut push),
        Some(spent) => {
            charge
                .iter(policies.len())
                .for_each(|cost| push(cost.number()));
            push(spent);
        }
    }
    for_each_number(policies, seen, push);
    packed
}

/// Visits the cost for each policy, and then the numbers of the ceiling for each if there are
/// ceilings.
#[inline]
pub(super) fn push_charge(charge: ChargeRef<'_>, policies: &PolicySet, mut push: impl FnMut(f64)) {
    charge
        .iter(policies.len())
        .for_each(|cost| push(cost.number()));
    push_ceilings(charge, policies, push);
}

/// Visits the numbers of the ceiling for each policy if there are ceilings.
#[inline]
pub(super) fn push_ceilings(
    charge: ChargeRef<'_>,
    policies: &PolicySet,
    mut push: impl FnMut(f64),
) {
    if charge.is_capped() {
        let each = policies.iter().enumerate();
        each.flat_map(|(at, policy)| ceiling_numbers(policy, charge.ask(at)))
            .for_each(|number| push(number as f64));
    }
}

/// Visits the numbers of all policies in order. `now` is the time of the call; a time below 0 stands
/// for the server's own clock, and the clock of the process then selects the periods.
#[inline]
pub(super) fn for_each_number(policies: &PolicySet, now: f64, mut visit: impl FnMut(f64)) {
    let now_us = || match now {
        0.0.. => now as u64,
        _ => micros(since_epoch()),
    };
    for policy in policies.iter() {
        for_each_number_of(policy, now_us, |number| visit(number as f64));
    }
}

/// Ends the key of the outstanding units of a leased policy, behind the key of the policy.
pub const OUTSTANDING: &[u8] = b":o";

/// The bound of all numbers of a script: from here on a double cannot hold every integer.
const EXACT: i64 = MAX_EXACT as i64;

/// Reads the reply of a check: the integers of each policy, then the server's time. The first of
/// a policy that denies is sent as −1 − its value. A bare integer is the first of a single policy,
/// and carries no time: `asked_us` stands for it, which is no later.
pub fn decision(
    policies: &PolicySet,
    charge: ChargeRef<'_>,
    asked_us: u64,
    reply: &Value,
) -> Result<Decision, Error> {
    let (integers, at_us) = match reply {
        Value::Array(reply) => timed(reply)?,
        bare => (std::slice::from_ref(bare), asked_us),
    };
    let count = integers_of_check(policies, charge.is_capped());
    if integers.len() != count {
        return Err(invalid(format_args!(
            "expected {count} numbers, got {}",
            integers.len()
        )));
    }
    Ok(Decision::from_levels(
        policies,
        levels(policies, integers, integer)?,
        charge,
        at_us,
    ))
}

/// Returns the number of integers in the reply to a check, and for each key in the reply to a batch.
pub(super) fn integers_of_check(policies: &PolicySet, is_capped: bool) -> usize {
    policies.shape().reading_len() - usize::from(policies.is_short() && !is_capped)
}

/// Splits a reply into its integers and the time at its end.
fn timed(reply: &[Value]) -> Result<(&[Value], u64), Error> {
    match reply {
        [integers @ .., Value::Int(now)] => Ok((integers, time(*now)?)),
        _ => Err(invalid(format_args!("no time"))),
    }
}

pub(super) fn time(number: i64) -> Result<u64, Error> {
    if (0..EXACT).contains(&number) {
        Ok(number.unsigned_abs())
    } else {
        Err(invalid(format_args!("no time")))
    }
}

/// Reads the integers of all policies. Those that were left out count as zero.
pub(super) fn levels<W>(
    policies: &PolicySet,
    mut integers: &[W],
    read: impl Fn(&W) -> Result<i64, Error> + Copy,
) -> Result<PolicyLevels, Error> {
    let mut all = policies.iter().map(|policy| {
        let (own, rest) = integers.split_at(policy.reading_len().min(integers.len()));
        integers = rest;
        Ok::<_, Error>((policy, has_part(policy, level(own, read)?)?))
    });
    if policies.len() == 1
        && let Some(one) = all.next()
    {
        return one.map(|(_, level)| PolicyLevels::one(level));
    }
    let all: SmallVec<[_; 4]> = all.collect::<Result<_, _>>()?;
    Ok(PolicyLevels::collect(all))
}

/// Reads the integers of one policy.
#[inline]
pub(super) fn level<W>(
    integers: &[W],
    read: impl Fn(&W) -> Result<i64, Error>,
) -> Result<PolicyLevel, Error> {
    let mut level = PolicyLevel {
        fits: true,
        reading: [0; 4],
    };
    for (at, (value, place)) in integers.iter().zip(&mut level.reading).enumerate() {
        let integer = read(value)?;
        if at > 0 && integer < 0 {
            return Err(invalid(format_args!("a negative integer")));
        }
        level.fits &= integer >= 0;
        let integer = if integer >= 0 { integer } else { -1 - integer };
        if integer >= EXACT {
            return Err(invalid(format_args!("an integer beyond 2^53")));
        }
        *place = integer.unsigned_abs();
    }
    Ok(level)
}

/// Refuses the reading of a bucket whose second integer, which counts parts of 1/amount µs, is a whole.
#[inline]
pub(super) fn has_part(policy: &Policy, level: PolicyLevel) -> Result<PolicyLevel, Error> {
    let is_bucket = matches!(
        policy.algorithm(),
        Algorithm::TokenBucket | Algorithm::LeakyBucket
    );
    if is_bucket && level.reading[1] >= policy.quota_ref().amount() {
        return Err(invalid(format_args!("remainder too large")));
    }
    Ok(level)
}

fn integer(value: &Value) -> Result<i64, Error> {
    match value {
        Value::Int(integer) => Ok(*integer),
        _ => Err(invalid(format_args!("a value that is no integer"))),
    }
}

/// Reads a whole number that was packed as a double.
#[inline]
pub(super) fn whole(bytes: &[u8; 8]) -> Result<i64, Error> {
    let number = f64::from_le_bytes(*bytes);
    let integer = number as i64;
    if integer as f64 == number {
        Ok(integer)
    } else {
        Err(invalid(format_args!("a number that is not whole")))
    }
}

pub(super) fn invalid(what: std::fmt::Arguments<'_>) -> Error {
    Error::new(
        ErrorKind::Protocol,
        format!("the rate limit script sent a reply that is not valid: {what}"),
    )
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::protocol::pack_refund;
    use tollgate_core::{Cost, Quota, raw::Charge};

    pub(in super::super) fn doubles(packed: &[u8]) -> Vec<f64> {
        packed
            .as_chunks()
            .0
            .iter()
            .map(|bytes| f64::from_le_bytes(*bytes))
            .collect()
    }

    pub(in super::super) fn set(amount: u64) -> PolicySet {
        PolicySet::from([
            Policy::token_bucket("bucket", Quota::per_second(amount).with_burst(40)),
            Policy::fixed_window("window", Quota::per_minute(amount + 1)),
        ])
    }

    #[test]
    fn the_numbers_of_a_call_come_before_those_of_the_policies() {
        let numbers = [5.0, 1e6, 40.0, 6.0, 60e6];
        let (same, each) = (
            Charge::from(Cost::new(3)),
            Charge::each([Cost::new(3), Cost::new(8)]),
        );
        let packed = |charge: &Charge| doubles(&pack(-1.0, charge.borrow(), &set(5)));
        assert_eq!(packed(&same), [&[-1.0, 3.0, 3.0], &numbers[..]].concat());
        assert_eq!(packed(&each), [&[-1.0, 3.0, 8.0], &numbers[..]].concat());
        let refund = pack_refund(9.0, each.borrow(), 7.0, &set(5), false, |_| None);
        // A token bucket takes the integers of the request, which are not known here.
        assert_eq!(
            doubles(&refund),
            [&[9.0, 3.0, 8.0, 7.0], &numbers[..], &[-1.0, 0.0]].concat()
        );
    }
}
