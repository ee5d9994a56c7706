//! A pane: a limited service, its limiter, and what it has answered.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    http::HeaderMap,
    middleware::{Next, from_fn_with_state},
    response::Response,
    routing::get,
};
use serde::Serialize;
use tollgate::{Cost, Key, Limiter, LimiterHandle, PolicySet, Store, limiter::KeyState};
use tollgate_tower::{RateLimitLayer, key_fn};
use tower::ServiceExt;

use crate::{
    keys::Keys,
    problem::{FieldError, Refused},
    settings::PaneSettings,
    tally::Tally,
    timed_store::{Latencies, TimedStore},
};

/// The greatest cost of a request.
pub(crate) const MAX_COST: u64 = 10_000;

/// The deadline of a check. A service keeps the default of 50 ms. Here a browser and a compiler may
/// share the processor.
const DEADLINE: Duration = Duration::from_secs(1);

/// Limits a service. The limits may change while it runs.
pub(crate) struct Pane {
    name: &'static str,
    store: Arc<TimedStore>,
    handle: LimiterHandle,
    settings: Mutex<PaneSettings>,
    latencies: Arc<Latencies>,
    tally: Arc<Tally>,
    service: Router,
}

/// Says what a request charges. The guard inserts it into the extensions of a request.
#[derive(Clone)]
struct Charge {
    key: Key,
    cost: Cost,
}

/// Describes what the policies of a pane have left.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Level {
    /// The smallest remaining share of a burst. `None` when nothing is known.
    pub(crate) share: Option<f64>,
    policies: Vec<PolicyLevel>,
    /// The reason for which the store did not answer.
    degraded: Option<&'static str>,
}

#[derive(Debug, Serialize)]
struct PolicyLevel {
    name: String,
    remaining: u64,
    burst: u64,
    more_after_ms: f64,
    reset_after_ms: f64,
}

