//! Holds the state that all requests share: two panes, the key, the store, permits and
//! reservations.

use std::{sync::Arc, time::Duration};

use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::{
    sync::Semaphore,
    time::{Instant, MissedTickBehavior, interval},
};
use tollgate::{Algorithm, Store};

use crate::{
    feed::Feed,
    keys::Keys,
    pane::{MAX_COST, Pane},
    problem::{FieldError, Refused},
    redis_server::RedisServer,
    reservations::Reservations,
    settings::{AlgorithmName, PaneSettings},
    work::Work,
};

/// The time between two ticks of the plot.
const TICK: Duration = Duration::from_millis(250);

/// The most requests of one burst.
const MAX_REQUESTS: u64 = 500;

/// The most requests that the panes work on at a time. A leaky bucket keeps requests waiting.
const MAX_IN_FLIGHT: usize = 5_000;

/// Holds the state of the program.
pub(crate) struct Playground {
    pub(crate) panes: [Pane; 2],
    pub(crate) keys: Arc<Keys>,
    pub(crate) work: Arc<Work>,
    pub(crate) reservations: Reservations,
    pub(crate) feed: Feed,
    pub(crate) counts: Counts,
    in_flight: Arc<Semaphore>,
    began: Instant,
}

/// Says where the counts are.
pub(crate) enum Counts {
    Process,
    Redis,
    /// Names the server that the playground has started, and can stop.
    OwnRedis(RedisServer),
}

/// Asks for requests to the limited services, all at once.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Burst {
    requests: u64,
    cost: u64,
    panes: Vec<String>,
}

impl Playground {
    pub(crate) fn new(store: &Arc<dyn Store>, counts: Counts) -> Result<Self, Refused> {
        let keys = Arc::new(Keys::new("demo"));
        let pane = |name, algorithm| {
            Pane::new(
                name,
                Arc::clone(store),
                PaneSettings::of(algorithm),
                Arc::clone(&keys),
            )
        };
        let panes = [
            pane("left", AlgorithmName(Algorithm::TokenBucket))?,
            pane("right", AlgorithmName(Algorithm::FixedWindow))?,
        ];
        let (limiter, _) = panes[0].limiter("demo");
        Ok(Self {
            panes,
            work: Arc::new(Work::new(&limiter, Arc::clone(&keys))),
            keys,
            reservations: Reservations::default(),
            feed: Feed::new(),
            counts,
            in_flight: Arc::new(Semaphore::new(MAX_IN_FLIGHT)),
            began: Instant::now(),
        })
    }

    /// Returns the pane of this name.
    ///
    /// # Errors
    ///
    /// Refuses any other name than `left` and `right`.
    pub(crate) fn pane(&self, name: &str) -> Result<&Pane, Refused> {
        self.panes
            .iter()
            .find(|pane| pane.name() == name)
            .ok_or_else(|| {
                Refused::new(
                    StatusCode::NOT_FOUND,
                    "pane",
                    name,
                    format!("pane must be left or right, got {name:?}"),
                )
            })
    }

    /// Sends the requests of a burst to each of its panes at the same instant, and does not wait
    /// for the answers.
    ///
    /// # Errors
    ///
    /// Refuses 0 and more than 500 requests, a cost above 10 000, unknown panes, and more requests
    /// in flight than 5000.
    pub(crate) fn send(self: &Arc<Self>, burst: &Burst) -> Result<(), Refused> {
        let Burst {
            requests,
            cost,
            ref panes,
        } = *burst;
        let errors = [
            FieldError::unless_within("requests", requests, 1..=MAX_REQUESTS).err(),
            FieldError::unless_within("cost", cost, 0..=MAX_COST).err(),
            FieldError::unless_within("panes", panes.len() as u64, 1..=2).err(),
        ];
        let errors: Vec<_> = errors.into_iter().flatten().collect();
        if !errors.is_empty() {
            return Err(Refused::fields(errors));
        }
        let names = panes
            .iter()
            .map(|name| self.pane(name).map(Pane::name))
            .collect::<Result<Vec<_>, _>>()?;
        for _ in 0..requests {
            for &name in &names {
                let Ok(slot) = Arc::clone(&self.in_flight).try_acquire_owned() else {
                    let message =
                        format!("requests in flight must be at most {MAX_IN_FLIGHT}, got one more");
                    return Err(Refused::new(
                        StatusCode::SERVICE_UNAVAILABLE,
                        "requests",
                        requests,
                        message,
                    ));
                };
                let playground = Arc::clone(self);
                tokio::spawn(async move {
                    if let Ok(pane) = playground.pane(name) {
                        pane.send(cost).await;
                    }
                    drop(slot);
                });
            }
        }
        Ok(())
    }

    /// Returns what changes only when somebody changes it.
    pub(crate) fn settings(&self) -> Value {
        let panes = self
            .panes
            .iter()
            .map(|pane| json!({ "name": pane.name(), "settings": pane.settings() }));
        let (kind, is_running, url) = match &self.counts {
            Counts::Process => ("process", true, None),
            Counts::Redis => ("redis", true, None),
            Counts::OwnRedis(server) => ("own-redis", server.is_running(), Some(server.url())),
        };
        json!({
            "key": self.keys.current(),
            "panes": panes.collect::<Vec<_>>(),
            "store": { "kind": kind, "running": is_running, "url": url },
        })
    }

    /// Ends what would keep the server from stopping: open pages, and work in progress.
    pub(crate) fn close(&self) {
        self.feed.close();
        self.work.end_all();
    }

    /// Tells all pages the settings.
    pub(crate) fn announce(&self) {
        self.feed.send("settings", &self.settings());
    }

    /// Returns everything that a page shows.
    pub(crate) fn everything(&self) -> Value {
        json!({ "settings": self.settings(), "history": self.feed.history(), "tick_ms": TICK.as_millis() as u64 })
    }

    /// Tells all pages, four times a second, what happened since the last time.
    pub(crate) async fn run(self: Arc<Self>) {
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        for number in 0_u64.. {
            ticks.tick().await;
            self.tick(number).await;
        }
    }

    async fn tick(&self, number: u64) {
        let key = self.keys.current();
        let [left, right] = &self.panes;
        let levels = tokio::join!(left.level(&key), right.level(&key));
        let (mut now, mut past) = (Vec::new(), Vec::new());
        for (pane, level) in [(left, levels.0), (right, levels.1)] {
            let counts = pane.tally().take();
            past.push(json!({ "counts": counts, "share": level.share }));
            now.push(json!({
                "counts": counts,
                "share": level.share,
                "level": level,
                "latency": pane.latencies().summary(),
                "answer": pane.tally().answer(),
            }));
        }
        let at_ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.feed
            .remember(json!({ "number": number, "at_ms": at_ms, "panes": past }));
        self.feed.send(
            "tick",
            &json!({
                "number": number,
                "at_ms": at_ms,
                "panes": now,
                "work": self.work.state(),
                "reservations": self.reservations.state(),
            }),
        );
    }
}
