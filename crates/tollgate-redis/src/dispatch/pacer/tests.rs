use std::collections::VecDeque;

use super::{
    rate::{FASTEST, RATE_RANK, REMEMBERED, SAMPLES},
    window::{DRAIN, PERIOD},
    *,
};

const CONNECTION: u64 = 1;

fn ms(ms: f64) -> Duration {
    Duration::from_secs_f64(ms / 1_000.0)
}

/// Returns a pacer of a server at this distance, and the time of its begin, in the middle of a
/// period.
fn pacer(round_trip: Duration) -> (Pacer, Instant) {
    let began = Instant::now();
    let mut pacer = Pacer::new(began);
    pacer.connected(
        CONNECTION,
        began,
        || PERIOD * 1_000 + PERIOD / 2,
        round_trip,
    );
    (pacer, began)
}

/// Sends a full batch, which is answered after a round trip.
fn answer(pacer: &mut Pacer, sent: Instant, round_trip: Duration) {
    let ticket = pacer.sent(sent, 64, 64);
    pacer.answered(sent + round_trip, ticket);
}

/// Returns whether a batch may leave behind so many under way, with so many keys in all.
fn may_leave(pacer: &Pacer, now: Instant, batches: usize, keys: usize) -> bool {
    let mut pacer = pacer.clone();
    (0..batches).for_each(|at| _ = pacer.sent(now, (keys + at) / batches, (keys + at) / batches));
    pacer.may_leave(now, 1)
}

fn window(pacer: &Pacer) -> &CongestionWindow {
    pacer.window.as_ref().expect("a connection")
}

#[test]
fn a_few_callers_send_their_checks_and_none_while_checks_are_queued() {
    let mut pacer = Pacer::new(Instant::now());
    assert!(!pacer.begins_direct(), "no worker rests yet");
    pacer.rests();
    (0..MOST_DIRECT).for_each(|_| assert!(pacer.begins_direct()));
    assert!(!pacer.begins_direct());
    pacer.ends_direct(true);
    assert!(pacer.begins_direct() && !pacer.begins_direct());
    pacer.queued();
    pacer.ends_direct(true);
    assert!(!pacer.begins_direct(), "checks are queued");
    while pacer.peak > MOST_DIRECT {
        _ = pacer.share(1);
    }
    pacer.rests();
    assert!(
        pacer.begins_direct() && !pacer.begins_direct(),
        "those that were sent before count"
    );
}

#[test]
fn callers_send_again_when_checks_were_few_for_a_while_and_fewer_if_some_are_under_way() {
    let (mut pacer, now) = pacer(ms(0.05));
    let first = pacer.sent(now, 1, 1);
    pacer.rests();
    pacer.queued();
    // One check waits and one is under way, time after time.
    let mut batches = 0;
    while !pacer.is_direct {
        _ = pacer.share(1);
        pacer.rests();
        batches += 1;
    }
    assert!((2..100).contains(&batches), "{batches}");
    pacer.queued();
    _ = pacer.share(100);
    while pacer.peak > MOST_DIRECT {
        pacer.rests();
        assert!(!pacer.is_direct, "many checks waited lately");
        _ = pacer.share(1);
    }
    pacer.rests();
    assert!(!pacer.is_direct, "one is under way");
    pacer.answered(now + ms(0.1), first);
    pacer.rests();
    assert!(pacer.is_direct);
    pacer.queued();
    _ = pacer.share(100);
    pacer.rests();
    assert!(!pacer.is_direct, "the callers of many pause together");
}

#[test]
fn four_full_batches_are_under_way_on_a_short_line_and_more_on_a_longer_one() {
    let (near, now) = pacer(ms(0.05));
    assert!(may_leave(&near, now, 3, 255) && !may_leave(&near, now, 5, 100));
    assert!(!may_leave(&near, now, 3, 288));
    let (far, now) = pacer(ms(20.0));
    assert!(may_leave(&far, now, 200, 12_800) && !may_leave(&far, now, 205, 300));
    assert!(!may_leave(&far, now, 100, 13_100));
    let mut unconnected = Pacer::new(now);
    _ = unconnected.sent(now, 10_000, 10_000);
    assert!(may_leave(&near, now, 0, 0) && unconnected.may_leave(now, 1));
}

