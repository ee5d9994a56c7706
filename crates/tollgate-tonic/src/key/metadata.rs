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

/// The value of a metadata entry, ASCII or binary (a name that ends in `-bin`).
///
/// The entry must be there once, with a value that is not empty. Of a binary entry the bytes count,
/// not the base64 in which they travel: padded or not, the key is the same.
///
/// **Whoever can choose the value freely has no limit**: a new value is a new quota. Use it where
/// the value was checked before.
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

/// gRPC sends base64 without padding and accepts both.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

impl Metadata {
    /// The entry of this name, in lower case.
    ///
    /// # Panics
    ///
    /// When the name is none, or not in lower case. In a `const` this fails the build. For names
    /// that are known only at run time there is `From<HeaderName>`.
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        Self { name: HeaderName::from_static(name), secret: None }
    }

    /// Keeps only a keyed digest of the value, so that the store never holds it.
    #[must_use]
    pub fn secret(mut self, secret: KeySecret) -> Self {
        self.secret = Some(secret);
        self
    }

    fn error(&self, what: &str) -> KeyError {
        KeyError::missing(format!("metadata {} {what}", self.name))
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
            (Some(_), Some(_)) => return Err(self.error("is there twice")),
        };
        let value = if self.name.as_str().ends_with("-bin") {
            if value.contains(&b',') {
                return Err(self.error("is there twice"));
            }
            Cow::Owned(BASE64.decode(value).map_err(|_| self.error("is no base64"))?)
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

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn extract(name: &'static str, values: &[&str]) -> Result<Key, String> {
        let mut request = Request::builder();
        for value in values {
            request = request.header(name, *value);
        }
        let (parts, ()) = request.body(()).unwrap().into_parts();
        Metadata::new(name).extract(&parts).map(Option::unwrap).map_err(|error| error.to_string())
    }

    #[test]
    fn an_entry_must_be_there_once_and_say_something() {
        assert_eq!(extract("x-api-key", &["acme"]), Ok(Key::new("acme")));
        assert_eq!(extract("x-api-key", &[]).unwrap_err(), "metadata x-api-key is missing");
        assert_eq!(extract("x-api-key", &["a", "a"]).unwrap_err(), "metadata x-api-key is there twice");
        assert_eq!(extract("x-api-key", &[" "]).unwrap_err(), "metadata x-api-key is empty");
    }

    #[test]
    fn of_a_binary_entry_the_bytes_count() {
        let key = Key::bytes(&[0xff, 0xfe]);
        assert_eq!(extract("id-bin", &["//4"]), Ok(key.clone()));
        assert_eq!(extract("id-bin", &["//4="]), Ok(key));
        assert_eq!(extract("id-bin", &["%"]).unwrap_err(), "metadata id-bin is no base64");
        assert_eq!(extract("id-bin", &["//4,//4"]).unwrap_err(), "metadata id-bin is there twice");
        assert_eq!(extract("id-bin", &[""]).unwrap_err(), "metadata id-bin is empty");
    }

    #[test]
    fn a_secret_is_not_told_to_the_store() {
        let pepper = KeySecret::new(b"pepper");
        let (parts, ()) = Request::builder().header("id-bin", "//4").body(()).unwrap().into_parts();
        let key = Metadata::new("id-bin").secret(pepper.clone()).extract(&parts).unwrap();
        assert_eq!(key, Some(Key::secret([0xff, 0xfe], &pepper)));
    }
}
