//! The units used of a token bucket or a fixed window, in whole numbers.
//! See `home.rs` for what regions hold beside it.

/// The algorithm of a limit, with its rate in lowest terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meter {
    /// A token bucket, in which `amount` units accrue in `period_us`.
    Bucket {
        /// The units that accrue in a period.
        amount: u64,
        /// The period in microseconds.
        period_us: u64,
    },
    /// A fixed window. Windows begin at whole multiples of their length since the Unix epoch.
    Window {
        /// The length in microseconds.
        period_us: u64,
    },
}

/// The units used, as they were at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Level {
    /// The used units. Of a bucket: times the period, so that they drain by whole numbers.
    pub used: u64,
    /// The time in microseconds of a bucket, the number of a window.
    pub at: u64,
    /// The period under which it was stored. Zero for a level that was never stored.
    pub period_us: u64,
}

impl Meter {
    /// Returns the period in microseconds.
    #[must_use]
    pub fn period_us(self) -> u64 {
        match self {
            Self::Bucket { period_us, .. } | Self::Window { period_us } => period_us,
        }
    }
}

impl Level {
    /// Brings a stored level to a time no earlier than the last one. A clock that went back drains
    /// nothing.
    pub fn settle(&mut self, meter: Meter, now_us: u64) {
        match meter {
            Meter::Bucket { amount, .. } if now_us > self.at => {
                let drained = (now_us - self.at).saturating_mul(amount);
                self.used = self.used.saturating_sub(drained);
                self.at = now_us;
            }
            Meter::Window { period_us } if now_us / period_us > self.at => {
                (self.used, self.at) = (0, now_us / period_us);
            }
            _ => {}
        }
    }

    /// Reads a level that was stored under another period, and moves a time that lies ahead of the
    /// clock back. What is used stays used.
    pub fn adopt(&mut self, meter: Meter, now_us: u64) {
        let period_us = meter.period_us();
        let present = match meter {
            Meter::Bucket { .. } => now_us,
            Meter::Window { .. } => now_us / period_us,
        };
        if self.period_us == 0 {
            self.at = present;
        } else if self.period_us != period_us {
            match meter {
                Meter::Bucket { .. } => {
                    self.used = self.used.div_ceil(self.period_us) * period_us;
                }
                Meter::Window { .. } => self.at = present,
            }
        }
        self.period_us = period_us;
        self.at = self.at.min(present);
    }

    /// Charges units.
    pub fn charge(&mut self, meter: Meter, units: u64) {
        self.used += match meter {
            Meter::Bucket { period_us, .. } => units * period_us,
            Meter::Window { .. } => units,
        };
    }

    /// Returns the used units, of which a part of one counts as one.
    #[must_use]
    pub fn units(&self, meter: Meter) -> u64 {
        match meter {
            Meter::Bucket { period_us, .. } => self.used.div_ceil(period_us),
            Meter::Window { .. } => self.used,
        }
    }

    /// Returns the time until one unit is free beside those that are outstanding, in microseconds.
    #[must_use]
    pub fn retry_us(&self, meter: Meter, now_us: u64, burst: u64, outstanding: u64) -> u64 {
        match meter {
            Meter::Bucket { amount, period_us } => {
                let beyond = self.used + (outstanding + 1) * period_us;
                beyond.saturating_sub(burst * period_us).div_ceil(amount)
            }
            Meter::Window { .. } if self.used + outstanding < burst => 0,
            Meter::Window { period_us } => {
                (self.at + 1) * period_us - now_us.min((self.at + 1) * period_us)
            }
        }
    }

    /// Returns the time that it takes until nothing is used any more, when these units are charged
    /// too, in microseconds.
    #[must_use]
    pub fn lasts_us(&self, meter: Meter, outstanding: u64) -> u64 {
        match meter {
            Meter::Bucket { amount, period_us } => {
                (self.used + outstanding * period_us).div_ceil(amount)
            }
            Meter::Window { period_us } => period_us,
        }
    }
}
