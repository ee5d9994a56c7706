use std::{fmt, sync::Arc};

use http::request::Parts;

/// What requests are called in the metrics: names of a list that is closed before the first request.
///
/// A client may invent paths, and every new label value is a series that is kept for good. So a
/// request has the values of a place in the list, or `other`; what it was sent with is never one.
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
    /// MetricLabels of these names, and all the values they can have. `find` tells the place of a request
    /// in `values`; without one, or with one that is not there, each of its labels is `other`.
    pub fn new<const N: usize, V: Into<String>>(
        names: [&'static str; N],
        values: impl IntoIterator<Item = [V; N]>,
        find: impl Fn(&Parts) -> Option<usize> + Send + Sync + 'static,
    ) -> Self {
        let shared = |value: V| Arc::from(value.into());
        Self {
            names: Arc::new(names),
            values: values.into_iter().map(|values| Box::from(values.map(shared))).collect(),
            find: Some(Arc::new(find)),
        }
    }

    /// How many places there are, that of the others included.
    #[cfg_attr(not(feature = "metrics"), allow(dead_code, reason = "only metrics have labels"))]
    pub(crate) fn places(&self) -> usize {
        self.values.len() + 1
    }

    /// The place of a request.
    #[cfg_attr(not(feature = "metrics"), allow(dead_code, reason = "only metrics have labels"))]
    pub(crate) fn place(&self, parts: &Parts) -> usize {
        let found = self.find.as_ref().and_then(|find| find(parts));
        found.map_or(self.values.len(), |at| at.min(self.values.len()))
    }

    /// The names and values of a place.
    #[cfg_attr(not(feature = "metrics"), allow(dead_code, reason = "only metrics have labels"))]
    pub(crate) fn at(&self, place: usize) -> impl Iterator<Item = (&'static str, Arc<str>)> {
        let values = self.values.get(place);
        self.names.iter().enumerate().map(move |(at, name)| {
            let value = values.and_then(|values| values.get(at));
            (*name, value.map_or_else(|| OTHER.into(), Arc::clone))
        })
    }
}

impl fmt::Debug for MetricLabels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MetricLabels").field("names", &self.names).field("values", &self.values).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn shown(labels: &MetricLabels, place: usize) -> String {
        labels.at(place).map(|(name, value)| format!("{name}={value} ")).collect()
    }

    #[test]
    fn what_is_not_in_the_list_is_other() {
        let (parts, ()) = Request::new(()).into_parts();
        for (found, place, labels) in [
            (Some(0), 0, "service=a method=b "),
            (Some(1), 1, "service=c method=d "),
            (Some(2), 2, "service=other method=other "),
            (Some(usize::MAX), 2, "service=other method=other "),
            (None, 2, "service=other method=other "),
        ] {
            let all = MetricLabels::new(["service", "method"], [["a", "b"], ["c", "d"]], move |_| found);
            assert_eq!(all.places(), 3);
            assert_eq!(all.place(&parts), place);
            assert_eq!(shown(&all, place), labels);
        }
    }

    #[test]
    fn without_names_there_are_no_labels() {
        let (parts, ()) = Request::new(()).into_parts();
        let none = MetricLabels::default();
        assert_eq!((none.places(), none.place(&parts), shown(&none, 0).as_str()), (1, 0, ""));
    }
}
