use std::{
    pin::{Pin, pin},
    sync::Weak,
    time::Duration,
};

use tokio::runtime::Handle;

use super::{connection::Connection, link::Line};
use crate::{Error, reason::Reason};

/// The shortest and the longest of the first pauses before a probe: about twenty a second.
const FIRST: (Duration, Duration) = (Duration::from_millis(45), Duration::from_millis(47));

/// So many probes follow each other at the first pace: a server that is started again at once is found within 50 ms.
const AT_FIRST_PACE: u32 = 13;

/// The longest pause after them, which makes it twenty in the first second. Each may then be longer by [`GROWTH`] than the
/// one before.
const LATER: Duration = Duration::from_millis(62);

const GROWTH: f64 = 1.06;

/// The longest pause after a probe that was answered when the checks behind it were not; twice as long after the next.
const IN_VAIN: Duration = Duration::from_millis(300);

/// The longest pause there is.
const LONGEST: Duration = Duration::from_secs(1);

/// Asks the server of an open breaker until it answers, and closes the breaker then. One task per
/// opening; it charges nothing.
#[derive(Debug)]
pub(super) struct Probe {
    /// The store may go meanwhile.
    connection: Weak<Connection>,
    is_done: bool,
}

/// A line that is up and does not answer, with the PING that waits on it.
struct Silent(Pin<Box<dyn Future<Output = Spoken> + Send>>);

/// A line and what it said.
type Spoken = (Line, Result<(), Error>);

impl Probe {
    /// Starts probing; without a runtime the breaker closes again, and the next miss opens it.
    pub(super) fn start(connection: &Weak<Connection>) {
        let probe = Self { connection: Weak::clone(connection), is_done: false };
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(probe.run());
        }
    }

    async fn run(mut self) {
        let (mut probes, mut in_a_hurry, mut silent) = (0, false, None);
        loop {
            let Some(connection) = self.connection.upgrade() else { return };
            // A store that goes meanwhile is held for one pause.
            let pause = match probes {
                _ if in_a_hurry => Duration::ZERO,
                0 => first_pause(&connection),
                _ => pause(probes, connection.breaker().in_vain()),
            };
            match ask(&connection, pause, &mut silent).await {
                Some(Ok(())) => {
                    tracing::debug!(probes = probes + 1, "redis answers a probe, checks are sent to it again");
                    self.is_done = true;
                    connection.breaker().close();
                    return;
                }
                Some(Err(error)) => {
                    in_a_hurry = false;
                    connection.tell(error);
                    probes = probes.saturating_add(1);
                }
                // What was asked is no longer the server to ask.
                None => (in_a_hurry, silent) = (true, None),
            }
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

/// What the server says after a pause, or, at any time, on the line that was silent; `None` when another server is the one
/// to ask.
async fn ask(connection: &Connection, pause: Duration, silent: &mut Option<Silent>) -> Option<Result<(), Error>> {
    let asked = async {
        tokio::time::sleep(pause).await;
        connection.probe().await
    };
    let mut asked = pin!(asked);
    loop {
        tokio::select! {
            biased;
            () = connection.hurry().notified() => return None,
            (line, answer) = spoken(silent) => {
                *silent = None;
                if answer.is_ok() && connection.link().restore(line) {
                    return Some(Ok(()));
                }
            }
            answer = &mut asked => return Some(answer.map_err(|(error, line)| {
                *silent = line.or(silent.take());
                error
            })),
        }
    }
}

/// What comes on the silent line; nothing where there is none.
async fn spoken(silent: &mut Option<Silent>) -> Spoken {
    match silent {
        Some(Silent(ping)) => ping.await,
        None => std::future::pending().await,
    }
}

/// A line that is up is asked at once: what stands still answers in the moment in which it goes on. After a dial that was
/// refused, and after answers in vain, there is a pause; its length is where replicas that lost a server together part.
fn first_pause(connection: &Connection) -> Duration {
    match connection.breaker().in_vain() {
        0 if connection.link().is_up() => Duration::ZERO,
        0 => FIRST.1.mul_f64(fastrand::f64()),
        in_vain => pause(0, in_vain),
    }
}

/// Uniform up to a length that grows, so that replicas do not come back all at once.
pub(super) fn pause(probes: u32, in_vain: u32) -> Duration {
    let grown = match probes.checked_sub(AT_FIRST_PACE) {
        None => FIRST.1,
        Some(steps) => LATER.mul_f64(GROWTH.powi(steps.min(100) as i32)),
    };
    let in_vain = in_vain.checked_sub(1).map_or(Duration::ZERO, |doublings| IN_VAIN * 2_u32.pow(doublings.min(2)));
    let longest = grown.max(in_vain).min(LONGEST);
    let shortest = FIRST.0.max(longest / 3);
    shortest + (longest - shortest).mul_f64(fastrand::f64())
}

impl Connection {
    /// Whether the server answers, on the connection there is or on another. A line that stays silent for as long as
    /// connecting may take is given back, for a stall may end later; the next probe is on another.
    async fn probe(&self) -> Result<(), (Error, Option<Silent>)> {
        let line = self.link().line_or_dial().await.map_err(|error| (error, None))?;
        let asked = line.clone();
        let mut ping = Box::pin(async move {
            let answer = asked.ping().await;
            (asked, answer)
        });
        match tokio::time::timeout(self.link().connect_timeout(), &mut ping).await {
            Ok((_, Ok(()))) => Ok(()),
            Ok((_, Err(error))) => {
                self.link().broken(&line);
                Err((error, None))
            }
            Err(_) => {
                self.link().broken(&line);
                // A pool has few connections: one that is kept is one that cannot be made.
                Err((silent(), (!line.is_lent()).then_some(Silent(ping))))
            }
        }
    }
}

/// What is answered while the server is not asked, because it did not answer before.
pub(super) fn silent() -> Error {
    Error::new(Reason::Breaker, "redis did not answer, and is not asked until it answers a probe")
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
    fn a_probe_of_a_store_that_is_gone_ends() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(Probe { connection: Weak::new(), is_done: false }.run());
    }
}
