//! The files of the page, and the headers that keep everything else out of it.

use axum::{
    Router,
    http::{HeaderName, HeaderValue, Response, header},
    routing::get,
};

const HTML: &str = "text/html; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const IMAGE: &str = "image/svg+xml";

/// Lists the files: path, type and content.
const FILES: [(&str, &str, &str); 12] = [
    ("/", HTML, include_str!("page/index.html")),
    ("/style.css", STYLE, include_str!("page/style.css")),
    ("/parts.css", STYLE, include_str!("page/parts.css")),
    ("/icon.svg", IMAGE, include_str!("page/icon.svg")),
    ("/app.js", SCRIPT, include_str!("page/app.js")),
    ("/pane.js", SCRIPT, include_str!("page/pane.js")),
    ("/settings.js", SCRIPT, include_str!("page/settings.js")),
    ("/plot.js", SCRIPT, include_str!("page/plot.js")),
    ("/traffic.js", SCRIPT, include_str!("page/traffic.js")),
    ("/extras.js", SCRIPT, include_str!("page/extras.js")),
    ("/server.js", SCRIPT, include_str!("page/server.js")),
    ("/text.js", SCRIPT, include_str!("page/text.js")),
];

/// Allows scripts, styles and connections of this origin alone, and nothing in between lines.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const HEADERS: [(HeaderName, &str); 4] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    // The files change with the program.
    (header::CACHE_CONTROL, "no-store"),
];

/// Returns the routes of the files.
pub(crate) fn routes() -> Router {
    FILES
        .into_iter()
        .fold(Router::new(), |router, (path, content_type, content)| {
            router.route(
                path,
                get(async move || ([(header::CONTENT_TYPE, content_type)], content)),
            )
        })
}

/// Adds the headers of security to a response.
pub(crate) fn secured<B>(mut response: Response<B>) -> Response<B> {
    for (name, value) in HEADERS {
        response
            .headers_mut()
            .entry(name)
            .or_insert(HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_file_names_an_address_elsewhere() {
        for (path, _, content) in FILES {
            // The names of XML dialects are no addresses to load.
            let content = content.replace("http://www.w3.org/2000/svg", "");
            for address in ["https://", "http://", "//cdn"] {
                let allowed = content.matches("http://127.0.0.1").count();
                let found = content.matches(address).count();
                assert!(
                    found <= if address == "http://" { allowed } else { 0 },
                    "{address} in {path}"
                );
            }
            assert!(
                !content.contains(" style=\"") && !content.contains("onclick="),
                "{path}"
            );
        }
    }
}
