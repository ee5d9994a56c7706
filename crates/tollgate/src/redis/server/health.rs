use std::{
    collections::VecDeque,
    pin::{Pin, pin},
    sync::{Arc, Weak},
    time::Duration,
};

use arc_swap::ArcSwap;
use tokio::{
    sync::Notify,
    time::{sleep, timeout},
};

use super::{
    Server,
    breaker::{self, Breaker},
};
use crate::{
    Error, ErrorKind,
    redis::connect::{Connection, SharedConnection},
    runtime::{Background, Running, now},
    store::Deadline,
};

/// Holds what is known of a server's health, and the probe that finds it out.
#[derive(Debug)]
pub(super) struct Health {
    /// The words for the server in the log.
    server: String,
    pub(super) breaker: Breaker,
    /// The error of a check while the breaker is open.
    refusal: ArcSwap<Error>,
    /// The error of a check whose deadline is too short for the round trip.
    far: ArcSwap<Error>,
    /// Wakes all that wait for answers when the breaker has opened.
    opened: Notify,
    probe: Background,
}

/// An answer to another call shows that the server is late and not away, unless it came in the
/// first tenth of the time that the check had.
const SOON: u32 = 10;

impl Health {
    pub(super) fn new(server: String) -> Self {
        Self {
            server,
            breaker: Breaker::new(now()),
            refusal: ArcSwap::from_pointee(silent()),
            far: ArcSwap::from_pointee(silent()),
            opened: Notify::new(),
            probe: Background::new(),
        }
    }

    pub(super) fn refusal(&self) -> Error {
        Error::clone(&self.refusal.load())
    }

    fn refuse_with(&self, error: Error) {
        self.refusal.store(Arc::new(error));
    }

    /// Returns the error of a check whose deadline is too short for the round trip.
    pub(super) fn far(&self) -> Error {
        Error::clone(&self.far.load())
    }

    fn refuse_as_far(&self, round_trip: Duration) {
        let message = format!(
            "the round trip to redis takes {:?}, which needs a deadline of {:?} or more",
            shown(round_trip),
            shown(breaker::needed(round_trip))
        );
        self.far
            .store(Arc::new(Error::new(ErrorKind::Distant, message)));
    }

    /// Counts a check that missed its deadline. Returns what the probe has to do.
    ///
    /// A check does not count for the breaker when the server answered another call after the first
    /// tenth of its time: the server is late, and not away. An earlier answer does not show that,
    /// because some checks have always begun shortly before the last answer of a server that falls
    /// silent.
    pub(super) fn missed(&self, deadline: Option<Deadline>) -> u32 {
        let heard = self.breaker.last_heard();
        let soon = |deadline: Deadline| deadline.start().checked_add(deadline.timeout() / SOON);
        let is_excused = deadline.and_then(soon).is_some_and(|soon| soon < heard);
        let mut duties = 0;
        if !is_excused && self.breaker.missed() {
            self.refuse_with(silent());
            self.log_opened(&self.refusal());
            self.opened.notify_waiters();
            duties |= OPENED;
        }
        if deadline.is_some_and(|deadline| self.breaker.late(deadline.timeout())) {
            duties |= LATE;
        }
        duties
    }

    /// Opens the breaker because a retry has no use before a probe was answered. Returns what the
    /// probe has to do.
    pub(super) fn failed(&self, error: &Error) -> u32 {
        self.refuse_with(error.clone());
        if !self.breaker.open() {
            return 0;
        }
        self.log_opened(error);
        self.opened.notify_waiters();
        OPENED
    }

    /// Logs which server is away. A limiter logs its outage without the address, which it does not
    /// know.
    fn log_opened(&self, error: &Error) {
        tracing::warn!(server = self.server, reason = error.kind().as_str(), %error, "no check is sent until the server answers a probe");
    }

    /// Waits until the breaker has opened since it had this epoch.
    pub(super) async fn until_opened_after(&self, epoch: u64) {
        let mut opened = pin!(self.opened.notified());
        opened.as_mut().enable();
        if self.breaker.epoch() == epoch {
            opened.await;
        }
    }

