//! The values that were read for a batch, and how the calls change them.
//! Which calls are in the batch, and whether the write succeeded, is known in `lanes.rs`.

use tollgate_core::raw::Bytes;

use super::{Change, Write};

/// The values of the names that a batch reads. They are sorted by name.
pub(super) struct Values(Vec<ReadValue>);

struct ReadValue {
    name: Vec<u8>,
    value: Option<Vec<u8>>,
    /// The expiry of a value that has changed. 0 for one that was removed.
    changed: Option<u64>,
}

impl Values {
    pub(super) fn new(names: Vec<Vec<u8>>, values: Vec<Option<Vec<u8>>>) -> Self {
        Self(
            names
                .into_iter()
                .zip(values)
                .map(|(name, value)| ReadValue {
                    name,
                    value,
                    changed: None,
                })
                .collect(),
        )
    }

    /// Returns what has changed: a change for all calls that have names in common, which are
    /// written together or not at all. And the change of each call, which is `None` when neither
    /// the call nor others of its names have changed anything.
    pub(super) fn into_changes<'n>(
        self,
        calls: impl Iterator<Item = &'n [Vec<u8>]>,
    ) -> (Vec<Change>, Vec<Option<usize>>) {
        let place = |name: &Vec<u8>| {
            let place = self.0.binary_search_by(|slot| slot.name.cmp(name));
            place.unwrap_or_default()
        };
        // Each name leads to one before it that a call has as well, and the first to itself.
        let mut leads: Vec<usize> = (0..self.0.len()).collect();
        let mut join = |names: &[Vec<u8>]| {
            let first = names.first().map(place)?;
            for name in &names[1..] {
                let (one, other) = (first_of(&leads, first), first_of(&leads, place(name)));
                leads[one.max(other)] = one.min(other);
            }
            Some(first)
        };
        let firsts: Vec<_> = calls.map(&mut join).collect();
        let (mut changes, mut of_firsts) = (Vec::new(), vec![None; self.0.len()]);
        for (at, slot) in self.0.iter().enumerate() {
            let of_first = &mut of_firsts[first_of(&leads, at)];
            if slot.changed.is_some() && of_first.is_none() {
                *of_first = Some(changes.len());
                changes.push(Change::default());
            }
        }
        for (at, slot) in self.0.into_iter().enumerate() {
            let Some(change) = of_firsts[first_of(&leads, at)] else {
                continue;
            };
            let change = &mut changes[change];
            change.keys.push(at);
            change.writes.extend(slot.changed.map(|expires_ms| Write {
                key: slot.name,
                value: slot.value,
                expires_ms,
            }));
        }
        let of_calls = firsts
            .into_iter()
            .map(|first| of_firsts[first_of(&leads, first?)]);
        (changes, of_calls.collect())
    }
}

impl Bytes for Values {
    fn get(&self, name: &[u8]) -> Option<&[u8]> {
        let at = self
            .0
            .binary_search_by(|slot| slot.name.as_slice().cmp(name))
            .ok()?;
        self.0[at].value.as_deref()
    }

    fn set(&mut self, name: &[u8], value: Option<Vec<u8>>, expires_ms: u64) {
        if let Ok(at) = self
            .0
            .binary_search_by(|slot| slot.name.as_slice().cmp(name))
        {
            let slot = &mut self.0[at];
            (slot.value, slot.changed) = (value, Some(expires_ms));
        }
    }
}

/// Returns the first of the names that calls have in common with this one.
fn first_of(leads: &[usize], mut at: usize) -> usize {
    while leads[at] != at {
        at = leads[at];
    }
    at
}
