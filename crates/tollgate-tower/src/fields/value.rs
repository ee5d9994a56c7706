//! Field values, written without an allocation but the one that keeps them.

use http::HeaderValue;
use smallvec::SmallVec;
use tollgate::{Decision, PolicySet, PolicyState};

use super::{more_after, seconds};

/// A field value in the making; two members fit without an allocation.
struct Value(SmallVec<[u8; 128]>);

/// `"burst";q=20;w=1, "day";q=50000;w=86400`
pub(super) fn policies_08(policies: &PolicySet) -> HeaderValue {
    let mut value = Value::new();
    for policy in policies.iter() {
        value.next();
        value.name(policy.name());
        value.number(b";q=", policy.quota().amount().into());
        value.number(b";w=", seconds(policy.quota().period()));
    }
    value.finish()
}

/// `"burst";r=7;t=1, "day";r=49120;t=2`
///
/// `None` when no policy was asked.
pub(super) fn states_08(decision: &Decision) -> Option<HeaderValue> {
    let mut value = Value::new();
    for state in decision.states() {
        value.next();
        value.name(state.policy().name());
        value.number(b";r=", state.remaining());
        // Absent when all is there, and so no more to come.
        if let more @ 1.. = seconds(more_after(&state)) {
            value.number(b";t=", more);
        }
    }
    if value.0.is_empty() { None } else { Some(value.finish()) }
}

/// `limit=20, remaining=7, reset=1`
pub(super) fn state_07(state: &PolicyState<'_>) -> HeaderValue {
    let mut value = Value::new();
    value.number(b"limit=", state.policy().quota().amount().into());
    value.number(b", remaining=", state.remaining());
    value.number(b", reset=", seconds(more_after(state)));
    value.finish()
}

/// `20;w=1, 50000;w=86400`
pub(super) fn policies_06(policies: &PolicySet) -> HeaderValue {
    let mut value = Value::new();
    for policy in policies.iter() {
        value.next();
        value.number(b"", policy.quota().amount().into());
        value.number(b";w=", seconds(policy.quota().period()));
    }
    value.finish()
}

/// `20, 20;w=1;name="burst", 50000;w=86400;name="day"`: the limit that binds, then all.
pub(super) fn limit_03(binding: &PolicyState<'_>, policies: &PolicySet) -> HeaderValue {
    let mut value = Value::new();
    value.number(b"", binding.policy().quota().amount().into());
    for policy in policies.iter() {
        value.next();
        value.number(b"", policy.quota().amount().into());
        value.number(b";w=", seconds(policy.quota().period()));
        value.0.extend_from_slice(b";name=");
        value.name(policy.name());
    }
    value.finish()
}

impl Value {
    fn new() -> Self {
        Self(SmallVec::new())
    }

    /// Begins a member of a list.
    fn next(&mut self) {
        if !self.0.is_empty() {
            self.0.extend_from_slice(b", ");
        }
    }

    /// A policy's name consists of characters that a quoted string holds unescaped.
    fn name(&mut self, name: &str) {
        self.0.push(b'"');
        self.0.extend_from_slice(name.as_bytes());
        self.0.push(b'"');
    }

    #[inline]
    fn number(&mut self, label: &[u8], number: u64) {
        self.0.extend_from_slice(label);
        match number {
            0..10 => self.0.push(b'0' + number as u8),
            10..100 => self.0.extend_from_slice(&[b'0' + (number / 10) as u8, b'0' + (number % 10) as u8]),
            _ => self.0.extend_from_slice(itoa::Buffer::new().format(number).as_bytes()),
        }
    }

    fn finish(self) -> HeaderValue {
        match HeaderValue::from_bytes(&self.0) {
            Ok(value) => value,
            Err(_) => unreachable!("names, digits and separators are valid in a field"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_whole() {
        for number in (0..=1_000).chain([4_294_967_295, u64::MAX]) {
            let mut value = Value::new();
            value.number(b"", number);
            assert_eq!(value.finish(), number.to_string());
        }
    }
}
