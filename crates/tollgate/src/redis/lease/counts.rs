//! What became of leased units, for the metrics of a store.

/// Counts what became of leased units since the store was built.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::redis) struct LeaseCounts {
    /// The units that may be spent now.
    pub(in crate::redis) held: u64,
    /// The units that the server has granted.
    pub(in crate::redis) granted: u64,
    /// The units that were given back to the server.
    pub(in crate::redis) returned: u64,
    /// The units that ended unspent.
    pub(in crate::redis) lapsed: u64,
    /// The checks that needed no trip.
    pub(in crate::redis) trips_saved: u64,
}

impl LeaseCounts {
    /// Returns whether nothing was ever leased.
    pub(in crate::redis) fn is_empty(&self) -> bool {
        self.granted == 0
    }

    pub(in crate::redis) fn add(&mut self, other: &Self) {
        self.held += other.held;
        self.granted += other.granted;
        self.returned += other.returned;
        self.lapsed += other.lapsed;
        self.trips_saved += other.trips_saved;
    }
}
