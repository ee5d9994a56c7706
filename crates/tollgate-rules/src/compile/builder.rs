//! The options of loading.
//! What is loaded, and how, is in `loading.rs`.

use crate::{Compat, Limits, RuleSet};

/// Sets options and loads a [`RuleSet`].
#[derive(Clone, Debug, Default)]
pub struct RuleSetBuilder {
    pub(crate) compat: Compat,
    /// The mode of all files.
    pub(crate) forced_compat: Option<Compat>,
    pub(crate) merge_domains: bool,
    pub(crate) limits: Limits,
}

impl RuleSetBuilder {
    /// Sets the mode of files without the field `compat`. The default is [`Compat::Native`].
    #[must_use]
    pub fn compat(mut self, compat: Compat) -> Self {
        self.compat = compat;
        self
    }

    /// Sets the mode of all files, and overrides their field `compat`.
    ///
    /// Tools use it to compare the two modes. A service leaves the choice to the files.
    #[must_use]
    pub fn force_compat(mut self, compat: Compat) -> Self {
        self.forced_compat = Some(compat);
        self
    }

    /// Sets whether several files may have one domain. Their descriptors are then joined, in the
    /// order of the files.
    ///
    /// By default, a domain in two files is a mistake. Envoy's service calls this option
    /// `MERGE_DOMAIN_CONFIG`.
    #[must_use]
    pub fn merge_domains(mut self, merge: bool) -> Self {
        self.merge_domains = merge;
        self
    }

    /// Sets the bounds of size and depth.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits.capped();
        self
    }

    /// Returns a set without domains.
    pub(crate) fn empty(&self) -> RuleSet {
        RuleSet::empty(self.forced_compat.unwrap_or(self.compat))
    }
}
