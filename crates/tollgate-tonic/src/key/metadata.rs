//! The key extractor that reads one metadata entry, in text or in binary.
//! Extractors of HTTP header fields are in `tollgate_tower`, and know no binary entries.

use std::borrow::Cow;

use base64::{
    Engine,
    alphabet::STANDARD,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use http::{HeaderName, request::Parts};
use tollgate::{Key, KeySecret};
use tollgate_tower::{
    KeyExtractor,
    key::{Extraction, KeyError},
};

/// Uses the value of a metadata entry as the key, for example an API key.
///
/// The entry must occur once, and its value must not be empty. When the name ends in `-bin`, the
/// entry is binary: the key is the decoded bytes, so base64 with padding and without gives the same
/// key.
///
/// **A client that can choose the value freely is not limited**, because each new value has a new
/// quota. Use this extractor only where the value was authenticated before.
///
/// ```
/// use http::Request;
/// use tollgate::Key;
/// use tollgate_tonic::key::Metadata;
/// use tollgate_tower::KeyExtractor;
///
/// let (parts, ()) = Request::builder().header("tenant-bin", "AAEC").body(()).unwrap().into_parts();
/// assert_eq!(Metadata::new("tenant-bin").extract(&parts).unwrap(), Some(Key::bytes(&[0, 1, 2])));
/// ```
#[derive(Clone, Debug)]
pub struct Metadata {
    name: HeaderName,
    secret: Option<KeySecret>,
}

/// gRPC sends base64 without padding, and must accept base64 with padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

impl Metadata {
    /// Creates an extractor for the entry of this name, given in lower case.
    ///
    /// For a name that is known only at run time, use `Metadata::from(header_name)`.
    ///
    /// # Panics
    ///
    /// Panics when the name is not a valid metadata name in lower case. In a `const`, this fails
    /// the build.
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        Self {
            name: HeaderName::from_static(name),
            secret: None,
        }
    }

    /// Replaces the value by a keyed digest (HMAC), so that the store never holds the value.
    #[must_use]
    pub fn secret(mut self, secret: KeySecret) -> Self {
        self.secret = Some(secret);
        self
    }

    fn error(&self, problem: &str) -> KeyError {
        KeyError::missing(format!("metadata {} {problem}", self.name))
    }
}

impl From<HeaderName> for Metadata {
    fn from(name: HeaderName) -> Self {
        Self { name, secret: None }
    }
}

impl KeyExtractor for Metadata {
    fn extract(&self, parts: &Parts) -> Extraction {
        let mut values = parts.headers.get_all(&self.name).iter();
        let value = match (values.next(), values.next()) {
            (Some(value), None) => value.as_bytes().trim_ascii(),
            (None, _) => return Err(self.error("is missing")),
            (Some(_), Some(_)) => return Err(self.error("occurs more than once")),
        };
        let value = if self.name.as_str().ends_with("-bin") {
            if value.contains(&b',') {
                return Err(self.error("occurs more than once"));
            }
            Cow::Owned(
                BASE64
                    .decode(value)
                    .map_err(|_| self.error("is not valid base64"))?,
            )
        } else {
            Cow::Borrowed(value)
        };
        if value.is_empty() {
            return Err(self.error("is empty"));
        }
        Ok(Some(match &self.secret {
            Some(secret) => Key::secret(value, secret),
            None => Key::bytes(&value),
        }))
    }
}
