//! Labels of metrics that are listed in advance, so that a client can add none.
//! The series that have them are in `metrics.rs`.

use std::sync::Arc;

use http::request::Parts;

/// Names requests in the metrics, from a fixed list of label values.
///
/// Every new label value is a time series that the recorder keeps for ever, and a client can invent
/// any number of paths. So all values are listed when the layer is built. A request that matches no
/// entry has the value `other`. Nothing that a client sends becomes a label value.
///
/// ```
/// use tollgate::{Limiter, MemoryStore, Policy, Quota};
/// use tollgate_tower::{MetricLabels, RateLimitLayer, key::Global};
///
/// let paths = ["/search", "/export"];
/// let labels = MetricLabels::new(["path"], paths.map(|path| [path]), move |parts| {
///     paths.iter().position(|path| *path == parts.uri.path())
/// });
/// let limiter = Limiter::new(MemoryStore::new(), Policy::token_bucket("all", Quota::per_second(100)));
/// let layer = RateLimitLayer::builder(limiter, Global).metric_labels(labels).build();
/// # let _ = layer;
/// ```
#[derive(Clone, Default)]
pub struct MetricLabels {
    names: Arc<[&'static str]>,
    values: Arc<[Box<[Arc<str>]>]>,
    find: Option<Find>,
}

type Find = Arc<dyn Fn(&Parts) -> Option<usize> + Send + Sync>;

const OTHER: &str = "other";

impl MetricLabels {
    /// Creates labels with these names, and with each list of values that they can have.
    ///
    /// `find` returns the index in `values` that applies to a request. When it returns `None`, or
    /// an index beyond the end, each label of the request has the value `other`.
    pub fn new<const N: usize, V: Into<String>>(
        names: [&'static str; N],
        values: impl IntoIterator<Item = [V; N]>,
        find: impl Fn(&Parts) -> Option<usize> + Send + Sync + 'static,
    ) -> Self {
        let shared = |value: V| Arc::from(value.into());
        Self {
            names: Arc::new(names),
            values: values
                .into_iter()
                .map(|values| Box::from(values.map(shared)))
                .collect(),
            find: Some(Arc::new(find)),
        }
    }

    /// Returns the number of entries, the one for other requests included.
    #[cfg_attr(
        not(feature = "metrics"),
        allow(dead_code, reason = "only metrics have labels")
    )]
    pub(crate) fn len(&self) -> usize {
        self.values.len() + 1
    }

    /// Returns the index of the entry that applies to a request.
    #[cfg_attr(
        not(feature = "metrics"),
        allow(dead_code, reason = "only metrics have labels")
    )]
    pub(crate) fn index_of(&self, parts: &Parts) -> usize {
        let found = self.find.as_ref().and_then(|find| find(parts));
        found.map_or(self.values.len(), |index| index.min(self.values.len()))
    }

    /// Returns the names and the values of an entry.
    #[cfg_attr(
        not(feature = "metrics"),
        allow(dead_code, reason = "only metrics have labels")
    )]
    pub(crate) fn pairs(&self, index: usize) -> impl Iterator<Item = (&'static str, Arc<str>)> {
        let values = self.values.get(index);
        self.names.iter().enumerate().map(move |(at, name)| {
            let value = values.and_then(|values| values.get(at));
            (*name, value.map_or_else(|| OTHER.into(), Arc::clone))
        })
    }
}

tollgate_core::debug_fields! { MetricLabels: names, values, .. }