    /// Starts the probe for these duties. Without a runtime all checks are sent, and the next miss
    /// starts it.
    pub(super) fn probe(&self, server: &Weak<Server>, duties: u32) {
        if duties == 0 {
            return;
        }
        self.probe.ask(duties);
        if !self.probe.start(|running| {
            Probe {
                server: Weak::clone(server),
                running,
            }
            .run()
        }) {
            self.breaker.abandon();
        }
    }

    /// Probes the new master at once, if checks wait for that.
    pub(super) fn master_changed(&self) {
        if self.breaker.is_open() {
            self.probe.ask(MASTER);
        }
    }
}

/// The code of a server that is too far for a deadline.
pub(in crate::redis) const DISTANT: &str = "TOLLGATE-DISTANT";

/// Returns the finding for an operator when a deadline is too short for a round trip, and `None`
/// otherwise.
pub(in crate::redis) fn far(round_trip: Duration, deadline: Duration) -> Option<String> {
    let needed = breaker::needed(round_trip);
    (deadline < needed).then(|| {
        format!(
            "the round trip to redis takes {:?}, too long for checks with a deadline of {deadline:?}; set \
             LimiterBuilder::deadline to {:?} or more, or use a nearer server",
            shown(round_trip),
            shown(needed)
        )
    })
}

fn log_far(round_trip: Duration, deadline: Duration) {
    if let Some(detail) = far(round_trip, deadline) {
        tracing::warn!(
            code = DISTANT,
            "{detail}; these checks are decided without redis until it fits"
        );
    }
}

/// Rounds up to tenths of a millisecond, for people.
fn shown(duration: Duration) -> Duration {
    Duration::from_micros(
        100 * u64::try_from(duration.as_micros().div_ceil(100)).unwrap_or(u64::MAX / 100),
    )
}

/// Creates the error of a check that is not sent because the server did not answer before.
fn silent() -> Error {
    Error::new(
        ErrorKind::CircuitOpen,
        "redis did not answer earlier checks and is not asked until it answers a probe",
    )
}

/// The duty of the probe when the breaker has opened.
const OPENED: u32 = 1;

/// The duty of the probe when a deadline waits for a measurement.
const LATE: u32 = 2;

/// The duty of the probe when another server is the one to ask.
const MASTER: u32 = 4;

/// The bounds of the pause between two measurements. Its random length spreads replicas.
const PAUSE: (Duration, Duration) = (Duration::from_millis(80), Duration::from_millis(120));

/// The number of pauses without a suspect after which the probe forgets how often the server was
/// far.
const QUIET: u32 = 20;

/// Asks the server behind an open breaker until it answers, and then closes the breaker. Measures
/// the round trip to a server whose answers come too late, and decides which checks are sent.
///
/// A probe is a `PING`: it charges nothing, and does not wait in the queue of this process. So
/// checks that are late because of a long queue, or of a slow script, are not taken for a far
/// server. One task probes, from the first miss that asks for it until all checks are sent again.
#[derive(Debug)]
struct Probe {
    /// The store may be dropped while the probe runs.
    server: Weak<Server>,
    running: Running,
}

