//! What a compilation collects while it goes through the files: mistakes, rules, and the
//! descriptors of the level at hand.
//! The methods that read fields are in `limit.rs`, `metadata.rs` and others: a file for each part
//! of the language.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{builder::RuleSetBuilder, digest::Digests, errors::Errors};
use crate::{
    Compat, error::Position, fair_shares::FairShares, priority::PriorityClass, rule_set::RuleNode,
    selector::Selector,
};

/// Collects the descriptors and the mistakes of all files.
pub(crate) struct Compiler {
    pub(super) options: RuleSetBuilder,
    pub(super) compat: Compat,
    pub(super) errors: Errors,
    #[cfg(feature = "http")]
    pub(super) limits: crate::Limits,
    /// The files of networks that were read, or would have been.
    pub(super) lists: Vec<PathBuf>,
    /// The digests of all texts that were read.
    pub(super) digests: Digests,
    pub(super) selectors: Vec<Selector>,
    pub(super) nodes: Vec<RuleNode>,
}

/// The descriptors of one level while it is built.
#[derive(Default)]
pub(super) struct Siblings {
    pub(super) ids: Vec<u32>,
    /// The nodes by the text that must differ.
    pub(super) seen: HashMap<String, u32>,
    /// The `priorities` of the domain.
    pub(super) priorities: Option<Placed<Vec<PriorityClass>>>,
    /// The `fair_shares` of the domain.
    pub(super) fair_shares: Option<Placed<FairShares>>,
    #[cfg(feature = "http")]
    pub(super) networks: Option<crate::networks::ClientNetworks>,
    /// The `rate_limits` of the domain.
    #[cfg(feature = "http")]
    pub(super) descriptors: Option<crate::Descriptors>,
}

/// The value of a field, and the place of the field.
pub(super) struct Placed<T> {
    pub(super) value: T,
    pub(super) file: Option<Arc<Path>>,
    pub(super) at: Position,
}

impl Compiler {
    /// Notes the place of a field in the file at hand.
    pub(super) fn placed<T>(&self, value: T, at: Position) -> Placed<T> {
        let file = self.errors.file.clone();
        Placed { value, file, at }
    }
}
