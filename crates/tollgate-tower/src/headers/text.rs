//! The values of the headers as text.
//! Which value belongs to which header is decided in `header_format.rs` and `writer.rs`.

use std::{
    borrow::Cow,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use http::HeaderValue;
use tollgate_core::{Policy, PolicySet, limiter::PolicyState};

/// Builds a header value. The values of two or three policies fit into the array.
// Written by hand: with `SmallVec` an admitted request takes 7 % more instructions.
pub(super) struct Text {
    len: usize,
    array: [u8; CAPACITY],
    /// All of the text, once it is longer than the array.
    long: Vec<u8>,
}

const CAPACITY: usize = 128;

/// Writes `"burst";q=20;w=1, "day";q=50000;w=86400`, with units and the partition key if there are
/// any. Returns `None` when all policies are hidden, here and below.
pub(super) fn policies_08(
    policies: &PolicySet,
    units: &QuotaUnits,
    partition_key: Option<&[u8]>,
) -> Option<HeaderValue> {
    let mut text = Text::new();
    for policy in shown(policies) {
        let unit = units.of(policy.name());
        let (units, window) = policy.units_and_window();
        let window = (unit != QuotaUnit::CONCURRENT_REQUESTS).then_some(window);
        text.policy_08(policy.name(), units, unit, window, partition_key);
    }
    text.finish_any()
}

/// Returns the policies that clients may see.
fn shown(policies: &PolicySet) -> impl Iterator<Item = &Policy> {
    policies.iter().filter(|policy| !policy.is_hidden())
}

/// Writes the part of [`Text::state_08`] that is the same for every decision: `"burst";r=`. It is
/// empty for a policy that is hidden.
pub(super) fn state_prefix_08(policy: &Policy) -> Box<[u8]> {
    if policy.is_hidden() {
        return Box::default();
    }
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
pub(super) fn policies_06(policies: &PolicySet) -> Option<HeaderValue> {
    let mut text = Text::new();
    for policy in shown(policies) {
        text.separator();
        text.quota(policy);
    }
    text.finish_any()
}

/// Writes `40, 20;w=1;burst=40;name="burst", 50000;w=86400;name="day"`: the strictest limit first,
/// then all policies.
pub(super) fn limit_03(strictest: &PolicyState<'_>, policies: &PolicySet) -> HeaderValue {
    let mut text = Text::new();
    text.number(b"", strictest.policy().quota().burst());
    for policy in shown(policies) {
        text.separator();
        text.quota(policy);
        text.push(b";name=");
        text.name(policy.name());
    }
    text.finish()
}

impl Text {
    pub(super) fn new() -> Self {
        Self {
            len: 0,
            array: [0; CAPACITY],
            long: Vec::new(),
        }
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

    /// Returns the value, unless it is empty.
    fn finish_any(&self) -> Option<HeaderValue> {
        (self.len > 0).then(|| self.finish())
    }

    #[inline]
    pub(super) fn finish(&self) -> HeaderValue {
        value(if self.long.is_empty() {
            &self.array[..self.len]
        } else {
            &self.long
        })
    }
}

/// Copies text into a value of the same length.
pub(super) fn value(text: &[u8]) -> HeaderValue {
    match HeaderValue::from_bytes(text) {
        Ok(value) => value,
        Err(_) => unreachable!("names, digits, base64 and separators are valid in a header"),
    }
}

/// Numbers below this one have their text in [`TEXT`].
const SMALL: usize = 1_000;

/// The digits of all small numbers, three for each number: `000001002…999`.
static TEXT: &str = match str::from_utf8(&DIGITS) {
    Ok(text) => text,
    Err(_) => panic!("digits are ASCII"),
};

const DIGITS: [u8; 3 * SMALL] = {
    let (mut digits, mut number) = ([0; 3 * SMALL], 0);
    while number < SMALL {
        digits[3 * number] = b'0' + (number / 100) as u8;
        digits[3 * number + 1] = b'0' + (number / 10 % 10) as u8;
        digits[3 * number + 2] = b'0' + (number % 10) as u8;
        number += 1;
    }
    digits
};

/// Writes a number. A number below 1000 takes no allocation, because its text exists already: most
/// waits are that short, and under attack most responses carry one.
pub(crate) fn number_value(number: u64) -> HeaderValue {
    match small_text(number) {
        Some(text) => HeaderValue::from_static(text),
        None => value(itoa::Buffer::new().format(number).as_bytes()),
    }
}

/// Returns the units per second of an amount per period, rounded down.
pub(super) fn per_second(amount: u64, period: Duration) -> u64 {
    let per_second = u128::from(amount) * 1_000_000_000 / period.as_nanos().max(1);
    u64::try_from(per_second).unwrap_or(u64::MAX)
}

fn small_text(number: u64) -> Option<&'static str> {
    let end = 3 * (usize::try_from(number).ok()?.min(SMALL) + 1);
    let len = match number {
        0..10 => 1,
        10..100 => 2,
        _ => 3,
    };
    TEXT.get(end - len..end)
}

/// Returns whole seconds, rounded up.
#[inline]
pub(crate) fn round_up(duration: Duration) -> u64 {
    duration.as_secs() + u64::from(duration.subsec_nanos() > 0)
}

/// Returns the time since the Unix epoch, by the clock of this machine.
pub(super) fn since_epoch() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}

/// Returns the time since the Unix epoch at which a wait began that a store has reported at
/// `decided_at`.
pub(crate) fn wait_began(decided_at: Option<SystemTime>) -> Duration {
    wait_began_by(since_epoch(), decided_at)
}

/// Returns when a wait began, for a clock of this machine that shows `now` since the Unix epoch.
///
/// This clock is read after the decision, so the end of a window by it falls into the next second.
/// Where the clock of the store agrees with it, the store says when it decided.
fn wait_began_by(now: Duration, decided_at: Option<SystemTime>) -> Duration {
    const AGREE_WITHIN: Duration = Duration::from_secs(1);
    decided_at
        .and_then(|at| at.duration_since(UNIX_EPOCH).ok())
        .filter(|at| at.abs_diff(now) < AGREE_WITHIN)
        .unwrap_or(now)
}

/// Returns the time until a policy has more units, or until the denied request fits when no unit is
/// left. Clients come back at that time when no unit is left, so only then it grows by the jitter.
#[inline]
pub(super) fn until_more(state: &PolicyState<'_>, jitter: Duration) -> Duration {
    if state.remaining() > 0 {
        return state.next_unit_after();
    }
    more_or_retry_after(state).saturating_add(jitter)
}

/// Returns the time until the denied request fits, or until an allowed request leaves one unit
/// more.
#[inline]
pub(super) fn more_or_retry_after(state: &PolicyState<'_>) -> Duration {
    state
        .retry_after()
        .unwrap_or_else(|| state.next_unit_after())
}

/// Returns whole milliseconds, rounded up.
pub(crate) fn round_up_to_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// Names the unit that a quota counts.
///
/// The parameter `qu` of `RateLimit-Policy` shows the unit, and the formats
/// [`OpenAi`](crate::HeaderFormat::OpenAi) and [`Anthropic`](crate::HeaderFormat::Anthropic) have
/// headers for each unit. [`quota_units`](crate::RateLimitBuilder::quota_units) sets the unit of
/// each policy, and [`quota_unit`](crate::RateLimitBuilder::quota_unit) the unit of all others.
///
/// draft-ietf-httpapi-ratelimit-headers defines `requests`, `content-bytes` and
/// `concurrent-requests`. The units of language models are not in its registry.
///
/// ```
/// use tollgate_tower::QuotaUnit;
///
/// const TOKENS: QuotaUnit = QuotaUnit::new("example-tokens");
/// assert_eq!(TOKENS.as_str(), "example-tokens");
/// assert_eq!(QuotaUnit::CONTENT_BYTES.as_str(), "content-bytes");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct QuotaUnit(&'static str);

impl QuotaUnit {
    /// Counts requests. This is the default, for which the parameter `qu` is omitted.
    pub const REQUESTS: Self = Self("requests");

    /// Counts tokens of a language model, of the input and of the output together.
    pub const TOKENS: Self = Self("tokens");

    /// Counts tokens that a language model reads.
    pub const INPUT_TOKENS: Self = Self("input-tokens");

    /// Counts tokens that a language model writes.
    pub const OUTPUT_TOKENS: Self = Self("output-tokens");

    /// Counts bytes of the content of requests or responses.
    pub const CONTENT_BYTES: Self = Self("content-bytes");

    /// Counts requests that are handled at the same time. Such a limit has no window and no reset,
    /// so the parameters `w` and `t` are omitted.
    pub const CONCURRENT_REQUESTS: Self = Self("concurrent-requests");

    /// Creates a unit of your own. Begin its name with the name of your service.
    ///
    /// # Panics
    ///
    /// Panics if the name is empty, or if it contains another character than a lower-case letter, a
    /// digit or a hyphen. In a `const` this fails the build.
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        let bytes = name.as_bytes();
        assert!(!bytes.is_empty(), "a quota unit must have a name");
        let mut at = 0;
        while at < bytes.len() {
            let is_valid = matches!(bytes[at], b'a'..=b'z' | b'0'..=b'9' | b'-');
            assert!(
                is_valid,
                "a quota unit must consist of lower-case letters, digits and hyphens"
            );
            at += 1;
        }
        Self(name)
    }

    /// Returns the name.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        self.0
    }
}

