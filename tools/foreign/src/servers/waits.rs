//! One unit each two seconds for the key in `x-key`, in every header format: `GET /FORMAT`.
//! `GET /seen/KEY` returns how many requests for the key arrived, denied ones included.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use axum::{
    Router,
    extract::{Path, Request},
    middleware::{self, Next},
    routing::get,
};
use tollgate::{Limiter, MemoryStore, Policy, Quota};
use tollgate_tower::{RateLimitLayer, key::Header};

use super::formats;

pub(crate) const SLOW: Policy =
    Policy::token_bucket("slow", Quota::one_every(Duration::from_secs(2)));

/// Counts the requests of each key.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen(Arc<Mutex<HashMap<String, u64>>>);

impl Seen {
    /// Returns the router with all its requests counted, and with the route that returns the
    /// counts.
    pub(crate) fn watch(self, router: Router) -> Router {
        let counter = self.clone();
        let count = move |request: Request, next: Next| {
            let key = request.headers().get("x-key");
            if let Some(key) = key.and_then(|key| key.to_str().ok()) {
                *counter.counts().entry(key.to_owned()).or_default() += 1;
            }
            next.run(request)
        };
        let read = move |Path(key): Path<String>| async move {
            self.counts()
                .get(&key)
                .copied()
                .unwrap_or_default()
                .to_string()
        };
        router
            .layer(middleware::from_fn(count))
            .route("/seen/{key}", get(read))
    }

    fn counts(&self) -> MutexGuard<'_, HashMap<String, u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) fn router() -> Router {
    let limited = formats().map(|(name, format)| {
        let limiter = Limiter::new(MemoryStore::new(), SLOW);
        let layer = RateLimitLayer::builder(limiter, Header::new("x-key"));
        let hello = get(|| async { "hello\n" }).layer(layer.header_format(format).build());
        Router::new().route(&format!("/{name}"), hello)
    });
    Seen::default().watch(limited.into_iter().fold(Router::new(), Router::merge))
}
