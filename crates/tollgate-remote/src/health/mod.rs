//! The health of a server, which every store outside of the process has, and the probe that finds
//! it out.
//! What is counted for which server is in `breaker.rs`; how a probe is sent is decided by each
//! store.

mod breaker;

use std::{
    collections::VecDeque,
    pin::pin,
    sync::{Arc, Weak},
    time::Duration,
};

use arc_swap::ArcSwap;
use tokio::{
    sync::Notify,
    time::{sleep, timeout},
};

pub use breaker::Breaker;

use tollgate_core::{
    Error, ErrorKind,
    raw::runtime::{Background, Running, now},
    store::Deadline,
};

/// A server that is probed.
pub trait Probed: Sized + Send + Sync + 'static {
    /// A probe that stayed without an answer: it is listened to beside the next.
    type Silent: Send;

    /// Returns the health of the server.
    fn health(&self) -> &Health;

    /// Returns a reference that the probe holds: it ends with the server.
    fn weak(&self) -> Weak<Self>;

    /// Returns whether there is a connection. A probe is then sent at once.
    fn is_connected(&self) -> bool;

    /// Asks the server, and returns the round trip.
    fn ping(&self) -> impl Future<Output = Result<Duration, Unanswered<Self::Silent>>> + Send;

    /// Waits for the answer to an earlier probe. Returns its round trip, or `None` when it shows
    /// nothing any more.
    fn listen(&self, silent: &mut Self::Silent) -> impl Future<Output = Option<Duration>> + Send;

    /// Counts a call that missed its deadline.
    fn missed(&self, deadline: Option<Deadline>) {
        let health = self.health();
        health.probe(&self.weak(), health.missed(deadline));
    }

    /// Opens the breaker because a retry has no use before a probe was answered.
    fn failed(&self, error: &Error) {
        let health = self.health();
        health.probe(&self.weak(), health.failed(error));
    }
}

/// The error of a probe, and what is left of it.
pub type Unanswered<S> = (Error, Option<S>);

/// Knows a server's health, and the probe that finds it out.
#[derive(Debug)]
pub struct Health {
    /// The word for servers of this kind: `redis`.
    kind: &'static str,
    /// The words for the server in the log.
    server: String,
    /// The circuit breaker.
    pub breaker: Breaker,
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
    /// Creates the health of a server of this kind, such as `redis`. `server` names it in the log.
    #[must_use]
    pub fn new(kind: &'static str, server: String) -> Self {
        Self {
            kind,
            server,
            breaker: Breaker::new(now()),
            refusal: ArcSwap::from_pointee(silent(kind)),
            far: ArcSwap::from_pointee(silent(kind)),
            opened: Notify::new(),
            probe: Background::new(),
        }
    }

    /// Returns the error of a call that is not sent because the breaker is open.
    pub fn refusal(&self) -> Error {
        Error::clone(&self.refusal.load())
    }

    /// Returns the error of a call that is not sent: the breaker is open, or the deadline is too
    /// short for the round trip. Without a deadline, a far server is asked, too.
    #[inline]
    pub fn refusal_of(&self, deadline: Option<Deadline>) -> Option<Error> {
        match self.breaker.is_open() {
            true => Some(self.refusal()),
            false => self
                .breaker
                .is_too_short(deadline?.timeout())
                .then(|| Error::clone(&self.far.load())),
        }
    }

    /// Returns the error of a call that was sent before the breaker opened.
    pub fn overtaken(&self) -> Error {
        match self.refusal() {
            refusal if refusal.kind() == ErrorKind::CircuitOpen => Error::new(
                ErrorKind::Timeout,
                format!("{} did not answer in time", self.kind),
            ),
            refusal => refusal,
        }
    }

    /// Notes that the server has answered something.
    pub fn heard(&self) {
        self.breaker.heard(now());
    }

    fn refuse_with(&self, error: Error) {
        self.refusal.store(Arc::new(error));
    }

