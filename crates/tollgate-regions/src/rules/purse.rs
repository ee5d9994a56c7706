//! The purse: the units that a region holds, in its own server.
//! See `refill.rs` for when it asks for more, and `home.rs` for what it is granted.

use smallvec::SmallVec;

use super::{
    Call, Deposit, Grant, Lease, Pace, Report, Stamp,
    refill::{self, Refill},
};

/// Holds the units of one stamp, until they lapse, or until all were spent and reported. It stays
/// while processes hold units of it: they report to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// The stamp of the units.
    pub stamp: Stamp,
    /// The time from which on nothing of it may be spent, in microseconds.
    pub until_us: u64,
    /// The units that may be spent.
    pub free: u64,
    /// The units that were spent and not yet reported.
    pub spent: u64,
    /// The units that processes hold, or have spent and not yet reported.
    pub leased: u64,
}

/// The most slots. Units of two generations are alive at most, and of one more birth after the home
/// has lost its state.
pub(super) const MOST_SLOTS: usize = 6;

/// The part of a slot that a process is leased at most, for one.
const PART: u64 = 8;

/// Holds the units of a region.
///
/// Each function is a part of one script, which reads the reign of its server and the time, and
/// [opens](Self::open) the purse first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Purse {
    /// The reign of the server that has stored this.
    pub reign: u64,
    /// The newest time that was seen, in microseconds.
    pub now_us: u64,
    /// The number of the last call. It is a time, so that it grows also when the purse was lost.
    pub number: u64,
    /// The time of the open claim, in microseconds. Zero when none is open.
    pub since_us: u64,
    /// The time of the last claim, in microseconds.
    pub claimed_us: u64,
    /// The grant of the last answer.
    pub granted: u64,
    /// The time at which the home has a unit, as it said, in microseconds. Zero before its first
    /// answer, and when it had more.
    pub retry_at_us: u64,
    /// The demand.
    pub pace: Pace,
    /// The units.
    pub slots: SmallVec<[Slot; 2]>,
}

/// Asks the purse for a decision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ask {
    /// The units of the check. Zero only looks.
    pub cost: u64,
    /// The check is made for the first time, and not again because units were awaited.
    pub is_first: bool,
    /// The time of a round trip to the home, in microseconds.
    pub trip_us: u64,
    /// The share of the limit that may be out.
    pub most: u64,
    /// The units that the process wants to lease.
    pub want: u64,
    /// The reports of the process on the units that it has leased.
    pub reports: SmallVec<[Report; 2]>,
}

/// The outcome of a check at the purse.
#[derive(Clone, Debug, PartialEq)]
pub struct Checked {
    /// The units were spent.
    pub is_admitted: bool,
    /// The units that are left.
    pub free: u64,
    /// The time after which another check may find units, in microseconds. Zero for one that was
    /// admitted.
    pub retry_us: u64,
    /// Units are on their way, or the home has some for the next claim, and it pays to wait for them.
    pub is_awaited: bool,
    /// The units that the process was leased.
    pub lease: Lease,
    /// The call that the process has to carry.
    pub call: Option<Call>,
}

/// Shows the time of a purse, and what it has lost: each reply begins with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The time of the purse, in microseconds.
    pub now_us: u64,
    /// The units that nobody could spend: those that have lapsed, or were voided.
    pub lost: u64,
}

/// The outcome of a deposit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deposited {
    /// The units were expected, and have a place.
    pub is_expected: bool,
    /// The units that may be spent.
    pub free: u64,
}

impl Purse {
    /// Voids a purse that another reign has filled, lets no time go back, and drops what has lapsed or
    /// was reported whole.
    ///
    /// A server gets another reign at each promotion and each start. What a purse of another one
    /// held may have been spent since, by the server that had it. Returns the units that nobody can
    /// spend any more.
    pub fn open(&mut self, reign: u64, now_us: u64) -> u64 {
        let before = self.free();
        if self.reign != reign {
            *self = Self {
                reign,
                now_us,
                pace: Pace {
                    estimated_us: now_us,
                    ..Pace::default()
                },
                ..Self::default()
            };
        }
        self.now_us = self.now_us.max(now_us);
        self.slots
            .retain(|slot| self.now_us < slot.until_us && slot.free + slot.spent + slot.leased > 0);
        before - self.free()
    }

