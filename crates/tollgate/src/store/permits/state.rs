//! The pure function behind `scripts/permits.lua`: the same steps in the same order.

use super::request::{PermitGrant, PermitOutcome, PermitRequest};
use crate::clock::micros;

/// The most replicas that hold permits of one key.
const MAX_REPLICAS: usize = 64;

/// Holds the permits of one key.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PermitState {
    /// The time at which the state began, which only earlier versions read. Without holders there is no state.
    began_us: u64,
    holders: Vec<Holder>,
}

/// The permits that one replica holds.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Holder {
    replica: u64,
    held: u32,
    /// The permits that the replica waits for, those it holds included.
    awaits: u32,
    /// The number of its last call.
    number: u64,
    life_us: u64,
    lapses_us: u64,
}

impl PermitState {
    /// Returns whether no replica holds permits or waits for them.
    pub(crate) fn is_empty(&self) -> bool {
        self.holders.is_empty()
    }

    /// Decides a call.
    pub(crate) fn decide(&mut self, now_us: u64, request: &PermitRequest<'_>) -> PermitGrant {
        let began_us = if self.is_empty() { now_us } else { self.began_us };
        let (mut parts, mut others, mut wanted, mut changed) = (Vec::new(), 0_u64, 0_u64, false);
        let (mut held, mut previous, mut found) = (0_u64, 0, false);
        for &(mut holder) in &self.holders {
            if holder.lapses_us > now_us + holder.life_us {
                // The clock went back.
                (holder.lapses_us, changed) = (now_us + holder.life_us, true);
            }
            if holder.lapses_us > now_us {
                if holder.replica == request.replica {
                    (held, previous, found) = (holder.held.into(), holder.number, true);
                } else {
                    others += u64::from(holder.held);
                    wanted += u64::from(holder.awaits.saturating_sub(holder.held));
                    parts.push(holder);
                }
            }
        }
        let grant = |held: u64, outcome| PermitGrant {
            held: u32::try_from(held).unwrap_or(u32::MAX),
            in_flight: others + held,
            wanted,
            outcome,
        };
        if previous >= request.number {
            return grant(held, PermitOutcome::Overtaken);
        }
        let mut outcome = PermitOutcome::Decided;
        let (mut needed, mut extra) = (u64::from(request.needed), u64::from(request.extra));
        let (limit, used) = (u64::from(request.limit), u64::from(request.used));
        if used > 0 && !found && others + used > limit {
            (outcome, needed, extra) = (PermitOutcome::Lost, 0, 0);
        }
        if others + held > limit {
            // The limit was lowered.
            held = held.min(request.kept.into());
        }
        if needed + extra < held {
            held = needed + extra;
        } else {
            let mut free = limit.saturating_sub(others + held);
            if needed > held && free > 0 {
                let granted = (needed - held).min(free);
                (held, free) = (held + granted, free - granted);
            }
            if wanted == 0 && free > 1 {
                held += (needed + extra - held).min(free / 2);
            }
        }
        if held > 0 && parts.len() >= MAX_REPLICAS {
            (outcome, held, needed) = (PermitOutcome::TooManyReplicas, 0, 0);
        }
        if !request.waits || parts.len() >= MAX_REPLICAS {
            needed = 0;
        }
        if held > 0 || needed > 0 {
            let life_us = micros(request.life);
            parts.push(Holder {
                replica: request.replica,
                held: held as u32,
                awaits: needed as u32,
                number: request.number,
                life_us,
                lapses_us: now_us + life_us,
            });
            changed = true;
        } else if found {
            changed = true;
        }
        let answer = grant(held, outcome);
        if changed {
            *self = Self { began_us, holders: parts };
        }
        answer
    }

    /// Returns whether everything in the state has lapsed.
    pub(crate) fn is_lapsed(&self, now_us: u64) -> bool {
        self.holders.iter().all(|holder| holder.lapses_us <= now_us)
    }

    /// Returns the permits that a replica holds, lapsed ones included.
    #[cfg(test)]
    pub(crate) fn held(&self, replica: u64) -> u64 {
        self.holders.iter().find(|holder| holder.replica == replica).map_or(0, |holder| holder.held.into())
    }

    /// Returns the permits that all replicas hold.
    #[cfg(test)]
    pub(crate) fn held_by_all(&self, now_us: u64) -> u64 {
        self.holders.iter().filter(|holder| holder.lapses_us > now_us).map(|holder| u64::from(holder.held)).sum()
    }

    /// Returns the bytes that the script stores, and when they expire in milliseconds. `None` without a state.
    #[cfg(feature = "testing")]
    pub(crate) fn stored(&self) -> Option<crate::model::algorithm::Stored> {
        let last_us = self.holders.iter().map(|holder| holder.lapses_us).max()?;
        let mut bytes = (self.began_us as f64).to_le_bytes().to_vec();
        for holder in &self.holders {
            bytes.extend_from_slice(&holder.replica.to_le_bytes());
            bytes.extend_from_slice(&holder.held.to_le_bytes());
            bytes.extend_from_slice(&holder.awaits.to_le_bytes());
            for number in [holder.number, holder.life_us, holder.lapses_us] {
                bytes.extend_from_slice(&(number as f64).to_le_bytes());
            }
        }
        Some(crate::model::algorithm::Stored {
            value: crate::model::algorithm::Value::Bytes(bytes),
            expires_ms: last_us / 1_000 + 1,
        })
    }
}
