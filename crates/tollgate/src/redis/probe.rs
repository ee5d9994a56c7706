use std::{sync::Weak, time::Duration};

use tokio::runtime::Handle;

use super::connection::Connection;
use crate::{Error, reason::Reason};

/// The middle of the first pauses before a probe.
const PAUSE: Duration = Duration::from_millis(100);

/// The longest pause there is.
const LONGEST: Duration = Duration::from_secs(1);

/// So many probes follow each other at one pace; then it halves.
const AT_ONE_PACE: u32 = 50;

/// Asks the server of an open breaker until it answers, and closes the breaker then. One task per
/// opening; it charges nothing.
#[derive(Debug)]
pub(super) struct Probe {
    /// The store may go meanwhile.
    connection: Weak<Connection>,
    is_done: bool,
}

impl Probe {
    /// Starts probing; without a runtime the breaker closes again, and the next miss opens it.
    pub(super) fn start(connection: &Weak<Connection>) {
        let probe = Self { connection: Weak::clone(connection), is_done: false };
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(probe.run());
        }
    }

    async fn run(mut self) {
        let mut probes = 0;
        loop {
            let Some(connection) = self.connection.upgrade() else { return };
            let pause = pause(probes, connection.breaker().in_vain());
            // A store that goes meanwhile is held for one pause.
            let _ = tokio::time::timeout(pause, connection.hurry().notified()).await;
            let answer = tokio::select! {
                biased;
                answer = connection.probe() => answer,
                () = connection.hurry().notified() => {
                    // What is probed is no longer the server to ask.
                    connection.hurry().notify_one();
                    continue;
                }
            };
            match answer {
                Ok(()) => {
                    tracing::debug!(probes = probes + 1, "redis answers a probe, checks are sent to it again");
                    self.is_done = true;
                    connection.breaker().close();
                    return;
                }
                Err(error) => connection.tell(error),
            }
            probes = probes.saturating_add(1);
        }
    }
}

impl Drop for Probe {
    /// The runtime was shut down under it, or there is none.
    fn drop(&mut self) {
        if !self.is_done
            && let Some(connection) = self.connection.upgrade()
        {
            connection.breaker().abandon();
        }
    }
}

/// Uniform around a middle that grows, so that replicas do not come back all at once.
pub(super) fn pause(probes: u32, in_vain: u32) -> Duration {
    let doublings = (probes / AT_ONE_PACE).saturating_add(in_vain).min(8);
    let middle = (PAUSE * 2_u32.pow(doublings)).min(LONGEST * 2 / 3);
    middle.mul_f64(0.5 + fastrand::f64())
}

impl Connection {
    /// Whether the server answers, on the connection there is or, if that stays silent, on another.
    async fn probe(&self) -> Result<(), Error> {
        let limit = self.link().connect_timeout();
        let line = self.link().line_or_dial().await?;
        let answer = tokio::time::timeout(limit, line.ping()).await;
        let answer = answer.unwrap_or_else(|_| Err(silent()));
        if answer.is_err() {
            self.link().broken(&line);
        }
        answer
    }
}

/// What is answered while the server is not asked, because it did not answer before.
pub(super) fn silent() -> Error {
    Error::new(Reason::Breaker, "redis did not answer, and is not asked until it answers a probe")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_are_spread_and_grow_to_a_second() {
        let spread = |probes, in_vain| {
            let pauses: Vec<Duration> = (0..2_000).map(|_| pause(probes, in_vain)).collect();
            (pauses.iter().min().copied().expect("pauses"), pauses.iter().max().copied().expect("pauses"))
        };
        let (least, most) = spread(0, 0);
        assert!(least >= PAUSE / 2 && most <= PAUSE * 3 / 2, "{least:?} {most:?}");
        assert!(most - least > PAUSE * 8 / 10, "{least:?} {most:?}");
        let (least, most) = spread(AT_ONE_PACE, 0);
        assert!(least >= PAUSE && most <= PAUSE * 3, "{least:?} {most:?}");
        for (probes, in_vain) in [(u32::MAX, 0), (0, u32::MAX), (u32::MAX, u32::MAX)] {
            let (least, most) = spread(probes, in_vain);
            assert!(least >= LONGEST / 3 && most <= LONGEST, "{least:?} {most:?}");
        }
    }

    #[test]
    fn a_probe_of_a_store_that_is_gone_ends() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(Probe { connection: Weak::new(), is_done: false }.run());
    }
}
