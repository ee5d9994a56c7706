//! Rows: permits whose replicas are killed or stopped, whose server goes away, whose clocks are
//! wrong, or whose limit is lowered.

use std::{
    process::Command,
    thread,
    time::{Duration, Instant},
};

use tollgate_test_support::permits::{
    AFTER, AT_ONCE, LoweredLimit, OlderCopy, SharedPermits, last_above, most_at_once,
    most_held_while, now_us, run_permit_worker,
};
use tollgate_tests::{RedisServer, WallClock, wait};

use crate::{
    findings::Findings,
    load::{PATIENT, millis, part},
    pace::Pace,
};

/// The word that makes this program one of the replicas.
pub(crate) const REPLICA: &str = "permits";

/// The time by which clocks jump: longer than every life.
const JUMP: Duration = Duration::from_secs(3_600);

/// Runs one of the replicas.
pub(crate) fn replica(url: &str) {
    run_permit_worker(url);
}

fn life(pace: Pace) -> Duration {
    pace.of(Duration::from_secs(2), Duration::from_secs(1))
}

/// Returns a command that runs [`replica`].
fn program(server: &RedisServer) -> Command {
    part(REPLICA, &server.url_at(server.addr()))
}

/// Starts replicas at a server, with another wall clock if there is one.
fn start(
    server: &RedisServer,
    life: Duration,
    is_exact: bool,
    clock: Option<&WallClock>,
) -> SharedPermits {
    let at_clock = || {
        let mut command = program(server);
        command.envs(clock.into_iter().flat_map(WallClock::variables));
        command
    };
    SharedPermits::start(at_clock, life, is_exact)
}

/// The worst figures of rounds in which the others get the permits of the first replica.
#[derive(Default)]
struct TakenOver {
    /// The pieces of work that were cancelled before a permit was taken over.
    cancelled: usize,
    held: u32,
    at_once: usize,
    free_after: Duration,
    keys: (u64, u64),
}

impl TakenOver {
    /// Disturbs the first replica until the others work with its permits.
    fn round(
        &mut self,
        server: &RedisServer,
        mut shared: SharedPermits,
        disturb: impl FnOnce(&mut SharedPermits),
        after: impl FnOnce(&SharedPermits),
    ) {
        let held = most_held_while(server, || {
            disturb(&mut shared);
            let began = Instant::now();
            wait::until("the others to work with all permits", PATIENT, || {
                shared.others_at_work() >= AT_ONCE
            });
            self.free_after = self.free_after.max(began.elapsed());
            after(&shared);
            self.at_once = self.at_once.max(most_at_once(&shared.end()));
        });
        self.held = self.held.max(held);
        self.keys = sum(self.keys, server.keys_and_expires());
    }

    /// The work is cancelled with its permit, so no number exceeds the limit.
    fn findings(&self, life: Duration) -> Findings {
        let (mut findings, limit) = (Findings::default(), AT_ONCE as f64);
        findings
            .count(format!("permits held, of {limit}, most"), self.held.into())
            .at_most(limit);
        findings
            .count(
                format!("in progress, of {limit}, most"),
                self.at_once as f64,
            )
            .at_most(limit);
        let after = millis(self.free_after.saturating_sub(life));
        findings
            .ms("free again, after the life of the permits", after)
            .at_most(1000.0);
        findings.keys(self.keys);
        findings
    }
}

/// The worst figures of rounds in which the server loses the permits that the replicas hold.
#[derive(Default)]
struct Forgotten {
    at_once: usize,
    above_for: Duration,
    keys: (u64, u64),
}

impl Forgotten {
    /// Lets the server lose its state, and waits for the life of the permits.
    fn round(
        &mut self,
        server: &RedisServer,
        shared: SharedPermits,
        life: Duration,
        forget: impl FnOnce(),
    ) {
        forget();
        let (began, began_us) = (Instant::now(), now_us());
        wait::until("the permits to be renewed or lost", PATIENT, || {
            began.elapsed() > life && shared.at_work().iter().sum::<usize>() == AT_ONCE
        });
        let spans = shared.end();
        self.at_once = self.at_once.max(most_at_once(&spans));
        let above_us =
            last_above(&spans, AT_ONCE).map_or(0, |last_us| last_us.saturating_sub(began_us));
        self.above_for = self.above_for.max(Duration::from_micros(above_us));
        self.keys = sum(self.keys, server.keys_and_expires());
    }

