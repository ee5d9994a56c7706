use std::{
    pin::{Pin, pin},
    sync::{Arc, Weak},
    time::Duration,
};

use tokio::runtime::Handle;

use super::health::{self, Health};
use crate::{
    Error,
    redis::connect::{Connection, SharedConnection},
};

/// The bounds of the first pauses: about twenty probes a second.
const FIRST: (Duration, Duration) = (Duration::from_millis(45), Duration::from_millis(47));

/// The number of probes with the first pause. A server that restarts soon is found within 50 ms.
const AT_FIRST_PACE: u32 = 13;

/// The longest pause after those, which makes twenty probes in the first second. Each next pause may be longer by
/// [`GROWTH`].
const LATER: Duration = Duration::from_millis(62);

const GROWTH: f64 = 1.06;

/// The longest pause after a probe that was answered when the checks after it were not. The next such pause is twice as
/// long.
const IN_VAIN: Duration = Duration::from_millis(300);

/// The longest pause.
const LONGEST: Duration = Duration::from_secs(1);

/// Asks the server behind an open breaker until it answers, and then closes the breaker.
///
/// Each time the breaker opens, one probe runs. A probe charges nothing.
#[derive(Debug)]
pub(super) struct Probe {
    /// The store may be dropped while the probe runs.
    health: Weak<Health>,
    shared: Weak<SharedConnection>,
    is_done: bool,
}

/// A connection that is up and does not answer, with the `PING` that waits on it.
struct SilentConnection(Pin<Box<dyn Future<Output = PingOutcome> + Send>>);

type PingOutcome = (Connection, Result<(), Error>);

impl Probe {
    /// Starts a probe. Without a runtime the breaker closes again, and the next missed check opens it.
    pub(super) fn start(health: &Arc<Health>, shared: &Arc<SharedConnection>) {
        let probe = Self { health: Arc::downgrade(health), shared: Arc::downgrade(shared), is_done: false };
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(probe.run());
        }
    }

    async fn run(mut self) {
        let (mut probes, mut at_once, mut silent) = (0, false, None);
        loop {
            let (Some(health), Some(shared)) = (self.health.upgrade(), self.shared.upgrade()) else { return };
            // A store that is dropped now is held for one more pause.
            let pause = match probes {
                _ if at_once => Duration::ZERO,
                0 => first_pause(&health, &shared),
                _ => pause(probes, health.breaker.probes_in_vain()),
            };
            match probe_once(&health, &shared, pause, &mut silent).await {
                Some(Ok(())) => {
                    tracing::debug!(probes = probes + 1, "redis answers a probe: checks are sent to it again");
                    self.is_done = true;
                    health.breaker.close();
                    return;
                }
                Some(Err(error)) => {
                    at_once = false;
                    health.refuse_with(error);
                    probes = probes.saturating_add(1);
                }
                // Another server is the one to ask now.
                None => (at_once, silent) = (true, None),
            }
        }
    }
}

impl Drop for Probe {
    /// Closes the breaker when the runtime was shut down, or there is none: no other task would close it.
    fn drop(&mut self) {
        if !self.is_done
            && let Some(health) = self.health.upgrade()
        {
            health.breaker.abandon();
        }
    }
}

/// Probes after a pause, and listens meanwhile on the silent connection. Returns `None` when another server is the one
/// to ask.
async fn probe_once(
    health: &Health,
    shared: &SharedConnection,
    pause: Duration,
    silent: &mut Option<SilentConnection>,
) -> Option<Result<(), Error>> {
    let probe = async {
        tokio::time::sleep(pause).await;
        ping(shared).await
    };
    let mut probe = pin!(probe);
    loop {
        tokio::select! {
            biased;
            () = health.probe_now.notified() => return None,
            (connection, answer) = silent_answer(silent) => {
                *silent = None;
                if answer.is_ok() && shared.restore(connection) {
                    return Some(Ok(()));
                }
            }
            answer = &mut probe => return Some(answer.map_err(|(error, connection)| {
                *silent = connection.or(silent.take());
                error
            })),
        }
    }
}

/// Waits for the answer on the silent connection. Waits for ever without one.
async fn silent_answer(silent: &mut Option<SilentConnection>) -> PingOutcome {
    match silent {
        Some(SilentConnection(ping)) => ping.await,
        None => std::future::pending().await,
    }
}

