use loom::{sync::Arc, thread};

use crate::epoch_table::EpochTable;

/// A denied key, and the end of the denial.
type Denial = (&'static str, u32);

fn look(table: &EpochTable<Denial>, hash: u64, key: &str) -> Option<u32> {
    table.find(hash, |(of, until)| (*of == key).then_some(*until))
}

fn rank(held: Option<&Denial>) -> Option<u32> {
    held.map(|(_, until)| *until)
}

#[test]
fn a_denial_requested_before_a_refund_is_not_inserted_after_it() {
    loom::model(|| {
        let table = Arc::new(EpochTable::<Denial>::new(2));
        let before = table.epoch(6);
        let denied = Arc::clone(&table);
        let remembering = thread::spawn(move || denied.insert(6, before, ("acme", 9), rank));
        table.forget(6, |(key, _)| *key == "acme");
        let after = table.epoch(6);
        remembering.join().expect("a thread");
        assert_eq!(look(&table, 6, "acme"), None, "units came back meanwhile");
        table.insert(6, after, ("acme", 10), rank);
        assert_eq!(look(&table, 6, "acme"), Some(10));
    });
}

#[test]
fn a_lookup_never_returns_the_entry_of_another_key() {
    loom::model(|| {
        // One hash, and so one mark, for all.
        let table = Arc::new(EpochTable::<Denial>::new(2));
        let epoch = table.epoch(7);
        let denied = Arc::clone(&table);
        let remembering = thread::spawn(move || {
            denied.insert(7, epoch, ("acme", 1), rank);
            denied.insert(7, epoch, ("apex", 2), rank);
        });
        for (key, until) in [("acme", 1), ("apex", 2)] {
            assert!(look(&table, 7, key).is_none_or(|found| found == until));
        }
        remembering.join().expect("a thread");
        assert_eq!(
            [look(&table, 7, "acme"), look(&table, 7, "apex")],
            [Some(1), Some(2)]
        );
    });
}