    /// The permits that the server has lost are counted again, or lost, with the next renewal:
    /// after a third of their life.
    fn report(&self, what: &str, findings: &mut Findings, life: Duration) {
        let limit = AT_ONCE as f64;
        let asked = format!("{what}: in progress, of {limit}, most");
        findings
            .count(asked, self.at_once as f64)
            .at_most(2.0 * limit);
        let asked = format!("{what}: more than {limit} in progress for");
        findings
            .ms(asked, millis(self.above_for))
            .at_most(millis(life / 2));
        findings.keys(self.keys);
    }
}

fn sum(one: (u64, u64), other: (u64, u64)) -> (u64, u64) {
    (one.0 + other.0, one.1 + other.1)
}

/// Runs rounds for an exact limit and for a pooled one, on a thread that may block.
async fn rounds<F: Default + Send + 'static>(
    pace: Pace,
    mut round: impl FnMut(&mut F, bool) + Send + 'static,
) -> F {
    let all = move || {
        let mut figures = F::default();
        for _ in 0..pace.of(5, 1) {
            for is_exact in [true, false] {
                round(&mut figures, is_exact);
            }
        }
        figures
    };
    tokio::task::spawn_blocking(all)
        .await
        .expect("the rounds end")
}

pub(super) async fn killed(pace: Pace) -> Findings {
    let life = life(pace);
    let round = move |figures: &mut TakenOver, is_exact| {
        let server = RedisServer::start();
        figures.round(
            &server,
            start(&server, life, is_exact, None),
            SharedPermits::kill_first,
            |_| {},
        );
    };
    rounds(pace, round).await.findings(life)
}

pub(super) async fn stopped(pace: Pace) -> Findings {
    let life = life(pace);
    let round = move |figures: &mut TakenOver, is_exact| {
        let server = RedisServer::start();
        let resume = |shared: &SharedPermits| {
            shared.resume_first();
            wait::until("the first to cancel its work", PATIENT, || {
                shared.cancelled()[0] >= AT_ONCE / 2
            });
        };
        figures.round(
            &server,
            start(&server, life, is_exact, None),
            |shared| shared.stop_first(),
            resume,
        );
    };
    rounds(pace, round).await.findings(life)
}

pub(super) async fn away(pace: Pace) -> Findings {
    let mut findings = Findings::default();
    let life = life(pace);
    let round = move |figures: &mut Forgotten, is_exact| {
        let server = RedisServer::start();
        let shared = start(&server, life, is_exact, None);
        figures.round(&server, shared, life, || {
            server.kill();
            server.restart();
        });
    };
    rounds(pace, round)
        .await
        .report("for a moment", &mut findings, life);

    let round = move |figures: &mut (usize, u64, Duration), is_exact| {
        let server = RedisServer::start();
        let shared = start(&server, life, is_exact, None);
        let away_us = now_us();
        server.kill();
        wait::until("all work to be cancelled", PATIENT, || {
            shared.at_work() == [0; 3]
        });
        server.restart();
        let (back, back_us) = (Instant::now(), now_us());
        wait::until("all permits to be in use", PATIENT, || {
            shared.at_work().iter().sum::<usize>() >= AT_ONCE
        });
        let spans = shared.end();
        figures.0 = figures.0.max(most_at_once(&spans));
        let last_us = spans
            .iter()
            .filter(|span| span.from_us < back_us)
            .map(|span| span.to_us)
            .max()
            .unwrap_or_default();
        figures.1 = figures.1.max(last_us.saturating_sub(away_us));
        figures.2 = figures.2.max(back.elapsed());
    };
    let (at_once, went_on_us, back) = rounds(pace, round).await;
    let (limit, ms) = (AT_ONCE as f64, millis(life));
    let asked = format!("longer than a life: in progress, of {limit}, most");
    findings.count(asked, at_once as f64).at_most(limit);
    let went_on = millis(Duration::from_micros(went_on_us));
    findings
        .ms("the same: work goes on without the server for", went_on)
        .at_most(ms);
    findings
        .ms(
            "the same: from its first answer until all are in use",
            millis(back),
        )
        .at_most(1500.0);
    findings
}

