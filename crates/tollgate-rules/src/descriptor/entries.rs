//! A list that holds up to four entries in place.
//! What an entry is stands in `entry.rs`; nothing here looks into one.

use std::ops::Deref;

use crate::descriptor::entry::DescriptorEntry;

/// Entries, up to four without an allocation.
///
/// It is no `SmallVec`, which is invariant in the type of its items: a descriptor with borrowed
/// texts then has to live exactly as long as they do.
#[derive(Clone)]
pub(crate) enum Entries<'a> {
    Inline([DescriptorEntry<'a>; IN_PLACE], usize),
    Heap(Vec<DescriptorEntry<'a>>),
}

const IN_PLACE: usize = 4;

impl<'a> Entries<'a> {
    pub(crate) fn push(&mut self, entry: DescriptorEntry<'a>) {
        match self {
            Self::Inline(entries, len) if *len < IN_PLACE => {
                entries[*len] = entry;
                *len += 1;
            }
            Self::Inline(entries, _) => {
                *self = Self::Heap(std::mem::take(entries).into_iter().chain([entry]).collect());
            }
            Self::Heap(entries) => entries.push(entry),
        }
    }
}

impl Default for Entries<'_> {
    fn default() -> Self {
        Self::Inline(Default::default(), 0)
    }
}

impl<'a> Deref for Entries<'a> {
    type Target = [DescriptorEntry<'a>];

    fn deref(&self) -> &[DescriptorEntry<'a>] {
        match self {
            Self::Inline(entries, len) => &entries[..*len],
            Self::Heap(entries) => entries,
        }
    }
}

impl PartialEq for Entries<'_> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Entries<'_> {}
