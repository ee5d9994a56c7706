use std::time::Duration;

use loom::{sync::Arc, thread};

use crate::redis::server::Distance;

const DEADLINE: Duration = Duration::from_millis(50);
const LONG: Duration = Duration::from_millis(500);
const NEAR: Duration = Duration::from_millis(1);
const FAR: Duration = Duration::from_millis(70);

/// One late check more starts the probe.
const NEARLY: usize = 7;

fn nearly_suspect() -> Arc<Distance> {
    let distance = Arc::new(Distance::new());
    for _ in 0..NEARLY {
        assert!(!distance.late(DEADLINE));
    }
    distance
}

fn far() -> Arc<Distance> {
    let distance = nearly_suspect();
    assert!(distance.late(DEADLINE));
    assert_eq!(distance.judge(FAR), Some(DEADLINE));
    distance
}

fn late(distance: &Arc<Distance>) -> thread::JoinHandle<bool> {
    let distance = Arc::clone(distance);
    thread::spawn(move || distance.late(DEADLINE))
}

#[test]
fn late_checks_that_meet_start_one_probe_and_a_far_server_is_left() {
    loom::model(|| {
        let distance = nearly_suspect();
        let other = late(&distance);
        let started = [distance.late(DEADLINE), other.join().expect("a thread")];
        assert_eq!(started.into_iter().filter(|&is_started| is_started).count(), 1);
        assert!(!distance.is_too_short(DEADLINE), "nothing was measured yet");
        assert_eq!(distance.judge(FAR), Some(DEADLINE));
        assert!(distance.is_too_short(DEADLINE) && !distance.is_too_short(LONG));
    });
}

#[test]
fn a_check_that_is_refused_during_the_release_does_not_keep_it_from_a_punctual_server() {
    loom::model(|| {
        let distance = far();
        let refuses = Arc::clone(&distance);
        let refused = thread::spawn(move || refuses.is_too_short(DEADLINE));
        assert!(!distance.release(FAR), "it is as far as before");
        assert!(distance.is_too_short(DEADLINE));
        assert!(distance.release(NEAR));
        refused.join().expect("a thread");
        assert!(!distance.is_too_short(DEADLINE));
        assert!(distance.end(), "no deadline waits for a measurement");
        assert!(!distance.is_far());
    });
}

#[test]
fn a_deadline_that_becomes_suspect_while_the_probe_ends_has_a_probe() {
    loom::model(|| {
        let distance = far();
        assert!(distance.release(NEAR));
        for _ in 0..NEARLY {
            assert!(!distance.late(DEADLINE));
        }
        let other = late(&distance);
        let has_ended = distance.end();
        let has_started = other.join().expect("a thread");
        assert_eq!(has_ended, has_started, "the old probe goes on, or the late check starts one");
    });
}

#[test]
fn answers_in_time_outweigh_as_many_late_checks() {
    loom::model(|| {
        let distance = nearly_suspect();
        let answers = Arc::clone(&distance);
        let answering = thread::spawn(move || {
            answers.in_time(DEADLINE);
            answers.in_time(DEADLINE);
        });
        distance.in_time(LONG);
        answering.join().expect("a thread");
        assert!(!distance.late(DEADLINE) && !distance.late(DEADLINE), "two less, two more");
        assert!(distance.late(DEADLINE));
    });
}

#[test]
fn the_next_late_check_after_the_probe_was_shut_down_starts_another() {
    loom::model(|| {
        let distance = far();
        let shut_down = Arc::clone(&distance);
        let ending = thread::spawn(move || shut_down.abandon());
        let is_refused = distance.is_too_short(DEADLINE);
        ending.join().expect("a thread");
        assert!(!distance.is_too_short(DEADLINE), "refused before: {is_refused}");
        for _ in 0..NEARLY {
            assert!(!distance.late(DEADLINE));
        }
        assert!(distance.late(DEADLINE));
    });
}
