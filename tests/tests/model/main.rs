//! The breaker, the queue behind it and the memory of denials, in every order that two or three threads can take.
//!
//! The files are those of the library, on the atomics and locks of loom.

#![allow(dead_code, unreachable_pub, reason = "the library uses what is left over here")]

mod sync {
    pub(super) use loom::sync::{
        Mutex, MutexGuard,
        atomic::{AtomicU32, AtomicU64, Ordering, fence},
    };

    /// What the library takes from a crate.
    pub(super) struct ArcSwapOption<T>(Mutex<Option<std::sync::Arc<T>>>);

    impl<T> ArcSwapOption<T> {
        pub(super) fn empty() -> Self {
            Self(Mutex::new(None))
        }

        pub(super) fn load(&self) -> Option<std::sync::Arc<T>> {
            self.0.lock().expect("a lock").clone()
        }

        pub(super) fn store(&self, one: Option<std::sync::Arc<T>>) {
            *self.0.lock().expect("a lock") = one;
        }
    }
}

#[path = "../../crates/tollgate/src/redis/breaker.rs"]
mod breaker;
#[path = "../../crates/tollgate/src/redis/queue.rs"]
mod queue;
#[path = "../../crates/tollgate/src/redis/slots.rs"]
mod slots;

use breaker::Breaker;
use loom::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    thread,
};
use queue::{Dated, Queue, Refused};
use slots::Slots;

struct Job(u64);

impl Dated for Job {
    fn asked_after(&self) -> u64 {
        self.0
    }
}

fn missed(breaker: &Arc<Breaker>) -> thread::JoinHandle<bool> {
    let breaker = Arc::clone(breaker);
    thread::spawn(move || breaker.missed())
}

#[test]
fn two_misses_that_meet_open_it_once() {
    loom::model(|| {
        let breaker = Arc::new(Breaker::new());
        assert!(!breaker.missed());
        let others = [missed(&breaker), missed(&breaker)];
        let mut opened = u32::from(breaker.missed());
        for other in others {
            opened += u32::from(other.join().expect("a thread"));
        }
        assert_eq!(opened, 1, "one probe, of four misses");
        assert!(breaker.is_open());
        assert_eq!(breaker.openings(), 1);
    });
}

#[test]
fn a_miss_and_a_failure_that_meet_open_it_once() {
    loom::model(|| {
        let breaker = Arc::new(Breaker::new());
        let _ = (breaker.missed(), breaker.missed());
        let other = missed(&breaker);
        let opened = u32::from(breaker.open()) + u32::from(other.join().expect("a thread"));
        assert_eq!((opened, breaker.openings()), (1, 1));
    });
}

#[test]
fn an_answer_forgets_misses_and_never_closes_what_is_open() {
    loom::model(|| {
        let breaker = Arc::new(Breaker::new());
        let _ = (breaker.missed(), breaker.missed());
        let hears = Arc::clone(&breaker);
        let hearing = thread::spawn(move || hears.heard());
        let opened = breaker.missed();
        hearing.join().expect("a thread");
        assert_eq!(breaker.is_open(), opened, "the answer came first or too late");
    });
}

#[test]
fn a_probe_that_ends_closes_it_and_the_next_outage_has_its_own() {
    loom::model(|| {
        let breaker = Arc::new(Breaker::new());
        assert!(breaker.open());
        let late = missed(&breaker);
        breaker.close();
        assert!(!late.join().expect("a thread"), "one miss after it is closed opens nothing");
        assert!(!breaker.is_open());
        breaker.heard();
        assert_eq!([breaker.missed(), breaker.missed(), breaker.missed()], [false, false, true]);
        breaker.abandon();
        assert!(!breaker.is_open());
        assert!(breaker.missed(), "nobody probed, the next miss finds somebody");
        assert_eq!(breaker.openings(), 3);
    });
}

#[test]
fn nothing_stays_in_the_queue_of_a_server_that_is_not_asked() {
    loom::model(|| {
        let (breaker, queue) = (Arc::new(Breaker::new()), Arc::new(Queue::<Job>::new()));
        let (taken, refused) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let asking = {
            let (breaker, queue) = (Arc::clone(&breaker), Arc::clone(&queue));
            let (taken, refused) = (Arc::clone(&taken), Arc::clone(&refused));
            thread::spawn(move || match queue.push(&breaker, |_| true, Job) {
                Ok(_) => taken.fetch_add(1, Ordering::Relaxed),
                Err(error) => {
                    assert_eq!(error, Refused::Open);
                    refused.fetch_add(1, Ordering::Relaxed)
                }
            })
        };
        assert!(breaker.open());
        let openings = breaker.openings();
        let at_once = queue.lock().overtaken(openings).len();
        asking.join().expect("a thread");
        let left = queue.lock().jobs.len();
        assert_eq!(left, 0, "what came before was found, what came after was refused");
        assert_eq!(taken.load(Ordering::Relaxed) as usize, at_once);
        assert_eq!(taken.load(Ordering::Relaxed) + refused.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn what_is_asked_after_it_closed_is_not_let_go() {
    loom::model(|| {
        let (breaker, queue) = (Arc::new(Breaker::new()), Arc::new(Queue::<Job>::new()));
        assert!(queue.push(&breaker, |_| true, Job).is_ok());
        assert!(breaker.open());
        let openings = breaker.openings();
        let probing = {
            let (breaker, queue) = (Arc::clone(&breaker), Arc::clone(&queue));
            thread::spawn(move || {
                breaker.close();
                assert!(queue.push(&breaker, |_| true, Job).is_ok());
            })
        };
        // The task that serves the queue is late.
        assert_eq!(queue.lock().overtaken(openings).len(), 1);
        probing.join().expect("a thread");
        assert_eq!(queue.lock().jobs.len(), 1);
    });
}

/// A key that was denied, and until when.
type Denial = (&'static str, u32);

fn look(slots: &Slots<Denial>, hash: u64, key: &str) -> Option<u32> {
    slots.find(hash, |(of, until)| (*of == key).then_some(*until))
}

fn rank(held: Option<&Denial>) -> Option<u32> {
    held.map(|(_, until)| *until)
}

#[test]
fn what_was_asked_before_a_refund_is_not_remembered_after_it() {
    loom::model(|| {
        let slots = Arc::new(Slots::<Denial>::new(2));
        let before = slots.epoch(6);
        let denied = Arc::clone(&slots);
        let remembering = thread::spawn(move || denied.remember(6, before, ("acme", 9), rank));
        slots.forget(6, |(key, _)| *key == "acme");
        let after = slots.epoch(6);
        remembering.join().expect("a thread");
        assert_eq!(look(&slots, 6, "acme"), None, "units came back meanwhile");
        slots.remember(6, after, ("acme", 10), rank);
        assert_eq!(look(&slots, 6, "acme"), Some(10));
    });
}

#[test]
fn a_key_is_never_told_what_is_known_of_another() {
    loom::model(|| {
        // One hash, and so one mark, for all.
        let slots = Arc::new(Slots::<Denial>::new(2));
        let epoch = slots.epoch(7);
        let denied = Arc::clone(&slots);
        let remembering = thread::spawn(move || {
            denied.remember(7, epoch, ("acme", 1), rank);
            denied.remember(7, epoch, ("apex", 2), rank);
        });
        for (key, until) in [("acme", 1), ("apex", 2)] {
            assert!(look(&slots, 7, key).is_none_or(|told| told == until));
        }
        remembering.join().expect("a thread");
        assert_eq!([look(&slots, 7, "acme"), look(&slots, 7, "apex")], [Some(1), Some(2)]);
    });
}
