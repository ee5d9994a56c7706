//! The state of one leased policy for one key, as the server keeps it.

use tollgate::{
    Algorithm, Cost, Decision, Lease, Policy, PolicySet,
    testing::{self, Metered, Stamp},
};

/// The level of one policy for one key: whether the cost fits, or fitted before it was charged, and
/// the integers of the reply of a script.
pub(super) type Level = (bool, [u64; 4]);

/// The birth of a state without outstanding units, and of one whose clock went back.
const NO_BIRTH: u64 = 0;

/// Holds the state of the algorithm, and the units that replicas hold.
///
/// There is no record for each replica: the units of all replicas are summed by the generation in
/// which they were granted.
#[derive(Clone, Debug, PartialEq)]
pub struct Account {
    state: Metered,
    /// The random number of the call that granted the first of the outstanding units. A report for
    /// another birth is ignored.
    birth: u64,
    /// The length of a generation when the first of the outstanding units was granted.
    generation_us: u64,
    /// The number of the current generation since the Unix epoch.
    generation: u64,
    /// The outstanding units of the current generation and of the one before.
    outstanding: [u64; 2],
}

/// The change that the end of a generation has made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rolled {
    /// Nothing.
    Kept,
    /// The numbers of the generations alone.
    Moved,
    /// The state of the algorithm too.
    Charged,
}

impl Account {
    /// Creates the state of a key from which nothing was spent.
    #[must_use]
    pub fn new(policy: &Policy, lease: Lease, now_us: u64) -> Self {
        let generation_us = generation_us(lease);
        Self {
            state: Metered::fresh(policy),
            birth: NO_BIRTH,
            generation_us,
            generation: now_us / generation_us,
            outstanding: [0; 2],
        }
    }

    /// Brings the state to `now_us`: [rolls](Self::roll), and advances the state of the algorithm.
    ///
    /// The state was stored under the policy `wrote`. Returns `true` when the state had to be
    /// mended.
    pub fn advance(&mut self, policy: &Policy, wrote: &Policy, lease: Lease, now_us: u64) -> bool {
        let rolled = self.roll(policy, wrote, lease, now_us);
        let wrote = if rolled == Rolled::Charged {
            policy
        } else {
            wrote
        };
        self.advance_state(policy, wrote, now_us) || rolled != Rolled::Kept
    }

    /// Ends the generations that have passed by `now_us`. Units that lapse are charged at the end
    /// of their generation.
    pub fn roll(&mut self, policy: &Policy, wrote: &Policy, lease: Lease, now_us: u64) -> Rolled {
        let mut rolled = if self.mend_clock(now_us) {
            Rolled::Moved
        } else {
            Rolled::Kept
        };
        let mut wrote = wrote;
        let at = now_us / self.generation_us;
        while self.generation < at && self.outstanding() > 0 {
            let lapsed = self.lapse(policy, wrote);
            if lapsed == Rolled::Charged {
                wrote = policy;
            }
            rolled = rolled.max(lapsed);
        }
        if self.outstanding() == 0 {
            // Nothing remembers the earlier generations. Other terms begin here, which count
            // generations differently.
            *self = Self {
                state: self.state.clone(),
                ..Self::new(policy, lease, now_us)
            };
        }
        rolled
    }

    /// Moves the generation back when it is impossibly far ahead: the clock went back by more than
    /// a generation.
    ///
    /// Outstanding units then count for at least as long as replicas may spend them. The state
    /// loses its birth, because the numbers of its generations occur a second time.
    fn mend_clock(&mut self, now_us: u64) -> bool {
        let next = now_us / self.generation_us + 1;
        if self.generation <= next {
            return false;
        }
        self.generation = next;
        self.birth = NO_BIRTH;
        true
    }

    /// Settles the state of the algorithm alone. Returns `true` when it had to be mended.
    pub fn advance_state(&mut self, policy: &Policy, wrote: &Policy, now_us: u64) -> bool {
        self.state.advance(policy, wrote, now_us)
    }

    /// Applies the report of a replica to a current state: `spent` units are charged now,
    /// `returned` units are free again.
    ///
    /// The charge always fits, because the units counted as used before, unless the key is in debt.
    /// A report is ignored when it belongs to another birth, or to a generation whose units have
    /// lapsed. Returns `true` when the state was changed.
    pub fn report(
        &mut self,
        policy: &Policy,
        now_us: u64,
        stamp: Stamp,
        spent: u64,
        returned: u64,
    ) -> bool {
        let Some(outstanding) = self.outstanding_of(stamp) else {
            return false;
        };
        let spent = spent.min(*outstanding);
        let returned = returned.min(*outstanding - spent);
        *outstanding -= spent + returned;
        if spent > 0 {
            self.state.owe(policy, now_us, spent);
        }
        spent + returned > 0
    }

