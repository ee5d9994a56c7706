use http::HeaderName;

use super::header_format::HeaderFormat;

/// Lists the formats of a layer. No two of them have a rate limit header in common.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct HeaderFormats {
    /// `HeaderFormat::None` fills the places behind the last format.
    formats: [HeaderFormat; MAX_FORMATS],
}

/// The most formats without a common header: one with `RateLimit`, one with `X-RateLimit`, and one for each service of
/// language models.
const MAX_FORMATS: usize = 4;

impl HeaderFormats {
    /// Creates a list of one format.
    pub(crate) const fn one(format: HeaderFormat) -> Self {
        Self { formats: [format, HeaderFormat::None, HeaderFormat::None, HeaderFormat::None] }
    }

    /// Creates a list.
    ///
    /// # Panics
    ///
    /// Panics if two formats have a rate limit header in common.
    pub(crate) fn new(formats: impl IntoIterator<Item = HeaderFormat>) -> Self {
        let mut all = Self::one(HeaderFormat::None);
        for format in formats {
            for other in all.iter() {
                let common = other.own_names().find(|name| format.own_names().any(|own| *name == own));
                if let Some(name) = common {
                    panic!("header formats {other:?} and {format:?} both write {name}");
                }
            }
            if let Some(place) = all.formats.iter_mut().find(|place| **place == HeaderFormat::None) {
                *place = format;
            }
        }
        all
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = HeaderFormat> {
        self.formats.into_iter().filter(|format| *format != HeaderFormat::None)
    }

    /// Returns the only format, if there is one.
    pub(super) fn only(self) -> Option<HeaderFormat> {
        let [first, second, ..] = self.formats;
        (second == HeaderFormat::None).then_some(first)
    }

    /// Returns the names of all headers, but for those that say when to come back.
    pub(crate) fn own_names(self) -> impl Iterator<Item = HeaderName> {
        self.iter().flat_map(HeaderFormat::own_names).map(HeaderName::from_static)
    }
}

impl Default for HeaderFormats {
    fn default() -> Self {
        Self::one(HeaderFormat::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::headers::ResetFormat;

    const ALL: [HeaderFormat; 13] = [
        HeaderFormat::Ietf08,
        HeaderFormat::Ietf07,
        HeaderFormat::Ietf06,
        HeaderFormat::Envoy03,
        HeaderFormat::Legacy { reset: ResetFormat::Seconds },
        HeaderFormat::Legacy { reset: ResetFormat::Epoch },
        HeaderFormat::GitHub,
        HeaderFormat::Spring,
        HeaderFormat::RetryAfter,
        HeaderFormat::TowerGovernor,
        HeaderFormat::OpenAi,
        HeaderFormat::Anthropic,
        HeaderFormat::None,
    ];

    #[test]
    fn every_list_of_formats_without_a_common_header_fits() {
        for chosen in 0..1_u32 << ALL.len() {
            let formats = || (0..ALL.len()).filter(|at| chosen >> at & 1 == 1).map(|at| ALL[at]);
            let Ok(list) = std::panic::catch_unwind(|| HeaderFormats::new(formats())) else { continue };
            let expected: Vec<_> = formats().filter(|format| *format != HeaderFormat::None).collect();
            assert_eq!(list.iter().collect::<Vec<_>>(), expected);
        }
    }

    #[test]
    fn formats_with_a_common_header_are_refused() {
        for (formats, name) in [
            ([HeaderFormat::Ietf08, HeaderFormat::Ietf07], "ratelimit"),
            ([HeaderFormat::Ietf08, HeaderFormat::Ietf06], "ratelimit-policy"),
            ([HeaderFormat::Envoy03, HeaderFormat::Spring], "x-ratelimit-remaining"),
            ([HeaderFormat::OpenAi, HeaderFormat::OpenAi], "x-ratelimit-limit-requests"),
        ] {
            let panic = std::panic::catch_unwind(|| HeaderFormats::new(formats)).err().unwrap();
            let message = panic.downcast_ref::<String>().unwrap();
            assert!(message.ends_with(&format!("both write {name}")), "{message}");
        }
    }

    #[test]
    fn one_format_is_the_only_one() {
        assert_eq!(HeaderFormats::default().only(), Some(HeaderFormat::Ietf08));
        assert_eq!(HeaderFormats::new([]).only(), Some(HeaderFormat::None));
        assert_eq!(HeaderFormats::new([HeaderFormat::Ietf08, HeaderFormat::OpenAi]).only(), None);
    }
}
