//! The task that renews permits and gives idle ones back. There is one for each limiter, while it
//! holds permits.
//! Which pools need a call is known in `shared.rs`, and the call is made in `call.rs`.

use std::{sync::Arc, time::Duration};

use tokio::{
    runtime::Handle,
    sync::mpsc::{UnboundedReceiver, unbounded_channel},
    task::JoinSet,
    time::{MissedTickBehavior, interval},
};

use super::shared::{ConcurrencyInner, PoolRef};
use crate::store::Deadline;

/// The most calls that the task has under way.
const MAX_CALLS: usize = 256;

/// Starts the task on the runtime of the caller, unless it runs.
pub(super) fn start(shared: &Arc<ConcurrencyInner>) {
    let mut sender = shared.upkeep.0.lock();
    if sender.as_ref().is_some_and(|sender| !sender.is_closed()) {
        return;
    }
    let Ok(runtime) = Handle::try_current() else {
        return;
    };
    let (to_task, pools) = unbounded_channel();
    *sender = Some(to_task);
    runtime.spawn(
        Task {
            shared: Arc::clone(shared),
            pools,
            calls: JoinSet::new(),
        }
        .run(),
    );
}

struct Task {
    shared: Arc<ConcurrencyInner>,
    pools: UnboundedReceiver<PoolRef>,
    calls: JoinSet<()>,
}

impl Task {
    async fn run(mut self) {
        let life = self.shared.policy.life();
        let mut ticks = interval(life / 12);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                Some(pool) = self.pools.recv() => self.call(pool, life).await,
                Some(_) = self.calls.join_next(), if !self.calls.is_empty() => {}
                _ = ticks.tick() => {
                    for pool in self.shared.due() {
                        self.call(pool, life).await;
                    }
                    if self.is_over() {
                        return;
                    }
                }
            }
        }
    }

    async fn call(&mut self, pool: PoolRef, life: Duration) {
        while self.calls.len() >= MAX_CALLS {
            self.calls.join_next().await;
        }
        let timeout = self.shared.limiter.timeout.max(life / 10);
        self.calls.spawn(async move {
            if let Err(error) = pool.give_back(Deadline::after(timeout)).await {
                tracing::debug!(policy = pool.shared.policy.name(), %error, "permits could not be renewed or given back");
            }
        });
    }

    /// Returns whether nothing is held. The task that is started next serves the next permit.
    fn is_over(&self) -> bool {
        let mut sender = self.shared.upkeep.0.lock();
        let is_over = self.shared.is_empty() && self.calls.is_empty() && self.pools.is_empty();
        if is_over {
            *sender = None;
        }
        is_over
    }
}
