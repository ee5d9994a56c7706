//! The values that were read for a batch, and how the calls change them.
//! Which calls are in the batch, and whether the write succeeded, is known in `lanes.rs`.

use std::sync::Arc;

use smallvec::SmallVec;

use super::{Change, Write};
use crate::{
    Policy,
    model::algorithm::State,
    store::{Check, ReservationId, reservation::Record, step::States},
};

/// The values of the names that a batch reads. They are sorted by name.
pub(super) struct Values(Vec<ReadValue>);

struct ReadValue {
    name: Vec<u8>,
    value: Option<Vec<u8>>,
    /// The expiry of a value that has changed. 0 for one that was removed.
    changed: Option<u64>,
}

impl Values {
    pub(super) fn new(names: Vec<Vec<u8>>, values: Vec<Option<Vec<u8>>>) -> Self {
        Self(
            names
                .into_iter()
                .zip(values)
                .map(|(name, value)| ReadValue {
                    name,
                    value,
                    changed: None,
                })
                .collect(),
        )
    }

    pub(super) fn get(&self, name: &[u8]) -> Option<&[u8]> {
        let at = self
            .0
            .binary_search_by(|slot| slot.name.as_slice().cmp(name))
            .ok()?;
        self.0[at].value.as_deref()
    }

    /// Replaces a value, or removes it.
    pub(super) fn set(&mut self, name: &[u8], value: Option<Vec<u8>>, expires_ms: u64) {
        if let Ok(at) = self
            .0
            .binary_search_by(|slot| slot.name.as_slice().cmp(name))
        {
            let slot = &mut self.0[at];
            (slot.value, slot.changed) = (value, Some(expires_ms));
        }
    }

    /// Returns what has changed: a change for all calls that have names in common, which are
    /// written together or not at all. And the change of each call, which is `None` when neither
    /// the call nor others of its names have changed anything.
    pub(super) fn into_changes<'n>(
        self,
        calls: impl Iterator<Item = &'n [Vec<u8>]>,
    ) -> (Vec<Change>, Vec<Option<usize>>) {
        let place = |name: &Vec<u8>| {
            let place = self.0.binary_search_by(|slot| slot.name.cmp(name));
            place.unwrap_or_default()
        };
        // Each name leads to one before it that a call has as well, and the first to itself.
        let mut leads: Vec<usize> = (0..self.0.len()).collect();
        let mut join = |names: &[Vec<u8>]| {
            let first = names.first().map(place)?;
            for name in &names[1..] {
                let (one, other) = (first_of(&leads, first), first_of(&leads, place(name)));
                leads[one.max(other)] = one.min(other);
            }
            Some(first)
        };
        let firsts: Vec<_> = calls.map(&mut join).collect();
        let (mut changes, mut of_firsts) = (Vec::new(), vec![None; self.0.len()]);
        for (at, slot) in self.0.iter().enumerate() {
            let of_first = &mut of_firsts[first_of(&leads, at)];
            if slot.changed.is_some() && of_first.is_none() {
                *of_first = Some(changes.len());
                changes.push(Change::default());
            }
        }
        for (at, slot) in self.0.into_iter().enumerate() {
            let Some(change) = of_firsts[first_of(&leads, at)] else {
                continue;
            };
            let change = &mut changes[change];
            change.keys.push(at);
            change.writes.extend(slot.changed.map(|expires_ms| Write {
                key: slot.name,
                value: slot.value,
                expires_ms,
            }));
        }
        let of_calls = firsts
            .into_iter()
            .map(|first| of_firsts[first_of(&leads, first?)]);
        (changes, of_calls.collect())
    }
}

/// Returns the first of the names that calls have in common with this one.
fn first_of(leads: &[usize], mut at: usize) -> usize {
    while leads[at] != at {
        at = leads[at];
    }
    at
}

/// The states of one call: the bytes of the names that it reads.
pub(super) struct View<'a> {
    values: &'a mut Values,
    /// The name of the state of each policy, and then the name of the record.
    names: &'a [Vec<u8>],
    states: SmallVec<[Option<Taken>; 2]>,
}

/// A state that was read, and the [interval](Policy::interval_us) that is stored with it if the policy
/// has another one.
type Taken = (State, Option<f64>);

impl<'a> View<'a> {
    pub(super) fn new(values: &'a mut Values, names: &'a [Vec<u8>]) -> Self {
        Self {
            values,
            names,
            states: names.iter().map(|_| None).collect(),
        }
    }
}

impl States for View<'_> {
    /// Reads the bytes. Those that are never stored count as missing.
    fn find(&mut self, at: usize, policy: &Policy) -> Option<usize> {
        self.states[at] = self
            .values
            .get(&self.names[at])
            .and_then(|bytes| State::of_bytes(policy, bytes));
        self.states[at].as_ref().map(|_| at)
    }

    fn state(
        &mut self,
        at: usize,
        _policy: &Policy,
        _place: usize,
    ) -> Option<(&mut State, Option<f64>)> {
        self.states[at]
            .as_mut()
            .map(|(state, interval)| (state, *interval))
    }

    fn set(
        &mut self,
        at: usize,
        policy: &Arc<Policy>,
        _place: Option<usize>,
        state: State,
        stored_interval: Option<f64>,
        _now_us: u64,
    ) {
        self.values.set(
            &self.names[at],
            Some(state.to_bytes(policy, stored_interval)),
            state.expires_ms(policy),
        );
    }

    fn remove(&mut self, at: usize, _policy: &Policy) {
        if self.values.get(&self.names[at]).is_some() {
            self.values.set(&self.names[at], None, 0);
        }
    }

    fn record(&mut self, check: Check<'_>, _id: &ReservationId, now_us: u64) -> Option<Record> {
        let policies = check.policies.len();
        let record = Record::of_bytes(policies, self.values.get(self.names.get(policies)?)?)?;
        (now_us < record.lapse_us).then_some(record)
    }

    fn set_record(&mut self, check: Check<'_>, _id: &ReservationId, record: Record) {
        if let Some(name) = self.names.get(check.policies.len()) {
            self.values
                .set(name, Some(record.to_bytes()), record.expires_ms());
        }
    }
}
