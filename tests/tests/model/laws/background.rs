use loom::{sync::Arc, thread};

use crate::runtime::Background;

const DUTY: u32 = 1;
const OTHER: u32 = 2;

/// Asks for a duty, and becomes the task if none runs. Returns whether it did.
fn ask(background: &Arc<Background>, duty: u32) -> thread::JoinHandle<bool> {
    let background = Arc::clone(background);
    thread::spawn(move || {
        background.ask(duty);
        let begun = background.begin();
        let has_begun = begun.is_some();
        // The task runs on.
        std::mem::forget(begun);
        has_begun
    })
}

#[test]
fn callers_that_meet_start_one_task() {
    loom::model(|| {
        let background = Arc::new(Background::new());
        let other = ask(&background, OTHER);
        background.ask(DUTY);
        let begun = background.begin();
        assert_ne!(begun.is_some(), other.join().expect("a thread"));
        assert!(background.has(DUTY | OTHER));
        std::mem::forget(begun);
    });
}

#[test]
fn a_duty_that_is_asked_for_while_the_task_ends_has_a_task() {
    loom::model(|| {
        let background = Arc::new(Background::new());
        background.ask(DUTY);
        let mut running = background.begin().expect("a task");
        running.take(DUTY);
        let other = ask(&background, DUTY);
        let has_ended = running.end();
        let has_started = other.join().expect("a thread");
        assert_eq!(
            has_ended, has_started,
            "the old task goes on, or the caller starts one"
        );
        if !has_ended {
            assert!(running.take(DUTY));
        }
    });
}

#[test]
fn what_a_caller_added_before_it_asked_is_seen_by_the_task_that_settles() {
    loom::model(|| {
        let background = Arc::new(Background::new());
        let wanted = Arc::new(loom::sync::atomic::AtomicBool::new(false));
        background.ask(DUTY);
        let mut running = background.begin().expect("a task");
        let adds = (Arc::clone(&background), Arc::clone(&wanted));
        let adding = thread::spawn(move || {
            adds.1.store(true, loom::sync::atomic::Ordering::Release);
            adds.0.ask(DUTY);
        });
        running.finish(DUTY, || wanted.load(loom::sync::atomic::Ordering::Acquire));
        adding.join().expect("a thread");
        assert!(background.has(DUTY) && !running.end(), "the duty remains");
    });
}

#[test]
fn a_task_that_was_shut_down_leaves_its_duties_to_the_next_caller() {
    loom::model(|| {
        let background = Arc::new(Background::new());
        background.ask(DUTY);
        let running = background.begin().expect("a task");
        let other = ask(&background, OTHER);
        drop(running);
        let mut has_started = other.join().expect("a thread");
        if !has_started {
            assert!(!background.has(0), "the next caller starts it");
            let begun = background.begin();
            has_started = begun.is_some();
            std::mem::forget(begun);
        }
        assert!(has_started && background.has(DUTY | OTHER));
    });
}
