use http::HeaderMap;

/// Returns the text of a header without the spaces around it.
pub(super) fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok().map(str::trim)
}

/// Collects headers for a test.
#[cfg(test)]
pub(super) fn headers(fields: &[(&'static str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in fields {
        headers.append(http::HeaderName::from_static(name), http::HeaderValue::from_str(value).unwrap());
    }
    headers
}