pub(super) async fn server_clock(pace: Pace) -> Findings {
    let life = life(pace);
    let round = move |figures: &mut TakenOver, is_exact| {
        let clock = WallClock::new();
        let server = RedisServer::builder().clock(&clock).start();
        let disturb = |shared: &mut SharedPermits| {
            clock.back(JUMP);
            shared.kill_first();
        };
        figures.round(
            &server,
            start(&server, life, is_exact, None),
            disturb,
            |_| {},
        );
    };
    let mut findings = rounds(pace, round).await.findings(life);
    let round = move |figures: &mut Forgotten, is_exact| {
        let clock = WallClock::new();
        let server = RedisServer::builder().clock(&clock).start();
        let shared = start(&server, life, is_exact, None);
        figures.round(&server, shared, life, || clock.forward(JUMP));
    };
    rounds(pace, round)
        .await
        .report("forward", &mut findings, life);
    findings
}

pub(super) async fn replica_clocks(pace: Pace) -> Findings {
    let life = life(pace);
    let round = move |figures: &mut TakenOver, is_exact| {
        let (server, clock) = (RedisServer::start(), WallClock::new());
        let mut cancelled = 0;
        let disturb = |shared: &mut SharedPermits| {
            clock.forward(JUMP);
            // The work goes on meanwhile, and looks at its permit each 5 ms.
            thread::sleep(life / 4);
            cancelled = shared.cancelled().iter().sum();
            shared.kill_first();
            clock.back(2 * JUMP);
        };
        figures.round(
            &server,
            start(&server, life, is_exact, Some(&clock)),
            disturb,
            |_| {},
        );
        figures.cancelled += cancelled;
    };
    let figures = rounds(pace, round).await;
    let mut findings = figures.findings(life);
    findings
        .count(
            "work cancelled by a jump of an hour",
            figures.cancelled as f64,
        )
        .at_most(0.0);
    findings
}

pub(super) async fn lowered(pace: Pace) -> Findings {
    let life = life(pace);
    let round = move |figures: &mut (usize, Duration), is_exact| {
        let server = RedisServer::start();
        let lowered = LoweredLimit::run(&server, || program(&server), life, is_exact);
        figures.0 += lowered.begun_above;
        figures.1 = figures.1.max(lowered.kept_after);
    };
    let (begun_above, kept_after) = rounds(pace, round).await;
    let mut findings = Findings::default();
    let asked = format!("until no more than {AFTER} are in progress");
    // A renewal is a third of a life away at most. The work takes 30 ms.
    findings
        .ms(asked, millis(kept_after))
        .at_most((millis(life / 3) + 150.0).ceil());
    let asked = format!("begun after that while {AFTER} were in progress");
    findings.count(asked, begun_above as f64).at_most(0.0);
    findings
}

pub(super) async fn older_copy(pace: Pace) -> Findings {
    let life = life(pace);
    let (mut lost, mut held, mut counted_after) = (0, 0, Duration::ZERO);
    for _ in 0..pace.of(5, 1) {
        for is_exact in [true, false] {
            let after = OlderCopy::take_over(life, is_exact).await;
            (lost, held) = (lost + after.lost, held.max(after.most_held));
            counted_after = counted_after.max(after.counted_after);
        }
    }
    let mut findings = Findings::default();
    findings
        .count("permits lost though they fit", lost as f64)
        .at_most(0.0);
    findings
        .count("permits held, of 5, most", held.into())
        .at_most(5.0);
    let asked = "until all are counted again, after a third of a life";
    let after = millis(counted_after.saturating_sub(life / 3));
    findings.ms(asked, after).at_most(500.0);
    findings
}
