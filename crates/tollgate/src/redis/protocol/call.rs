use redis::Value;
use smallvec::SmallVec;

use super::script;
use crate::{
    Error, ErrorKind, Key, Policy, PolicySet,
    clock::micros,
    model::{cost::ChargeRef, lease::Report, quota::Span},
    store::{PermitGrant, PermitOutcome, PermitRequest, ReservationId},
};

/// The size of a double.
const DOUBLE: usize = size_of::<f64>();

/// The size of the numbers of a call that has a few policies.
const PACKED: usize = 128;

/// Packs the numbers of a check, or of a batch of checks that have the same policies and costs, as doubles.
///
/// All are whole numbers below 2^53, so they are exact. A time of −1 stands for the server's own clock.
#[inline]
pub(crate) fn pack(now: f64, charge: ChargeRef<'_>, policies: &PolicySet) -> SmallVec<[u8; PACKED]> {
    packed(now, now, charge, None, policies)
}

/// Packs the numbers of a check by a process whose clock differs from the time of the check.
#[cfg(all(feature = "calendar", feature = "testing"))]
pub(crate) fn pack_seen(now: f64, seen: f64, charge: ChargeRef<'_>, policies: &PolicySet) -> SmallVec<[u8; PACKED]> {
    packed(now, seen, charge, None, policies)
}

/// Packs the numbers of a refund of units that were spent at `spent`. −1 stands for the time of the refund, and −1 − x
/// for x microseconds before.
///
/// `ahead` returns the time from the request until the bucket of a policy is full, or its queue empty.
/// `is_capped` is true when the request had a ceiling: an interval bucket that went into debt has given out places, too.
pub(crate) fn pack_refund(
    now: f64,
    charge: ChargeRef<'_>,
    spent: f64,
    policies: &PolicySet,
    is_capped: bool,
    ahead: impl Fn(usize) -> Option<Span>,
) -> SmallVec<[u8; PACKED]> {
    let mut packed = packed(now, now, charge, Some(spent), policies);
    for (at, policy) in policies.iter().enumerate() {
        if policy.algorithm().is_queued(is_capped) {
            let (whole, part) = ahead(at).map_or((-1.0, 0.0), |(whole, part)| (whole as f64, part as f64));
            packed.extend_from_slice(&whole.to_le_bytes());
            packed.extend_from_slice(&part.to_le_bytes());
        }
    }
    packed
}

/// Packs the numbers of a reservation that lapses `life` microseconds after it is made, or of a commit with this number.
pub(crate) fn pack_held(now: f64, number: u64, charge: ChargeRef<'_>, policies: &PolicySet) -> SmallVec<[u8; PACKED]> {
    let mut packed = SmallVec::new();
    let mut push = |number: f64| packed.extend_from_slice(&number.to_le_bytes());
    push(now);
    push(number as f64);
    push_charge(charge, policies, &mut push);
    for_each_number(policies, now, push);
    packed
}

/// Appends the end of the key of a record, from the hash tag on. The opening brace must be written.
///
/// It reads as the key of a policy that has the id and the [mark](PolicySet::mark) of the set for a name. No algorithm
/// has this tag. The record of a key with branches lies in the slot of the first branch that is metered.
pub(crate) fn write_record_key(policies: &PolicySet, key: &Key, id: &ReservationId, text: &mut Vec<u8>) {
    let branch = policies.first_branch(key);
    write_subject(branch.as_bytes(), branch.outermost().len(), text);
    if key.has_branches() {
        text.extend_from_slice(key.as_bytes());
        text.push(b':');
    }
    text.extend_from_slice(id.as_str().as_bytes());
    text.extend_from_slice(format!(":{:016x}:r2", policies.mark()).as_bytes());
}

#[inline]
fn packed(
    now: f64,
    seen: f64,
    charge: ChargeRef<'_>,
    spent: Option<f64>,
    policies: &PolicySet,
) -> SmallVec<[u8; PACKED]> {
    let mut packed = SmallVec::new();
    let mut push = |number: f64| packed.extend_from_slice(&number.to_le_bytes());
    push(now);
    match spent {
        None => push_charge(charge, policies, &mut push),
        Some(spent) => {
            charge.iter(policies.len()).for_each(|cost| push(cost.number()));
            push(spent);
        }
    }
    for_each_number(policies, seen, push);
    packed
}

