use http::{HeaderMap, HeaderName};

use super::header_value::header_value;

/// Tests a header field of a request.
///
/// ```
/// use http::HeaderName;
/// use tollgate_rules::HeaderMatch;
///
/// let is_bot = HeaderMatch::contains(HeaderName::from_static("user-agent"), "bot").ignore_case();
/// let is_browser = HeaderMatch::present(HeaderName::from_static("sec-fetch-mode"));
/// # let _ = (is_bot, is_browser);
/// ```
#[derive(Clone, Debug)]
pub struct HeaderMatch {
    name: HeaderName,
    test: Test,
    ignores_case: bool,
    is_inverted: bool,
}

#[derive(Clone, Debug)]
enum Test {
    Present,
    Exact(Box<str>),
    Prefix(Box<str>),
    Suffix(Box<str>),
    Contains(Box<str>),
}

impl HeaderMatch {
    fn new(name: HeaderName, test: Test) -> Self {
        Self { name, test, ignores_case: false, is_inverted: false }
    }

    /// Matches when the field is present.
    #[must_use]
    pub fn present(name: HeaderName) -> Self {
        Self::new(name, Test::Present)
    }

    /// Matches when the value is this text.
    #[must_use]
    pub fn exact(name: HeaderName, value: impl Into<Box<str>>) -> Self {
        Self::new(name, Test::Exact(value.into()))
    }

    /// Matches when the value starts with this text.
    #[must_use]
    pub fn prefix(name: HeaderName, value: impl Into<Box<str>>) -> Self {
        Self::new(name, Test::Prefix(value.into()))
    }

    /// Matches when the value ends with this text.
    #[must_use]
    pub fn suffix(name: HeaderName, value: impl Into<Box<str>>) -> Self {
        Self::new(name, Test::Suffix(value.into()))
    }

    /// Matches when the value contains this text.
    #[must_use]
    pub fn contains(name: HeaderName, value: impl Into<Box<str>>) -> Self {
        Self::new(name, Test::Contains(value.into()))
    }

    /// Compares ASCII letters of both cases as equal.
    #[must_use]
    pub fn ignore_case(mut self) -> Self {
        self.ignores_case = true;
        self
    }

    /// Matches when it did not match before.
    #[must_use]
    pub fn invert(mut self) -> Self {
        self.is_inverted = !self.is_inverted;
        self
    }

    /// Returns whether the header fields match. A missing field has no value and matches no text.
    pub(super) fn matches(&self, headers: &HeaderMap) -> bool {
        self.tests(headers) != self.is_inverted
    }

    fn tests(&self, headers: &HeaderMap) -> bool {
        let Some(value) = header_value(headers, &self.name) else { return false };
        let lower = |text: &str| if self.ignores_case { text.to_ascii_lowercase() } else { text.to_owned() };
        match &self.test {
            Test::Present => true,
            Test::Exact(text) => lower(&value) == lower(text),
            Test::Prefix(text) => lower(&value).starts_with(&lower(text)),
            Test::Suffix(text) => lower(&value).ends_with(&lower(text)),
            Test::Contains(text) => lower(&value).contains(&lower(text)),
        }
    }
}
