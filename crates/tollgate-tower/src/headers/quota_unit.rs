/// Names the unit that a quota counts, for the parameter `qu` of `RateLimit-Policy`.
///
/// All policies of a layer count the same unit, because one [cost](crate::RateLimitBuilder::cost) is
/// charged to all of them.
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
    /// Counts bytes of the content of requests or responses.
    pub const CONTENT_BYTES: Self = Self("content-bytes");

    /// Counts requests that are handled at the same time.
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