/// Stores the unit of each policy.
#[derive(Clone, Default)]
pub(crate) struct QuotaUnits {
    /// The unit of the policies that are not named.
    pub(crate) others: Option<QuotaUnit>,
    pub(crate) named: Vec<(Cow<'static, str>, QuotaUnit)>,
}

impl QuotaUnits {
    /// Returns the unit of the policy with this name.
    pub(super) fn of(&self, policy: &str) -> QuotaUnit {
        let named = self.named.iter().rev().find(|(name, _)| name == policy);
        named
            .map(|(_, unit)| *unit)
            .or(self.others)
            .unwrap_or(QuotaUnit::REQUESTS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_begins_when_the_store_decided_where_its_clock_agrees_with_ours() {
        let millis = Duration::from_millis;
        for (now, decided, expected) in [
            (100_003, Some(99_999), 99_999),
            (100_003, Some(100_004), 100_004),
            (100_003, Some(99_004), 99_004),
            (100_003, Some(99_003), 100_003),
            (100_003, Some(101_003), 100_003),
            (100_003, None, 100_003),
        ] {
            let decided_at = decided.map(|at| UNIX_EPOCH + millis(at));
            let began = wait_began_by(millis(now), decided_at);
            assert_eq!(began, millis(expected), "{now} {decided:?}");
        }
        // An hour that ends 1 ms after the decision ends on the second, however late it is written.
        let began = wait_began_by(millis(3_600_004), Some(UNIX_EPOCH + millis(3_599_999)));
        assert_eq!(round_up(began + millis(1)), 3_600);
    }

    #[test]
    fn a_rate_is_rounded_down_exactly() {
        for (amount, micros, expected) in [
            (7, 140_000, 50),
            (33, 1_100_000, 30),
            (10, 1_000_000, 10),
            (59, 60_000_000, 0),
            (u64::MAX, 1, u64::MAX),
        ] {
            assert_eq!(
                per_second(amount, Duration::from_micros(micros)),
                expected,
                "{amount} in {micros} µs"
            );
        }
    }

    #[test]
    fn numbers_of_any_length_are_written_in_full() {
        for number in (0..=1_100).chain([4_294_967_295, u64::MAX]) {
            let mut text = Text::new();
            text.number(b"", number);
            assert_eq!(text.finish(), number.to_string());
            assert_eq!(number_value(number), number.to_string());
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
