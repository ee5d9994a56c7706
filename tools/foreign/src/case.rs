//! Reads the lines that a script prints: an attempt and its answer, or a note.

use serde_json::Value;

/// A line that a script printed.
#[derive(Debug, PartialEq)]
pub(crate) enum Line {
    Case(Case),
    Note { row: String, text: String },
}

/// An attempt, and the answer that was expected.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Case {
    pub(crate) row: String,
    pub(crate) client: String,
    pub(crate) name: String,
    pub(crate) expected: String,
    pub(crate) found: String,
    pub(crate) is_passed: bool,
}

impl Line {
    /// Returns nothing for a line of another form.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let value: Value = serde_json::from_str(line).ok()?;
        let text = |name: &str| Some(value[name].as_str()?.to_owned());
        let row = text("row")?;
        if let Some(text) = text("note") {
            return Some(Self::Note { row, text });
        }
        Some(Self::Case(Case {
            row,
            client: text("client")?,
            name: text("case")?,
            expected: text("expected")?,
            found: text("found")?,
            is_passed: value["passed"].as_bool()?,
        }))
    }
}
