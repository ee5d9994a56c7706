use http::{HeaderMap, Method, header, request::Parts};

/// Selects a body that the client can read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyFormat {
    Json,
    Text,
    Empty,
}

impl BodyFormat {
    /// Returns the format by the method and by `Accept` (RFC 9110, section 12.5.1). JSON wins a tie with text. A HEAD
    /// request has the format of a GET request.
    pub(super) fn of(request: &Parts) -> Self {
        if request.method == Method::CONNECT {
            return Self::Empty;
        }
        if !request.headers.contains_key(header::ACCEPT) {
            return Self::Json;
        }
        let json = quality(&request.headers, &["application/problem+json", "application/json"], "application/*");
        let text = quality(&request.headers, &["text/plain", "text/html"], "text/*");
        match (json, text) {
            (0, 0) => Self::Empty,
            (json, text) if json >= text => Self::Json,
            _ => Self::Text,
        }
    }
}

/// Returns the quality of a family of media types in thousandths, by the most specific range that matches.
fn quality(headers: &HeaderMap, types: &[&str], range: &str) -> u16 {
    let mut best = (0, 0);
    for line in headers.get_all(header::ACCEPT) {
        for member in line.to_str().unwrap_or_default().split(',') {
            let mut parts = member.split(';').map(str::trim);
            let media = parts.next().unwrap_or_default();
            let specific = match media {
                _ if types.iter().any(|name| media.eq_ignore_ascii_case(name)) => 3,
                _ if media.eq_ignore_ascii_case(range) => 2,
                "*/*" => 1,
                _ => continue,
            };
            let weight = parts.find_map(|parameter| {
                let (name, value) = parameter.split_once('=')?;
                name.trim().eq_ignore_ascii_case("q").then(|| value.trim().parse::<f32>().unwrap_or(0.0))
            });
            let weight = (weight.unwrap_or(1.0).clamp(0.0, 1.0) * 1000.0) as u16;
            best = best.max((specific, weight));
        }
    }
    best.1
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    #[test]
    fn the_body_has_the_format_that_the_client_prefers() {
        for (accept, expected) in [
            (None, BodyFormat::Json),
            (Some("*/*"), BodyFormat::Json),
            (Some("application/json"), BodyFormat::Json),
            (Some("application/problem+json"), BodyFormat::Json),
            (Some("Application/Json; charset=utf-8"), BodyFormat::Json),
            (Some("text/html, application/json"), BodyFormat::Json),
            (Some("text/html;q=0.5, application/json;q=0.4"), BodyFormat::Text),
            // A browser.
            (Some("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"), BodyFormat::Text),
            (Some("text/*"), BodyFormat::Text),
            (Some("text/plain;q=0"), BodyFormat::Empty),
            (Some("application/json;q=0, */*"), BodyFormat::Text),
            (Some("application/json;q=nonsense"), BodyFormat::Empty),
            (Some("image/avif,image/webp"), BodyFormat::Empty),
            (Some("*/*;q=0"), BodyFormat::Empty),
            (Some(""), BodyFormat::Empty),
            (Some(";;,=;q"), BodyFormat::Empty),
        ] {
            let mut request = Request::builder();
            if let Some(accept) = accept {
                request = request.header("accept", accept);
            }
            let (parts, ()) = request.body(()).unwrap().into_parts();
            assert_eq!(BodyFormat::of(&parts), expected, "{accept:?}");
        }
    }

    #[test]
    fn several_accept_lines_are_one_list() {
        let request = Request::builder().header("accept", "image/png").header("accept", "text/plain").body(()).unwrap();
        assert_eq!(BodyFormat::of(&request.into_parts().0), BodyFormat::Text);
    }

    #[test]
    fn connect_has_an_empty_body_and_head_the_body_of_get() {
        for (method, expected) in
            [("CONNECT", BodyFormat::Empty), ("HEAD", BodyFormat::Json), ("GET", BodyFormat::Json)]
        {
            let request = Request::builder().method(method).body(()).unwrap();
            assert_eq!(BodyFormat::of(&request.into_parts().0), expected);
        }
    }
}