#[test]
fn a_line_is_short_when_one_answer_was_soon() {
    let (mut pacer, began) = pacer(ms(1.0));
    assert_eq!(pacer.short_path(), None);
    pacer.measured(CONNECTION + 1, SHORT / 2);
    pacer.measured(CONNECTION, SHORT);
    assert_eq!(
        pacer.short_path(),
        None,
        "of another connection, or just too late"
    );
    pacer.measured(CONNECTION, SHORT / 2);
    pacer.measured(CONNECTION, ms(5.0));
    assert_eq!(pacer.short_path(), Some(CONNECTION));
    pacer.rests();
    assert!(pacer.begins_direct() && pacer.begins_direct());
    pacer.ends_direct(true);
    assert_eq!(pacer.short_path(), Some(CONNECTION));
    pacer.ends_direct(false);
    assert_eq!(
        pacer.short_path(),
        None,
        "a caller gave up: the path may have become longer"
    );
    pacer.measured(CONNECTION, ms(5.0));
    assert_eq!(pacer.short_path(), None, "it has");
    pacer.measured(CONNECTION, SHORT / 2);
    assert_eq!(pacer.short_path(), Some(CONNECTION));
    pacer.connected(CONNECTION + 1, began, || PERIOD, ms(1.0));
    assert_eq!(pacer.short_path(), None, "another path");
}

#[test]
fn few_checks_leave_together_on_a_short_line_in_two_batches() {
    let (near, now) = pacer(ms(0.05));
    assert!(may_leave(&near, now, 1, 8) && !may_leave(&near, now, 2, 16));
    // No check waits for more than a fraction of the path.
    let (farther, now) = pacer(ms(0.19));
    assert!(may_leave(&farther, now, 3, 3) && farther.is_together(64));
    assert!(!farther.is_together(65) && !pacer(ms(0.2)).0.is_together(1));
}

#[test]
fn a_batch_takes_all_of_few_checks_and_a_quarter_of_many() {
    let (mut near, now) = pacer(ms(0.05));
    assert_eq!(
        near.share(40),
        BatchLimit {
            keys: 40,
            checks: 20
        }
    );
    assert_eq!(
        near.share(64),
        BatchLimit {
            keys: 64,
            checks: 32
        }
    );
    _ = near.sent(now, 10, 10);
    assert_eq!(
        near.share(90),
        BatchLimit {
            keys: 25,
            checks: 50
        }
    );
    // Until the peak has fallen.
    assert_eq!(
        near.share(30),
        BatchLimit {
            keys: 10,
            checks: 20
        }
    );
    (0..10).for_each(|_| _ = near.share(30));
    assert_eq!(
        near.share(30),
        BatchLimit {
            keys: 40,
            checks: 20
        }
    );
    assert_eq!(pacer(ms(1.0)).0.share(8), BatchLimit { keys: 2, checks: 4 });
}

#[test]
fn late_answers_shrink_the_limit_once_in_a_round_trip_and_others_let_it_grow_again() {
    let (mut pacer, began) = pacer(ms(5.0));
    let before = window(&pacer).keys;
    answer(&mut pacer, began, ms(15.0));
    let once = window(&pacer).keys;
    assert!(once < before);
    // These left before the limit was set.
    (1..10).for_each(|at| answer(&mut pacer, began + ms(f64::from(at)), ms(15.0)));
    assert!(
        (window(&pacer).keys - once).abs() < 1.0,
        "{} and {once}",
        window(&pacer).keys
    );
    answer(&mut pacer, began + ms(20.0), ms(15.0));
    let twice = window(&pacer).keys;
    assert!(twice < once);
    let large = pacer.sent(began, 100_000, 100_000);
    assert!(!pacer.may_leave(began, 1));
    pacer.answered(began + ms(40.0), large);
    (41..60).for_each(|at| answer(&mut pacer, began + ms(f64::from(at)), ms(5.0)));
    assert!(window(&pacer).keys > twice);
}

#[test]
fn a_lag_of_the_process_is_no_delay_of_the_server() {
    let limit_after = |lag| {
        let (mut pacer, began) = pacer(ms(5.0));
        (0..20).for_each(|_| pacer.lagged(lag));
        answer(&mut pacer, began, ms(12.0));
        window(&pacer).keys
    };
    assert!(limit_after(ms(6.0)) > limit_after(Duration::ZERO));
}

