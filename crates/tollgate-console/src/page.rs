//! The page, and the policy by which a browser runs nothing but its own script.
//! The page itself is `page.html`: it sets every value as text.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::HeaderValue;
use sha2::{Digest as _, Sha256};

/// The page, whole: it asks no other host for anything.
const HTML: &str = include_str!("page.html");

/// The page with the policy of its content.
#[derive(Debug)]
pub(crate) struct Page {
    policy: HeaderValue,
}

impl Page {
    pub(crate) fn new() -> Self {
        let [script, style] = ["script", "style"].map(|element| hash(content(HTML, element)));
        let policy = format!(
            "default-src 'none'; script-src 'sha256-{script}'; style-src 'sha256-{style}'; \
             connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; \
             frame-ancestors 'none'"
        );
        // A hash in base64 has no other signs than a field may have.
        let policy = HeaderValue::try_from(policy);
        Self {
            policy: policy.unwrap_or(HeaderValue::from_static("default-src 'none'")),
        }
    }

    pub(crate) fn html(&self) -> &'static str {
        HTML
    }

    pub(crate) fn policy(&self) -> &HeaderValue {
        &self.policy
    }
}

/// Returns what stands in the only element of this name.
fn content<'h>(html: &'h str, element: &str) -> &'h str {
    let (open, close) = (format!("<{element}>"), format!("</{element}>"));
    let inner = html.split_once(&open).map(|(_, rest)| rest);
    inner
        .and_then(|rest| rest.split_once(&close))
        .map_or("", |(inner, _)| inner)
}

fn hash(text: &str) -> String {
    STANDARD.encode(Sha256::digest(text.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_one_script_and_one_style_and_none_of_what_the_policy_forbids() {
        for element in ["script", "style"] {
            assert_eq!(HTML.matches(&format!("<{element}")).count(), 1, "{element}");
            assert!(!content(HTML, element).trim().is_empty(), "{element}");
        }
        for word in [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "onclick=",
            "onload=",
            "onerror=",
            "style=\"",
            "http://",
            "https://",
            "//cdn",
            "srcdoc",
            "javascript:",
        ] {
            assert!(!HTML.contains(word), "{word}");
        }
    }
}
