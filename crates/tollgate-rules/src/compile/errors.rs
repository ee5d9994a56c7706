//! Collects mistakes with the path of their field.
//! What a mistake looks like to users is in `error.rs`, one floor up.

use std::{fmt, path::Path, sync::Arc};

use crate::{
    RuleError, RuleErrorKind, RuleErrors,
    document::short,
    error::{MAX_ERRORS, Position},
    rule::Origin,
};

/// The path of a field, as a list from the field to the root.
pub(crate) enum Trail<'a> {
    Root,
    Field(&'a Self, &'a str),
    Item(&'a Self, usize),
}

impl<'a> Trail<'a> {
    pub(crate) fn field(&'a self, name: &'a str) -> Self {
        Self::Field(self, name)
    }

    pub(crate) fn item(&'a self, at: usize) -> Self {
        Self::Item(self, at)
    }
}

impl fmt::Display for Trail<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Field(Self::Root, name) => f.write_str(&short(name)),
            Self::Field(parent, name) => write!(f, "{parent}.{}", short(name)),
            Self::Item(parent, at) => write!(f, "{parent}[{at}]"),
        }
    }
}

/// Collects mistakes, up to a number.
#[derive(Default)]
pub(crate) struct Errors {
    pub(crate) file: Option<Arc<Path>>,
    held: Vec<RuleError>,
    count: usize,
}

impl Errors {
    /// Collects the mistakes of a file.
    #[cfg(feature = "spring")]
    pub(crate) fn of_file(file: Option<Arc<Path>>) -> Self {
        Self {
            file,
            ..Self::default()
        }
    }

    pub(super) fn push(&mut self, error: RuleError) {
        self.count += 1;
        if self.held.len() < MAX_ERRORS {
            self.held.push(error);
        }
    }

    /// Adds a value that is refused.
    pub(crate) fn refuse(
        &mut self,
        field: impl fmt::Display,
        at: Position,
        message: impl Into<String>,
    ) {
        self.push_at(RuleErrorKind::Value, field, at, message);
    }

    /// Returns a value, or adds the reason why it is refused.
    pub(super) fn accept<T>(
        &mut self,
        field: impl fmt::Display,
        at: Position,
        value: Result<T, impl fmt::Display>,
    ) -> Option<T> {
        value
            .map_err(|error| self.refuse(field, at, error.to_string()))
            .ok()
    }

    /// Returns the place of a rule.
    pub(super) fn origin(&self, at: Position) -> Origin {
        Origin {
            file: self.file.clone(),
            line: at.line,
        }
    }

    /// Adds a mistake in a field, whose path is written only if the mistake is held.
    pub(crate) fn push_at(
        &mut self,
        kind: RuleErrorKind,
        field: impl fmt::Display,
        at: Position,
        message: impl Into<String>,
    ) {
        self.count += 1;
        if self.held.len() < MAX_ERRORS {
            let error = RuleError::new(kind, message)
                .at(at)
                .in_field(&field.to_string());
            self.held.push(error.in_file(self.file.as_ref()));
        }
    }

    /// Returns the number of mistakes.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    pub(crate) fn finish(&mut self) -> Result<(), RuleErrors> {
        if self.count == 0 {
            return Ok(());
        }
        Err(RuleErrors::new(std::mem::take(&mut self.held), self.count))
    }
}
