use std::time::{Duration, Instant};

use loom::{sync::Arc, thread};

use crate::server::Breaker;

const DEADLINE: Duration = Duration::from_millis(50);
const LONG: Duration = Duration::from_millis(500);
const NEAR: Duration = Duration::from_millis(1);
const FAR: Duration = Duration::from_millis(70);

/// One late check more asks for a measurement.
const NEARLY: usize = 7;

fn nearly_suspect() -> Arc<Breaker> {
    let breaker = Arc::new(Breaker::new(Instant::now()));
    for _ in 0..NEARLY {
        assert!(!breaker.late(DEADLINE));
    }
    breaker
}

fn far() -> Arc<Breaker> {
    let breaker = nearly_suspect();
    assert!(breaker.late(DEADLINE));
    assert_eq!(breaker.judge(FAR), Some(DEADLINE));
    breaker
}

fn late(breaker: &Arc<Breaker>) -> thread::JoinHandle<bool> {
    let breaker = Arc::clone(breaker);
    thread::spawn(move || breaker.late(DEADLINE))
}

#[test]
fn late_checks_that_meet_ask_for_a_measurement_and_a_far_server_is_left() {
    loom::model(|| {
        let breaker = nearly_suspect();
        let other = late(&breaker);
        let asked = [breaker.late(DEADLINE), other.join().expect("a thread")];
        assert!(asked.contains(&true));
        assert!(!breaker.is_too_short(DEADLINE), "nothing was measured yet");
        assert_eq!(breaker.judge(FAR), Some(DEADLINE));
        assert!(breaker.is_too_short(DEADLINE) && !breaker.is_too_short(LONG));
    });
}

#[test]
fn a_check_that_is_refused_during_the_release_does_not_keep_it_from_a_punctual_server() {
    loom::model(|| {
        let breaker = far();
        let refuses = Arc::clone(&breaker);
        let refused = thread::spawn(move || refuses.is_too_short(DEADLINE));
        assert!(!breaker.release(FAR), "it is as far as before");
        assert!(breaker.is_too_short(DEADLINE));
        assert!(breaker.release(NEAR));
        refused.join().expect("a thread");
        assert!(!breaker.is_too_short(DEADLINE));
        assert!(
            !breaker.has_suspect(),
            "no deadline waits for a measurement"
        );
        assert!(!breaker.is_far());
    });
}

#[test]
fn answers_in_time_outweigh_as_many_late_checks() {
    loom::model(|| {
        let breaker = nearly_suspect();
        let answers = Arc::clone(&breaker);
        let answering = thread::spawn(move || {
            answers.check_answered(Some(DEADLINE));
            answers.check_answered(Some(DEADLINE));
        });
        breaker.check_answered(Some(LONG));
        answering.join().expect("a thread");
        assert!(
            !breaker.late(DEADLINE) && !breaker.late(DEADLINE),
            "two less, two more"
        );
        assert!(breaker.late(DEADLINE));
    });
}

#[test]
fn the_next_late_checks_after_the_probe_was_shut_down_ask_for_a_measurement() {
    loom::model(|| {
        let breaker = far();
        let shut_down = Arc::clone(&breaker);
        let ending = thread::spawn(move || shut_down.abandon());
        let is_refused = breaker.is_too_short(DEADLINE);
        ending.join().expect("a thread");
        assert!(
            !breaker.is_too_short(DEADLINE),
            "refused before: {is_refused}"
        );
        for _ in 0..NEARLY {
            assert!(!breaker.late(DEADLINE));
        }
        assert!(breaker.late(DEADLINE));
    });
}