impl Probe {
    async fn run(mut self) {
        let (mut outage, mut trips, mut quiet) = (Outage::default(), Trips::default(), 0);
        // The round trip of the probe that has just closed the breaker.
        let mut closing = None;
        loop {
            let Some(server) = self.server.upgrade() else {
                return;
            };
            let (breaker, measured) = (&server.health.breaker, closing.take());
            self.running.take(OPENED | LATE);
            if breaker.is_open() {
                closing = outage.probe(&server, &self.running).await;
                match closing {
                    Some(_) => outage = Outage::default(),
                    None => trips = Trips::default(),
                }
                continue;
            }
            self.running.take(MASTER);
            if breaker.is_far() || breaker.has_suspect() {
                quiet = 0;
                let outcome = tokio::select! {
                    biased;
                    () = self.running.until_asked(MASTER) => continue,
                    outcome = measure(&server, measured) => outcome,
                };
                match outcome {
                    Ok(round_trip) => trips.add(&server.health, round_trip),
                    Err((error, silent)) => {
                        if breaker.is_far() {
                            breaker.forget();
                            server.health.failed(&error);
                        }
                        trips = Trips::default();
                        if breaker.is_open() {
                            outage.silent = silent;
                            continue;
                        }
                        // A server that does not answer is left to the breaker.
                        if self.running.end() {
                            return;
                        }
                    }
                }
            } else {
                quiet += 1;
                if (trips.episodes == 0 || quiet > QUIET) && self.running.end() {
                    return;
                }
            }
            drop(server);
            let pause = PAUSE.0 + (PAUSE.1 - PAUSE.0).mul_f64(fastrand::f64());
            let _ = timeout(pause, self.running.until_asked(OPENED)).await;
        }
    }
}

impl Drop for Probe {
    /// Sends all checks again when the runtime was shut down, or there is none: no other task would
    /// probe.
    fn drop(&mut self) {
        if !self.running.is_over() {
            // First, so that a caller that opens the breaker after this line starts another probe.
            self.running.stop();
            if let Some(server) = self.server.upgrade() {
                server.health.breaker.abandon();
            }
        }
    }
}

/// Follows the round trips while some deadline is too short.
#[derive(Default)]
struct Trips {
    last: VecDeque<Duration>,
    /// The number of times that the server has become too far.
    episodes: u32,
}

/// The number of round trips in a row that have to fit before checks are sent again. It doubles
/// each time the round trip did not stay short.
const FITTING: usize = 3;

/// The most doublings of [`FITTING`].
const DOUBLINGS: u32 = 4;

impl Trips {
    /// Judges the deadlines that wait for a measurement, and sends checks again whose deadline
    /// fits.
    fn add(&mut self, health: &Health, round_trip: Duration) {
        let breaker = &health.breaker;
        let was_far = breaker.is_far();
        if let Some(deadline) = breaker.judge(round_trip) {
            self.last.clear();
            if !was_far {
                self.episodes += 1;
                log_far(round_trip, deadline);
            }
        }
        if breaker.is_far() {
            health.refuse_as_far(round_trip);
            self.last.push_back(round_trip);
            let fitting = FITTING << (self.episodes - 1).min(DOUBLINGS);
            self.last.drain(..self.last.len().saturating_sub(fitting));
            let longest = self.last.iter().max().copied().unwrap_or(round_trip);
            if self.last.len() == fitting && breaker.release(longest) {
                self.last.clear();
                tracing::info!("the round trip to redis fits the deadlines of all checks again");
            }
        }
    }
}

/// Measures a round trip, unless it was just measured.
///
/// Before a deadline is refused for the first time, the shorter of two round trips counts: the
/// first may have met a stall that is over.
async fn measure(server: &Server, measured: Option<Duration>) -> Result<Duration, Unanswered> {
    let round_trip = match measured {
        Some(round_trip) => round_trip,
        None => ping(server.shared()).await?,
    };
    match server.health.breaker.is_suspect_too_short(round_trip) {
        true => Ok(round_trip.min(ping(server.shared()).await?)),
        false => Ok(round_trip),
    }
}

/// The probes of an open breaker.
#[derive(Default)]
struct Outage {
    probes: u32,
    /// The next probe has no pause before it.
    is_at_once: bool,
    silent: Option<SilentConnection>,
}

/// A connection that is up and does not answer, with the `PING` that waits on it.
struct SilentConnection(Pin<Box<dyn Future<Output = Ping> + Send>>);

/// A connection, and how long the server took to answer on it.
type Ping = (Connection, Result<Duration, Error>);

/// The error of a probe, and the connection that was silent.
type Unanswered = (Error, Option<SilentConnection>);

