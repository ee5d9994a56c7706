//! The permits of one key in this process. This file makes no call, so that a test can run its
//! schedules.
//! Locks, waiters and the table of all keys are in `shared.rs`.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::sync::Notify;

use super::PermitGrant;

/// Takes the permits that the store granted to this replica for one key, and hands them out.
///
/// The pool never counts more permits than the store does: it counts less before it states a
/// smaller total, and more after the reply that granted a larger one.
#[derive(Debug, Default)]
pub(super) struct PermitPool {
    granted: Option<Arc<Granted>>,
    /// The permits that the store granted.
    capacity: u32,
    /// The permits that were handed out.
    used: u32,
    /// The most permits that were in use since the last call.
    peak: u32,
    /// The callers that wait for a permit.
    pub(super) demand: u32,
    /// The permits that were handed out without the store in an outage.
    pub(super) unshared: u32,
    /// Other replicas wait for permits.
    others_wait: bool,
    /// The permits of all replicas, as the store said last.
    in_flight: u64,
    /// The permits of this replica, as the store said last.
    held: u32,
    /// The time of the next renewal.
    due_us: u64,
    /// The time until which the store may hold permits that this replica does not know of: a reply
    /// was lost.
    unsure_until_us: u64,
}

/// The rules by which a pool is kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct PoolRules {
    /// Idle permits are kept.
    pub(super) is_pooled: bool,
    pub(super) life_us: u64,
}

/// A call that is under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct PoolCall {
    pub(super) sent_us: u64,
    pub(super) limit: u32,
    /// The most permits that may be in use when the reply arrives.
    pub(super) kept: u32,
    pub(super) used: u32,
    pub(super) needed: u32,
    pub(super) extra: u32,
}

impl PoolRules {
    /// Returns the part of the life that the replica uses. The rest covers a clock that is slower
    /// than the server's.
    fn safe_life_us(self) -> u64 {
        self.life_us - self.life_us.div_ceil(1_000)
    }
}

impl PermitPool {
    /// Hands out a permit without a call.
    pub(super) fn take(&mut self, now_us: u64, limit: u32) -> Option<Arc<Granted>> {
        if !self.has_free(now_us, limit) {
            return None;
        }
        self.used += 1;
        self.peak = self.peak.max(self.used);
        self.granted.clone()
    }

    /// Hands out a permit that nobody waits for.
    pub(super) fn take_spare(&mut self, now_us: u64, limit: u32) -> Option<Arc<Granted>> {
        if self.free(limit) > self.demand {
            self.take(now_us, limit)
        } else {
            None
        }
    }

    /// Returns whether a permit can be handed out without a call.
    pub(super) fn has_free(&mut self, now_us: u64, limit: u32) -> bool {
        self.expire(now_us);
        self.free(limit) > 0
    }

    /// Returns the permits that can be handed out without a call: none while all replicas hold more
    /// than the limit.
    fn free(&self, limit: u32) -> u32 {
        if self.is_above(limit) {
            0
        } else {
            self.capacity.min(limit).saturating_sub(self.used)
        }
    }

    /// Returns whether all replicas held more permits than the limit by the last reply: it was
    /// lowered.
    fn is_above(&self, limit: u32) -> bool {
        self.in_flight > limit.into()
    }

    /// Hands out a permit of this replica's share in an outage.
    pub(super) fn take_share(&mut self, now_us: u64, share: u32) -> bool {
        self.expire(now_us);
        let is_free = self.used.saturating_add(self.unshared) < share;
        self.unshared += u32::from(is_free);
        is_free
    }

    /// Takes back a permit. Returns `false` for one that was lost.
    pub(super) fn give_back(&mut self, granted: &Arc<Granted>) -> bool {
        let is_mine = self
            .granted
            .as_ref()
            .is_some_and(|mine| Arc::ptr_eq(mine, granted));
        if is_mine {
            self.used -= 1;
        }
        is_mine
    }

    /// Loses the permits when they have lapsed.
    fn expire(&mut self, now_us: u64) {
        if self
            .granted
            .as_ref()
            .is_some_and(|granted| granted.is_lost(now_us))
        {
            self.lose();
        }
    }

    /// Loses the permits, those in use and those that are idle.
    fn lose(&mut self) {
        if let Some(granted) = self.granted.take() {
            granted.lose();
        }
        (self.capacity, self.used) = (0, 0);
    }

    /// Begins a call. Permits that the call may give back are not handed out from now on.
    ///
    /// While more permits than the limit are held, it gives back all that are idle.
    pub(super) fn begin(&mut self, now_us: u64, limit: u32, rules: PoolRules) -> PoolCall {
        self.expire(now_us);
        let (needed, is_above) = (self.used.saturating_add(self.demand), self.is_above(limit));
        let extra = match () {
            () if !rules.is_pooled || self.others_wait || is_above => 0,
            () if self.demand > 0 => needed.min(u32::MAX - needed),
            () => self.peak.saturating_sub(needed),
        };
        self.capacity = self
            .capacity
            .min(if is_above { self.used } else { needed + extra });
        if self.capacity == 0 {
            self.granted = None;
        }
        self.peak = self.used;
        self.unsure_until_us = self.unsure_until_us.max(now_us + rules.life_us);
        self.due_us = self.due_us.max(now_us + rules.life_us / 3);
        PoolCall {
            sent_us: now_us,
            limit,
            kept: self.capacity,
            used: self.used,
            needed,
            extra,
        }
    }

