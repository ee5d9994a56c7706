//! The key and value that a rule of the file has, which the entries of requests are compared with.
//! What matches is decided in `rule_set/level.rs`, patterns are in `pattern.rs`.

use crate::pattern::Pattern;

/// The key and the value of a descriptor of the file, by which an entry of a request selects it.
#[derive(Clone, Debug)]
pub(crate) struct Selector {
    pub(crate) key: Box<str>,
    pub(crate) value: Option<Box<str>>,
}

impl Selector {
    pub(crate) fn value(&self) -> &str {
        self.value.as_deref().unwrap_or_default()
    }

    /// Returns the pattern of the value.
    pub(crate) fn pattern(&self) -> Option<Pattern> {
        self.value.as_deref().and_then(Pattern::new)
    }

    /// Returns the text by which Envoy's service finds the descriptor.
    pub(crate) fn composite(&self) -> String {
        match &self.value {
            Some(value) => format!("{}_{value}", self.key),
            None => self.key.to_string(),
        }
    }
}