/// Visits the cost for each policy, and then the numbers of the ceiling for each if there are ceilings.
#[inline]
fn push_charge(charge: ChargeRef<'_>, policies: &PolicySet, mut push: impl FnMut(f64)) {
    charge.iter(policies.len()).for_each(|cost| push(cost.number()));
    if charge.is_capped() {
        let each = policies.iter().enumerate();
        each.flat_map(|(at, policy)| script::ceiling_numbers(policy, charge.ask(at)))
            .for_each(|number| push(number as f64));
    }
}

/// Visits the numbers of all policies in order. `now` is the time of the call.
#[inline]
#[cfg_attr(not(feature = "calendar"), allow(unused_variables, reason = "only calendars depend on the time"))]
fn for_each_number(policies: &PolicySet, now: f64, mut visit: impl FnMut(f64)) {
    for policy in policies.iter() {
        #[cfg(feature = "calendar")]
        if let Some(numbers) = script::calendar_numbers(policy, now) {
            numbers.for_each(|number| visit(number as f64));
            continue;
        }
        for number in script::numbers(policy) {
            visit(number as f64);
        }
    }
}

/// Packs the numbers of a mixed batch: many subjects, each with policies of its own, and with runs of checks at costs of
/// their own.
///
/// All policy sets must have one [`Shape`](super::Shape). The runs of a subject are added in the order in which its
/// checks came, at least one, and exactly one if a policy is a sliding log.
#[derive(Debug)]
pub(crate) struct MixedArgs {
    packed: Vec<u8>,
    now: f64,
    /// The index of the number of runs of the last subject.
    runs_at: usize,
    runs: u32,
}

impl MixedArgs {
    /// Creates the numbers of a batch at `now`, with space for `subjects` subjects of one run and a few policies. A time
    /// of −1 stands for the server's own clock.
    pub(crate) fn new(now: f64, subjects: usize) -> Self {
        let mut packed = Vec::with_capacity((1 + 6 * subjects) * DOUBLE);
        packed.extend_from_slice(&now.to_le_bytes());
        Self { packed, now, runs_at: 0, runs: 0 }
    }

    /// Creates the numbers of a batch that takes reports and grants units. `birth` is a random number above zero.
    pub(crate) fn leasing(now: f64, birth: u64, subjects: usize) -> Self {
        let mut args = Self::new(now, 2 * subjects);
        args.push(birth as f64);
        args
    }

    /// Begins the next subject.
    pub(crate) fn subject(&mut self, policies: &PolicySet) {
        self.quotas(policies);
        self.begin_runs();
    }

    /// Begins the next subject of a batch that takes reports and grants units. `want` is the number of wanted units.
    pub(crate) fn leased_subject(&mut self, policies: &PolicySet, reports: &[Report], want: u64) {
        self.quotas(policies);
        self.push(reports.len() as f64);
        for report in reports {
            self.push(report.spent as f64);
            self.push(report.returned as f64);
            for stamp in &report.stamps {
                self.push(stamp.birth as f64);
                self.push(stamp.generation as f64);
            }
        }
        self.push(want as f64);
        self.begin_runs();
    }

    fn quotas(&mut self, policies: &PolicySet) {
        for_each_number(policies, self.now, |number| self.packed.extend_from_slice(&number.to_le_bytes()));
    }

    fn begin_runs(&mut self) {
        (self.runs_at, self.runs) = (self.packed.len(), 0);
        self.push(0.0);
    }

    /// Adds a run to the last subject: `count` checks of a charge on its policies, at least one.
    pub(crate) fn run(&mut self, charge: ChargeRef<'_>, policies: &PolicySet, count: usize) {
        push_charge(charge, policies, |number| self.push(number));
        self.push(count as f64);
        self.runs += 1;
        self.packed[self.runs_at..self.runs_at + DOUBLE].copy_from_slice(&f64::from(self.runs).to_le_bytes());
    }

    /// Returns the packed numbers: the first argument of the call.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.packed
    }

    fn push(&mut self, number: f64) {
        self.packed.extend_from_slice(&number.to_le_bytes());
    }
}

/// Ends the key of the outstanding units of a leased policy, behind the key of the policy.
pub(crate) const OUTSTANDING: &[u8] = b":o";

