use std::time::Instant;

use loom::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    thread,
};

use crate::{
    pacer::Pacer,
    queue::{Queue, Queued},
    server::Breaker,
};

struct Check(u64);

impl Queued for Check {
    fn breaker_epoch(&self) -> u64 {
        self.0
    }

    fn key_hash(&self) -> u64 {
        0
    }
}

/// Adds a check. Returns whether the breaker let it in.
fn push(queue: &Queue<Check>, breaker: &Breaker) -> bool {
    let entered = queue.enter(breaker);
    entered
        .map(|(mut waiting, epoch)| waiting.push_back(Check(epoch)))
        .is_some()
}

/// Asserts that the queue has counted the checks that wait.
fn assert_counted(queue: &Queue<Check>, expected: usize) {
    let waiting = queue.lock();
    assert_eq!(
        (waiting.len(), waiting.waiting_of_key(0)),
        (expected, expected)
    );
}

#[test]
fn no_check_stays_in_the_queue_while_the_breaker_is_open() {
    loom::model(|| {
        let (breaker, queue) = (
            Arc::new(Breaker::new(Instant::now())),
            Arc::new(Queue::<Check>::new(Pacer::new(Instant::now()))),
        );
        let (taken, refused) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let asking = {
            let (breaker, queue) = (Arc::clone(&breaker), Arc::clone(&queue));
            let (taken, refused) = (Arc::clone(&taken), Arc::clone(&refused));
            thread::spawn(move || match push(&queue, &breaker) {
                true => taken.fetch_add(1, Ordering::Relaxed),
                false => refused.fetch_add(1, Ordering::Relaxed),
            })
        };
        assert!(breaker.open());
        let epoch = breaker.epoch();
        let at_once = queue.lock().take_overtaken(epoch).len();
        asking.join().expect("a thread");
        // An earlier check was taken out, a later one was refused.
        assert_counted(&queue, 0);
        assert_eq!(taken.load(Ordering::Relaxed) as usize, at_once);
        assert_eq!(
            taken.load(Ordering::Relaxed) + refused.load(Ordering::Relaxed),
            1
        );
    });
}

#[test]
fn checks_that_are_queued_after_the_breaker_closed_stay() {
    loom::model(|| {
        let (breaker, queue) = (
            Arc::new(Breaker::new(Instant::now())),
            Arc::new(Queue::<Check>::new(Pacer::new(Instant::now()))),
        );
        assert!(push(&queue, &breaker));
        assert!(breaker.open());
        let epoch = breaker.epoch();
        let probing = {
            let (breaker, queue) = (Arc::clone(&breaker), Arc::clone(&queue));
            thread::spawn(move || {
                breaker.close();
                assert!(push(&queue, &breaker));
            })
        };
        // The worker of the queue is late.
        assert_eq!(queue.lock().take_overtaken(epoch).len(), 1);
        probing.join().expect("a thread");
        assert_counted(&queue, 1);
    });
}
