//! The handle to the rules in force: it gives them out, replaces them, and remembers how the last
//! load went.
//! When to load again is decided in `watch.rs`, or by the user.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::SystemTime,
};

use arc_swap::{ArcSwap, ArcSwapOption};

use tollgate::{
    limiter::events::{Event, Observer},
    store::{RulesDigest, RulesInForce},
};

use crate::{Match, RuleErrors, RuleSet, RuleSetBuilder, Usage, metrics::RuleMetrics};

/// Gives out the rules in force, and replaces them while requests run.
///
/// Each request takes the [`current`](Self::current) set once and decides by it alone, so no
/// request is decided by a mixture of two sets. A reload that fails leaves the rules in force. It
/// is logged with the file, the line and the field of each mistake, counted, and returned by
/// [`last_error`](Self::last_error) until a later reload succeeds.
///
/// Clones share the rules.
///
/// ```
/// use tollgate_rules::{Descriptor, Rules};
///
/// # let directory = tempfile::tempdir().unwrap();
/// # let path = directory.path().join("rules.yaml");
/// std::fs::write(&path, "domain: shop\ndescriptors:\n- {key: tenant, rate_limit: {quota: 5/s}}\n")?;
/// let rules = Rules::load(&path)?;
///
/// std::fs::write(&path, "domain: shop\ndescriptors:\n- {key: tenant, rate_limit: {quota: 5/sec.}}\n")?;
/// assert!(rules.reload().is_err());
/// assert_eq!(rules.last_error().unwrap().iter().next().unwrap().line(), Some(3));
///
/// let current = rules.current();
/// let descriptor = Descriptor::from([("tenant", "acme")]);
/// assert_eq!(current.find("shop", &descriptor).unwrap().rule().amount().unwrap().0, 5);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Rules(Arc<RulesInner>);

struct RulesInner {
    options: RuleSetBuilder,
    path: Option<PathBuf>,
    current: ArcSwap<RuleSet>,
    last_error: ArcSwapOption<RuleErrors>,
    /// Stores what the last load read. It is held from the start of a load until its result is in
    /// force, so that an older file never replaces a newer one.
    loading: Mutex<LastLoad>,
    succeeded: AtomicU64,
    failed: AtomicU64,
    metrics: RuleMetrics,
    in_force: RulesInForce,
    observer: Mutex<Option<Arc<dyn Observer>>>,
}

/// Keeps what the last load read.
#[derive(Default)]
struct LastLoad {
    digest: Option<u64>,
    /// The files of networks that the rules name.
    lists: Vec<PathBuf>,
}

/// Counts the loads of [`Rules`], the first one included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LoadCounts {
    /// The loads that put rules in force.
    pub succeeded: u64,
    /// The loads that were refused.
    pub failed: u64,
}

impl Rules {
    /// Loads a file, or all files of a directory, with the default options: see
    /// [`RuleSetBuilder::load`].
    ///
    /// # Errors
    ///
    /// Fails with every mistake that was found.
    pub fn load(path: impl Into<PathBuf>) -> Result<Self, RuleErrors> {
        Self::load_with(RuleSet::builder(), path)
    }

    /// Loads a file, or all files of a directory. Reloads use the same options.
    ///
    /// # Errors
    ///
    /// Fails with every mistake that was found.
    pub fn load_with(
        options: RuleSetBuilder,
        path: impl Into<PathBuf>,
    ) -> Result<Self, RuleErrors> {
        let path = path.into();
        let mut loaded = LastLoad::default();
        let set = loaded.load(&options, &path)?;
        let rules = Self::with(options, Some(path), set.into());
        *rules.lock() = loaded;
        Ok(rules)
    }

    /// Creates a handle for rules that were not loaded from a file. [`reload`](Self::reload) leaves
    /// them as they are.
    #[must_use]
    pub fn new(set: impl Into<Arc<RuleSet>>) -> Self {
        Self::with(RuleSet::builder(), None, set.into())
    }

    /// Creates a handle without rules: no domain is known until rules are loaded.
    ///
    /// Call [`reload`](Self::reload) when the files exist, or [`replace`](Self::replace) for rules
    /// that do not come from files. [`loads`](Self::loads) shows whether any were loaded.
    ///
    /// ```
    /// use tollgate_rules::{Format, RuleSet, Rules};
    ///
    /// let rules = Rules::empty(RuleSet::builder(), None);
    /// assert_eq!(rules.loads().succeeded, 0);
    /// rules.replace(RuleSet::parse("domain: shop", Format::Yaml)?);
    /// assert!(rules.current().has_domain("shop"));
    /// assert_eq!(rules.loads().succeeded, 1);
    /// # Ok::<(), tollgate_rules::RuleErrors>(())
    /// ```
    #[must_use]
    pub fn empty(options: RuleSetBuilder, path: Option<PathBuf>) -> Self {
        let set = options.empty();
        Self::unloaded(options, path, set.into())
    }

