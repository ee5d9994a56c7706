//! Counts the most frequent keys with the Space-Saving algorithm.

use std::hash::{BuildHasher, RandomState};

use hashbrown::HashTable;

use crate::Key;

/// Counts the denials of up to `capacity` keys.
///
/// The slots are sorted by count, greatest first. A count that grows by one changes places with the first slot of its
/// count, so the order is kept by one swap.
pub(super) struct Sketch {
    slots: Vec<Slot>,
    /// The places in `slots`, by the hash of the key.
    index: HashTable<usize>,
    /// Keyed at random: clients choose keys.
    hasher: RandomState,
    capacity: usize,
    total: u64,
}

#[derive(Clone)]
pub(super) struct Slot {
    pub(super) key: Key,
    hash: u64,
    pub(super) count: u64,
    /// The count of the key that was in the slot before.
    pub(super) overcount: u64,
}

impl Sketch {
    pub(super) fn new(capacity: usize) -> Self {
        Self { slots: Vec::new(), index: HashTable::new(), hasher: RandomState::new(), capacity, total: 0 }
    }

    pub(super) fn record(&mut self, key: &Key) {
        self.total = self.total.saturating_add(1);
        let hash = self.hasher.hash_one(key);
        let at = match self.index.find(hash, |&at| self.slots[at].key == *key) {
            Some(&at) => at,
            None => self.place(key, hash),
        };
        let count = self.slots[at].count;
        let first = self.slots.partition_point(|slot| slot.count > count);
        self.swap(first, at);
        self.slots[first].count = count.saturating_add(1);
    }

    /// Finds a slot for a new key: a free one, or else that of a key with the smallest count.
    fn place(&mut self, key: &Key, hash: u64) -> usize {
        if self.slots.len() < self.capacity {
            self.slots.push(Slot { key: key.clone(), hash, count: 0, overcount: 0 });
        } else if let Some(last) = self.slots.len().checked_sub(1) {
            self.unlink(last);
            let smallest = self.slots[last].count;
            self.slots[last] = Slot { key: key.clone(), hash, count: smallest, overcount: smallest };
        }
        let at = self.slots.len() - 1;
        self.link(at);
        at
    }

    fn swap(&mut self, one: usize, other: usize) {
        if one == other {
            return;
        }
        self.unlink(one);
        self.unlink(other);
        self.slots.swap(one, other);
        self.link(one);
        self.link(other);
    }

    /// Removes the place of a slot from the index.
    fn unlink(&mut self, at: usize) {
        if let Ok(entry) = self.index.find_entry(self.slots[at].hash, |&other| other == at) {
            entry.remove();
        }
    }

    /// Adds the place of a slot to the index.
    fn link(&mut self, at: usize) {
        self.index.insert_unique(self.slots[at].hash, at, |&other| self.slots[other].hash);
    }

    /// Returns the slots with the greatest counts.
    pub(super) fn top(&self, limit: usize) -> impl Iterator<Item = &Slot> {
        self.slots.iter().take(limit)
    }

    pub(super) fn total(&self) -> u64 {
        self.total
    }

    pub(super) fn clear(&mut self) {
        self.slots.clear();
        self.index.clear();
        self.total = 0;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Compares the sketch with exact counts, after every step.
        #[test]
        fn counts_are_within_their_bounds_and_frequent_keys_are_found(
            keys in prop::collection::vec((0_u64..40, 0_u64..4), 1..400),
            capacity in 1_usize..20,
        ) {
            let (mut sketch, mut exact) = (Sketch::new(capacity), HashMap::<Key, u64>::new());
            for (number, (key, divisor)) in (1..).zip(keys) {
                // Small numbers are frequent.
                let key = Key::from(key >> divisor);
                sketch.record(&key);
                *exact.entry(key).or_default() += 1;

                let slots: Vec<_> = sketch.top(usize::MAX).collect();
                prop_assert_eq!(slots.len(), exact.len().min(capacity));
                prop_assert_eq!(slots.iter().map(|slot| slot.count).sum::<u64>(), number);
                prop_assert_eq!(sketch.total(), number);
                prop_assert!(slots.is_sorted_by(|one, other| one.count >= other.count));
                for slot in &slots {
                    let denials = exact[&slot.key];
                    prop_assert!(slot.count >= denials && slot.count - slot.overcount <= denials);
                    prop_assert!(slot.overcount <= number / capacity as u64);
                }
                for (key, denials) in &exact {
                    let is_found = slots.iter().any(|slot| slot.key == *key);
                    prop_assert!(is_found || *denials <= number / capacity as u64);
                }
                for (at, slot) in sketch.slots.iter().enumerate() {
                    prop_assert_eq!(sketch.index.find(slot.hash, |&other| sketch.slots[other].key == slot.key), Some(&at));
                }
                prop_assert_eq!(sketch.index.len(), slots.len());
            }
        }
    }

    #[test]
    fn a_flood_of_new_keys_takes_no_more_memory_and_does_not_hide_a_frequent_key() {
        let mut sketch = Sketch::new(100);
        for number in 0..100_000_u64 {
            sketch.record(&Key::from(number));
            if number % 20 == 0 {
                sketch.record(&Key::new("busy"));
            }
        }
        assert_eq!((sketch.slots.len(), sketch.index.len()), (100, 100));
        let top = sketch.top(1).next().expect("a key");
        assert_eq!(top.key, Key::new("busy"));
        assert!(top.count >= 5_000 && top.count - top.overcount <= 5_000);
    }
}