impl Outage {
    /// Probes the server after a pause, and listens meanwhile on the silent connection. Closes the
    /// breaker and returns the round trip when it answers.
    async fn probe(&mut self, server: &Server, running: &Running) -> Option<Duration> {
        let health = &server.health;
        // A store that is dropped now is held for one more pause.
        let pause = match self.probes {
            _ if std::mem::take(&mut self.is_at_once) => Duration::ZERO,
            0 => first_pause(server),
            _ => pause(self.probes, health.breaker.probes_in_vain()),
        };
        match self.answer(server.shared(), pause, running).await {
            Some(Ok(round_trip)) => {
                tracing::debug!(
                    server = health.server,
                    probes = self.probes + 1,
                    "the server answers a probe: checks are sent to it again"
                );
                health.breaker.close();
                return Some(round_trip);
            }
            Some(Err(error)) => {
                health.refuse_with(error);
                health.breaker.forget();
                self.probes = self.probes.saturating_add(1);
            }
            // Another server is the one to ask now.
            None => (self.is_at_once, self.silent) = (true, None),
        }
        None
    }

    /// Returns the round trip, or `None` when another server is the one to ask.
    async fn answer(
        &mut self,
        shared: &SharedConnection,
        pause: Duration,
        running: &Running,
    ) -> Option<Result<Duration, Error>> {
        let probe = async {
            sleep(pause).await;
            ping(shared).await
        };
        let mut probe = pin!(probe);
        loop {
            tokio::select! {
                biased;
                () = running.until_asked(MASTER) => {
                    running.take(MASTER);
                    return None;
                }
                (connection, answer) = silent_answer(&mut self.silent) => {
                    self.silent = None;
                    if let Ok(round_trip) = answer && shared.restore(connection) {
                        return Some(Ok(round_trip));
                    }
                }
                answer = &mut probe => return Some(answer.map_err(|(error, silent)| {
                    self.silent = silent.or(self.silent.take());
                    error
                })),
            }
        }
    }
}

/// Waits for the answer on the silent connection. Waits for ever without one.
async fn silent_answer(silent: &mut Option<SilentConnection>) -> Ping {
    match silent {
        Some(SilentConnection(ping)) => ping.await,
        None => std::future::pending().await,
    }
}

/// Waits until the server answers, on the connection there is or on a new one. Returns the round
/// trip.
///
/// A connection that stays silent for the time for connecting is returned with its `PING`, because
/// a stall may end later. The next probe uses another connection.
async fn ping(shared: &SharedConnection) -> Result<Duration, Unanswered> {
    let connection = shared.get().await.map_err(|error| (error, None))?;
    let pinged = connection.clone();
    let mut ping = Box::pin(async move {
        let sent = tokio::time::Instant::now();
        let answer = pinged.ping().await;
        (pinged, answer.map(|()| sent.elapsed()))
    });
    match timeout(shared.connect_timeout(), &mut ping).await {
        Ok((_, Ok(round_trip))) => Ok(round_trip),
        Ok((_, Err(error))) => {
            shared.broken(&connection);
            Err((error, None))
        }
        Err(_) => {
            shared.broken(&connection);
            // A pool has few connections. A connection that is kept is one that the pool cannot
            // make.
            Err((
                silent(),
                (!connection.is_lent()).then_some(SilentConnection(ping)),
            ))
        }
    }
}

/// The bounds of the first pauses: about twenty probes a second.
const FIRST: (Duration, Duration) = (Duration::from_millis(45), Duration::from_millis(47));

/// The number of probes with the first pause. A server that restarts soon is found within 50 ms.
const AT_FIRST_PACE: u32 = 13;

/// The longest pause after those, which makes twenty probes in the first second. Each next pause
/// may be longer by [`GROWTH`].
const LATER: Duration = Duration::from_millis(62);

const GROWTH: f64 = 1.06;

/// The longest pause after a probe that was answered when the checks after it were not. The next
/// such pause is twice as long.
const IN_VAIN: Duration = Duration::from_millis(300);

/// The longest pause.
const LONGEST: Duration = Duration::from_secs(1);

