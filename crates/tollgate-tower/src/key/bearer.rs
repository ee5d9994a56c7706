//! The token of the header `Authorization: Bearer …` as the key. Other headers are read by `header`.

use http::{HeaderValue, header, request::Parts};
use tollgate_core::{Key, KeySecret};

use super::extractor::{Extraction, KeyError, KeyExtractor};

/// Finds the key in the token of `Authorization: Bearer …` ([RFC
/// 6750](https://www.rfc-editor.org/rfc/rfc6750#section-2.1)). The key is a keyed digest of the
/// token, so that the store never contains one.
///
/// The header must appear exactly once, with a token. Otherwise the key is missing, and the response
/// is 401 with `WWW-Authenticate: Bearer`. Use the same secret in all replicas.
///
/// **A client that makes up a token has a quota of its own for each.** Use it inside a layer that has
/// verified the token, or beside a limit of the address.
///
/// ```
/// use http::{Request, StatusCode};
/// use tollgate::{Key, KeySecret};
/// use tollgate_tower::{KeyExtractor, key::Bearer};
///
/// let secret = KeySecret::new("32 random bytes, from the configuration");
/// let by_token = Bearer::new(secret.clone());
/// let (parts, ()) = Request::builder().header("authorization", "Bearer mF_9.B5f-4.1JqM").body(()).unwrap().into_parts();
/// assert_eq!(by_token.extract(&parts).unwrap(), Some(Key::secret("mF_9.B5f-4.1JqM", &secret)));
///
/// let (parts, ()) = Request::new(()).into_parts();
/// assert_eq!(by_token.extract(&parts).unwrap_err().status(), StatusCode::UNAUTHORIZED);
/// ```
#[doc(alias = "authorization")]
#[doc(alias = "jwt")]
#[doc(alias = "token")]
#[derive(Clone, Debug)]
pub struct Bearer {
    secret: KeySecret,
}

impl Bearer {
    /// Finds the token, and digests it with this secret.
    #[must_use]
    pub const fn new(secret: KeySecret) -> Self {
        Self { secret }
    }
}

impl KeyExtractor for Bearer {
    fn extract(&self, parts: &Parts) -> Extraction {
        let mut values = parts.headers.get_all(header::AUTHORIZATION).iter();
        let token = match (values.next(), values.next()) {
            (Some(value), None) => token(value.as_bytes()),
            _ => None,
        };
        match token {
            Some(token) => Ok(Some(Key::secret(token, &self.secret))),
            None => Err(KeyError::missing("the request has no bearer token")
                .with_challenge(HeaderValue::from_static("Bearer"))),
        }
    }
}

/// Returns the token of a value: `Bearer`, in any case, spaces, and one or more of the characters of
/// a token with `=` at its end.
fn token(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(b"Bearer".len())?;
    if !scheme.eq_ignore_ascii_case(b"Bearer") || token.first() != Some(&b' ') {
        return None;
    }
    let token = token.trim_ascii();
    let padding = token.iter().rev().take_while(|byte| **byte == b'=').count();
    let (characters, _) = token.split_at(token.len() - padding);
    let is_character = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~+/".contains(byte);
    (!characters.is_empty() && characters.iter().all(is_character)).then_some(token)
}