/// Waits until the server answers, on the connection there is or on a new one.
///
/// A connection that stays silent for the time for connecting is returned with its `PING`, because a stall may end
/// later. The next probe uses another connection.
async fn ping(shared: &SharedConnection) -> Result<(), (Error, Option<SilentConnection>)> {
    let connection = shared.get().await.map_err(|error| (error, None))?;
    let pinged = connection.clone();
    let mut ping = Box::pin(async move {
        let answer = pinged.ping().await;
        (pinged, answer)
    });
    match tokio::time::timeout(shared.connect_timeout(), &mut ping).await {
        Ok((_, Ok(()))) => Ok(()),
        Ok((_, Err(error))) => {
            shared.broken(&connection);
            Err((error, None))
        }
        Err(_) => {
            shared.broken(&connection);
            // A pool has few connections. A connection that is kept is one that the pool cannot make.
            Err((health::silent(), (!connection.is_lent()).then_some(SilentConnection(ping))))
        }
    }
}

/// Returns the pause before the first probe.
///
/// A connection that is up is probed at once, so a server that stood still is found in the moment in which it goes on.
/// After a refused dial, and after answers in vain, there is a pause. Its random length spreads replicas that lost the
/// server at the same time.
fn first_pause(health: &Health, shared: &SharedConnection) -> Duration {
    match health.breaker.probes_in_vain() {
        0 if shared.is_up() => Duration::ZERO,
        0 => FIRST.1.mul_f64(fastrand::f64()),
        in_vain => pause(0, in_vain),
    }
}

/// Returns a random pause below a bound that grows, so that replicas do not all come back at once.
pub(in crate::redis) fn pause(probes: u32, in_vain: u32) -> Duration {
    let grown = match probes.checked_sub(AT_FIRST_PACE) {
        None => FIRST.1,
        Some(steps) => LATER.mul_f64(GROWTH.powi(steps.min(100) as i32)),
    };
    let in_vain = in_vain.checked_sub(1).map_or(Duration::ZERO, |doublings| IN_VAIN * 2_u32.pow(doublings.min(2)));
    let longest = grown.max(in_vain).min(LONGEST);
    let shortest = FIRST.0.max(longest / 3);
    shortest + (longest - shortest).mul_f64(fastrand::f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(probes: u32, in_vain: u32) -> (Duration, Duration) {
        let pauses: Vec<Duration> = (0..2_000).map(|_| pause(probes, in_vain)).collect();
        (pauses.iter().min().copied().expect("pauses"), pauses.iter().max().copied().expect("pauses"))
    }

    #[test]
    fn pauses_are_spread_and_grow_to_a_second() {
        for probes in 0..AT_FIRST_PACE {
            let (least, most) = spread(probes, 0);
            assert!(least >= FIRST.0 && most <= FIRST.1 && most > least, "{least:?} {most:?}");
        }
        let mut before = FIRST.1;
        for probes in [20, 30, 40, 50] {
            let (least, most) = spread(probes, 0);
            assert!(least >= FIRST.0 && most > before && most >= least + least / 5, "{least:?} {most:?}");
            before = most;
        }
        let (least, most) = spread(0, 1);
        assert!(least >= IN_VAIN / 3 && most <= IN_VAIN && most - least > IN_VAIN / 2, "{least:?} {most:?}");
        for (probes, in_vain) in [(u32::MAX, 0), (0, u32::MAX), (u32::MAX, u32::MAX)] {
            let (least, most) = spread(probes, in_vain);
            assert!(least >= LONGEST / 3 && most <= LONGEST && most - least > LONGEST / 2, "{least:?} {most:?}");
        }
    }

    #[test]
    fn a_dead_server_is_dialled_twenty_times_in_the_first_second_and_ever_less_often_after() {
        const ROUNDS: u32 = 200;
        let mut dials = [0; 30];
        for _ in 0..ROUNDS {
            let mut at = FIRST.1.mul_f64(fastrand::f64());
            for probes in 1.. {
                let Some(second) = dials.get_mut(at.as_secs() as usize) else { break };
                *second += 1;
                at += pause(probes, 0);
            }
        }
        let each = dials.map(|dials| f64::from(dials) / f64::from(ROUNDS));
        assert!((18.0..=20.5).contains(&each[0]), "{each:?}");
        assert!(each[1] < 15.0 && each[5] < 6.0 && each[29] < 2.0, "{each:?}");
    }

    #[test]
    fn the_probe_of_a_dropped_store_ends() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(Probe { health: Weak::new(), shared: Weak::new(), is_done: false }.run());
    }
}
