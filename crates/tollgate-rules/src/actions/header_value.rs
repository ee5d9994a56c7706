use std::borrow::Cow;

use http::{HeaderMap, HeaderName};

/// Returns the value of a header field. Several values are joined by commas (RFC 9110, section 5.3).
pub(super) fn header_value<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<Cow<'a, str>> {
    let text = |bytes: &'a [u8]| match std::str::from_utf8(bytes) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => Cow::Owned(bytes.iter().map(|byte| char::from(*byte)).collect()),
    };
    let mut values = headers.get_all(name).iter().map(|value| text(value.as_bytes()));
    let first = values.next()?;
    Some(values.fold(first, |joined, value| Cow::Owned(format!("{joined},{value}"))))
}
