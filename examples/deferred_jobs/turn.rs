use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use tollgate::{Limiter, Outage, Policy, Store};
use tollgate_examples::Failure;

use crate::settings::Settings;

/// All calls to the receiver share this key.
const KEY: &str = "receiver";

/// Gives out turns to call the receiver, evenly spaced over all processes.
#[derive(Clone)]
pub(crate) struct Turns(Limiter);

/// The permission for one call.
#[derive(Clone, Copy)]
pub(crate) struct Turn {
    /// The earliest time at which the turn can be due, in microseconds since the Unix epoch.
    pub(crate) due_us: u64,
}

impl Turns {
    pub(crate) fn new(store: Arc<dyn Store>, settings: &Settings) -> Self {
        let policy = Policy::leaky_bucket("receiver", settings.quota);
        // The jobs are in the same Redis. While it is away there is nothing to send.
        Self(
            Limiter::builder(store)
                .policies(policy)
                .on_outage(Outage::Closed)
                .deadline(Duration::from_secs(1))
                .build(),
        )
    }

    /// Returns a turn when nobody waits for one, and `None` otherwise.
    ///
    /// Callers that see the free turn at the same time wait for one another.
    pub(crate) async fn if_free(&self, longest: Duration) -> Result<Option<Turn>, Failure> {
        // A caller that asked for a turn and gave it back would disturb the turns behind it.
        let state = self.0.peek(KEY).await?;
        let is_free = state
            .states()
            .all(|state| state.remaining() == state.policy().quota().burst());
        if is_free {
            self.within(longest).await
        } else {
            Ok(None)
        }
    }

    /// Waits for a turn, and returns `None` when none is due within `longest`.
    pub(crate) async fn within(&self, longest: Duration) -> Result<Option<Turn>, Failure> {
        let asked = now_us();
        let decision = self.0.check(KEY).wait(longest).await?;
        let due_us = asked + decision.delay().as_micros() as u64;
        Ok(decision.is_allowed().then_some(Turn { due_us }))
    }
}

/// Returns the time since the Unix epoch.
pub(crate) fn now_us() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_micros() as u64)
}
