use http::{HeaderName, request::Parts};
use tollgate::{Key, KeySecret};

use super::{Extraction, KeyError, KeyExtractor};

/// The value of a request header, an API key for example.
///
/// The header must be there once, with a value that is not blank; any bytes are fine. It is missing
/// otherwise: of two lines neither is believed, and no two callers meet under an empty key.
///
/// **Whoever can choose the value freely has no limit**: a new value is a new quota. Use it where
/// the value was checked before, or behind a gateway that sets the header and removes what the
/// client sent under its name.
///
/// ```
/// use http::Request;
/// use tollgate::{Key, KeySecret};
/// use tollgate_tower::{KeyExtractor, key::Header};
///
/// let (parts, ()) = Request::builder().header("x-api-key", "sk_live_51H8").body(()).unwrap().into_parts();
/// assert_eq!(Header::new("x-api-key").extract(&parts).unwrap(), Some(Key::new("sk_live_51H8")));
///
/// // What is a secret does not belong in the store.
/// let pepper = KeySecret::new(b"from the deployment's own configuration");
/// let key = Header::new("x-api-key").secret(pepper.clone()).extract(&parts).unwrap();
/// assert_eq!(key, Some(Key::secret("sk_live_51H8", &pepper)));
/// ```
#[derive(Clone, Debug)]
pub struct Header {
    name: HeaderName,
    secret: Option<KeySecret>,
}

impl Header {
    /// The header of this name, in lower case.
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
            (None, _) => return Err(KeyError::missing(format!("header {} is missing", self.name))),
            (Some(_), Some(_)) => return Err(KeyError::missing(format!("header {} is there twice", self.name))),
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