impl Pane {
    /// Creates a pane, which serves `/limited/{name}`.
    pub(crate) fn new(
        name: &'static str,
        store: Arc<dyn Store>,
        settings: PaneSettings,
        keys: Arc<Keys>,
    ) -> Result<Self, Refused> {
        let (latencies, tally) = (Arc::<Latencies>::default(), Arc::<Tally>::default());
        let store = Arc::new(TimedStore::new(store, Arc::clone(&latencies)));
        let limiter = limiter(
            &store,
            name,
            settings.build().map_err(Refused::fields)?,
            &settings,
        );
        let handle = LimiterHandle::new(limiter);
        let service = service(name, handle.clone(), Arc::clone(&tally), keys);
        Ok(Self {
            name,
            store,
            handle,
            settings: Mutex::new(settings),
            latencies,
            tally,
            service,
        })
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    pub(crate) fn settings(&self) -> PaneSettings {
        self.lock().clone()
    }

    /// Replaces the limits between two requests. Units that were spent stay spent where a policy
    /// keeps its name and its algorithm.
    ///
    /// # Errors
    ///
    /// Names every field that is refused. The limits before then stay in force.
    pub(crate) fn apply(&self, settings: PaneSettings) -> Result<(), Refused> {
        let policies = settings.build().map_err(Refused::fields)?;
        let mut current = self.lock();
        if current.outage == settings.outage {
            self.handle.replace_policies(policies);
        } else {
            // The answer in an outage belongs to the limiter, not to its policies.
            self.handle
                .replace(limiter(&self.store, self.name, policies, &settings));
        }
        *current = settings;
        Ok(())
    }

    /// Returns the limiter that is in force, and the key that it charges for `key`.
    pub(crate) fn limiter(&self, key: &str) -> (Limiter, Key) {
        (self.handle.load().clone(), charged(self.name, key))
    }

    pub(crate) fn service(&self) -> Router {
        self.service.clone()
    }

    /// Sends a request to the limited service, as a client does.
    pub(crate) async fn send(&self, cost: u64) {
        let request = Request::get(format!("/limited/{}", self.name))
            .header("x-cost", cost)
            .body(Body::empty());
        if let Ok(request) = request {
            let Ok(_response) = self.service().oneshot(request).await;
        }
    }

    pub(crate) fn tally(&self) -> &Tally {
        &self.tally
    }

    pub(crate) fn latencies(&self) -> &Latencies {
        &self.latencies
    }

    /// Returns what the policies have left for `key`, and spends nothing.
    pub(crate) async fn level(&self, key: &str) -> Level {
        match self.handle.load().peek(charged(self.name, key)).await {
            Ok(state) => Level::of(&state),
            Err(error) => Level {
                degraded: Some(error.kind().as_str()),
                ..Level::default()
            },
        }
    }

    fn lock(&self) -> MutexGuard<'_, PaneSettings> {
        self.settings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Level {
    fn of(state: &KeyState) -> Self {
        let policies: Vec<_> = state
            .states()
            .map(|state| PolicyLevel {
                name: state.policy().name().to_owned(),
                remaining: state.remaining(),
                burst: state.policy().quota().burst(),
                more_after_ms: state.next_unit_after().as_secs_f64() * 1_000.0,
                reset_after_ms: state.reset_after().as_secs_f64() * 1_000.0,
            })
            .collect();
        let shares = policies
            .iter()
            .map(|policy| policy.remaining as f64 / policy.burst as f64);
        let share = shares.reduce(f64::min);
        Self {
            share,
            policies,
            degraded: state.degraded().map(tollgate::ErrorKind::as_str),
        }
    }
}

/// Returns the key that a pane charges. Each pane has counters of its own, and the instances at one
/// Redis share them.
fn charged(pane: &'static str, key: &str) -> Key {
    Key::from((pane, key))
}

fn limiter(
    store: &Arc<TimedStore>,
    name: &'static str,
    policies: PolicySet,
    settings: &PaneSettings,
) -> Limiter {
    Limiter::builder(Arc::clone(store))
        .policies(policies)
        .name(name)
        .on_outage(settings.outage())
        .deadline(DEADLINE)
        .build()
}

/// Builds the limited service. From the outside: the guard of the input, the tally, the rate limit,
/// the handler.
fn service(
    name: &'static str,
    limits: LimiterHandle,
    tally: Arc<Tally>,
    keys: Arc<Keys>,
) -> Router {
    let layer = RateLimitLayer::builder(
        limits,
        key_fn(|parts| Some(parts.extensions.get::<Charge>()?.key.clone())),
    )
    .cost(|parts| {
        parts
            .extensions
            .get::<Charge>()
            .map_or(Cost::ONE, |charge| charge.cost)
    })
    .mark_degraded(true)
    .build();
    let handler = get(async || "admitted\n")
        .layer(layer)
        .layer(from_fn_with_state(tally, record))
        .layer(from_fn_with_state((name, keys), guard));
    Router::new().route(&format!("/limited/{name}"), handler)
}

async fn record(State(tally): State<Arc<Tally>>, request: Request, next: Next) -> Response {
    tally.record(next.run(request).await).await
}

async fn guard(
    State((pane, keys)): State<(&'static str, Arc<Keys>)>,
    mut request: Request,
    next: Next,
) -> Result<Response, Refused> {
    let charge = charge(pane, &keys, request.headers())?;
    request.extensions_mut().insert(charge);
    Ok(next.run(request).await)
}

/// Reads what a request charges: `X-Key`, or the current key, and `X-Cost`, or one.
fn charge(pane: &'static str, keys: &Keys, headers: &HeaderMap) -> Result<Charge, Refused> {
    let text = |name: &str| {
        headers
            .get(name)
            .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
    };
    let key = match text("x-key") {
        Some(key) => {
            keys.admit(&key)?;
            key
        }
        None => keys.current(),
    };
    let cost = match text("x-cost") {
        Some(cost) => cost
            .parse()
            .ok()
            .filter(|cost| *cost <= MAX_COST)
            .ok_or_else(|| {
                let message = format!("cost must be a number of 0 to {MAX_COST}, got {cost}");
                FieldError::new("cost", cost, message)
            })?,
        None => 1,
    };
    Ok(Charge {
        key: charged(pane, &key),
        cost: Cost::new(cost),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tollgate::{Algorithm, MemoryStore};

    use super::*;
    use crate::{settings::AlgorithmName, tally::Counts};

    /// Creates a pane of ten units in ten minutes, so that none returns while a test runs.
    fn pane() -> Pane {
        let policy = json!({ "name": "demo", "algorithm": "window_from_first_hit", "amount": 10, "period_ms": 600_000 });
        let settings = serde_json::from_value(json!({ "policies": [policy] })).expect("settings");
        Pane::new(
            "left",
            Arc::new(MemoryStore::new()),
            settings,
            Arc::new(Keys::new("demo")),
        )
        .expect("a pane")
    }

    #[tokio::test]
    async fn requests_are_limited_counted_and_seen_in_the_level() {
        let pane = pane();
        assert_eq!(pane.level("demo").await.share, Some(1.0));
        for _ in 0..3 {
            pane.send(4).await;
        }
        let Counts {
            admitted,
            denied,
            failed,
        } = pane.tally().take();
        assert_eq!((admitted, denied, failed), (2, 1, 0));
        assert!(pane.level("demo").await.share < Some(0.5));
        assert_eq!(
            pane.level("other").await.share,
            Some(1.0),
            "another key has units of its own"
        );
        assert_eq!(pane.tally().take(), Counts::default());
        assert!(pane.latencies().summary().is_some());
    }

    #[tokio::test]
    async fn changed_limits_are_in_force_at_once_and_refused_ones_are_not() {
        let pane = pane();
        pane.send(10).await;
        let mut wrong = pane.settings();
        wrong.policies.clear();
        assert!(pane.apply(wrong).is_err());
        assert_eq!(pane.level("demo").await.policies[0].burst, 10);
        let fresh = PaneSettings::of(AlgorithmName(Algorithm::SlidingLog));
        pane.apply(fresh.clone()).expect("the settings are valid");
        assert_eq!(
            pane.level("demo").await.share,
            Some(1.0),
            "another algorithm starts fresh"
        );
        assert_eq!(pane.settings(), fresh);
    }
}
