use std::{
    collections::VecDeque,
    sync::{Arc, Weak},
    time::Duration,
};

use tokio::{runtime::Handle, time::Instant};

use super::{
    health::{self, Health},
    probe::Probe,
};
use crate::{Error, redis::connect::SharedConnection};

/// The bounds of the pause between two measurements. Its random length spreads replicas.
const PAUSE: (Duration, Duration) = (Duration::from_millis(80), Duration::from_millis(120));

/// The number of round trips in a row that have to fit before checks are sent again. It doubles each time the round trip
/// did not stay short.
const FITTING: usize = 3;

/// The most doublings of [`FITTING`].
const DOUBLINGS: u32 = 4;

/// The number of pauses without a suspect after which the probe ends.
const QUIET: u32 = 20;

/// Measures the round trip to a server whose answers come too late, and decides which checks are sent.
///
/// It measures with `PING`, which charges nothing and does not wait in the queue of this process. So checks that are late
/// because of a long queue, or of a slow script, are not taken for a far server.
#[derive(Debug)]
pub(super) struct DistanceProbe {
    /// The store may be dropped while the probe runs.
    health: Weak<Health>,
    shared: Weak<SharedConnection>,
    is_done: bool,
}

impl DistanceProbe {
    /// Starts the probe. Without a runtime all checks are sent, and the next late check starts it.
    pub(super) fn start(health: &Arc<Health>, shared: &Arc<SharedConnection>) {
        let probe = Self { health: Arc::downgrade(health), shared: Arc::downgrade(shared), is_done: false };
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(probe.run());
        }
    }

    async fn run(mut self) {
        // The last round trips, while some deadline is too short.
        let mut trips = VecDeque::new();
        let (mut episodes, mut quiet) = (0, 0);
        loop {
            let (Some(health), Some(shared)) = (self.health.upgrade(), self.shared.upgrade()) else { return };
            let distance = &health.distance;
            if distance.is_far() || distance.has_suspect() {
                quiet = 0;
                let was_far = distance.is_far();
                let round_trip = match measure(&health, &shared).await {
                    Ok(round_trip) => round_trip,
                    // The drop sends all checks again. A server that does not answer is left to the breaker.
                    Err(error) => {
                        if was_far && health.failed(&error) {
                            Probe::start(&health, &shared);
                        }
                        return;
                    }
                };
                if let Some(deadline) = distance.judge(round_trip) {
                    trips.clear();
                    if !was_far {
                        episodes += 1;
                        health::log_far(round_trip, deadline);
                    }
                }
                if distance.is_far() {
                    health.refuse_as_far(round_trip);
                    trips.push_back(round_trip);
                    let fitting = FITTING << (episodes - 1).min(DOUBLINGS);
                    trips.drain(..trips.len().saturating_sub(fitting));
                    let longest = trips.iter().max().copied().unwrap_or(round_trip);
                    if trips.len() == fitting && distance.release(longest) {
                        trips.clear();
                        tracing::info!("the round trip to redis fits the deadlines of all checks again");
                    }
                }
            } else {
                quiet += 1;
                if quiet > QUIET && distance.end() {
                    self.is_done = true;
                    return;
                }
            }
            drop((health, shared));
            tokio::time::sleep(PAUSE.0 + (PAUSE.1 - PAUSE.0).mul_f64(fastrand::f64())).await;
        }
    }
}

impl Drop for DistanceProbe {
    /// Sends all checks again when the runtime was shut down, or there is none: no other task would measure.
    fn drop(&mut self) {
        if !self.is_done
            && let Some(health) = self.health.upgrade()
        {
            health.distance.abandon();
        }
    }
}

/// Measures a round trip.
///
/// Before a deadline is refused for the first time, the shorter of two round trips counts: the first may have met a stall
/// that is over.
async fn measure(health: &Health, shared: &SharedConnection) -> Result<Duration, Error> {
    let round_trip = ping(shared).await?;
    match health.distance.is_suspect_too_short(round_trip) {
        true => Ok(round_trip.min(ping(shared).await?)),
        false => Ok(round_trip),
    }
}

async fn ping(shared: &SharedConnection) -> Result<Duration, Error> {
    let connection = shared.get().await?;
    let sent = Instant::now();
    match tokio::time::timeout(shared.connect_timeout(), connection.ping()).await {
        Ok(Ok(())) => Ok(sent.elapsed()),
        Ok(Err(error)) => {
            shared.broken(&connection);
            Err(error)
        }
        Err(_) => Err(health::silent()),
    }
}
