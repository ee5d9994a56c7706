//! Texts that stand in every answer.

use std::sync::{Mutex, PoisonError};

use http::HeaderValue;

/// The texts that are kept.
static TEXTS: Mutex<Vec<&'static HeaderValue>> = Mutex::new(Vec::new());

/// Keeps a text for as long as the process runs, once however often it is built: to hand it out again costs nothing then,
/// not even a count that two cores fight over. There are as many as there are configurations.
pub(super) fn kept(value: HeaderValue) -> &'static HeaderValue {
    let mut texts = TEXTS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(text) = texts.iter().find(|text| **text == value) {
        return text;
    }
    let text: &'static [u8] = Box::leak(value.as_bytes().into());
    let text = HeaderValue::from_maybe_shared(bytes::Bytes::from_static(text)).unwrap_or(value);
    let text = &*Box::leak(Box::new(text));
    texts.push(text);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_kept_once() {
        let text = || HeaderValue::from_static(r#""kept once";q=20;w=1"#);
        let first = kept(text());
        assert_eq!(first, &text());
        assert!(std::ptr::eq(first, kept(text())));
    }
}
