//! The values that were read for a batch, and how the calls change them.

use std::sync::Arc;

use smallvec::SmallVec;

use super::Write;
use crate::{
    Policy,
    model::algorithm::State,
    store::{Check, ReservationId, reservation::Record, step::States},
};

/// The values of the names that a batch reads. They are sorted by name.
pub(super) struct Values(Vec<Slot>);

struct Slot {
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
                .map(|(name, value)| Slot {
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

    /// Returns what has changed.
    pub(super) fn into_writes(self) -> Vec<Write> {
        let write = |slot: Slot| {
            Some(Write {
                key: slot.name,
                value: slot.value,
                expires_ms: slot.changed?,
            })
        };
        self.0.into_iter().filter_map(write).collect()
    }
}

/// The states of one call: the bytes of the names that it reads.
pub(super) struct View<'a> {
    values: &'a mut Values,
    /// The name of the state of each policy, and then that of the record.
    names: &'a [Vec<u8>],
    states: SmallVec<[Option<Taken>; 2]>,
}

/// A state that was read, and the pace at which it was stored if that is another one.
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
            .map(|(state, other)| (state, *other))
    }

    fn set(
        &mut self,
        at: usize,
        policy: &Arc<Policy>,
        _place: Option<usize>,
        state: State,
        other: Option<f64>,
        _now_us: u64,
    ) {
        self.values.set(
            &self.names[at],
            Some(state.to_bytes(policy, other)),
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