#[test]
fn a_line_that_became_longer_is_measured_after_a_period_of_late_answers() {
    let (mut pacer, began) = pacer(ms(1.0));
    let mut at = began;
    while at < began + PERIOD * 3 {
        answer(&mut pacer, at, ms(40.0));
        at += ms(41.0);
    }
    assert_eq!(window(&pacer).min_round_trip, ms(40.0));
    // As many batches as the window allows leave in each round trip.
    for _ in 0..10 {
        let mut tickets = Vec::new();
        while pacer.may_leave(at, 1_000) {
            tickets.push(pacer.sent(at, 64, 64));
        }
        tickets
            .into_iter()
            .for_each(|ticket| pacer.answered(at + ms(40.0), ticket));
        at += ms(41.0);
    }
    assert!(may_leave(&pacer, at, 100, 2_000), "{pacer:?}");
}

#[test]
fn a_measurement_holds_batches_back_until_the_line_is_drained_and_no_longer() {
    let (mut pacer, mut at) = pacer(ms(1.0));
    // The pacer begins in the middle of a period.
    let period_ends = at + PERIOD / 2;
    while window(&pacer).drains_since.is_none() {
        answer(&mut pacer, at, ms(40.0));
        at += ms(41.0);
    }
    let began = window(&pacer).drains_since.expect("a measurement");
    assert!(
        began >= period_ends && began < period_ends + ms(41.0),
        "by the clock of all processes"
    );
    assert!(!may_leave(&pacer, began + DRAIN - ms(0.1), 1, 64));
    assert!(
        may_leave(&pacer, began, 0, 0),
        "one batch leaves in any case"
    );
    assert!(may_leave(&pacer, began + DRAIN, 3, 192));
    // A batch from before says nothing about the drained path.
    answer(&mut pacer, began + ms(1.0), DRAIN + ms(40.0));
    assert_eq!(window(&pacer).min_round_trip, ms(1.0));
    answer(&mut pacer, began + DRAIN, ms(42.0));
    assert_eq!(window(&pacer).min_round_trip, ms(42.0));
}

#[test]
fn another_connection_is_measured_anew_and_answers_on_the_old_one_say_nothing_about_it() {
    let (mut pacer, began) = pacer(ms(1.0));
    let old = pacer.sent(began, 64, 64);
    pacer.connected(CONNECTION + 1, began, || Duration::ZERO, ms(5.0));
    pacer.answered(began + ms(0.5), old);
    assert_eq!(
        (
            window(&pacer).min_round_trip,
            pacer.batches,
            pacer.keys,
            pacer.checks
        ),
        (ms(5.0), 0, 0, 0)
    );
    pacer.connected(CONNECTION + 1, began, || Duration::ZERO, ms(1.0));
    assert_eq!(
        window(&pacer).min_round_trip,
        ms(5.0),
        "it is the same connection"
    );
}

#[test]
fn a_new_connection_and_a_new_worker_begin_with_nothing_measured_and_nothing_under_way() {
    let (mut pacer, began) = pacer(ms(0.05));
    (0..SAMPLES).for_each(|_| _ = pacer.sent(began, 100, 100));
    assert!(!pacer.may_leave(began, 1));
    pacer.forget_sent();
    assert!(pacer.may_leave(began, 1) && pacer.share(4) == BatchLimit { keys: 4, checks: 2 });
    pacer.rate.checks = 10.0;
    pacer.connected(CONNECTION + 1, began, || Duration::ZERO, ms(0.05));
    assert!((pacer.rate.checks - FASTEST).abs() < 1e-9);
}

#[test]
fn a_check_is_admitted_if_its_answer_comes_in_time_and_a_crowd_fills_half_of_the_wait() {
    let ((mut far, _), (mut pacer, now)) = (pacer(ms(20.0)), pacer(Duration::ZERO));
    // Each check takes 0.1 ms, or an eighth if the rate falls, and 40 of 50 ms may pass.
    pacer.rate.checks = 10.0;
    assert_eq!(pacer.round_trip(), ms(1.0));
    let admits = |pacer: &mut Pacer, timeout, waiting, of_key| {
        pacer.admits(ms(timeout), waiting, of_key).is_ok()
    };
    assert_eq!(
        [319, 320, 321].map(|waiting| admits(&mut pacer, 50.0, waiting, 0)),
        [true, true, false]
    );
    assert_eq!(
        [160, 161].map(|waiting| admits(&mut pacer, 50.0, waiting, 60)),
        [true, false]
    );
    assert!(
        admits(&mut pacer, 50.0, 161, 39),
        "less than a quarter is no crowd"
    );
    assert!(
        admits(&mut pacer, 1_000.0, 321, 321) && admits(&mut pacer, 2.0, 31, 31),
        "there is time, or few wait"
    );
    assert!(
        admits(&mut pacer, 1.0, 5_000, 5_000),
        "no check with this timeout can be answered: the server is too far"
    );
    assert_eq!(pacer.admits(ms(50.0), 1_000, 0), Err(ms(125.0)));
    _ = pacer.sent(now, 1, 100);
    assert_eq!(
        [220, 221].map(|waiting| admits(&mut pacer, 50.0, waiting, 0)),
        [true, false],
        "those under way come before"
    );
    assert!(admits(&mut far, 50.0, 1_000, 1_000), "distance is no crowd");
}

