//! The promise of an algorithm, counted without its state.

use tollgate::{Algorithm, Policy};

/// Counts admitted units against the promise of a policy.
///
/// It begins anew when the server loses the state, has an older one, or its clock jumps forward: then
/// the whole burst, and what was out, may be admitted once more.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
pub(super) struct Bound {
    /// The units that a bucket holds, times the period; or those of the window.
    level: u64,
    /// The time of the last admission; or the number of the window.
    at: u64,
    /// The units that were out when a server with an older state took over, or the clock jumped forward.
    out: u64,
}

impl Bound {
    /// Begins to count. `out` units may be admitted in addition.
    pub(super) fn new(out: u64) -> Self {
        Self {
            level: 0,
            at: 0,
            out,
        }
    }

    /// Returns the units that may be admitted in addition.
    pub(super) fn out(&self) -> u64 {
        self.out
    }

    /// Counts units that are admitted at a time.
    pub(super) fn count(&mut self, policy: &Policy, now_us: u64, units: u64) {
        let (amount, period) = (policy.quota().amount(), period_us(policy));
        if policy.algorithm() == Algorithm::FixedWindow {
            if self.at != now_us / period {
                (self.at, self.level) = (now_us / period, 0);
            }
            self.level += units;
        } else {
            let drained = amount * (now_us - self.at);
            (self.at, self.level) = (now_us, self.level.saturating_sub(drained) + units * period);
        }
    }

    /// Returns whether no more was admitted than promised.
    pub(super) fn holds(&self, policy: &Policy) -> bool {
        let most = policy.quota().burst() + self.out;
        match policy.algorithm() {
            Algorithm::FixedWindow => self.level <= most,
            _ => self.level <= most * period_us(policy),
        }
    }
}

fn period_us(policy: &Policy) -> u64 {
    policy.quota().period().as_micros() as u64
}
