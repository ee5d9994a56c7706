use std::time::Instant;

use loom::{sync::Arc, thread};

use crate::{runtime::Background, server::Breaker};

fn missed(breaker: &Arc<Breaker>) -> thread::JoinHandle<bool> {
    let breaker = Arc::clone(breaker);
    thread::spawn(move || breaker.missed())
}

#[test]
fn two_misses_that_meet_open_it_once() {
    loom::model(|| {
        let breaker = Arc::new(Breaker::new(Instant::now()));
        assert!(!breaker.missed());
        let others = [missed(&breaker), missed(&breaker)];
        let mut opened = u32::from(breaker.missed());
        for other in others {
            opened += u32::from(other.join().expect("a thread"));
        }
        assert_eq!(opened, 1, "one probe, of four misses");
        assert!(breaker.is_open());
        assert_eq!(breaker.epoch(), 1);
    });
}

#[test]
fn a_miss_and_a_failure_that_meet_open_it_once() {
    loom::model(|| {
        let breaker = Arc::new(Breaker::new(Instant::now()));
        let _ = (breaker.missed(), breaker.missed());
        let other = missed(&breaker);
        let opened = u32::from(breaker.open()) + u32::from(other.join().expect("a thread"));
        assert_eq!((opened, breaker.epoch()), (1, 1));
    });
}

#[test]
fn an_answer_forgets_misses_and_never_closes_what_is_open() {
    loom::model(|| {
        let breaker = Arc::new(Breaker::new(Instant::now()));
        let _ = (breaker.missed(), breaker.missed());
        let hears = Arc::clone(&breaker);
        let hearing = thread::spawn(move || hears.heard(Instant::now()));
        let opened = breaker.missed();
        hearing.join().expect("a thread");
        assert_eq!(
            breaker.is_open(),
            opened,
            "the answer came first or too late"
        );
    });
}

#[test]
fn an_answered_check_lets_the_next_outage_be_probed_at_the_first_pace() {
    loom::model(|| {
        let breaker = Arc::new(Breaker::new(Instant::now()));
        for in_vain in 0..2 {
            assert_eq!(breaker.probes_in_vain(), in_vain);
            assert!(breaker.open());
            breaker.close();
        }
        let answers = Arc::clone(&breaker);
        let answering = thread::spawn(move || answers.check_answered(None));
        let is_open = breaker.open();
        answering.join().expect("a thread");
        assert!(
            is_open && breaker.is_open(),
            "an answer to a check closes nothing"
        );
        assert_eq!(breaker.probes_in_vain(), 0);
    });
}

#[test]
fn a_probe_that_ends_closes_it_and_the_next_outage_has_its_own() {
    loom::model(|| {
        let breaker = Arc::new(Breaker::new(Instant::now()));
        assert!(breaker.open());
        let late = missed(&breaker);
        breaker.close();
        assert!(
            !late.join().expect("a thread"),
            "one miss after it is closed opens nothing"
        );
        assert!(!breaker.is_open());
        breaker.heard(Instant::now());
        assert_eq!(
            [breaker.missed(), breaker.missed(), breaker.missed()],
            [false, false, true]
        );
        breaker.abandon();
        assert!(!breaker.is_open());
        assert!(
            breaker.missed(),
            "nobody probed, the next miss finds somebody"
        );
        assert_eq!(breaker.epoch(), 3);
    });
}

const OPENED: u32 = 1;
const LATE: u32 = 2;

/// Asks for the probe, and becomes it if none runs. Returns whether it did.
fn probe(background: &Background, duty: u32) -> bool {
    background.ask(duty);
    let begun = background.begin();
    let has_begun = begun.is_some();
    // The probe goes on.
    std::mem::forget(begun);
    has_begun
}

#[test]
fn what_happens_while_the_probe_ends_has_a_probe() {
    loom::model(|| {
        let (breaker, background) = (
            Arc::new(Breaker::new(Instant::now())),
            Arc::new(Background::new()),
        );
        let deadline = std::time::Duration::from_millis(50);
        let suspect = (0..8).fold(false, |_, _| breaker.late(deadline));
        assert_eq!((suspect, breaker.judge(deadline / 2)), (true, None));
        background.ask(LATE);
        let mut running = background.begin().expect("a probe");
        let (opens, asks) = (Arc::clone(&breaker), Arc::clone(&background));
        let opening = thread::spawn(move || opens.open() && probe(&asks, OPENED));
        running.take(OPENED | LATE);
        let is_open = breaker.is_open();
        let has_ended = !is_open && running.end();
        assert_eq!(
            has_ended,
            opening.join().expect("a thread"),
            "the old probe sees it, or the caller starts one"
        );
        assert!(breaker.is_open() && background.has(0));
        std::mem::forget(running);
    });
}

#[test]
fn a_breaker_that_opens_while_the_probe_is_shut_down_is_not_open_for_ever() {
    loom::model(|| {
        let (breaker, background) = (
            Arc::new(Breaker::new(Instant::now())),
            Arc::new(Background::new()),
        );
        background.ask(LATE);
        let mut running = background.begin().expect("a probe");
        let (opens, asks) = (Arc::clone(&breaker), Arc::clone(&background));
        let opening = thread::spawn(move || opens.open() && probe(&asks, OPENED));
        running.stop();
        breaker.abandon();
        let has_started = opening.join().expect("a thread");
        assert!(has_started || !breaker.is_open(), "nobody probes");
    });
}