/// Appends the end of a key on the server, from the hash tag on: the metered levels, the name of the policy and the
/// storage version. The opening brace must be written.
///
/// The hash tag is the outermost level alone, so the states of all levels lie in one slot. The state of a branch is
/// that of the branch's key alone.
#[inline]
pub(crate) fn write_key(policy: &Policy, key: &Key, text: &mut Vec<u8>) {
    let key = policy.branch_of(key);
    write_subject(policy.metered(key).as_bytes(), key.outermost().len(), text);
    text.extend_from_slice(policy.name().as_bytes());
    text.push(b':');
    let [algorithm, lease] = policy.tag();
    text.extend_from_slice(algorithm.as_bytes());
    text.extend_from_slice(lease.as_bytes());
}

/// Appends the levels of a key and a colon. The first `outermost` bytes are the hash tag, which ends there.
#[inline]
pub(super) fn write_subject(levels: &[u8], outermost: usize, text: &mut Vec<u8>) {
    text.extend_from_slice(&levels[..outermost]);
    text.push(b'}');
    text.extend_from_slice(&levels[outermost..]);
    text.push(b':');
}

/// The version of the stored form of permits.
const TAG: &[u8] = b":p1";

/// Packs the numbers of a call for permits, as doubles. A time of −1 stands for the server's own clock.
pub(crate) fn pack_permits(now: f64, request: &PermitRequest<'_>) -> [u8; 72] {
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

/// Appends the end of the key of some permits, from the hash tag on. The opening brace must be written.
pub(crate) fn write_permit_key(name: &str, key: &Key, text: &mut Vec<u8>) {
    write_subject(key.as_bytes(), key.outermost().len(), text);
    text.extend_from_slice(name.as_bytes());
    text.extend_from_slice(TAG);
}

/// Reads the reply to a call for permits.
pub(crate) fn permit_grant(reply: &Value) -> Result<PermitGrant, Error> {
    read(reply).ok_or_else(|| Error::new(ErrorKind::Protocol, "redis sent a reply about permits that is not valid"))
}

fn read(reply: &Value) -> Option<PermitGrant> {
    let Value::Array(words) = reply else { return None };
    let number = |at: usize| match words.get(at) {
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
    Some(PermitGrant { held: u32::try_from(number(0)?).ok()?, in_flight: number(1)?, wanted: number(2)?, outcome })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cost, Quota, model::cost::Charge};

    fn doubles(packed: &[u8]) -> Vec<f64> {
        packed.as_chunks().0.iter().map(|bytes| f64::from_le_bytes(*bytes)).collect()
    }

    fn set(amount: u64) -> PolicySet {
        PolicySet::from([
            Policy::token_bucket("bucket", Quota::per_second(amount).with_burst(40)),
            Policy::fixed_window("window", Quota::per_minute(amount + 1)),
        ])
    }

    #[test]
    fn the_numbers_of_a_call_come_before_those_of_the_policies() {
        let numbers = [5.0, 1e6, 40.0, 6.0, 60e6];
        let (same, each) = (Charge::from(Cost::new(3)), Charge::each([Cost::new(3), Cost::new(8)]));
        let packed = |charge: &Charge| doubles(&pack(-1.0, charge.borrow(), &set(5)));
        assert_eq!(packed(&same), [&[-1.0, 3.0, 3.0], &numbers[..]].concat());
        assert_eq!(packed(&each), [&[-1.0, 3.0, 8.0], &numbers[..]].concat());
        let refund = pack_refund(9.0, each.borrow(), 7.0, &set(5), false, |_| None);
        // A token bucket takes the words of the request, which are not known here.
        assert_eq!(doubles(&refund), [&[9.0, 3.0, 8.0, 7.0], &numbers[..], &[-1.0, 0.0]].concat());
    }

    #[test]
    fn each_subject_of_a_mixed_batch_has_its_numbers_and_its_runs() {
        let mut args = MixedArgs::new(9.0, 2);
        args.subject(&set(5));
        args.run(Cost::ONE.into(), &set(5), 7);
        args.run(Charge::each([Cost::new(u64::from(u32::MAX)), Cost::ZERO]).borrow(), &set(5), 1);
        args.subject(&set(1));
        args.run(Cost::ZERO.into(), &set(1), 2);
        let first = [5.0, 1e6, 40.0, 6.0, 60e6, 2.0, 1.0, 1.0, 7.0, 4_294_967_295.0, 0.0, 1.0];
        let second = [1.0, 1e6, 40.0, 2.0, 60e6, 1.0, 0.0, 0.0, 2.0];
        assert_eq!(doubles(&args.into_bytes()), [&[9.0], &first[..], &second[..]].concat());
    }
}
