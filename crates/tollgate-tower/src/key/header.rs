//! The extractor that reads one header of the request, such as an API key.
//! Headers of proxies with addresses are in `forwarded/`.

use http::{HeaderName, request::Parts};
use tollgate_core::{Key, KeySecret};

use super::extractor::{Extraction, KeyError, KeyExtractor};

/// Finds the key in a request header, such as an API key.
///
/// The header must appear exactly once, with a value that is not blank. Otherwise the key is
/// missing, and the response is 400, or has [another status](KeyExtractor::or_status). The value may
/// contain any bytes. The token of `Authorization` is found by [`Bearer`](super::Bearer).
///
/// **A client that can choose the value freely has no limit**, because each new value has its own
/// quota. Use it where an outer layer has checked the value, or behind a gateway that overwrites
/// the header.
///
/// ```
/// use http::Request;
/// use tollgate::{Key, KeySecret};
/// use tollgate_tower::{KeyExtractor, key::Header};
///
/// let (parts, ()) = Request::builder().header("x-api-key", "sk_live_51H8").body(()).unwrap().into_parts();
/// assert_eq!(Header::new("x-api-key").extract(&parts).unwrap(), Some(Key::new("sk_live_51H8")));
///
/// // Stores a digest instead of the API key.
/// let pepper = KeySecret::new(b"from the deployment's own configuration");
/// let key = Header::new("x-api-key").secret(pepper.clone()).extract(&parts).unwrap();
/// assert_eq!(key, Some(Key::secret("sk_live_51H8", &pepper)));
/// ```
#[doc(alias = "api key")]
#[derive(Clone, Debug)]
pub struct Header {
    name: HeaderName,
    secret: Option<KeySecret>,
}

impl Header {
    /// Finds the key in the header with this lower-case name.
    ///
    /// For a name that is known only at run time, use `Header::from` with a [`HeaderName`].
    ///
    /// # Panics
    ///
    /// Panics if the name is not a valid header name in lower case. In a `const` this fails the
    /// build.
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        Self {
            name: literal_name(name),
            secret: None,
        }
    }

    /// Uses a keyed digest of the value as the key, so that the store never contains the value.
    #[must_use]
    pub fn secret(mut self, secret: KeySecret) -> Self {
        self.secret = Some(secret);
        self
    }
}

/// Returns the name of a header from a literal.
pub(super) const fn literal_name(name: &'static str) -> HeaderName {
    let (bytes, mut at) = (name.as_bytes(), 0);
    while at < bytes.len() {
        assert!(
            !bytes[at].is_ascii_uppercase(),
            "the name of a header must be in lower case, as in \"x-api-key\""
        );
        at += 1;
    }
    HeaderName::from_static(name)
}

impl From<HeaderName> for Header {
    fn from(name: HeaderName) -> Self {
        Self { name, secret: None }
    }
}

impl KeyExtractor for Header {
    fn extract(&self, parts: &Parts) -> Extraction {
        let mut values = parts.headers.get_all(&self.name).iter();
        let value = match (values.next(), values.next()) {
            (Some(value), None) => value.as_bytes().trim_ascii(),
            (None, _) => {
                return Err(KeyError::missing(format!(
                    "header {} is missing",
                    self.name
                )));
            }
            (Some(_), Some(_)) => {
                return Err(KeyError::missing(format!(
                    "header {} appears more than once",
                    self.name
                )));
            }
        };
        if value.is_empty() {
            return Err(KeyError::missing(format!("header {} is empty", self.name)));
        }
        Ok(Some(match &self.secret {
            Some(secret) => Key::secret(value, secret),
            None => Key::bytes(value),
        }))
    }
}
