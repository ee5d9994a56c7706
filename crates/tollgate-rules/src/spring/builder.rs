use std::{fmt, path::Path, sync::Arc};

use super::{
    assemble::assemble,
    gateway::Gateway,
    reader::Reader,
    values::{Resolve, Values},
};
use crate::{Format, Limits, RuleError, RuleErrorKind, RuleErrors, compile::Errors, document::read_yaml, load};

impl Gateway {
    /// Parses the text of an `application.yml` with the default options.
    ///
    /// # Errors
    ///
    /// Fails with every mistake that was found.
    pub fn parse(text: &str) -> Result<Self, RuleErrors> {
        Self::builder().parse(text)
    }

    /// Loads an `application.yml` with the default options.
    ///
    /// # Errors
    ///
    /// Fails with every mistake that was found.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, RuleErrors> {
        Self::builder().load(path)
    }

    /// Returns a builder, to set options.
    pub fn builder() -> GatewayBuilder {
        GatewayBuilder::default()
    }
}

/// Sets options and loads a [`Gateway`].
#[derive(Clone, Default)]
#[must_use = "a builder does nothing until it parses or loads"]
pub struct GatewayBuilder {
    profiles: Vec<String>,
    placeholders: Option<Arc<Resolve>>,
    limits: Limits,
}

impl GatewayBuilder {
    /// Activates a profile: documents with `spring.config.activate.on-profile` of this name are read.
    ///
    /// Later documents of a file replace the settings of earlier ones. A list such as `routes` is replaced whole.
    ///
    /// ```
    /// use tollgate_rules::spring::Gateway;
    ///
    /// let text = "
    /// spring.cloud.gateway.default-filters:
    /// - {name: RequestRateLimiter, args: {redis-rate-limiter: {replenish-rate: 10, burst-capacity: 20}}}
    /// ---
    /// spring.config.activate.on-profile: load-test
    /// spring.cloud.gateway.default-filters: []
    /// ";
    /// assert_eq!(Gateway::parse(text)?.limits().len(), 1);
    /// assert_eq!(Gateway::builder().profile("load-test").parse(text)?.limits().len(), 0);
    /// # Ok::<(), tollgate_rules::RuleErrors>(())
    /// ```
    pub fn profile(mut self, name: impl Into<String>) -> Self {
        self.profiles.push(name.into());
        self
    }

    /// Resolves placeholders: `${NAME}` and `${NAME:DEFAULT}`.
    ///
    /// `resolve` returns the value of a name. When it returns `None`, the default of the placeholder applies. Without
    /// this option, a placeholder where a limit is read is a mistake.
    ///
    /// ```
    /// use tollgate_rules::spring::Gateway;
    ///
    /// let text = "
    /// spring.cloud.gateway.default-filters:
    /// - {name: RequestRateLimiter, args: {redis-rate-limiter: {replenish-rate: '${API_RATE:10}', burst-capacity: 20}}}
    /// ";
    /// let gateway = Gateway::builder().placeholders(|name| std::env::var(name).ok()).parse(text)?;
    /// assert_eq!(gateway.limit("any").unwrap().replenish_rate(), 10);
    /// # Ok::<(), tollgate_rules::RuleErrors>(())
    /// ```
    pub fn placeholders(mut self, resolve: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> Self {
        self.placeholders = Some(Arc::new(resolve));
        self
    }

    /// Sets the bounds of size and depth.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits.capped();
        self
    }

    /// Parses the text of an `application.yml`.
    ///
    /// # Errors
    ///
    /// Fails with every mistake that was found.
    pub fn parse(&self, text: &str) -> Result<Gateway, RuleErrors> {
        self.read(text, Errors::default())
    }

    /// Loads an `application.yml`.
    ///
    /// # Errors
    ///
    /// Fails with every mistake that was found.
    pub fn load(&self, path: impl AsRef<Path>) -> Result<Gateway, RuleErrors> {
        let path: Arc<Path> = path.as_ref().into();
        let text = match Format::of_path(&path) {
            Some(Format::Yaml) => load::text(&path, &self.limits),
            _ => Err(RuleError::new(RuleErrorKind::Io, "expected a name that ends in .yaml or .yml")),
        };
        let text = text.map_err(|error| error.in_file(Some(&path)))?;
        self.read(&text, Errors::of_file(path))
    }

    fn read(&self, text: &str, errors: Errors) -> Result<Gateway, RuleErrors> {
        let file = errors.file.clone();
        let documents =
            read_yaml(text, &self.limits).map_err(|error| RuleErrors::from(error.in_file(file.as_ref())))?;
        let values = Values { resolve: self.placeholders.as_deref(), errors };
        let mut reader = Reader { values, profiles: &self.profiles };
        let settings = reader.settings(&documents);
        let mut values = reader.values;
        let assembled = assemble(&settings, &mut values);
        values.errors.finish()?;
        assembled.gateway(file)
    }
}

impl fmt::Debug for GatewayBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GatewayBuilder")
            .field("profiles", &self.profiles)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}
