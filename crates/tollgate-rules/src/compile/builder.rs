//! The options of loading.
//! What is loaded, and how, is in `loading.rs`.

use std::sync::Arc;

use tollgate::{Error, PolicySet, Store};

use crate::{Compat, Limits, RuleSet};

/// Sets options and loads a [`RuleSet`].
#[derive(Clone, Default)]
pub struct RuleSetBuilder {
    pub(crate) compat: Compat,
    /// The mode of all files.
    pub(crate) forced_compat: Option<Compat>,
    pub(crate) merge_domains: bool,
    pub(crate) limits: Limits,
    /// The store that has to accept each limit.
    store: Option<Arc<dyn Store>>,
}

tollgate::debug_fields! { RuleSetBuilder: compat, forced_compat, merge_domains, limits, .. }

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

    /// Refuses limits that this store does not [accept](Store::accepts), with their places and its
    /// reasons. By default, every limit is taken.
    ///
    /// Most stores decide all limits. One that does not, such as a store of several regions, would
    /// otherwise fail each check of such a limit.
    ///
    /// ```
    /// use tollgate::MemoryStore;
    /// use tollgate_rules::{Format, RuleSet};
    ///
    /// let rules = "{domain: shop, descriptors: [{key: tenant, rate_limit: {quota: 10/s}}]}";
    /// let builder = RuleSet::builder().accepted_by(MemoryStore::new());
    /// assert!(builder.parse(rules, Format::Yaml).is_ok());
    /// ```
    #[must_use]
    pub fn accepted_by(mut self, store: impl Store) -> Self {
        self.store = Some(Arc::new(store));
        self
    }

    /// Returns why the store decides no checks of a limit.
    pub(crate) fn accepts(&self, policies: &PolicySet) -> Result<(), Error> {
        let store = self.store.as_ref();
        store.map_or(Ok(()), |store| store.accepts(policies))
    }

    /// Returns a set without domains.
    pub(crate) fn empty(&self) -> RuleSet {
        RuleSet::empty(self.forced_compat.unwrap_or(self.compat))
    }
}
