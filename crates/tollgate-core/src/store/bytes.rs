//! The steps over states that are kept as bytes: for stores outside of this crate that decide in
//! Rust, and read and write bytes.
//! The steps themselves are in `step.rs`, the bytes of a state in `algorithm/`, and their names
//! in `names.rs`.

use std::{sync::Arc, time::Duration};

use smallvec::SmallVec;
use tollgate_model::{Entry, algorithm::State, raw::DecisionParts};

use super::{
    Check, PermitGrant, PermitRequest, ReservationId, Settlement,
    permits::PermitState,
    reservation::Record,
    step::{self, States},
};
use crate::{Decision, Policy, clock::micros};

/// Holds bytes under names. Nobody else changes them during a step.
pub trait Bytes {
    /// Returns the bytes under this name.
    fn get(&self, name: &[u8]) -> Option<&[u8]>;

    /// Replaces the bytes under this name, or removes them. They expire at `expires_ms`, in
    /// milliseconds since the Unix epoch.
    fn set(&mut self, name: &[u8], value: Option<Vec<u8>>, expires_ms: u64);
}

/// Decides over the states of one call, which are kept as [`Bytes`]. Bytes that no store writes count
/// as missing.
///
/// Times are in microseconds since the Unix epoch.
#[derive(Debug)]
pub struct ByteStates<'a, B> {
    bytes: &'a mut B,
    /// The name of the state of each policy, and then the name of the record.
    names: &'a [Vec<u8>],
    states: SmallVec<[Option<Taken>; 2]>,
}

/// A state that was read, and the [interval](Policy::interval_us) that is stored with it if the policy
/// has another one.
type Taken = (State, Option<f64>);

impl<'a, B: Bytes> ByteStates<'a, B> {
    /// Creates the states of a call. `names` are those of the state of each policy in the order of
    /// the set, and then that of the record if the call has a reservation.
    pub fn new(bytes: &'a mut B, names: &'a [Vec<u8>]) -> Self {
        Self {
            bytes,
            names,
            states: names.iter().map(|_| None).collect(),
        }
    }

    /// Decides over all policies of the check, and charges all or none.
    pub fn check(&mut self, check: Check<'_>, now_us: u64) -> Decision {
        let levels = step::check(self, check, now_us, false);
        Decision::from_levels(check.policies, levels, check.charge(), now_us)
    }

    /// Returns what a check would decide, and changes nothing.
    pub fn look(&mut self, check: Check<'_>, now_us: u64) -> Decision {
        let levels = step::look(self, check, now_us);
        Decision::from_levels(check.policies, levels, check.charge(), now_us)
    }

    /// Refunds the cost of the check, which was spent at `spent_us` by this decision.
    pub fn refund(
        &mut self,
        check: Check<'_>,
        now_us: u64,
        spent_us: u64,
        decision: Option<&Decision>,
    ) {
        step::refund(self, check, now_us, spent_us, decision);
    }

    /// Removes the states of the check.
    pub fn reset(&mut self, check: Check<'_>) {
        step::reset(self, check);
    }

    /// Lists up to `limit` entries of a sliding log, which is the only policy of the check.
    pub fn entries(&mut self, check: Check<'_>, now_us: u64, limit: usize) -> Vec<Entry> {
        match check.policies.iter().next() {
            Some(log) => step::entries(self, (0, log), now_us, limit),
            None => Vec::new(),
        }
    }

    /// Decides over a reservation, and records it for `time_to_live` if it is admitted.
    pub fn reserve(
        &mut self,
        check: Check<'_>,
        id: &ReservationId,
        time_to_live: Duration,
        now_us: u64,
    ) -> Decision {
        step::reserve(self, check, id, micros(time_to_live), now_us).decision(check)
    }

    /// Settles a reservation at the costs of the check. `number` is the same for each attempt of one
    /// commit.
    pub fn commit(
        &mut self,
        check: Check<'_>,
        id: &ReservationId,
        number: u64,
        now_us: u64,
    ) -> Settlement {
        step::commit(self, check, id, number, now_us)
    }
}

/// Takes the step of a call for permits, whose bytes have this name.
pub fn decide_permits(
    bytes: &mut impl Bytes,
    name: &[u8],
    request: &PermitRequest<'_>,
    now_us: u64,
) -> PermitGrant {
    let stored = bytes
        .get(name)
        .and_then(PermitState::of_bytes)
        .unwrap_or_default();
    let mut state = stored.clone();
    let grant = state.decide(now_us, request);
    if state != stored {
        let value = (!state.is_empty()).then(|| state.to_bytes());
        bytes.set(name, value, state.expires_ms());
    }
    grant
}

impl<B: Bytes> States for ByteStates<'_, B> {
    fn find(&mut self, at: usize, policy: &Policy) -> Option<usize> {
        self.states[at] = self
            .bytes
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
        self.bytes.set(
            &self.names[at],
            Some(state.to_bytes(policy, stored_interval)),
            state.expires_ms(policy),
        );
    }

    fn remove(&mut self, at: usize, _policy: &Policy) {
        if self.bytes.get(&self.names[at]).is_some() {
            self.bytes.set(&self.names[at], None, 0);
        }
    }

    fn record(&mut self, check: Check<'_>, _id: &ReservationId, now_us: u64) -> Option<Record> {
        let policies = check.policies.len();
        let record = Record::of_bytes(policies, self.bytes.get(self.names.get(policies)?)?)?;
        (now_us < record.lapse_us).then_some(record)
    }

    fn set_record(&mut self, check: Check<'_>, _id: &ReservationId, record: Record) {
        if let Some(name) = self.names.get(check.policies.len()) {
            self.bytes
                .set(name, Some(record.to_bytes()), record.expires_ms());
        }
    }
}