    fn outstanding_of(&mut self, stamp: Stamp) -> Option<&mut u64> {
        if stamp.birth != self.birth || self.birth == NO_BIRTH || stamp.generation > self.generation
        {
            return None;
        }
        self.outstanding
            .get_mut((self.generation - stamp.generation) as usize)
    }

    /// Returns the current state of the algorithm with all outstanding units charged now. Decisions
    /// and replies are those of this state: outstanding units count as used.
    fn as_used(&self, policy: &Policy, now_us: u64) -> Metered {
        let mut state = self.state.clone();
        if self.outstanding() > 0 {
            state.owe(policy, now_us, self.outstanding());
        }
        state
    }

    /// Returns `true` when a cost fits a current state beside all outstanding units.
    #[must_use]
    pub fn fits(&self, policy: &Policy, now_us: u64, cost: u64) -> bool {
        cost == 0 || self.as_used(policy, now_us).fits(policy, now_us, cost)
    }

    /// Returns the level of a current state for a reply, after a check of `cost` that was admitted
    /// or denied.
    pub(super) fn level(&self, policy: &Policy, now_us: u64, cost: u64, fits: bool) -> Level {
        let denied = if fits { 0 } else { cost };
        let mut reading = self.as_used(policy, now_us).reading(policy, now_us, denied);
        if denied > 0 {
            // The readings of these algorithms are times already. All others have no fourth integer.
            let is_counted = matches!(
                policy.algorithm(),
                Algorithm::SlidingBuckets { .. } | Algorithm::SlidingLog
            );
            let lapses = if is_counted {
                &mut reading[1]
            } else {
                &mut reading[3]
            };
            *lapses = self.lapse_us(policy, now_us, denied).max(*lapses);
        }
        (fits, reading)
    }

    /// Returns the time until all outstanding units have lapsed, if a denied cost does not fit
    /// beside them at any time.
    fn lapse_us(&self, policy: &Policy, now_us: u64, denied: u64) -> u64 {
        if self.outstanding() == 0 || denied + self.outstanding() <= policy.quota().burst() {
            return 0;
        }
        let further_us = if self.outstanding[0] > 0 {
            self.generation_us
        } else {
            0
        };
        self.end_us() + further_us - now_us
    }

    /// Spends a cost that fits a current state.
    pub fn charge(&mut self, policy: &Policy, now_us: u64, cost: u64, tag: &[u8]) {
        if cost > 0 {
            self.state.charge(policy, now_us, cost, tag);
        }
    }

    /// Charges units to a current state although they need not fit: the settlement of a
    /// reservation. Returns whether the state was changed.
    pub fn owe(&mut self, policy: &Policy, now_us: u64, cost: u64) -> bool {
        self.state.owe(policy, now_us, cost)
    }

    /// Marks a current state that is in debt. The server does so when it stores the state: it
    /// corrects a state that holds more than the quota and is not marked.
    pub fn note_debt(&mut self, policy: &Policy, now_us: u64) {
        if self.state.fresh_at(policy) > now_us {
            self.state.note_debt(policy, now_us);
        }
    }

    /// Lets a current state that was charged by a reservation remember what a late refund has to
    /// know.
    pub fn remember(&mut self, now_us: u64) {
        self.state.remember(now_us);
    }

    /// Returns up to `cost` units of a direct check, which were spent at `spent_us`, to a current
    /// state.
    pub fn refund(&mut self, policy: &Policy, now_us: u64, spent_us: u64, cost: u64) {
        self.state.refund(policy, now_us, spent_us, cost);
        if self.state.fresh_at(policy) <= now_us {
            // A fresh state is not stored, so that it is fresh also for a clock that goes back.
            self.state = Metered::fresh(policy);
        }
    }

    /// Returns the units of a current state that are neither used nor outstanding.
    #[must_use]
    pub fn remaining(&self, policy: &Policy, now_us: u64) -> u64 {
        let level = self.level(policy, now_us, 0, true);
        decision(policy, level, 0)
            .states()
            .map(|state| state.remaining())
            .sum()
    }

    /// Returns the units that may be granted to a replica that wants `want`: at most a quarter of
    /// those that remain, so that others find units too.
    #[must_use]
    pub fn grantable(&self, policy: &Policy, lease: Lease, now_us: u64, want: u64) -> u64 {
        if self.generation_us != generation_us(lease) {
            return 0;
        }
        let most = lease
            .most(&policy.quota())
            .saturating_sub(self.outstanding());
        want.min(self.free(policy, now_us) / 4).min(most)
    }

    /// Returns about how many units remain. A quarter of them is less than what remains.
    fn free(&self, policy: &Policy, now_us: u64) -> u64 {
        free(
            policy,
            &self.as_used(policy, now_us).reading(policy, now_us, 0),
        )
    }

    /// Returns the stamp of units that are granted now, and of reports of them.
    #[must_use]
    pub fn stamp(&self) -> Stamp {
        Stamp {
            birth: self.birth,
            generation: self.generation,
        }
    }