    fn refuse_as_far(&self, round_trip: Duration) {
        let message = format!(
            "the round trip to {} takes {:?}, which needs a deadline of {:?} or more",
            self.kind,
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
    fn missed(&self, deadline: Option<Deadline>) -> u32 {
        let heard = self.breaker.last_heard();
        let soon = |deadline: Deadline| deadline.start().checked_add(deadline.timeout() / SOON);
        let is_excused = deadline.and_then(soon).is_some_and(|soon| soon < heard);
        let mut duties = 0;
        if !is_excused && self.breaker.missed() {
            self.refuse_with(silent(self.kind));
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
    fn failed(&self, error: &Error) -> u32 {
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
    pub async fn until_opened_after(&self, epoch: u64) {
        let mut opened = pin!(self.opened.notified());
        opened.as_mut().enable();
        if self.breaker.epoch() == epoch {
            opened.await;
        }
    }

    /// Starts the probe for these duties. Without a runtime all checks are sent, and the next miss
    /// starts it.
    fn probe<S: Probed>(&self, server: &Weak<S>, duties: u32) {
        if duties == 0 {
            return;
        }
        self.probe.ask(duties);
        if !self.probe.start(|running| {
            let server = Weak::clone(server);
            Probe { server, running }.run()
        }) {
            self.breaker.abandon();
        }
    }

    /// Probes the new master at once, if checks wait for that.
    pub fn master_changed(&self) {
        if self.breaker.is_open() {
            self.probe.ask(MASTER);
        }
    }
}

/// The code of a server that is too far for a deadline.
pub const DISTANT: &str = "TOLLGATE-DISTANT";

/// Returns the finding for an operator when a deadline is too short for a round trip, and `None`
/// otherwise.
#[must_use]
pub fn far(kind: &str, round_trip: Duration, deadline: Duration) -> Option<String> {
    let needed = breaker::needed(round_trip);
    (deadline < needed).then(|| {
        format!(
            "the round trip to {kind} takes {:?}, too long for checks with a deadline of {deadline:?}; set \
             LimiterBuilder::deadline to {:?} or more, or use a nearer server",
            shown(round_trip),
            shown(needed)
        )
    })
}

fn log_far(kind: &str, round_trip: Duration, deadline: Duration) {
    if let Some(detail) = far(kind, round_trip, deadline) {
        tracing::warn!(
            code = DISTANT,
            "{detail}; these checks are decided without {kind} until it fits"
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
#[must_use]
pub fn silent(kind: &str) -> Error {
    Error::new(
        ErrorKind::CircuitOpen,
        format!("{kind} did not answer earlier checks and is not asked until it answers a probe"),
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
struct Probe<S: Probed> {
    /// The store may be dropped while the probe runs.
    server: Weak<S>,
    running: Running,
}

impl<S: Probed> Probe<S> {
    async fn run(mut self) {
        let (mut outage, mut trips, mut quiet) = (Probes::default(), Trips::default(), 0);
        // The round trip of the probe that has just closed the breaker.
        let mut closing = None;
        loop {
            let Some(server) = self.server.upgrade() else {
                return;
            };
            let (breaker, measured) = (&server.health().breaker, closing.take());
            self.running.take(OPENED | LATE);
            if breaker.is_open() {
                closing = outage.probe(&*server, &self.running).await;
                match closing {
                    Some(_) => outage = Probes::default(),
                    None => {
                        // What was measured was another server, or this one before the outage.
                        breaker.forget();
                        trips = Trips::default();
                    }
                }
                continue;
            }
            self.running.take(MASTER);
            if breaker.is_far() || breaker.has_suspect() {
                quiet = 0;
                let outcome = tokio::select! {
                    biased;
                    () = self.running.until_asked(MASTER) => continue,
                    outcome = measure(&*server, measured) => outcome,
                };
                match outcome {
                    Ok(round_trip) => trips.add(server.health(), round_trip),
                    Err((error, silent)) => {
                        if breaker.is_far() {
                            breaker.forget();
                            server.health().failed(&error);
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

impl<S: Probed> Drop for Probe<S> {
    /// Sends all checks again when the runtime was shut down, or there is none: no other task would
    /// probe.
    fn drop(&mut self) {
        if !self.running.is_over() {
            // First, so that a caller that opens the breaker after this line starts another probe.
            self.running.stop();
            if let Some(server) = self.server.upgrade() {
                server.health().breaker.abandon();
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
                log_far(health.kind, round_trip, deadline);
            }
        }
        if breaker.is_far() {
            health.refuse_as_far(round_trip);
            self.last.push_back(round_trip);
            // It may have been another task that found the server too far.
            let fitting = FITTING << self.episodes.saturating_sub(1).min(DOUBLINGS);
            self.last.drain(..self.last.len().saturating_sub(fitting));
            let longest = self.last.iter().max().copied().unwrap_or(round_trip);
            if self.last.len() == fitting && breaker.release(longest) {
                self.last.clear();
                tracing::info!(
                    "the round trip to {} fits the deadlines of all checks again",
                    health.kind
                );
            }
        }
    }
}

/// Measures a round trip, unless it was just measured.
///
/// Before a deadline is refused for the first time, the shorter of two round trips counts: the
/// first may have met a stall that is over.
async fn measure<S: Probed>(
    server: &S,
    measured: Option<Duration>,
) -> Result<Duration, Unanswered<S::Silent>> {
    let round_trip = match measured {
        Some(round_trip) => round_trip,
        None => server.ping().await?,
    };
    match server.health().breaker.is_suspect_too_short(round_trip) {
        true => Ok(round_trip.min(server.ping().await?)),
        false => Ok(round_trip),
    }
}

/// The probes of an open breaker.
struct Probes<T> {
    probes: u32,
    /// The next probe has no pause before it.
    is_at_once: bool,
    silent: Option<T>,
}

impl<T> Default for Probes<T> {
    fn default() -> Self {
        Self {
            probes: 0,
            is_at_once: false,
            silent: None,
        }
    }
}

impl<T: Send> Probes<T> {
    /// Probes the server after a pause, and listens meanwhile on the silent connection. Closes the
    /// breaker and returns the round trip when it answers.
    async fn probe(
        &mut self,
        server: &impl Probed<Silent = T>,
        running: &Running,
    ) -> Option<Duration> {
        let health = server.health();
        // A store that is dropped now is held for one more pause.
        let pause = match self.probes {
            _ if std::mem::take(&mut self.is_at_once) => Duration::ZERO,
            0 => first_pause(server),
            _ => pause(self.probes, health.breaker.probes_in_vain()),
        };
        match self.answer(server, pause, running).await {
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
        server: &impl Probed<Silent = T>,
        pause: Duration,
        running: &Running,
    ) -> Option<Result<Duration, Error>> {
        let probe = async {
            sleep(pause).await;
            server.ping().await
        };
        let mut probe = pin!(probe);
        loop {
            tokio::select! {
                biased;
                () = running.until_asked(MASTER) => {
                    running.take(MASTER);
                    return None;
                }
                answer = listen(server, &mut self.silent) => {
                    self.silent = None;
                    if let Some(round_trip) = answer {
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

/// Waits for the answer to an earlier probe. Waits for ever without one.
async fn listen<S: Probed>(server: &S, silent: &mut Option<S::Silent>) -> Option<Duration> {
    match silent {
        Some(silent) => server.listen(silent).await,
        None => std::future::pending().await,
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
const MAX_BACKOFF: Duration = Duration::from_secs(1);

/// Returns the pause before the first probe.
///
/// A connection that is up is probed at once, so a server that stood still is found in the moment
/// in which it goes on. After a refused dial, and after answers in vain, there is a pause. Its
/// random length spreads replicas that lost the server at the same time.
fn first_pause(server: &impl Probed) -> Duration {
    match server.health().breaker.probes_in_vain() {
        0 if server.is_connected() => Duration::ZERO,
        0 => FIRST.1.mul_f64(fastrand::f64()),
        in_vain => pause(0, in_vain),
    }
}

/// Returns a random pause below a bound that grows, so that replicas do not all come back at once.
#[must_use]
pub fn pause(probes: u32, in_vain: u32) -> Duration {
    let grown = match probes.checked_sub(AT_FIRST_PACE) {
        None => FIRST.1,
        Some(steps) => LATER.mul_f64(GROWTH.powi(steps.min(100) as i32)),
    };
    let in_vain = in_vain.checked_sub(1).map_or(Duration::ZERO, |doublings| {
        IN_VAIN * 2_u32.pow(doublings.min(2))
    });
    let longest = grown.max(in_vain).min(MAX_BACKOFF);
    let shortest = FIRST.0.max(longest / 3);
    shortest + (longest - shortest).mul_f64(fastrand::f64())
}

/// A call to a server whose caller waits until a deadline. It counts when it ends without an answer.
#[derive(Debug)]
pub struct Attempt<'a, S: Probed> {
    server: &'a S,
    deadline: Option<Deadline>,
    is_over: bool,
}

impl<'a, S: Probed> Attempt<'a, S> {
    /// Counts a call that begins now.
    pub fn new(server: &'a S, deadline: Option<Deadline>) -> Self {
        Self {
            server,
            deadline,
            is_over: false,
        }
    }

    /// Notes that the call has ended. `is_answered` says whether the server carried it out.
    pub fn end(mut self, is_answered: bool) {
        self.is_over = true;
        if let (true, Some(deadline)) = (is_answered, self.deadline) {
            let breaker = &self.server.health().breaker;
            breaker.check_answered(Some(deadline.timeout()));
        }
    }
}

impl<S: Probed> Drop for Attempt<'_, S> {
    /// Counts a call whose caller waited until its deadline. A caller that gives up before says
    /// nothing about the server.
    fn drop(&mut self) {
        if !self.is_over && self.deadline.is_some_and(Deadline::is_over) {
            self.server.missed(self.deadline);
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    const DEADLINE: Duration = Duration::from_millis(50);
    const NEAR: Duration = Duration::from_millis(1);
    const FAR: Duration = Duration::from_millis(70);

    /// The longest wait, by tokio's clock. It goes on while all tasks wait.
    const LIMIT: Duration = Duration::from_secs(60);

    /// Counts late checks until their deadline waits for a measurement.
    fn count_late(health: &Health) {
        while !health.breaker.late(DEADLINE) {}
    }

    /// Answers each probe, after a round trip that is too long.
    struct FarServer {
        health: Health,
        me: Weak<Self>,
    }

    impl FarServer {
        fn new() -> Arc<Self> {
            Arc::new_cyclic(|me| Self {
                health: Health::new("redis", "redis".to_owned()),
                me: Weak::clone(me),
            })
        }
    }

    impl Probed for FarServer {
        type Silent = ();

        fn health(&self) -> &Health {
            &self.health
        }

        fn weak(&self) -> Weak<Self> {
            Weak::clone(&self.me)
        }

        fn is_connected(&self) -> bool {
            true
        }

        async fn ping(&self) -> Result<Duration, Unanswered<()>> {
            Ok(FAR)
        }

        async fn listen(&self, _: &mut ()) -> Option<Duration> {
            std::future::pending().await
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_far_server_that_another_one_replaces_in_an_outage_is_measured_anew() {
        let server = FarServer::new();
        let health = &server.health;
        count_late(health);
        health.probe.ask(LATE);
        let running = health.probe.begin().expect("no task runs");
        let probe = Probe {
            server: server.weak(),
            running,
        };
        let probe = tokio::spawn(probe.run());
        let until_far = async {
            while !health.breaker.is_far() {
                sleep(NEAR).await;
            }
        };
        timeout(LIMIT, until_far).await.expect("it is too far");
        // The probe sees both at once.
        server.failed(&silent("redis"));
        health.master_changed();
        timeout(LIMIT, probe)
            .await
            .expect("the probe ends, because nothing is known of the new server")
            .expect("it does not panic");
        assert!(!health.breaker.is_open() && !health.breaker.is_far());
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_finds_the_server_far_already_lets_checks_through_again() {
        let health = Health::new("redis", "redis".to_owned());
        count_late(&health);
        assert_eq!(health.breaker.judge(FAR), Some(DEADLINE));
        let mut trips = Trips::default();
        for _ in 0..FITTING {
            assert!(health.breaker.is_far());
            trips.add(&health, NEAR);
        }
        assert!(!health.breaker.is_far());
    }

    /// Returns whether three checks with this timeout open the breaker, when the server is heard
    /// some time after they began and not again.
    async fn opens(timeout: Duration, heard_after: Duration) -> bool {
        let (health, deadline) = (
            Health::new("redis", "redis".to_owned()),
            Deadline::after(timeout),
        );
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
                least >= MAX_BACKOFF / 3 && most <= MAX_BACKOFF && most - least > MAX_BACKOFF / 2,
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
