//! Field values, written without an allocation but the one that keeps them.

use http::HeaderValue;
use tollgate::{Policy, PolicySet, PolicyState};

use super::{more_after, seconds};

/// A field value in the making; two members or three fit without an allocation.
pub(super) struct Value {
    len: usize,
    text: [u8; ROOM],
    /// All of it, once it has outgrown that.
    more: Vec<u8>,
}

const ROOM: usize = 128;

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

/// What stands before the numbers of a policy: `"burst";r=`
pub(super) fn opening_08(policy: &Policy) -> Box<[u8]> {
    [b"\"", policy.name().as_bytes(), b"\";r="].concat().into()
}

impl Value {
    /// Adds `"burst";r=7;t=1` to a list; `t` is absent when all is there, and so no more to come.
    #[inline]
    pub(super) fn state_08(&mut self, opening: &[u8], remaining: u64, more: u64) {
        self.next();
        self.number(opening, remaining);
        if more > 0 {
            self.number(b";t=", more);
        }
    }
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
        value.push(b";name=");
        value.name(policy.name());
    }
    value.finish()
}

impl Value {
    pub(super) fn new() -> Self {
        Self { len: 0, text: [0; ROOM], more: Vec::new() }
    }

    /// Begins a member of a list.
    fn next(&mut self) {
        if self.len > 0 {
            self.push(b", ");
        }
    }

    /// A policy's name consists of characters that a quoted string holds unescaped.
    fn name(&mut self, name: &str) {
        self.push(b"\"");
        self.push(name.as_bytes());
        self.push(b"\"");
    }

    #[inline]
    fn number(&mut self, label: &[u8], number: u64) {
        self.push(label);
        match number {
            0..10 => self.push(&[b'0' + number as u8]),
            10..100 => self.push(&[b'0' + (number / 10) as u8, b'0' + (number % 10) as u8]),
            _ => self.push(itoa::Buffer::new().format(number).as_bytes()),
        }
    }

    #[inline]
    fn push(&mut self, bytes: &[u8]) {
        let end = self.len + bytes.len();
        match self.text.get_mut(self.len..end) {
            Some(room) if self.more.is_empty() => room.copy_from_slice(bytes),
            _ => self.outgrow(bytes),
        }
        self.len = end;
    }

    #[cold]
    fn outgrow(&mut self, bytes: &[u8]) {
        if self.more.is_empty() {
            self.more.extend_from_slice(&self.text[..self.len]);
        }
        self.more.extend_from_slice(bytes);
    }

    #[inline]
    pub(super) fn finish(&self) -> HeaderValue {
        let text = if self.more.is_empty() { &self.text[..self.len] } else { &self.more };
        match HeaderValue::from_bytes(text) {
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

    #[test]
    fn a_text_of_any_length_is_whole() {
        for pieces in 1..400 {
            let mut value = Value::new();
            let mut expected = String::new();
            for at in 0..pieces {
                value.number(b"x", at);
                expected.push_str(&format!("x{at}"));
                assert_eq!(value.len, expected.len());
            }
            assert_eq!(value.finish(), expected);
        }
    }
}
