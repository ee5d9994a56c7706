//! The slices that a growing reservation holds, and what was counted of them. Nothing is counted that
//! no slice has.
//! See `plan.rs` for what a slice charges, and `shared.rs` for who asks for one.

use std::collections::VecDeque;

use super::plan::GrowthPlan;
use crate::{Costs, reservation::Reservation};

/// Counts units of the slices that are held, the oldest first.
pub(super) struct SliceAccount {
    /// The first slice stays until the end, because it has the estimate.
    first: Option<HeldSlice>,
    /// The slices of which units are left, and those that have something to return.
    others: VecDeque<HeldSlice>,
    counted: u64,
    reserved: u64,
}

/// A slice that was charged.
struct HeldSlice {
    number: u64,
    reservation: Reservation,
    units: u64,
    used: u64,
}

impl SliceAccount {
    /// Opens an account with the first slice. A denied one has no units.
    pub(super) fn new(plan: &GrowthPlan, first: Reservation) -> Self {
        let mut account = Self {
            first: None,
            others: VecDeque::new(),
            counted: 0,
            reserved: 0,
        };
        if first.is_allowed() {
            let first = account.enter(plan, 0, first);
            account.first = Some(first);
        }
        account
    }

    /// Adds a further slice. Returns its units.
    pub(super) fn add(&mut self, plan: &GrowthPlan, number: u64, reservation: Reservation) -> u64 {
        let slice = self.enter(plan, number, reservation);
        let units = slice.units;
        self.others.push_back(slice);
        units
    }

    fn enter(&mut self, plan: &GrowthPlan, number: u64, reservation: Reservation) -> HeldSlice {
        let units = plan.granted(number, reservation.decision());
        self.reserved = self.reserved.saturating_add(units);
        HeldSlice {
            number,
            reservation,
            units,
            used: 0,
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

    /// Closes the account: returns each slice that has something to return, and its final costs. Those
    /// of a cancelled reservation keep no estimate.
    pub(super) fn close(
        &mut self,
        plan: &GrowthPlan,
        keeps_estimate: bool,
    ) -> Vec<(Reservation, Costs)> {
        self.reserved = self.counted;
        let slices = self.first.take().into_iter().chain(self.others.drain(..));
        slices
            .filter_map(|slice| {
                let costs = slice.settled(plan, keeps_estimate)?;
                Some((slice.reservation, costs))
            })
            .collect()
    }
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
