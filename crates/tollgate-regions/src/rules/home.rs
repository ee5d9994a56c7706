//! The home: the server that counts a limit and grants units to regions. It decides no checks.
//! What is used is in `level.rs`, the memory of its calls in `ledger.rs`, the size of a grant in
//! `refill.rs`.

use super::{Call, Entry, Grant, Ledger, Level, Stamp, Terms, grantable};

/// The birth of a state without outstanding units, and of one whose generations occur twice.
const NO_BIRTH: u64 = 0;

/// Holds what is used of a limit, and the sum of what regions hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Home {
    /// The reign of the server that has stored this.
    pub reign: u64,
    /// The units used.
    pub level: Level,
    /// The stamp of units that are granted now.
    pub stamp: Stamp,
    /// The length of a generation when the outstanding units began, in microseconds. Zero for a
    /// state that was never stored.
    pub length_us: u64,
    /// The outstanding units of the current generation and of the one before.
    pub outstanding: [u64; 2],
    /// The last call of each region and reign.
    pub ledger: Ledger,
}

impl Home {
    /// Serves a call of a region: its reports first, then the grant. `birth` is a random number
    /// above zero, and the time and the reign are those of the server.
    pub fn serve(
        &mut self,
        terms: &Terms,
        (now_us, reign): (u64, u64),
        birth: u64,
        region: u64,
        call: &Call,
    ) -> Grant {
        self.advance(terms, reign, now_us);
        let mut grant = match self.ledger.served(region, call) {
            Some(entry) => self.again(now_us, &entry, call),
            None => self.grant(terms, now_us, birth, region, call),
        };
        grant.retry_us = self
            .level
            .retry_us(terms.meter, now_us, terms.burst, self.outstanding());
        grant
    }

    /// Brings the state to the present: takes over from another server, ends the generations that
    /// have passed, and lets what is used drain.
    fn advance(&mut self, terms: &Terms, reign: u64, now_us: u64) {
        if self.length_us == 0 {
            (self.reign, self.length_us) = (reign, terms.length_us);
        }
        self.level.adopt(terms.meter, now_us);
        let present = now_us / self.length_us;
        // The clock of another server may be ahead or behind. So the generation is the next one, and
        // no report of what was out counts: it lapses.
        if self.reign != reign && self.outstanding() > 0 || self.stamp.generation > present + 1 {
            self.stamp = Stamp {
                birth: NO_BIRTH,
                generation: present + 1,
            };
        }
        self.reign = reign;
        while self.stamp.generation < present && self.outstanding() > 0 {
            // What lapses may have been spent, until the end of its generation.
            let [new, old] = self.outstanding;
            self.stamp.generation += 1;
            if old > 0 {
                let end_us = self.stamp.generation * self.length_us;
                self.level.settle(terms.meter, end_us);
                self.level.charge(terms.meter, old);
            }
            self.outstanding = [0, new];
        }
        self.level.settle(terms.meter, now_us);
        if self.outstanding() == 0 {
            if self.length_us != terms.length_us {
                // It counts in generations of another length, and nothing is out that it could repeat.
                self.ledger = Ledger::default();
            }
            self.length_us = terms.length_us;
            self.stamp = Stamp {
                birth: NO_BIRTH,
                generation: now_us / terms.length_us,
            };
        }
        self.ledger.forget(present);
    }

    /// Serves a call that is new.
    fn grant(&mut self, terms: &Terms, now_us: u64, birth: u64, region: u64, call: &Call) -> Grant {
        for report in &call.reports {
            if let Some(outstanding) = self.outstanding_of(report.stamp) {
                let spent = report.spent.min(*outstanding);
                let returned = report.returned.min(*outstanding - spent);
                *outstanding -= spent + returned;
                self.level.charge(terms.meter, spent);
            }
        }
        let used = self.level.units(terms.meter) + self.outstanding();
        let is_open = self.length_us == terms.length_us && self.ledger.has_room(region, call.reign);
        let units = if is_open {
            grantable(terms, used, self.outstanding(), call.want, call.held)
        } else {
            0
        };
        if units > 0 {
            if self.stamp.birth == NO_BIRTH || self.outstanding() == 0 {
                self.stamp.birth = birth;
            }
            self.outstanding[0] += units;
        }
        if self.ledger.has_room(region, call.reign) {
            self.ledger.note(Entry {
                region,
                reign: call.reign,
                number: call.number,
                stamp: self.stamp,
                units,
                at: now_us / self.length_us,
            });
        }
        Grant {
            stamp: self.stamp,
            units,
            life_us: self.life_us(now_us, self.stamp),
            retry_us: 0,
        }
    }

    /// Answers a call that was served before: with the same grant if it was the last one, while its
    /// units live.
    fn again(&self, now_us: u64, entry: &Entry, call: &Call) -> Grant {
        let is_alive = entry.stamp.birth == self.stamp.birth && self.stamp.birth != NO_BIRTH;
        let life_us = self.life_us(now_us, entry.stamp);
        if entry.number > call.number || !is_alive || life_us == 0 {
            return Grant::default();
        }
        Grant {
            stamp: entry.stamp,
            units: entry.units,
            life_us,
            retry_us: 0,
        }
    }

    /// Returns the units that regions may hold.
    #[must_use]
    pub fn outstanding(&self) -> u64 {
        self.outstanding[0] + self.outstanding[1]
    }

    /// Returns the time at which the state does not differ from a fresh one any more, in
    /// microseconds.
    #[must_use]
    pub fn ends_us(&self, terms: &Terms, now_us: u64) -> u64 {
        let outstanding = self.outstanding();
        let lapsed_us = match outstanding {
            0 => 0,
            _ => (self.stamp.generation + 2) * self.length_us,
        };
        let lasts_us = self.level.lasts_us(terms.meter, outstanding);
        // The ledger is needed for three generations.
        (now_us.max(lapsed_us) + lasts_us).max(now_us + 4 * self.length_us)
    }

    /// Returns the time until units lapse: until the end of the generation after that of their
    /// grant.
    fn life_us(&self, now_us: u64, stamp: Stamp) -> u64 {
        let end_us = (stamp.generation + 2) * self.length_us;
        end_us.saturating_sub(now_us).min(2 * self.length_us)
    }

    fn outstanding_of(&mut self, stamp: Stamp) -> Option<&mut u64> {
        if stamp.birth != self.stamp.birth || stamp.birth == NO_BIRTH {
            return None;
        }
        let age = self.stamp.generation.checked_sub(stamp.generation)?;
        self.outstanding.get_mut(usize::try_from(age).ok()?)
    }
}
