//! Counts the answers of the limited service, and keeps the last response.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use axum::{
    body::{Body, to_bytes},
    http::{StatusCode, response::Parts},
    response::Response,
};
use serde::Serialize;

/// The headers of a response that the page shows, in this order.
const SHOWN: [&str; 6] = [
    "Retry-After",
    "RateLimit-Policy",
    "RateLimit",
    "Tollgate-Degraded",
    "Content-Type",
    "Cache-Control",
];

/// The most bytes of a body that are shown. The limited service sends less.
const MAX_BODY: usize = 4096;

/// Counts responses, and keeps the last one.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    admitted: AtomicU64,
    denied: AtomicU64,
    failed: AtomicU64,
    answer: Mutex<Option<Answer>>,
}

/// Counts the responses since the last [`Tally::take`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Counts {
    pub(crate) admitted: u64,
    pub(crate) denied: u64,
    pub(crate) failed: u64,
}

/// Describes a response.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Answer {
    status: u16,
    reason: &'static str,
    headers: Vec<(&'static str, String)>,
    body: String,
}

impl Tally {
    /// Counts a response, and returns it unchanged. The body is read to its end.
    pub(crate) async fn record(&self, response: Response) -> Response {
        let (parts, body) = response.into_parts();
        let body = to_bytes(body, MAX_BODY).await.unwrap_or_default();
        self.note(&parts, &String::from_utf8_lossy(&body));
        Response::from_parts(parts, Body::from(body))
    }

    /// Counts a response of which the head was received.
    pub(crate) fn note(&self, parts: &Parts, body: &str) {
        self.count(parts.status);
        let headers = SHOWN.iter().filter_map(|name| {
            let value = parts.headers.get(*name)?.to_str().ok()?;
            Some((*name, value.to_owned()))
        });
        let answer = Answer {
            status: parts.status.as_u16(),
            reason: parts.status.canonical_reason().unwrap_or_default(),
            headers: headers.collect(),
            body: body.to_owned(),
        };
        *self.answer.lock().unwrap_or_else(PoisonError::into_inner) = Some(answer);
    }

    fn count(&self, status: StatusCode) {
        let counter = match status {
            status if status.is_success() => &self.admitted,
            StatusCode::TOO_MANY_REQUESTS => &self.denied,
            _ => &self.failed,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the counts, and starts again at zero.
    pub(crate) fn take(&self) -> Counts {
        Counts {
            admitted: self.admitted.swap(0, Ordering::Relaxed),
            denied: self.denied.swap(0, Ordering::Relaxed),
            failed: self.failed.swap(0, Ordering::Relaxed),
        }
    }

    /// Returns the last response.
    pub(crate) fn answer(&self) -> Option<Answer> {
        self.answer
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}