    /// Grants units of the current generation. `birth` is the random number of the call, above
    /// zero.
    ///
    /// The time would not do as the birth: after a state is lost and the clock goes back, another
    /// state may begin at the same microsecond.
    pub fn grant(&mut self, units: u64, birth: u64) -> Stamp {
        if self.outstanding() == 0 || self.birth == NO_BIRTH {
            self.birth = birth;
        }
        self.outstanding[0] += units;
        self.stamp()
    }

    /// Returns the time for which units that are granted now may be spent, in microseconds: until
    /// the end of the next generation. It is at most two generations, also when the clock went
    /// back.
    #[must_use]
    pub fn life_us(&self, now_us: u64) -> u64 {
        (self.end_us() + self.generation_us - now_us).min(2 * self.generation_us)
    }

    /// Returns what the server stores beside the state of the algorithm: the birth, the length of a
    /// generation, the number of the current one, and the outstanding units of it and of the one
    /// before. `None` when nothing is outstanding.
    #[must_use]
    pub fn stored(&self) -> Option<[u64; 5]> {
        let [current, previous] = self.outstanding;
        (self.outstanding() > 0).then_some([
            self.birth,
            self.generation_us,
            self.generation,
            current,
            previous,
        ])
    }

    /// Returns the outstanding units of both generations.
    #[must_use]
    pub fn outstanding(&self) -> u64 {
        self.outstanding[0] + self.outstanding[1]
    }

    /// Returns the time until a denied cost may fit a current state, in microseconds, if no replica
    /// asks or reports before.
    ///
    /// It is exact while the cost and the outstanding units together are at most the burst, but for
    /// a sliding window. Otherwise it is no less than the time until all outstanding units have
    /// lapsed. So a caller that comes back at that time is sent back once more at most.
    #[must_use]
    pub fn retry_us(&self, policy: &Policy, now_us: u64, cost: u64) -> u64 {
        let fits = self.fits(policy, now_us, cost);
        let level = self.level(policy, now_us, cost, fits);
        let wait = decision(policy, level, cost).retry_after();
        wait.map_or(0, |wait| wait.as_micros() as u64)
    }

    /// Returns the time at which the state equals a fresh one, when all outstanding units lapse.
    /// The key expires then.
    #[must_use]
    pub fn fresh_at(&self, policy: &Policy) -> u64 {
        let mut last = self.clone();
        let mut end_us = 0;
        while last.outstanding() > 0 {
            end_us = last.end_us();
            last.lapse(policy, policy);
        }
        last.state.fresh_at(policy).max(end_us)
    }

    /// Ends the current generation at its time. The units of the one before are charged.
    fn lapse(&mut self, policy: &Policy, wrote: &Policy) -> Rolled {
        let [current, previous] = self.outstanding;
        // Charged at the end of the generation, not now: the units may have been spent until then,
        // and accrue again since. A state that owes the most already is not written.
        let (end_us, before) = (self.end_us(), self.state.clone());
        let is_charged = previous > 0 && {
            self.advance_state(policy, wrote, end_us);
            self.state.owe(policy, end_us, previous)
        };
        if is_charged {
            self.state.note_debt(policy, end_us);
        } else {
            self.state = before;
        }
        self.outstanding = [0, current];
        self.generation += 1;
        if is_charged {
            Rolled::Charged
        } else {
            Rolled::Moved
        }
    }

    /// Returns the end of the current generation, in microseconds since the Unix epoch.
    fn end_us(&self) -> u64 {
        (self.generation + 1) * self.generation_us
    }
}

/// Returns the length of a generation in microseconds.
fn generation_us(lease: Lease) -> u64 {
    lease.length().as_micros() as u64
}

/// Returns about how many units remain: with the rounding of doubles, as the script has it.
fn free(policy: &Policy, reading: &[u64; 4]) -> u64 {
    let quota = policy.quota();
    let (amount, period_us, burst) = (
        quota.amount(),
        quota.period().as_micros() as u64,
        quota.burst(),
    );
    match policy.algorithm() {
        Algorithm::TokenBucket => {
            let top_us = (u128::from(burst) * u128::from(period_us) / u128::from(amount)) as f64;
            ((top_us - reading[0] as f64) / (period_us as f64 / amount as f64)).floor() as u64
        }
        Algorithm::SlidingWindow => {
            let left = reading[2].min(period_us) as f64;
            (amount as f64 - reading[0] as f64 - reading[1] as f64 * left / period_us as f64)
                .floor() as u64
        }
        _ => burst.saturating_sub(reading[0]),
    }
}

/// Returns the decision of a check that left this level.
fn decision(policy: &Policy, level: Level, cost: u64) -> Decision {
    let alone = PolicySet::from(policy.clone());
    testing::decided(&alone, &[level], Cost::new(cost), 0)
}