#[test]
fn a_stall_in_the_first_samples_is_not_slowness() {
    for stalled in 0..RATE_RANK + 1 {
        let (mut pacer, mut at) = pacer(ms(0.1));
        let mut answers = |after: f64| {
            let ticket = pacer.sent(at, 1, 100);
            at += ms(after);
            pacer.answered(at, ticket);
        };
        // The first sample may have begun before checks waited.
        answers(5.0);
        for sample in 0..RATE_RANK + 1 {
            answers(if sample == stalled { 1_000.0 } else { 5.0 });
        }
        // A long stall makes the answers behind it look as if they were in time.
        assert!(pacer.rate.checks > 19.9, "{pacer:?}");
    }
}

#[test]
fn the_wait_follows_the_speed_of_the_server_and_a_stall_is_not_slowness() {
    let (mut pacer, began) = pacer(ms(0.1));
    let mut at = began;
    let mut answers = |pacer: &mut Pacer, after: f64| {
        let ticket = pacer.sent(at, 1, 100);
        at += ms(after);
        pacer.answered(at, ticket);
    };
    let is = |pacer: &Pacer, rate: f64| {
        let measured = pacer.rate.checks;
        assert!((measured - rate).abs() < 1e-9, "{measured}, not {rate}");
    };
    // The first sample may have begun before checks waited.
    (0..RATE_RANK + 1).for_each(|_| answers(&mut pacer, 5.0));
    is(&pacer, FASTEST);
    // 100 checks in 5 ms, but for one stall.
    answers(&mut pacer, 5.0);
    is(&pacer, 20.0);
    answers(&mut pacer, 20.0);
    answers(&mut pacer, 5.0);
    is(&pacer, 20.0);
    // Of a server that became slower, two fast samples of eight do not count.
    (0..SAMPLES + 1).for_each(|_| answers(&mut pacer, 5.0));
    (0..SAMPLES - 3).for_each(|_| answers(&mut pacer, 10.0));
    is(&pacer, 20.0);
    answers(&mut pacer, 10.0);
    is(&pacer, 10.0);
    (0..2).for_each(|_| answers(&mut pacer, 10.0));
    // While nothing waits, the rate is that of the callers.
    (0..SAMPLES).for_each(|_| {
        pacer.rests();
        answers(&mut pacer, 50.0);
    });
    is(&pacer, 10.0);
    // It may show that the server is faster.
    (0..2 * SAMPLES).for_each(|_| {
        pacer.rests();
        answers(&mut pacer, 2.5);
    });
    is(&pacer, 40.0);
    // Where checks are refused while none waits, it was not that of the server.
    assert!(pacer.admits(ms(50.0), 10_000, 0).is_err());
    answers(&mut pacer, 2.5);
    pacer.rests();
    is(&pacer, 40.0);
    assert!(pacer.admits(ms(50.0), 10_000, 0).is_err());
    pacer.rests();
    is(&pacer, FASTEST);
    // The server may have become faster still.
    (0..3 * SAMPLES).for_each(|_| answers(&mut pacer, 5.0));
    is(&pacer, 20.0);
    pacer.rests();
    answers(&mut pacer, REMEMBERED.as_secs_f64() * 1_000.0 + 1.0);
    is(&pacer, FASTEST);
}

/// A server at the end of a network path, and what it does with checks that are offered. Time passes in steps
/// of 0.1 ms.
struct Simulation {
    path: Duration,
    pacer: Pacer,
    now: Instant,
    waiting: VecDeque<Instant>,
    /// The batches, with the checks that the server has not decided.
    sent: VecDeque<(Ticket, usize, Vec<Instant>)>,
    counts: Counts,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    in_time: usize,
    late: usize,
    refused: usize,
}