/// Returns the pause before the first probe.
///
/// A connection that is up is probed at once, so a server that stood still is found in the moment
/// in which it goes on. After a refused dial, and after answers in vain, there is a pause. Its
/// random length spreads replicas that lost the server at the same time.
fn first_pause(server: &Server) -> Duration {
    match server.health.breaker.probes_in_vain() {
        0 if server.shared().is_up() => Duration::ZERO,
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
    let in_vain = in_vain.checked_sub(1).map_or(Duration::ZERO, |doublings| {
        IN_VAIN * 2_u32.pow(doublings.min(2))
    });
    let longest = grown.max(in_vain).min(LONGEST);
    let shortest = FIRST.0.max(longest / 3);
    shortest + (longest - shortest).mul_f64(fastrand::f64())
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    /// Returns whether three checks with this timeout open the breaker, when the server is heard
    /// some time after they began and not again.
    async fn opens(timeout: Duration, heard_after: Duration) -> bool {
        let (health, deadline) = (Health::new("redis".to_owned()), Deadline::after(timeout));
        advance(heard_after).await;
        health.breaker.heard(now());
        advance(
            timeout
                .saturating_sub(heard_after)
                .min(Duration::from_secs(60)),
        )
        .await;
        let opened = [(); 3].map(|()| health.missed(Some(deadline)));
        assert_eq!(opened[..2], [0; 2]);
        opened[2] == OPENED
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_shortly_after_the_beginning_does_not_excuse_the_silence_after_it() {
        let times = [0, 1, 5, 6, 30, 49].map(Duration::from_millis);
        let mut counts = Vec::new();
        for heard_after in times {
            counts.push(opens(Duration::from_millis(50), heard_after).await);
        }
        assert_eq!(counts, [true, true, true, false, false, false]);
        assert!(
            opens(Duration::MAX, Duration::from_secs(60)).await,
            "a deadline that never comes"
        );
    }

    fn spread(probes: u32, in_vain: u32) -> (Duration, Duration) {
        let pauses: Vec<Duration> = (0..2_000).map(|_| pause(probes, in_vain)).collect();
        (
            pauses.iter().min().copied().expect("pauses"),
            pauses.iter().max().copied().expect("pauses"),
        )
    }

    #[test]
    fn pauses_are_spread_and_grow_to_a_second() {
        for probes in 0..AT_FIRST_PACE {
            let (least, most) = spread(probes, 0);
            assert!(
                least >= FIRST.0 && most <= FIRST.1 && most > least,
                "{least:?} {most:?}"
            );
        }
        let mut before = FIRST.1;
        for probes in [20, 30, 40, 50] {
            let (least, most) = spread(probes, 0);
            assert!(
                least >= FIRST.0 && most > before && most >= least + least / 5,
                "{least:?} {most:?}"
            );
            before = most;
        }
        let (least, most) = spread(0, 1);
        assert!(
            least >= IN_VAIN / 3 && most <= IN_VAIN && most - least > IN_VAIN / 2,
            "{least:?} {most:?}"
        );
        for (probes, in_vain) in [(u32::MAX, 0), (0, u32::MAX), (u32::MAX, u32::MAX)] {
            let (least, most) = spread(probes, in_vain);
            assert!(
                least >= LONGEST / 3 && most <= LONGEST && most - least > LONGEST / 2,
                "{least:?} {most:?}"
            );
        }
    }

    #[test]
    fn a_dead_server_is_dialled_twenty_times_in_the_first_second_and_ever_less_often_after() {
        const ROUNDS: u32 = 200;
        let mut dials = [0; 30];
        for _ in 0..ROUNDS {
            let mut at = FIRST.1.mul_f64(fastrand::f64());
            for probes in 1.. {
                let Some(second) = dials.get_mut(at.as_secs() as usize) else {
                    break;
                };
                *second += 1;
                at += pause(probes, 0);
            }
        }
        let each = dials.map(|dials| f64::from(dials) / f64::from(ROUNDS));
        assert!((18.0..=20.5).contains(&each[0]), "{each:?}");
        assert!(
            each[1] < 15.0 && each[5] < 6.0 && each[29] < 2.0,
            "{each:?}"
        );
    }
}
