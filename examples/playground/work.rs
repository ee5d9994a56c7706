//! Work at the same time: each piece holds a permit until its body ends.

use std::{
    convert::Infallible,
    num::NonZeroU32,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use axum::{
    Router,
    body::{Body, to_bytes},
    extract::{Query, Request},
    http::StatusCode,
    response::IntoResponse,
    routing::get,
};
use futures_util::{StreamExt, stream};
use serde::{Deserialize, Serialize};
use tokio::{task::AbortHandle, time::Instant};
use tollgate::{
    Key, Limiter,
    permits::{Concurrency, ConcurrencyLimiter},
};
use tollgate_tower::{ConcurrencyLayer, key_fn};
use tower::ServiceExt;

use crate::{
    keys::Keys,
    problem::{FieldError, Refused},
    tally::{Answer, Tally},
};

/// The limit at the start. Few permits are exact: none is kept idle while another instance needs
/// it.
const WORK: Concurrency = Concurrency::new("work", 2).exact();

/// The most pieces of work of this process that are in progress, in seconds and in number.
const MAX_SECONDS: u64 = 60;
const MAX_RUNNING: usize = 50;
const MAX_LIMIT: u64 = 20;

/// Serves requests that hold a permit, and knows those in progress.
pub(crate) struct Work {
    keys: Arc<Keys>,
    limited: Mutex<Limited>,
    running: Mutex<Vec<Running>>,
    next: AtomicU64,
    tally: Tally,
}

/// The limit that is in force, and the service around which it lies.
struct Limited {
    permits: ConcurrencyLimiter,
    service: Router,
}

struct Running {
    id: u64,
    began: Instant,
    length: Duration,
    task: Option<AbortHandle>,
}

/// Describes the work for the page.
#[derive(Debug, Serialize)]
pub(crate) struct WorkState {
    limit: u32,
    running: Vec<RunningState>,
    answer: Option<Answer>,
}

#[derive(Debug, Serialize)]
struct RunningState {
    id: u64,
    left_ms: u64,
    length_ms: u64,
}

#[derive(Deserialize)]
struct Length {
    seconds: u64,
}

impl Work {
    /// Creates the service. The permits are in the store of `limiter`.
    pub(crate) fn new(limiter: &Limiter, keys: Arc<Keys>) -> Self {
        let permits = limiter.concurrency(WORK);
        let limited = Mutex::new(Limited::new(permits, &keys));
        Self {
            keys,
            limited,
            running: Mutex::default(),
            next: AtomicU64::new(1),
            tally: Tally::default(),
        }
    }

    pub(crate) fn service(&self) -> Router {
        lock(&self.limited).service.clone()
    }

    /// Sets how many pieces of work may be in progress, over all instances.
    ///
    /// # Errors
    ///
    /// Refuses 0 and more than 20.
    pub(crate) fn set_limit(&self, limit: u64) -> Result<(), FieldError> {
        FieldError::unless_within("limit", limit, 1..=MAX_LIMIT)?;
        if let Some(limit) = u32::try_from(limit).ok().and_then(NonZeroU32::new) {
            let mut limited = lock(&self.limited);
            *limited = Limited::new(limited.permits.with_limit(limit), &self.keys);
        }
        Ok(())
    }

    /// Starts work that takes `seconds`, if a permit is free.
    ///
    /// # Errors
    ///
    /// Refuses 0 s, more than 60 s, and the 51st piece of work.
    pub(crate) fn start(self: &Arc<Self>, seconds: u64) -> Result<(), FieldError> {
        FieldError::unless_within("seconds", seconds, 1..=MAX_SECONDS)?;
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let mut running = lock(&self.running);
        if running.len() >= MAX_RUNNING {
            let message =
                format!("at most {MAX_RUNNING} pieces of work are in progress here, got one more");
            return Err(FieldError::new("seconds", seconds, message));
        }
        running.push(Running {
            id,
            began: Instant::now(),
            length: Duration::from_secs(seconds),
            task: None,
        });
        let work = Arc::clone(self);
        let task = tokio::spawn(async move {
            let ended = Ended { work: &work, id };
            work.run(seconds).await;
            drop(ended);
        });
        if let Some(running) = running.last_mut() {
            running.task = Some(task.abort_handle());
        }
        Ok(())
    }

    /// Sends a request to the service, and reads its body to the end.
    async fn run(&self, seconds: u64) {
        let Ok(request) = Request::get(format!("/work?seconds={seconds}")).body(Body::empty())
        else {
            return;
        };
        let Ok(response) = self.service().oneshot(request).await;
        let (parts, body) = response.into_parts();
        if parts.status.is_success() {
            self.tally.note(&parts, "working\n");
            // The permit is given back when the body ends, or when it is dropped with this task.
            body.into_data_stream().for_each(async |_| ()).await;
        } else {
            let body = to_bytes(body, 4096).await.unwrap_or_default();
            self.tally.note(&parts, &String::from_utf8_lossy(&body));
        }
    }

    /// Ends all work of this process. Its permits are free at once.
    pub(crate) fn end_all(&self) {
        for task in lock(&self.running)
            .iter()
            .filter_map(|running| running.task.as_ref())
        {
            task.abort();
        }
    }

    pub(crate) fn state(&self) -> WorkState {
        let running = lock(&self.running);
        let states = running.iter().map(|running| RunningState {
            id: running.id,
            left_ms: millis(running.length.saturating_sub(running.began.elapsed())),
            length_ms: millis(running.length),
        });
        WorkState {
            limit: lock(&self.limited).permits.limit(),
            running: states.collect(),
            answer: self.tally.answer(),
        }
    }
}

impl Limited {
    fn new(permits: ConcurrencyLimiter, keys: &Arc<Keys>) -> Self {
        let keys = Arc::clone(keys);
        let layer = ConcurrencyLayer::new(
            permits.clone(),
            key_fn(move |_| Key::from(("work", keys.current()))),
        );
        Self {
            permits,
            service: Router::new().route("/work", get(work).layer(layer)),
        }
    }
}

/// Removes a piece of work from the list when it ends, or is ended.
struct Ended<'a> {
    work: &'a Work,
    id: u64,
}

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        lock(&self.work.running).retain(|running| running.id != self.id);
    }
}

/// Stands for an export: sends a line now, and the last one after some seconds.
async fn work(Query(Length { seconds }): Query<Length>) -> impl IntoResponse {
    if let Err(error) = FieldError::unless_within("seconds", seconds, 1..=MAX_SECONDS) {
        return Refused::from(error).into_response();
    }
    let lines =
        stream::iter(["begun\n", "done\n"])
            .enumerate()
            .then(move |(at, line)| async move {
                if at > 0 {
                    tokio::time::sleep(Duration::from_secs(seconds)).await;
                }
                Ok::<_, Infallible>(line)
            });
    (StatusCode::OK, Body::from_stream(lines)).into_response()
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
