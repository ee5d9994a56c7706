/// Counts what became of leased units since the store was built.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LeaseCounts {
    /// The units that may be spent now.
    pub(crate) held: u64,
    /// The units that the server has granted.
    pub(crate) granted: u64,
    /// The units that were given back to the server.
    pub(crate) returned: u64,
    /// The units that ended unspent.
    pub(crate) lapsed: u64,
    /// The checks that needed no trip.
    pub(crate) trips_saved: u64,
}

impl LeaseCounts {
    /// Returns whether nothing was ever leased.
    pub(crate) fn is_empty(&self) -> bool {
        self.granted == 0
    }

    /// Adds the counts of another shard.
    pub(crate) fn add(&mut self, other: &Self) {
        self.held += other.held;
        self.granted += other.granted;
        self.returned += other.returned;
        self.lapsed += other.lapsed;
        self.trips_saved += other.trips_saved;
    }
}
