//! Mistakes in files of rules, as users see them: the place, the field, and texts that no file can
//! make forge a line.
//! They are collected in `compile/errors.rs`. Suspicions about rules that are allowed are in
//! `lint.rs`.

use std::{borrow::Cow, fmt, path::Path, sync::Arc};

/// Reports why files of rules were refused.
///
/// The error holds every mistake that was found, up to 20. Its text has one line for each: names
/// and values of the file are cut, and signs that end a line or that a terminal obeys are escaped.
/// A load is all or nothing: one mistake refuses all files of the load, and the rules from before
/// stay in force.
///
/// ```
/// use tollgate_rules::{Format, RuleSet};
///
/// let text = "domain: shop\ndescriptors:\n- key: tenant\n  rate_limit: {unit: minuet, requests_per_unit: 5}\n";
/// let errors = RuleSet::parse(text, Format::Yaml).unwrap_err();
/// assert_eq!(
///     errors.to_string(),
///     "line 4, column 22: descriptors[0].rate_limit.unit: unknown unit \"minuet\", expected second, minute, hour, day, \
///      week, month or year; did you mean minute?",
/// );
/// assert_eq!(errors.iter().next().unwrap().line(), Some(4));
/// ```
#[derive(Clone)]
pub struct RuleErrors {
    errors: Arc<[RuleError]>,
    /// The number of mistakes, also of those that are not held.
    count: usize,
}

/// The most mistakes that are held.
pub(crate) const MAX_ERRORS: usize = 20;

impl RuleErrors {
    pub(crate) fn new(errors: Vec<RuleError>, count: usize) -> Self {
        Self {
            errors: errors.into(),
            count,
        }
    }

    /// Returns the mistakes, in the order of the files and of their lines.
    #[must_use]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &RuleError> {
        self.errors.iter()
    }

    /// Returns the number of all mistakes, which may be more than the 20 that are held.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }
}

impl From<RuleError> for RuleErrors {
    fn from(error: RuleError) -> Self {
        Self::new(vec![error], 1)
    }
}

impl fmt::Display for RuleErrors {
    /// Writes one line for each mistake.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, error) in self.errors.iter().enumerate() {
            if at > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{error}")?;
        }
        match self.count - self.errors.len() {
            0 => Ok(()),
            more => write!(f, "\nand {more} more"),
        }
    }
}

tollgate::debug_fields! { RuleErrors: count, errors }

impl std::error::Error for RuleErrors {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.errors
            .first()
            .and_then(|error| std::error::Error::source(error))
    }
}

/// Reports one mistake in a file of rules: its place, the field, the mistake and what would be
/// right.
#[derive(Clone)]
pub struct RuleError {
    kind: RuleErrorKind,
    file: Option<Arc<Path>>,
    at: Option<Position>,
    field: String,
    message: String,
    source: Option<Arc<std::io::Error>>,
}

/// Groups mistakes in files of rules, for metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RuleErrorKind {
    /// A file cannot be read: it does not exist, it is a directory, the permission is missing, or
    /// its extension is unknown.
    Io,
    /// A file exceeds the [`Limits`](crate::Limits), or it changed each time it was read.
    Limit,
    /// A file is not valid UTF-8, or not valid YAML, TOML or JSON.
    Syntax,
    /// A field has an unknown name.
    UnknownField,
    /// A field, a domain or a descriptor appears twice.
    Duplicate,
    /// A value has the wrong type.
    Type,
    /// A value or a combination of fields is not allowed.
    Value,
    /// A field is an addition of Tollgate, and the mode is [`Compat::Envoy`](crate::Compat::Envoy).
    Addition,
}

impl RuleErrorKind {
    /// Returns a stable word for metrics and alerts.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Io => "io",
            Self::Limit => "limit",
            Self::Syntax => "syntax",
            Self::UnknownField => "unknown_field",
            Self::Duplicate => "duplicate",
            Self::Type => "type",
            Self::Value => "value",
            Self::Addition => "addition",
        }
    }
}

/// A place in a text: line and column in characters, both from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position {
    pub(crate) line: u32,
    pub(crate) column: u32,
}

