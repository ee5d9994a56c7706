use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts what happens at the same time, up to a bound.
pub(super) struct Places {
    taken: AtomicUsize,
    most: usize,
}

/// Holds one place until it is dropped.
pub(super) struct Place(&'static Places);

impl Places {
    pub(super) const fn new(most: usize) -> Self {
        Self { taken: AtomicUsize::new(0), most }
    }

    /// Takes a place. `None` when all are taken.
    pub(super) fn take(&'static self) -> Option<Place> {
        // Counts itself first, so the place is given back by its drop in both cases.
        let taken = self.taken.fetch_add(1, Ordering::Relaxed);
        let place = Place(self);
        (taken < self.most).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::Relaxed);
    }
}