    fn with(options: RuleSetBuilder, path: Option<PathBuf>, set: Arc<RuleSet>) -> Self {
        let digest = set.digest();
        let rules = Self::unloaded(options, path, set);
        rules.0.succeeded.store(1, Ordering::Relaxed);
        rules.0.metrics.record_load(true);
        rules.enforce(digest);
        rules
    }

    fn unloaded(options: RuleSetBuilder, path: Option<PathBuf>, set: Arc<RuleSet>) -> Self {
        let metrics = RuleMetrics::default();
        let source = path.as_deref().map(Path::to_string_lossy);
        let in_force = RulesInForce::new(source.unwrap_or("program".into()));
        Self(Arc::new(RulesInner {
            options,
            in_force,
            path,
            current: ArcSwap::new(set),
            last_error: ArcSwapOption::empty(),
            loading: Mutex::default(),
            succeeded: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            metrics,
            observer: Mutex::default(),
        }))
    }

    /// Returns the rules in force. Call it once for each request, so that one set decides the whole
    /// request.
    #[must_use]
    pub fn current(&self) -> Arc<RuleSet> {
        self.0.current.load_full()
    }

    /// Returns the file or directory of the rules. `None` for rules that were not loaded from a
    /// file.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.0.path.as_deref()
    }

    /// Returns what operators see of the rules: their digest, their path, and since when they are in
    /// force.
    ///
    /// The limiter of the rules shows it by itself. A program that decides by other means passes it
    /// to [`Store::publish_rules`](tollgate::Store::publish_rules).
    ///
    /// ```
    /// use tollgate_rules::{Format, RuleSet, Rules};
    ///
    /// let rules = Rules::empty(RuleSet::builder(), None);
    /// assert_eq!(rules.in_force().digest(), None);
    /// rules.replace(RuleSet::parse("domain: shop", Format::Yaml)?);
    /// assert_eq!(rules.in_force().digest(), Some(rules.current().digest()));
    /// # Ok::<(), tollgate_rules::RuleErrors>(())
    /// ```
    #[must_use]
    pub fn in_force(&self) -> &RulesInForce {
        &self.0.in_force
    }

    /// Sets the observer that sees [`Event::RulesReloaded`] when other rules are in force. By
    /// default there is none. A second call replaces the observer.
    ///
    /// The observer is called in the thread that loads, after the rules are in force. The events of
    /// checks go to [`RuleLimiterBuilder::observer`](crate::RuleLimiterBuilder::observer).
    ///
    /// ```
    /// use tollgate::limiter::events::{self, Event};
    /// use tollgate_rules::{Format, RuleSet, Rules};
    ///
    /// let rules = Rules::new(RuleSet::parse("domain: shop", Format::Yaml)?);
    /// let (observer, mut events) = events::channel(10);
    /// rules.set_observer(observer);
    /// let text = "{domain: shop, descriptors: [{key: tenant, rate_limit: {quota: 5/s}}]}";
    /// rules.replace(RuleSet::parse(text, Format::Yaml)?);
    /// assert!(matches!(events.try_recv(), Some(Event::RulesReloaded { rules: 1 })));
    /// # Ok::<(), tollgate_rules::RuleErrors>(())
    /// ```
    pub fn set_observer(&self, observer: impl Observer) {
        *self
            .0
            .observer
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(observer));
    }

    /// Puts other rules in force. A request that is already running is decided by the old rules.
    pub fn replace(&self, set: impl Into<Arc<RuleSet>>) {
        let set = set.into();
        let rules = set.rules().count();
        let loading = self.lock();
        self.put(set);
        drop(loading);
        self.show_reload(rules);
    }

    /// Loads the files again, and puts the rules in force if they have no mistake.
    ///
    /// **This reads files, which blocks the thread.** In an asynchronous program, call it from
    /// `spawn_blocking`.
    ///
    /// # Errors
    ///
    /// Fails with every mistake that was found. The rules from before stay in force.
    pub fn reload(&self) -> Result<(), RuleErrors> {
        let Some(path) = &self.0.path else {
            return Ok(());
        };
        let mut loading = self.lock();
        let result = loading.load(&self.0.options, path);
        let rules = self.put_loaded(path, result);
        drop(loading);
        self.show_reload(rules?);
        Ok(())
    }

    /// Loads the files again when they differ from the last load.
    #[cfg(feature = "watch")]
    pub(super) fn reload_changed(&self) {
        let Some(path) = &self.0.path else { return };
        let mut loading = self.lock();
        if loading.digest != digest(&self.0.options, path, &loading.lists) {
            let result = loading.load(&self.0.options, path);
            let rules = self.put_loaded(path, result);
            drop(loading);
            // A mistake is logged, and kept as the last error.
            if let Ok(rules) = rules {
                self.show_reload(rules);
            }
        }
    }

    /// Shows the observer that other rules are in force. No lock is held, so the observer may load
    /// rules.
    fn show_reload(&self, rules: usize) {
        let observer = self
            .0
            .observer
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        if let Some(observer) = observer {
            Event::RulesReloaded { rules }.show(&*observer);
        }
    }

    /// Puts the rules of a load in force. Returns their number.
    fn put_loaded(
        &self,
        path: &Path,
        result: Result<RuleSet, RuleErrors>,
    ) -> Result<usize, RuleErrors> {
        match result {
            Ok(set) => {
                let rules = set.rules().count();
                self.put(set.into());
                tracing::info!(name: "rules_reloaded", path = %path.display(), rules, "rate limit rules were loaded");
                Ok(rules)
            }
            Err(errors) => {
                self.record_refusal(&errors);
                Err(errors)
            }
        }
    }

    /// Records that rules which do not come from files were refused. The rules in force stay.
    ///
    /// As after a failed [`reload`](Self::reload), the mistakes are logged, counted, and returned
    /// by [`last_error`](Self::last_error).
    pub fn refuse(&self, errors: &RuleErrors) {
        let _loading = self.lock();
        self.record_refusal(errors);
    }

    fn record_refusal(&self, errors: &RuleErrors) {
        self.0.failed.fetch_add(1, Ordering::Relaxed);
        self.0.in_force.refuse();
        self.0.metrics.record_load(false);
        self.log(errors);
        self.0.last_error.store(Some(Arc::new(errors.clone())));
    }

    /// Returns the files that a load reads now.
    #[cfg(feature = "watch")]
    pub(super) fn files(&self) -> Vec<PathBuf> {
        let mut files = self
            .0
            .path
            .as_deref()
            .and_then(|path| self.0.options.files(path).ok())
            .unwrap_or_default();
        files.extend_from_slice(&self.lock().lists);
        files
    }

    /// Returns the mistakes of the last load. `None` when it succeeded.
    #[must_use]
    pub fn last_error(&self) -> Option<RuleErrors> {
        self.0.last_error.load().as_deref().cloned()
    }

    /// Returns how many loads succeeded and how many failed.
    #[must_use]
    pub fn loads(&self) -> LoadCounts {
        LoadCounts {
            succeeded: self.0.succeeded.load(Ordering::Relaxed),
            failed: self.0.failed.load(Ordering::Relaxed),
        }
    }

    /// Counts the units of a descriptor in the metrics of its rule.
    pub(crate) fn record(&self, found: &Match<'_>, usage: Usage) {
        if found.is_override() {
            return self.0.metrics.record_override(usage);
        }
        let rule = found.rule();
        self.0
            .metrics
            .record(&rule.series, rule.metric_name(), usage);
    }

    fn put(&self, set: Arc<RuleSet>) {
        // A caller that sees the new rules must not see the mistakes of the old files.
        self.0.last_error.store(None);
        self.0.succeeded.fetch_add(1, Ordering::Relaxed);
        let digest = set.digest();
        self.0.current.store(set);
        self.0.metrics.record_load(true);
        self.enforce(digest);
    }

    /// Shows that rules are in force, after they are: nobody may read of rules that no request is
    /// decided by.
    fn enforce(&self, digest: RulesDigest) {
        let is_other = self.0.in_force.digest() != Some(digest);
        self.0.in_force.enforce(digest);
        if is_other {
            self.0.metrics.record_change(SystemTime::now());
        }
    }

    /// Logs mistakes, once until they change.
    fn log(&self, errors: &RuleErrors) {
        let is_known = self
            .0
            .last_error
            .load()
            .as_deref()
            .is_some_and(|last| last.to_string() == errors.to_string());
        if is_known {
            return;
        }
        for error in errors.iter() {
            tracing::error!(
                kind = error.kind().as_str(),
                "rate limit rules were refused, the old ones stay: {error}"
            );
        }
    }

    fn lock(&self) -> MutexGuard<'_, LastLoad> {
        self.0
            .loading
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl LastLoad {
    /// Loads the files. The digest is made before: a change during the load is then another one.
    fn load(&mut self, options: &RuleSetBuilder, path: &Path) -> Result<RuleSet, RuleErrors> {
        let mut load = || {
            self.digest = digest(options, path, &self.lists);
            let mut lists = Vec::new();
            let result = options.load_noting(path, &mut lists);
            let are_known = lists == self.lists;
            self.lists = lists;
            (result, are_known)
        };
        // Rules that name other files of networks than before are loaded twice, so that the digest
        // is of these.
        match load() {
            (_, false) => load().0,
            (result, true) => result,
        }
    }
}

fn digest(options: &RuleSetBuilder, path: &Path, lists: &[PathBuf]) -> Option<u64> {
    #[cfg(feature = "watch")]
    return Some(options.digest(path, lists));
    #[cfg(not(feature = "watch"))]
    return {
        let _ = (options, path, lists);
        None
    };
}

tollgate::debug_fields! { Rules: path = .0.path, current = .current(), loads = .loads(), .. }