    /// Takes the reports of a process, decides its check, and leases it units. Begins a call when the
    /// region needs units.
    pub fn check(&mut self, ask: &Ask) -> Checked {
        let (cost, trip_us) = (ask.cost, ask.trip_us);
        let spent: u64 = ask.reports.iter().map(|report| self.report(report)).sum();
        let first = if ask.is_first { cost } else { 0 };
        self.pace.count(self.now_us, first + spent);
        let is_admitted = cost > 0 && self.free() >= cost;
        let mut lease = Lease::default();
        if is_admitted {
            self.spend(cost);
            lease = self.lease(ask.want);
        }
        let missing = if is_admitted { 0 } else { cost };
        let refill = self.pace.refill(trip_us, missing);
        let call = if self.may_claim(trip_us) && self.is_due(refill, ask.most) {
            Some(self.claim(refill))
        } else {
            None
        };
        let is_denied = cost > 0 && !is_admitted;
        Checked {
            is_admitted,
            free: self.free(),
            retry_us: if is_denied { self.retry_us(trip_us) } else { 0 },
            is_awaited: self.is_awaited(ask),
            lease,
            call,
        }
    }

    /// Takes what the home has granted, once, and under the claim and the reign that asked for it.
    pub fn deposit(&mut self, deposit: &Deposit) -> Deposited {
        let is_expected = self.take(deposit);
        Deposited {
            is_expected,
            free: self.free(),
        }
    }

    fn take(&mut self, deposit: &Deposit) -> bool {
        let is_open = self.since_us > 0 && deposit.number == self.number;
        if !is_open || deposit.reign != self.reign {
            return false;
        }
        let Grant {
            stamp,
            units,
            life_us,
            retry_us,
        } = deposit.grant;
        // It precedes the decision of the home. A thousandth is left out, for clocks of different
        // speed.
        let until_us = (self.since_us + life_us).saturating_sub(life_us.div_ceil(1_000));
        self.since_us = 0;
        // It has more units, which other regions may have to give back first.
        let has_more = retry_us == 0;
        self.granted = units;
        self.retry_at_us = if has_more { 0 } else { self.now_us + retry_us };
        if units == 0 {
            return true;
        }
        if until_us <= self.now_us {
            return false;
        }
        let mut slots = self.slots.iter_mut();
        if let Some(slot) = slots.find(|slot| slot.stamp == stamp) {
            slot.free += units;
            slot.until_us = slot.until_us.min(until_us);
            return true;
        }
        let has_room = self.slots.len() < MOST_SLOTS;
        if has_room {
            self.slots.push(Slot {
                stamp,
                until_us,
                free: units,
                spent: 0,
                leased: 0,
            });
        }
        has_room
    }

    /// Returns the units that may be spent.
    #[must_use]
    pub fn free(&self) -> u64 {
        self.slots.iter().map(|slot| slot.free).sum()
    }

    /// Returns the time at which nothing of the purse matters any more, in microseconds. `length_us`
    /// is that of a generation.
    #[must_use]
    pub fn ends_us(&self, length_us: u64) -> u64 {
        let slots = self.slots.iter().map(|slot| slot.until_us);
        slots.max().unwrap_or(0).max(self.now_us + 2 * length_us)
    }

    /// Returns whether checks wait for units. Not those of a crowd that asks for half of the share in
    /// every round trip: they would ask again and again, and most of them in vain.
    fn is_awaited(&self, ask: &Ask) -> bool {
        let is_crowd = self.pace.rate * ask.trip_us as f64 * 2.0 > ask.most as f64;
        let is_coming = self.since_us > 0 && self.granted > 0;
        (self.retry_at_us == 0 || is_coming) && !is_crowd
    }