impl Position {
    /// Returns the place of a byte of a text.
    pub(crate) fn of_byte(text: &str, byte: usize) -> Self {
        let before = text.get(..byte).unwrap_or(text);
        let start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let line = before.bytes().filter(|byte| *byte == b'\n').count();
        Self {
            line: line as u32 + 1,
            column: before[start..].chars().count() as u32 + 1,
        }
    }
}

impl RuleError {
    pub(crate) fn new(kind: RuleErrorKind, message: impl Into<String>) -> Self {
        let message = printable(&cut(&message.into(), MAX_TEXT)).into_owned();
        Self {
            kind,
            file: None,
            at: None,
            field: String::new(),
            message,
            source: None,
        }
    }

    pub(crate) fn io(message: impl Into<String>, source: std::io::Error) -> Self {
        Self {
            source: Some(Arc::new(source)),
            ..Self::new(RuleErrorKind::Io, message)
        }
    }

    pub(crate) fn at(mut self, at: Position) -> Self {
        self.at = Some(at);
        self
    }

    pub(crate) fn in_field(mut self, field: &str) -> Self {
        self.field = printable(&cut(field, MAX_TEXT)).into_owned();
        self
    }

    pub(crate) fn in_file(mut self, file: Option<&Arc<Path>>) -> Self {
        self.file = file.cloned();
        self
    }

    /// Returns the group of the mistake.
    #[must_use]
    pub fn kind(&self) -> RuleErrorKind {
        self.kind
    }

    /// Returns the file, and `None` for rules that were not read from a file.
    #[must_use]
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Returns the line, from 1. `None` for a mistake of a whole file, such as a missing one.
    #[must_use]
    pub fn line(&self) -> Option<u32> {
        self.at.map(|at| at.line)
    }

    /// Returns the column in characters, from 1. `None` for a mistake of a whole file.
    #[must_use]
    pub fn column(&self) -> Option<u32> {
        self.at.map(|at| at.column)
    }

    /// Returns the path of the field, such as `descriptors[0].rate_limit.unit`. It is empty for the
    /// whole file.
    #[must_use]
    pub fn field(&self) -> &str {
        &self.field
    }

    /// Returns the mistake and what would be right, without the place.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }
}

/// The most characters of a path of a field, and of a message, whatever the names and values in it.
const MAX_TEXT: usize = 1_000;

/// Cuts a text to a number of characters.
pub(crate) fn cut(text: &str, most: usize) -> Cow<'_, str> {
    match text.char_indices().nth(most) {
        Some((at, _)) => format!("{}…", &text[..at]).into(),
        None => text.into(),
    }
}

/// Escapes the signs of a text that end a line, or that a terminal obeys. A text of a file could
/// forge a line of a log.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    let is_plain = |sign: char| matches!(sign, '"' | '\'' | '\\') || sign.escape_debug().len() == 1;
    if text.chars().all(is_plain) {
        return text.into();
    }
    let escaped = |shown: String, sign: char| match is_plain(sign) {
        true => shown + sign.encode_utf8(&mut [0; 4]),
        false => shown + &sign.escape_debug().to_string(),
    };
    text.chars().fold(String::new(), escaped).into()
}

/// Returns the path of a file as it is shown.
pub(crate) fn shown(path: &Path) -> String {
    printable(&path.to_string_lossy()).into_owned()
}

impl fmt::Display for RuleError {
    /// Writes `FILE:LINE:COLUMN: FIELD: MESSAGE`, or `line LINE, column COLUMN: …` without a file.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.file, self.at) {
            (Some(file), Some(at)) => write!(f, "{}:{}:{}: ", shown(file), at.line, at.column)?,
            (Some(file), None) => write!(f, "{}: ", shown(file))?,
            (None, Some(at)) => write!(f, "line {}, column {}: ", at.line, at.column)?,
            (None, None) => {}
        }
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        f.write_str(&self.message)
    }
}

tollgate::debug_fields! { RuleError: kind, message = .to_string() }

impl std::error::Error for RuleError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|source| source.as_ref() as _)
    }
}
