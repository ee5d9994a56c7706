//! Bounds a tree while it grows, and makes the errors of its readers.
//! The bounds themselves are options, in `limits.rs`.

use super::{limits::Limits, node::short};
use crate::error::{Position, RuleError, RuleErrorKind};

/// Counts the nodes of a tree while it grows.
pub(super) struct Budget<'a> {
    pub(super) limits: &'a Limits,
    pub(super) nodes: usize,
}

impl<'a> Budget<'a> {
    pub(super) fn new(limits: &'a Limits) -> Self {
        Self { limits, nodes: 0 }
    }

    pub(super) fn spend(
        &mut self,
        nodes: usize,
        at: impl Fn() -> Position,
    ) -> Result<(), RuleError> {
        self.nodes = self.nodes.saturating_add(nodes);
        if self.nodes <= self.limits.nodes {
            return Ok(());
        }
        let message = format!(
            "a file must have at most {} values, also where aliases repeat them",
            self.limits.nodes
        );
        Err(RuleError::new(RuleErrorKind::Limit, message).at(at()))
    }

    pub(super) fn enter(&self, depth: usize, at: impl Fn() -> Position) -> Result<(), RuleError> {
        if depth <= self.limits.depth {
            return Ok(());
        }
        let message = format!(
            "lists and mappings must be nested at most {} deep",
            self.limits.depth
        );
        Err(RuleError::new(RuleErrorKind::Limit, message).at(at()))
    }
}

pub(super) fn syntax(message: impl Into<String>) -> RuleError {
    RuleError::new(RuleErrorKind::Syntax, message)
}

pub(super) fn duplicate(name: &str, at: Position) -> RuleError {
    let name = short(name);
    RuleError::new(
        RuleErrorKind::Duplicate,
        format!("field {name:?} appears twice in one mapping"),
    )
    .at(at)
}
