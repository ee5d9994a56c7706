//! Describes each algorithm to the assembler, and lists the numbers of a policy.

#[cfg(feature = "calendar")]
use std::time::SystemTime;

use crate::{
    Algorithm, Policy,
    model::{
        algorithm::{self, ROWS, source},
        cost::Ask,
        policy::LEASED_WORDS,
    },
};

/// Describes an algorithm to the assembler.
pub(super) struct Part {
    pub(super) source: &'static str,
    pub(super) args: &'static [&'static str],
    pub(super) words: usize,
    /// Is true when the reply of a single policy leaves out the last word when its amount divides its period.
    pub(super) parted: bool,
    /// Is true when the tag of the request is stored.
    pub(super) tagged: bool,
    /// Is true when a refund depends on the time until the bucket is full, as it was after the request.
    pub(super) queued: bool,
    /// Set when the words are the used units and three times.
    pub(super) is_counted: bool,
    /// Is true when replicas take units in advance.
    pub(super) leased: bool,
    /// Is true when nothing is charged and stored.
    pub(super) looks: bool,
    /// Lists the numbers of the ceiling of a request, if it has one.
    pub(super) ceiling: &'static [&'static str],
    /// Names the number that is the ceiling of every other request.
    pub(super) top: &'static str,
}

/// Selects the form of a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Plain,
    /// Replicas take units of the policies in advance.
    Leased,
    /// The request has a ceiling for each policy.
    Capped,
}

/// The sections that a leased policy has around those of its algorithm.
pub(super) const LEASED: &str = source!("leased");

pub(super) fn part(algorithm: Algorithm, form: Form) -> Part {
    let (row, facts) = (algorithm.row(), algorithm.facts());
    let is_capped = form == Form::Capped;
    let leased = form == Form::Leased;
    // The last word of a leased policy is the time until missing units have lapsed, unless its words are times already.
    let words = if leased { LEASED_WORDS } else { facts.words };
    // The time of the reply is a part of the places in a debt.
    let parted = facts.is_parted && form == Form::Plain;
    Part {
        source: row.source,
        args: facts.args,
        words,
        parted,
        tagged: facts.is_tagged,
        queued: algorithm.is_queued(is_capped),
        is_counted: facts.words == LEASED_WORDS,
        leased,
        looks: false,
        ceiling: if is_capped { facts.ceiling } else { &[] },
        top: facts.top,
    }
}

/// Returns the file that a `like` line names, or that holds a function.
pub(super) fn named(name: &str) -> &'static str {
    match (name, ROWS.iter().find(|row| row.name == name)) {
        (_, Some(row)) => row.source,
        ("muldiv", None) => source!("muldiv"),
        _ => unreachable!("a script names a file that does not exist: {name}"),
    }
}

/// Returns the numbers of a policy without those of its calendar, in the order in which its script takes them. All are
/// whole numbers below 2^53, so a double holds them exactly.
pub(crate) fn numbers(policy: &Policy) -> impl Iterator<Item = u64> {
    let behind = algorithm::args(policy).into_iter().flatten();
    std::iter::once(policy.quota_ref().amount()).chain(behind).chain(lease_numbers(policy))
}

/// Returns the numbers of the ceiling of a request, in the order in which a script takes them.
pub(crate) fn ceiling_numbers(policy: &Policy, ask: Ask) -> impl Iterator<Item = u64> {
    let (first, second) = algorithm::ceiling_args(policy, ask);
    [first].into_iter().chain(second)
}

/// Returns the numbers of the lease of a policy: the length of a generation in microseconds, and the most outstanding
/// units.
fn lease_numbers(policy: &Policy) -> impl Iterator<Item = u64> {
    let numbers = policy.lease().map(|lease| [lease.generation_us(), lease.most(policy.quota_ref())]);
    numbers.into_iter().flatten()
}

/// Returns the numbers of a calendar window at `now`, in the order in which its script takes them. `None` for any other
/// policy. A time below 0 stands for the server's own clock, and the periods are then those of the process.
#[cfg(feature = "calendar")]
#[inline]
pub(crate) fn calendar_numbers(policy: &Policy, now: f64) -> Option<impl Iterator<Item = u64>> {
    match policy.algorithm() {
        Algorithm::CalendarWindow { .. } => Some(periods(policy, now).into_iter().chain(lease_numbers(policy))),
        _ => None,
    }
}

#[cfg(feature = "calendar")]
#[cold]
fn periods(policy: &Policy, now: f64) -> [u64; 5] {
    let now_us = if now < 0.0 {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        now.as_micros() as u64
    } else {
        now as u64
    };
    let periods = policy.periods(now_us);
    [policy.quota_ref().amount(), periods.before, periods.begin, periods.close, periods.after]
}