impl Simulation {
    const TIMEOUT: Duration = Duration::from_millis(50);

    fn new(path: Duration) -> Self {
        let (pacer, now) = pacer(path);
        Self {
            path,
            pacer,
            now,
            waiting: VecDeque::new(),
            sent: VecDeque::new(),
            counts: Counts::default(),
        }
    }

    /// Offers so many checks in each step for half a second.
    fn offers(&mut self, checks: usize, decided: usize) -> Counts {
        self.counts = Counts::default();
        (0..5_000).for_each(|_| _ = self.step(checks, decided));
        self.counts
    }

    /// Lets so many more callers ask again and again for half a second.
    fn callers(&mut self, mut free: usize, decided: usize) -> Counts {
        self.counts = Counts::default();
        for _ in 0..5_000 {
            free = self.step(free, decided);
        }
        self.counts
    }

    /// Offers so many checks, of which the server decides some. Returns how many were answered.
    fn step(&mut self, offered: usize, decided: usize) -> usize {
        self.now += ms(0.1);
        let mut answered = 0;
        for _ in 0..offered {
            match self.pacer.admits(Self::TIMEOUT, self.waiting.len(), 0) {
                Ok(()) => self.waiting.push_back(self.now),
                Err(_) => answered += 1,
            }
        }
        self.counts.refused += answered;
        while !self.waiting.is_empty() && self.pacer.may_leave(self.now, self.waiting.len()) {
            let most = self.pacer.share(self.waiting.len()).keys.min(64);
            let batch: Vec<_> = (self.waiting.drain(..most.min(self.waiting.len()))).collect();
            let ticket = self.pacer.sent(self.now, batch.len(), batch.len());
            self.sent.push_back((ticket, batch.len(), batch));
        }
        let mut left = decided;
        for (_, undecided, _) in &mut self.sent {
            let decided = left.min(*undecided);
            (*undecided, left) = (*undecided - decided, left - decided);
        }
        while let Some((ticket, 0, batch)) = self.sent.front()
            && self.now >= ticket.sent + self.path
        {
            let late = |queued: &&Instant| self.now - **queued > Self::TIMEOUT;
            let late = batch.iter().filter(late).count();
            self.counts.late += late;
            self.counts.in_time += batch.len() - late;
            answered += batch.len();
            self.pacer.answered(self.now, *ticket);
            self.sent.pop_front();
        }
        if self.waiting.is_empty() {
            self.pacer.rests();
        }
        answered
    }
}

#[test]
fn a_load_above_the_capacity_is_answered_in_time_or_refused_at_once() {
    let mut simulation = Simulation::new(ms(0.1));
    // The first time, the rate has to be measured.
    let first = simulation.offers(15, 3);
    assert!(first.late < 3_000 && first.in_time > 12_000, "{first:?}");
    // Below the capacity, it is remembered.
    let below = simulation.offers(1, 3);
    assert_eq!(below.late, 0, "{below:?}");
    let second = simulation.offers(15, 3);
    assert!(second.late == 0 && second.in_time > 14_900, "{second:?}");
    // The server may have become faster.
    let faster = simulation.offers(60, 12);
    assert!(faster.late == 0 && faster.in_time > 59_000, "{faster:?}");
}

#[test]
fn callers_that_wait_for_the_line_and_not_for_the_server_are_not_refused() {
    for path in [1.0, 5.0, 20.0] {
        let mut simulation = Simulation::new(ms(path));
        for more in [64, 256, 1_024, 4_096] {
            let counts = simulation.callers(more, 30);
            assert_eq!(counts.refused, 0, "{path} ms, {more} more: {counts:?}");
            assert!(counts.late < counts.in_time / 100, "{counts:?}");
        }
    }
}

#[test]
fn on_a_longer_line_the_rate_is_forgotten_between_two_waves() {
    let (mut pacer, mut at) = pacer(ms(5.0));
    for _ in 0..RATE_RANK + 2 {
        let ticket = pacer.sent(at, 1, 100);
        at += ms(15.0);
        pacer.answered(at, ticket);
    }
    assert!(pacer.rate.checks < FASTEST, "{pacer:?}");
    pacer.rests();
    assert!((pacer.rate.checks - FASTEST).abs() < 1e-9, "{pacer:?}");
}
