use std::collections::HashMap;

use foldhash::fast::RandomState;

use super::{Record, ReservationId};
use crate::{Key, PolicySet};

/// Holds the records of one shard of the in-process store, in a bounded room.
///
/// A record that is dropped for room lapses early. What it charged stays charged, so no limit is passed.
#[derive(Debug)]
pub(crate) struct Records {
    records: HashMap<Box<[u8]>, Record, RandomState>,
    room: usize,
}

impl Records {
    pub(crate) fn new(room: usize, hasher: RandomState) -> Self {
        Self { records: HashMap::with_hasher(hasher), room }
    }

    /// Returns the record that has not lapsed.
    pub(crate) fn get_mut(
        &mut self,
        policies: &PolicySet,
        key: &Key,
        id: &ReservationId,
        now_us: u64,
    ) -> Option<&mut Record> {
        if self.records.is_empty() {
            return None;
        }
        self.records.get_mut(&name(policies, key, id)).filter(|record| now_us < record.lapse_us)
    }

    /// Adds a record.
    pub(crate) fn insert(&mut self, policies: &PolicySet, key: &Key, id: &ReservationId, record: Record) {
        if self.records.len() >= self.room {
            self.make_room(record.at_us);
        }
        self.records.insert(name(policies, key, id), record);
    }

    /// Drops the records that have lapsed. When a sixteenth of the room is not free then, drops those that lapse first,
    /// until it is.
    fn make_room(&mut self, now_us: u64) {
        self.records.retain(|_, record| now_us < record.lapse_us);
        let goal = self.room - (self.room / 16).max(1);
        if self.records.len() <= goal {
            return;
        }
        let mut lapses: Vec<u64> = self.records.values().map(|record| record.lapse_us).collect();
        let surplus = lapses.len() - goal;
        let (_, &mut last, _) = lapses.select_nth_unstable(surplus - 1);
        let mut left = surplus;
        self.records.retain(|_, record| {
            let is_dropped = record.lapse_us <= last && left > 0;
            left -= usize::from(is_dropped);
            !is_dropped
        });
    }
}

/// Returns the name of a record. No id contains a colon, and the policies have a fixed size, so the last colon before them
/// ends the key.
fn name(policies: &PolicySet, key: &Key, id: &ReservationId) -> Box<[u8]> {
    [key.level(0).as_bytes(), b":", id.as_str().as_bytes(), &policies.mark().to_le_bytes()].concat().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Policy, Quota};

    #[test]
    fn a_full_table_drops_lapsed_records_and_then_those_that_lapse_first() {
        let mut records = Records::new(16, RandomState::default());
        let policies = PolicySet::from(Policy::token_bucket("p", Quota::per_second(1)));
        let (key, id) = (Key::new("acme"), |at: u64| ReservationId::try_new(at.to_string()).expect("an id"));
        let record = |at: u64| Record { lapse_us: at + 100, settled_by: 0, at_us: at, charged: Default::default() };
        for at in 0..1_000 {
            records.insert(&policies, &key, &id(at), record(at));
            assert!(records.records.len() <= 16);
            assert!(records.get_mut(&policies, &key, &id(at), at).is_some());
        }
        assert!(records.get_mut(&policies, &key, &id(0), 999).is_none());
        assert!(records.get_mut(&policies, &key, &id(999), 1_098).is_some());
        assert!(records.get_mut(&policies, &key, &id(999), 1_099).is_none(), "it has lapsed");
    }
}
