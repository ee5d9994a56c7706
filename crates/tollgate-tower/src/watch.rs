//! Finds layers that count one request twice.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use http::request::Parts;
use tollgate::{Key, PolicySet};

/// Watches the first requests of a layer: what two layers do to a request, they do to all.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    seen: AtomicU32,
    is_told: AtomicBool,
}

/// How many requests are watched. The mark that they carry is an allocation, which later requests
/// are spared.
const WATCHED: u32 = 1024;

/// What layers further out have spent for a request.
#[derive(Clone)]
struct Spent(Vec<(Key, PolicySet)>);

impl Watch {
    pub(crate) fn pass(&self, parts: &mut Parts, key: &Key, policies: &PolicySet) {
        if self.seen.load(Ordering::Relaxed) >= WATCHED {
            return;
        }
        self.seen.fetch_add(1, Ordering::Relaxed);
        let mut spent = parts.extensions.remove::<Spent>().unwrap_or(Spent(Vec::new()));
        let outside = spent.0.iter().filter(|(other, _)| other == key);
        let twice =
            outside.flat_map(|(_, set)| set.iter()).find(|it| policies.iter().any(|own| own.name() == it.name()));
        if let Some(policy) = twice
            && !self.is_told.swap(true, Ordering::Relaxed)
        {
            tracing::error!(
                code = "TOLLGATE-DOUBLE-COUNT",
                policy = policy.name(),
                "two rate limit layers around one route spend from the same policy and key: each request counts twice"
            );
        }
        spent.0.push((key.clone(), policies.clone()));
        parts.extensions.insert(spent);
    }
}
