//! The breaker and the queue behind it, in every order that two or three threads can take.
//!
//! The files are those of the library, on the atomics and locks of loom.

#![allow(dead_code, unreachable_pub, reason = "the library uses what is left over here")]

mod sync {
    pub(super) use loom::sync::{
        Mutex, MutexGuard,
        atomic::{AtomicU32, AtomicU64, Ordering},
    };
}

#[path = "../../crates/tollgate/src/redis/breaker.rs"]
mod breaker;
#[path = "../../crates/tollgate/src/redis/queue.rs"]
mod queue;

use breaker::Breaker;
use loom::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    thread,
};
use queue::{Dated, Queue, Refused};

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
