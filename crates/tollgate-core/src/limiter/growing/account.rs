//! The slices that a growing reservation holds, and what was counted of them. Nothing is counted that
//! no slice has.
//! See `plan.rs` for what a slice charges, and `shared.rs` for who asks for one.

use std::collections::VecDeque;

use tokio::time::Instant;

use super::plan::GrowthPlan;
use crate::{Costs, reservation::Reservation};

/// Counts units of the slices that are held, the oldest first.
pub(super) struct SliceAccount {
    /// The first slice stays until the end, because it has the estimate.
    first: Option<HeldSlice>,
    /// The slices of which units are left, and those that have something to return.
    others: VecDeque<HeldSlice>,
    /// The first slice was settled because its time to live ended.
    first_has_ended: bool,
    counted: u64,
    reserved: u64,
}

/// A slice that was charged.
struct HeldSlice {
    number: u64,
    reservation: Reservation,
    units: u64,
    used: u64,
    /// The time at which what is left goes back. `None` for a slice that had nothing left then.
    ends: Option<Instant>,
}

impl SliceAccount {
    /// Opens an account with the first slice, whose time to live ends then. A denied one has no units.
    pub(super) fn new(plan: &GrowthPlan, first: Reservation, ends: Instant) -> Self {
        let mut account = Self {
            first: None,
            others: VecDeque::new(),
            first_has_ended: false,
            counted: 0,
            reserved: 0,
        };
        if first.is_allowed() {
            let first = account.enter(plan, 0, first, ends);
            account.first = Some(first);
        }
        account
    }

    /// Adds a further slice, whose time to live ends then.
    pub(super) fn add(
        &mut self,
        plan: &GrowthPlan,
        number: u64,
        reservation: Reservation,
        ends: Instant,
    ) {
        let slice = self.enter(plan, number, reservation, ends);
        self.others.push_back(slice);
    }

    fn enter(
        &mut self,
        plan: &GrowthPlan,
        number: u64,
        reservation: Reservation,
        ends: Instant,
    ) -> HeldSlice {
        let units = plan.granted(number, reservation.decision());
        self.reserved = self.reserved.saturating_add(units);
        HeldSlice {
            number,
            reservation,
            units,
            used: 0,
            ends: Some(ends),
        }
    }

    /// Counts units, if the slices have as many left. Returns whether they were counted.
    pub(super) fn take(&mut self, plan: &GrowthPlan, units: u64) -> bool {
        if units > self.left() {
            return false;
        }
        self.counted += units;
        let mut rest = units;
        for slice in self.first.iter_mut().chain(&mut self.others) {
            rest -= slice.take(rest);
            if rest == 0 {
                break;
            }
        }
        // What was counted in full is settled as it was charged, and needs no call.
        while self
            .others
            .front()
            .is_some_and(|slice| slice.is_used() && slice.settled(plan, true).is_none())
        {
            self.others.pop_front();
        }
        true
    }

    pub(super) fn counted(&self) -> u64 {
        self.counted
    }

    pub(super) fn reserved(&self) -> u64 {
        self.reserved
    }

    pub(super) fn left(&self) -> u64 {
        self.reserved - self.counted
    }

    /// Returns when the time to live of a slice ends that is still to be settled.
    pub(super) fn next_end(&self) -> Option<Instant> {
        let slices = self.first.iter().chain(&self.others);
        slices.filter_map(|slice| slice.ends).min()
    }

    /// Takes what is left off the slices whose time to live has ended. Returns those that have
    /// something to return, and their final costs.
    pub(super) fn end(&mut self, plan: &GrowthPlan, now: Instant) -> Vec<(Reservation, Costs)> {
        let has_ended = |slice: &HeldSlice| slice.ends.is_some_and(|ends| ends <= now);
        let mut ended = Vec::new();
        if let Some(first) = self.first.as_mut().filter(|first| has_ended(first)) {
            first.ends = None;
            // With nothing to return it is kept: a cancellation may come before it lapses.
            if first.settled(plan, true).is_some() {
                self.first_has_ended = true;
                ended.extend(self.first.take());
            }
        }
        for slice in std::mem::take(&mut self.others) {
            if has_ended(&slice) {
                ended.push(slice);
            } else {
                self.others.push_back(slice);
            }
        }
        for slice in &ended {
            self.reserved -= slice.units - slice.used;
        }
        settled(ended, plan, true)
    }

    /// Returns whether the first slice was settled because its time to live ended.
    pub(super) fn first_has_ended(&self) -> bool {
        self.first_has_ended
    }

    /// Closes the account: returns each slice that has something to return, and its final costs. Those
    /// of a cancelled reservation keep no estimate.
    pub(super) fn close(
        &mut self,
        plan: &GrowthPlan,
        keeps_estimate: bool,
    ) -> Vec<(Reservation, Costs)> {
        self.reserved = self.counted;
        let slices = self.first.take().into_iter().chain(self.others.drain(..));
        settled(slices, plan, keeps_estimate)
    }
}

/// Returns the slices that have something to return, and their final costs.
fn settled(
    slices: impl IntoIterator<Item = HeldSlice>,
    plan: &GrowthPlan,
    keeps_estimate: bool,
) -> Vec<(Reservation, Costs)> {
    let settled = slices.into_iter().filter_map(|slice| {
        let costs = slice.settled(plan, keeps_estimate)?;
        Some((slice.reservation, costs))
    });
    settled.collect()
}

impl HeldSlice {
    /// Counts up to so many units. Returns how many.
    fn take(&mut self, units: u64) -> u64 {
        let taken = units.min(self.units - self.used);
        self.used += taken;
        taken
    }

    fn is_used(&self) -> bool {
        self.used == self.units
    }

    fn settled(&self, plan: &GrowthPlan, keeps_estimate: bool) -> Option<Costs> {
        plan.settled(
            self.number,
            self.reservation.decision(),
            self.used,
            keeps_estimate,
        )
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Cost, Limiter, MemoryStore, Policy, Quota};

    #[tokio::test]
    async fn slices_are_counted_the_oldest_first_and_held_while_they_have_something_left() {
        let tokens = Policy::fixed_window("tokens", Quota::per_day(1_000));
        let limiter = Limiter::new(MemoryStore::new(), tokens);
        let of = |units| Costs::new(Cost::new(units));
        let plan = GrowthPlan::try_new(limiter.policies(), &of(0), &of(10)).expect("a plan");
        let slice = async || limiter.reserve("acme", of(10)).await.expect("a decision");
        let (now, step) = (Instant::now(), Duration::from_secs(10));
        let mut account = SliceAccount::new(&plan, slice().await, now);
        for number in 1..=5 {
            account.add(&plan, number, slice().await, now + step * number as u32);
        }
        let others = |account: &SliceAccount| -> Vec<u64> {
            account.others.iter().map(|slice| slice.number).collect()
        };
        // Those that are used need no call, and no memory.
        assert!(account.take(&plan, 25));
        assert_eq!(others(&account), [2, 3, 4, 5]);
        // Five of the second go back, and the order stays.
        assert_eq!(account.end(&plan, now + step * 2).len(), 1);
        assert_eq!((account.reserved(), account.counted()), (55, 25));
        assert_eq!(others(&account), [3, 4, 5]);
        assert!(account.take(&plan, 15));
        assert_eq!(others(&account), [4, 5]);
        assert!(!account.take(&plan, 16) && account.take(&plan, 15));
        assert!(others(&account).is_empty());
    }
}
