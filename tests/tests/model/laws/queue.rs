use loom::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    thread,
};

use crate::{
    breaker::Breaker,
    queue::{Dated, Queue, Refused},
};

struct Job(u64);

impl Dated for Job {
    fn asked_after(&self) -> u64 {
        self.0
    }
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
