use std::borrow::Cow;

/// Names the unit that a quota counts.
///
/// The parameter `qu` of `RateLimit-Policy` shows it, and the formats [`OpenAi`](crate::HeaderFormat::OpenAi) and
/// [`Anthropic`](crate::HeaderFormat::Anthropic) have headers for each unit.
/// [`quota_units`](crate::RateLimitBuilder::quota_units) sets the unit of each policy, and
/// [`quota_unit`](crate::RateLimitBuilder::quota_unit) the unit of all others.
///
/// draft-ietf-httpapi-ratelimit-headers defines `requests`, `content-bytes` and `concurrent-requests`. The units of
/// language models are not in its registry.
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
    /// Counts requests. This is the unit of every policy that names no other. The parameter `qu` is then omitted.
    pub const REQUESTS: Self = Self("requests");

    /// Counts tokens of a language model, those of the input and of the output together.
    pub const TOKENS: Self = Self("tokens");

    /// Counts tokens that a language model reads.
    pub const INPUT_TOKENS: Self = Self("input-tokens");

    /// Counts tokens that a language model writes.
    pub const OUTPUT_TOKENS: Self = Self("output-tokens");

    /// Counts bytes of the content of requests or responses.
    pub const CONTENT_BYTES: Self = Self("content-bytes");

    /// Counts requests that are handled at the same time. Such a limit has no window and no reset, so the parameters
    /// `w` and `t` are omitted.
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
            assert!(is_valid, "a quota unit must consist of lower-case letters, digits and hyphens");
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
        named.map(|(_, unit)| *unit).or(self.others).unwrap_or(QuotaUnit::REQUESTS)
    }
}
