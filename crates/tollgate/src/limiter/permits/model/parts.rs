//! The replicas of the model, and what they send.

use std::sync::Arc;

use super::{
    super::{
        lease::Lease,
        pool::{PermitTurn, Pool, PoolRules},
    },
    START_US,
};
use crate::store::PermitGrant;

/// Draws numbers by xorshift64*.
pub(super) struct Dice(pub(super) u64);

impl Dice {
    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % end
    }

    pub(super) fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }
}

/// A replica: its pool, and the permits that it has handed out.
pub(super) struct Replica {
    pub(super) name: u64,
    pub(super) rules: PoolRules,
    pub(super) pool: Pool,
    pub(super) permits: Vec<Arc<Lease>>,
    pub(super) limit: u32,
    pub(super) number: u64,
    /// The call that is under way, by its number.
    pub(super) turn: Option<(u64, PermitTurn)>,
    /// The look at the server by which the last reply was made.
    pub(super) answered: u64,
    /// The clock runs faster or slower by this many parts of 10 000, and from its own start.
    pub(super) skew: i64,
    pub(super) offset_us: u64,
}

/// A message in the network.
#[derive(Clone, Copy)]
pub(super) enum Message {
    Call {
        name: u64,
        number: u64,
        turn: PermitTurn,
        is_pooled: bool,
    },
    /// `look` is the look at the server by which it was made.
    Reply {
        name: u64,
        number: u64,
        grant: PermitGrant,
        look: u64,
    },
}

impl Replica {
    pub(super) fn now_us(&self, now_us: u64) -> u64 {
        let passed = (now_us - START_US) as i64;
        self.offset_us + (passed + passed * self.skew / 10_000) as u64
    }

    pub(super) fn live(&self, now_us: u64) -> u32 {
        let now_us = self.now_us(now_us);
        self.permits.iter().filter(|lease| !lease.is_lost(now_us)).count() as u32
    }
}