    /// Ends a call with its reply. A reply that does not cover the permits in use loses all of
    /// them.
    pub(super) fn end(
        &mut self,
        call: PoolCall,
        grant: &PermitGrant,
        now_us: u64,
        rules: PoolRules,
    ) {
        self.expire(now_us);
        self.others_wait = grant.wanted > 0;
        (self.in_flight, self.held) = (grant.in_flight, grant.held);
        if grant.held < self.used || grant.held == 0 {
            self.lose();
            // What the store holds for this replica all the same is given back with the next call,
            // at once.
            let unsure_until_us = if grant.held > 0 {
                call.sent_us + rules.life_us
            } else {
                0
            };
            (self.due_us, self.unsure_until_us) = (now_us, unsure_until_us);
            return;
        }
        let until_us = call.sent_us + rules.safe_life_us();
        match &self.granted {
            Some(granted) => granted.renew(until_us),
            None => self.granted = Some(Arc::new(Granted::new(until_us))),
        }
        self.capacity = grant.held;
        (self.due_us, self.unsure_until_us) = (call.sent_us + rules.life_us / 3, 0);
    }

    /// Ends a call without a reply. The next one follows after a tenth of the life.
    pub(super) fn fail(&mut self, now_us: u64, rules: PoolRules) {
        self.due_us = now_us + rules.life_us / 10;
        self.expire(now_us);
    }

    /// Returns whether a call is due: a renewal, or permits to give back.
    pub(super) fn is_due(&self, now_us: u64, rules: PoolRules) -> bool {
        let holds = self.capacity > 0 || self.is_unsure(now_us);
        holds && (now_us >= self.due_us || self.has_surplus(rules))
    }

    /// Returns whether idle permits have to be given back at once.
    pub(super) fn has_surplus(&self, rules: PoolRules) -> bool {
        !rules.is_pooled && self.capacity > self.used.saturating_add(self.demand)
    }

    /// Returns whether the store may hold permits that this replica does not know of.
    pub(super) fn is_unsure(&self, now_us: u64) -> bool {
        now_us < self.unsure_until_us
    }

    /// Returns whether nothing is held and nobody waits.
    pub(super) fn is_idle(&self, now_us: u64) -> bool {
        self.granted.is_none() && self.demand == 0 && self.unshared == 0 && !self.is_unsure(now_us)
    }

    /// Returns the permits that this replica counts as its own.
    #[cfg(test)]
    pub(super) fn capacity(&self, now_us: u64) -> u32 {
        let is_valid = self
            .granted
            .as_ref()
            .is_some_and(|granted| !granted.is_lost(now_us));
        if is_valid { self.capacity } else { 0 }
    }

    /// Returns how many permits are in flight over all replicas, as far as this one knows. Idle
    /// permits of this replica are not in flight.
    pub(super) fn in_flight(&self) -> u64 {
        let others = self.in_flight.saturating_sub(self.held.into());
        others + u64::from(self.used) + u64::from(self.unshared)
    }
}

/// The permits that the store granted to this replica for one key, until they are lost. Permits of
/// the same grant share it.
#[derive(Debug)]
pub(super) struct Granted {
    /// The time on the clock of this replica at which the permits lapse unless they are renewed.
    until_us: AtomicU64,
    is_lost: AtomicBool,
    lost: Notify,
}

impl Granted {
    pub(super) fn new(until_us: u64) -> Self {
        Self {
            until_us: AtomicU64::new(until_us),
            is_lost: AtomicBool::new(false),
            lost: Notify::new(),
        }
    }

    /// Returns whether the permits are lost.
    #[inline]
    pub(super) fn is_lost(&self, now_us: u64) -> bool {
        now_us >= self.until_us() || self.is_lost.load(Ordering::Acquire)
    }

    pub(super) fn until_us(&self) -> u64 {
        self.until_us.load(Ordering::Acquire)
    }

    /// Renews the permits until `until_us`, unless they last longer already.
    pub(super) fn renew(&self, until_us: u64) {
        self.until_us.fetch_max(until_us, Ordering::AcqRel);
    }

    /// Marks the permits as lost: the store does not hold them any more.
    pub(super) fn lose(&self) {
        self.is_lost.store(true, Ordering::Release);
        self.lost.notify_waiters();
    }

    /// Waits until the permits are lost. Without a runtime, waits for the store to say so.
    pub(super) async fn lost(&self, now_us: impl Fn() -> u64) {
        loop {
            let lost = self.lost.notified();
            let now_us = now_us();
            if self.is_lost(now_us) {
                return;
            }
            // The clock of tokio may stand still while the system sleeps. So the pause is short.
            let left_us = (self.until_us() - now_us).min(LONGEST_PAUSE_US);
            if tokio::runtime::Handle::try_current().is_ok() {
                // Rounded up, so that the permits have lapsed after the last pause.
                let pause = Duration::from_millis(left_us / 1_000 + 1);
                let _ = tokio::time::timeout(pause, lost).await;
            } else {
                lost.await;
            }
        }
    }
}

/// The longest pause before the clock is read again.
const LONGEST_PAUSE_US: u64 = 1_000_000;
