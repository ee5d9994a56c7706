//! Detects layers that count one request twice.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use http::request::Parts;
use tollgate::{Key, PolicySet};

/// Inspects the first requests of a layer. Two layers that count one request twice do so for every request.
#[derive(Debug, Default)]
pub(crate) struct DoubleCountDetector {
    inspected: AtomicU32,
    has_logged: AtomicBool,
}

/// Limits the inspection to this many requests, because the extension that it needs is an allocation.
const MAX_INSPECTED: u32 = 1024;

/// Lists the keys and policies that outer layers have charged for a request.
#[derive(Clone)]
struct Charged(Vec<(Key, PolicySet)>);

impl DoubleCountDetector {
    /// Logs an error, once, when an outer layer has charged one of these policies for the same key.
    pub(crate) fn inspect(&self, parts: &mut Parts, key: &Key, policies: &PolicySet) {
        if self.inspected.load(Ordering::Relaxed) >= MAX_INSPECTED {
            return;
        }
        self.inspected.fetch_add(1, Ordering::Relaxed);
        let mut charged = parts.extensions.remove::<Charged>().unwrap_or(Charged(Vec::new()));
        let same_key = charged.0.iter().filter(|(other, _)| other == key);
        let counted_twice = same_key
            .flat_map(|(_, outer)| outer.iter())
            .find(|outer| policies.iter().any(|policy| policy.name() == outer.name()));
        if let Some(policy) = counted_twice
            && !self.has_logged.swap(true, Ordering::Relaxed)
        {
            tracing::error!(
                code = "TOLLGATE-DOUBLE-COUNT",
                policy = policy.name(),
                "two rate limit layers around one route charge the same policy and key: each request counts twice"
            );
        }
        charged.0.push((key.clone(), policies.clone()));
        parts.extensions.insert(charged);
    }
}
