use loom::{sync::Arc, thread};

use crate::slots::Slots;

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
