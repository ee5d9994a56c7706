//! The home: the server that counts a limit and grants units to regions.
//! The memory of its calls is in `ledger.rs`, the rule for the size of a grant in `refill.rs`.

use super::{
    Call, Durability, Entry, Grant, Ledger, Mistake, Rules, Stamp, Time, Units, grantable,
};

/// The birth of a state without outstanding units.
const NO_BIRTH: u8 = 0;

/// Holds the limit and the sum of what the regions hold.
///
/// The algorithm is abstract: what is used and what is outstanding never exceed the quota together,
/// and nothing is used at the beginning of a period.
#[derive(Clone, Debug, Hash, PartialEq, Eq)]
pub struct Home {
    /// The number of servers that have been home before.
    pub reign: u8,
    /// The time by which its clock is ahead.
    pub ahead: Time,
    /// The number of the period.
    period: u8,
    used: Units,
    /// The outstanding units of the current generation and of the one before.
    outstanding: [Units; 2],
    /// The number of the current generation.
    generation: Time,
    /// The number of the grant with which the outstanding units began. Reports of another one are
    /// ignored.
    birth: u8,
    ledger: Ledger,
}

impl Home {
    /// Creates the state of a limit of which nothing was used.
    #[must_use]
    pub fn new() -> Self {
        Self {
            reign: 1,
            ahead: 0,
            period: 0,
            used: 0,
            outstanding: [0; 2],
            generation: 0,
            birth: NO_BIRTH,
            ledger: Ledger::default(),
        }
    }

    /// Brings the state to the present: ends the periods and generations that have passed.
    pub fn roll(&mut self, rules: &Rules, now: Time) {
        self.begin_period(rules, now);
        let present = self.generation_at(rules, now);
        self.ledger.forget(present);
        self.mend_clock(present);
        while self.generation < present && self.outstanding() > 0 {
            // What lapses may have been spent, so it is used.
            let [new, old] = self.outstanding;
            self.used += old;
            self.outstanding = [0, new];
            self.generation += 1;
        }
        if self.outstanding() == 0 {
            (self.generation, self.birth) = (present, NO_BIRTH);
        }
    }

    /// Serves a call: its reports first, then the grant. `birth` is a number that no grant has had.
    pub fn serve(&mut self, rules: &Rules, now: Time, region: u8, call: &Call, birth: u8) -> Grant {
        self.roll(rules, now);
        if let Some(entry) = self.ledger.served(rules, region, call) {
            return self.again(rules, now, &entry, call);
        }
        for report in &call.reports {
            if let Some(outstanding) = self.outstanding_of(rules, report.stamp) {
                let spent = report.spent.min(*outstanding);
                let returned = report.returned.min(*outstanding - spent);
                *outstanding -= spent + returned;
                self.used += spent;
            }
        }
        let units = grantable(rules, self.used, self.outstanding());
        if units > 0 {
            if self.birth == NO_BIRTH || self.outstanding() == 0 {
                self.birth = birth;
            }
            self.outstanding[0] += units;
        }
        let stamp = Stamp {
            birth: self.birth,
            generation: self.generation,
        };
        let entry = Entry {
            region,
            reign: call.reign,
            number: call.number,
            stamp,
            units,
            at: self.generation_at(rules, now),
        };
        self.ledger.note(rules, entry);
        let life = self.life(rules, now, stamp);
        Grant { stamp, units, life }
    }

    /// Takes over from a home with the copy of its state that another server has.
    ///
    /// The clock of that server may be ahead or behind, so the generation becomes the next one, and
    /// the state loses its birth: what is outstanding lapses, and no report of it counts.
    #[must_use]
    pub fn succeed(copy: &Self, before: &Self, rules: &Rules, now: Time, clock: Time) -> Self {
        let mut home = copy.clone();
        home.reign = before.reign + 1;
        home.ahead = before.ahead + clock;
        home.begin_period(rules, now);
        let drains = rules.durability == Durability::Drain;
        if !rules.has(Mistake::NoMendedClock) && (drains || home.outstanding() > 0) {
            home.generation = home.generation_at(rules, now) + 1;
            home.birth = NO_BIRTH;
        }
        if drains {
            home.used = rules.quota;
            if !rules.has(Mistake::DrainAsUsed) {
                home.outstanding = [rules.quota, 0];
            }
        }
        home.roll(rules, now);
        home
    }

    /// Returns the units that regions may hold.
    #[must_use]
    pub fn outstanding(&self) -> Units {
        self.outstanding[0] + self.outstanding[1]
    }

    /// Returns the number of the grant with which the outstanding units began.
    #[must_use]
    pub fn birth(&self) -> u8 {
        self.birth
    }

    /// Exchanges the names of regions.
    pub fn rename(&mut self, name: impl Fn(u8) -> u8) {
        self.ledger.rename(name);
    }

    /// Answers a call that was served before: with the same grant if it was the last one, while its
    /// units live.
    fn again(&self, rules: &Rules, now: Time, entry: &Entry, call: &Call) -> Grant {
        let is_alive = entry.stamp.birth == self.birth && self.birth != NO_BIRTH;
        let life = self.life(rules, now, entry.stamp);
        if entry.number > call.number || !is_alive || life <= 0 {
            return Grant::default();
        }
        Grant {
            stamp: entry.stamp,
            units: entry.units,
            life,
        }
    }

    fn begin_period(&mut self, rules: &Rules, now: Time) {
        let period = (now / rules.period) as u8;
        if self.period != period {
            (self.period, self.used) = (period, 0);
        }
    }

    /// Moves a generation back that is impossibly far ahead of the clock.
    fn mend_clock(&mut self, present: Time) {
        if self.generation > present + 1 {
            (self.generation, self.birth) = (present + 1, NO_BIRTH);
        }
    }

    fn generation_at(&self, rules: &Rules, now: Time) -> Time {
        (now + self.ahead).div_euclid(rules.generation)
    }

    /// Returns the time until units lapse: until the end of the generation after that of their
    /// grant.
    fn life(&self, rules: &Rules, now: Time, stamp: Stamp) -> Time {
        let end = (stamp.generation + 2) * rules.generation;
        (end - (now + self.ahead)).min(2 * rules.generation)
    }

    fn outstanding_of(&mut self, rules: &Rules, stamp: Stamp) -> Option<&mut Units> {
        if stamp.birth != self.birth || self.birth == NO_BIRTH {
            return None;
        }
        let age = self.generation - stamp.generation;
        let age = if rules.has(Mistake::AnyGeneration) {
            age.clamp(0, 1)
        } else {
            age
        };
        self.outstanding.get_mut(usize::try_from(age).ok()?)
    }
}

impl Default for Home {
    /// Returns [`Home::new`].
    fn default() -> Self {
        Self::new()
    }
}