    /// Spends units of the oldest slots. There are as many.
    fn spend(&mut self, cost: u64) {
        let mut left = cost;
        for slot in &mut self.slots {
            let units = left.min(slot.free);
            (slot.free, slot.spent, left) = (slot.free - units, slot.spent + units, left - units);
        }
    }

    /// Leases units of the newest slot to a process: what it wants, and no more than an eighth, or a
    /// few processes would strand what others ask for.
    fn lease(&mut self, want: u64) -> Lease {
        let now_us = self.now_us;
        let mut newest_first = self.slots.iter_mut().rev();
        let Some(slot) = newest_first.find(|slot| slot.free >= PART) else {
            return Lease::default();
        };
        let units = want.min(slot.free / PART);
        (slot.free, slot.leased) = (slot.free - units, slot.leased + units);
        Lease {
            stamp: slot.stamp,
            units,
            life_us: slot.until_us - now_us,
        }
    }

    /// Takes the report of a process. Returns the units that it has spent. Nothing counts that the
    /// slot has not leased: it may have the stamp of one that was voided.
    fn report(&mut self, report: &Report) -> u64 {
        let mut slots = self.slots.iter_mut();
        let Some(slot) = slots.find(|slot| slot.stamp == report.stamp) else {
            return 0;
        };
        let spent = report.spent.min(slot.leased);
        let returned = report.returned.min(slot.leased - spent);
        slot.leased -= spent + returned;
        (slot.spent, slot.free) = (slot.spent + spent, slot.free + returned);
        spent
    }

    /// Returns whether a claim may begin: one is open at a time, and another one replaces it when
    /// its call or its answer seem lost.
    fn may_claim(&self, trip_us: u64) -> bool {
        if self.since_us > 0 {
            return self.now_us >= self.since_us + 4 * trip_us;
        }
        self.now_us >= self.next_us()
    }

    fn next_us(&self) -> u64 {
        if self.claimed_us == 0 {
            return 0;
        }
        refill::next_us(self.claimed_us, self.granted, self.retry_at_us)
    }

    /// Returns whether the region needs units, holds too many, or has much to report.
    fn is_due(&self, refill: Refill, most: u64) -> bool {
        let (free, spent) = (
            self.free(),
            self.slots.iter().map(|slot| slot.spent).sum::<u64>(),
        );
        (free as f64) < refill.need || self.has_surplus(refill) || spent * 16 > most
    }

    fn has_surplus(&self, refill: Refill) -> bool {
        self.free() as f64 > refill.target * 2.0 + 4.0
    }

    /// Begins a call: takes the reports out of the slots, and what is too much.
    fn claim(&mut self, refill: Refill) -> Call {
        let target = refill.target.ceil() as u64;
        let mut surplus = match self.has_surplus(refill) {
            true => self.free() - target,
            false => 0,
        };
        self.number = (self.number + 1).max(self.now_us);
        (self.since_us, self.claimed_us) = (self.now_us, self.now_us);
        let mut reports = SmallVec::new();
        for slot in &mut self.slots {
            let returned = surplus.min(slot.free);
            (surplus, slot.free) = (surplus - returned, slot.free - returned);
            let spent = std::mem::take(&mut slot.spent);
            if spent + returned > 0 {
                reports.push(Report {
                    stamp: slot.stamp,
                    spent,
                    returned,
                });
            }
        }
        let held = self.free();
        Call {
            reign: self.reign,
            number: self.number,
            since_us: self.since_us,
            want: target.saturating_sub(held),
            held,
            reports,
        }
    }

    /// Returns the time after which a check that was denied may find units.
    fn retry_us(&self, trip_us: u64) -> u64 {
        let arrives_us = if self.since_us > 0 {
            self.since_us + trip_us
        } else {
            self.next_us() + trip_us
        };
        arrives_us
            .max(self.retry_at_us)
            .saturating_sub(self.now_us)
            .max(1)
    }
}
