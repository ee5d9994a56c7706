//! The values of the headers as text.

use std::time::Duration;

use http::HeaderValue;
use tollgate::{Policy, PolicySet, PolicyState};

use super::{
    numbers::units_and_window,
    quota_unit::{QuotaUnit, QuotaUnits},
    seconds::{round_up, until_more},
};

/// Builds a header value. The values of two or three policies fit into the array.
// Written by hand: with `SmallVec` an admitted request takes 7 % more instructions.
pub(super) struct Text {
    len: usize,
    array: [u8; CAPACITY],
    /// All of the text, once it is longer than the array.
    long: Vec<u8>,
}

const CAPACITY: usize = 128;

/// Writes `"burst";q=20;w=1, "day";q=50000;w=86400`, with units and the partition key if there are any.
pub(super) fn policies_08(policies: &PolicySet, units: &QuotaUnits, partition_key: Option<&[u8]>) -> HeaderValue {
    let mut text = Text::new();
    for policy in policies.iter() {
        let unit = units.of(policy.name());
        let (units, window) = units_and_window(policy);
        let window = (unit != QuotaUnit::CONCURRENT_REQUESTS).then_some(window);
        text.policy_08(policy.name(), units, unit, window, partition_key);
    }
    text.finish()
}

/// Writes the part of [`Text::state_08`] that is the same for every decision: `"burst";r=`.
pub(super) fn state_prefix_08(policy: &Policy) -> Box<[u8]> {
    [b"\"", policy.name().as_bytes(), b"\";r="].concat().into()
}

/// Writes `limit=20, remaining=7, reset=1`.
pub(super) fn state_07(state: &PolicyState<'_>, jitter: Duration) -> HeaderValue {
    let mut text = Text::new();
    text.number(b"limit=", state.policy().quota().burst());
    text.number(b", remaining=", state.remaining());
    text.number(b", reset=", round_up(until_more(state, jitter)));
    text.finish()
}

/// Writes `20;w=1;burst=40, 50000;w=86400`.
pub(super) fn policies_06(policies: &PolicySet) -> HeaderValue {
    let mut text = Text::new();
    for policy in policies.iter() {
        text.separator();
        text.quota(policy);
    }
    text.finish()
}

/// Writes `40, 20;w=1;burst=40;name="burst", 50000;w=86400;name="day"`: the binding limit first, then all policies.
pub(super) fn limit_03(binding: &PolicyState<'_>, policies: &PolicySet) -> HeaderValue {
    let mut text = Text::new();
    text.number(b"", binding.policy().quota().burst());
    for policy in policies.iter() {
        text.separator();
        text.quota(policy);
        text.push(b";name=");
        text.name(policy.name());
    }
    text.finish()
}

impl Text {
    pub(super) fn new() -> Self {
        Self { len: 0, array: [0; CAPACITY], long: Vec::new() }
    }

    /// Appends `"burst";q=20;w=1`. A limit of concurrent requests has no window.
    pub(super) fn policy_08(
        &mut self,
        name: &str,
        quota: u64,
        unit: QuotaUnit,
        window: Option<Duration>,
        partition_key: Option<&[u8]>,
    ) {
        self.separator();
        self.name(name);
        self.number(b";q=", quota);
        if unit != QuotaUnit::REQUESTS {
            self.push(b";qu=");
            self.name(unit.as_str());
        }
        if let Some(window) = window {
            self.number(b";w=", round_up(window));
        }
        if let Some(partition_key) = partition_key {
            self.partition_key(partition_key);
        }
    }

    /// Appends `"burst";r=7;t=1`. Omits `t` when the quota is full.
    #[inline]
    pub(super) fn state_08(&mut self, prefix: &[u8], remaining: u64, until_more: u64) {
        self.separator();
        self.number(prefix, remaining);
        if until_more > 0 {
            self.number(b";t=", until_more);
        }
    }

    /// Appends `;pk=:9x03QbK8bMgq:`.
    pub(super) fn partition_key(&mut self, base64: &[u8]) {
        self.push(b";pk=:");
        self.push(base64);
        self.push(b":");
    }

    /// Appends `20;w=1;burst=40`. Omits a burst that equals the amount.
    fn quota(&mut self, policy: &Policy) {
        let quota = policy.quota();
        self.number(b"", quota.amount());
        self.number(b";w=", round_up(quota.period()));
        if quota.burst() != quota.amount() {
            self.number(b";burst=", quota.burst());
        }
    }

    fn separator(&mut self) {
        if self.len > 0 {
            self.push(b", ");
        }
    }

    /// Appends a quoted string. The name of a policy needs no escapes.
    fn name(&mut self, name: &str) {
        self.push(b"\"");
        self.push(name.as_bytes());
        self.push(b"\"");
    }

    // Inlined by force: most labels are constant, and their bytes are then written without a call.
    #[inline(always)]
    pub(super) fn number(&mut self, label: &[u8], number: u64) {
        self.push(label);
        match number {
            0..10 => self.push(&[b'0' + number as u8]),
            10..100 => self.push(&[b'0' + (number / 10) as u8, b'0' + (number % 10) as u8]),
            _ => self.push(itoa::Buffer::new().format(number).as_bytes()),
        }
    }

    #[inline]
    pub(super) fn push(&mut self, bytes: &[u8]) {
        let end = self.len + bytes.len();
        match self.array.get_mut(self.len..end) {
            Some(free) if self.long.is_empty() => free.copy_from_slice(bytes),
            _ => self.push_long(bytes),
        }
        self.len = end;
    }

    #[cold]
    fn push_long(&mut self, bytes: &[u8]) {
        if self.long.is_empty() {
            self.long.extend_from_slice(&self.array[..self.len]);
        }
        self.long.extend_from_slice(bytes);
    }

    #[inline]
    pub(super) fn finish(&self) -> HeaderValue {
        value(if self.long.is_empty() { &self.array[..self.len] } else { &self.long })
    }
}

/// Copies text into a value of the same length.
pub(super) fn value(text: &[u8]) -> HeaderValue {
    match HeaderValue::from_bytes(text) {
        Ok(value) => value,
        Err(_) => unreachable!("names, digits, base64 and separators are valid in a header"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_any_length_are_written_in_full() {
        for number in (0..=1_000).chain([4_294_967_295, u64::MAX]) {
            let mut text = Text::new();
            text.number(b"", number);
            assert_eq!(text.finish(), number.to_string());
        }
    }

    #[test]
    fn text_of_any_length_is_written_in_full() {
        for pieces in 1..400 {
            let mut text = Text::new();
            let mut expected = String::new();
            for piece in 0..pieces {
                text.number(b"x", piece);
                expected.push_str(&format!("x{piece}"));
                assert_eq!(text.len, expected.len());
            }
            assert_eq!(text.finish(), expected);
        }
    }
}
