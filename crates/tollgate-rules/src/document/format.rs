//! The formats of a file, by its extension, and the way from its text to the reader of the format.
//! Each reader has its own file. Reading from the disk is in `load.rs`.

use std::path::Path;

#[cfg(feature = "toml")]
use super::toml;
use super::{limits::Limits, node::Node, yaml};
use crate::error::RuleError;

/// Names the format of a file of rules.
///
/// ```
/// use std::path::Path;
/// use tollgate_rules::Format;
///
/// assert_eq!(Format::of_path(Path::new("rules/shop.yaml")), Some(Format::Yaml));
/// assert_eq!(Format::of_path(Path::new("README.md")), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// YAML 1.2, for the extensions `.yaml` and `.yml`.
    Yaml,
    /// JSON (RFC 8259), for the extension `.json`. It is read as the YAML that it is: a character
    /// beyond U+FFFF stands as itself, because two escapes of surrogates are refused.
    Json,
    /// TOML 1.1, for the extension `.toml`.
    #[cfg(feature = "toml")]
    Toml,
}

impl Format {
    /// Returns the format for the extension of a file, in any case. `None` for any other extension.
    #[must_use]
    pub fn of_path(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
            "yaml" | "yml" => Some(Self::Yaml),
            "json" => Some(Self::Json),
            #[cfg(feature = "toml")]
            "toml" => Some(Self::Toml),
            _ => None,
        }
    }

    /// Reads a text as a tree. A byte order mark at its start is skipped.
    pub(crate) fn read(self, text: &str, limits: &Limits) -> Result<Node, RuleError> {
        let text = checked(text, limits)?;
        match self {
            Self::Yaml => yaml::read(text, limits, "YAML"),
            Self::Json => yaml::read(text, limits, "JSON"),
            #[cfg(feature = "toml")]
            Self::Toml => toml::read(text, limits),
        }
    }
}

/// Reads the documents of a YAML text. A byte order mark at its start is skipped.
#[cfg(feature = "spring")]
pub(crate) fn read_yaml(text: &str, limits: &Limits) -> Result<Vec<Node>, RuleError> {
    yaml::read_all(checked(text, limits)?, limits)
}

/// Tests the size of a text, and removes its byte order mark.
fn checked<'t>(text: &'t str, limits: &Limits) -> Result<&'t str, RuleError> {
    if text.len() > limits.bytes {
        return Err(limits.too_many_bytes(text.len() as u64));
    }
    Ok(text.strip_prefix('\u{feff}').unwrap_or(text))
}
