//! Permits, as a store sees them: the call, and the pure function that decides it.
//! What a replica asks for is decided in `limiter/permits/`; the script of Redis is
//! `scripts/permits.lua`.

#![cfg_attr(
    not(feature = "testing"),
    allow(unreachable_pub, reason = "the feature makes the state public")
)]

use std::{fmt, time::Duration};

use tollgate_model::{
    Concurrency,
    algorithm::stored::{self, doubles, whole},
};

use crate::{Key, clock::micros, store::Deadline};

/// Describes one call of [`Store::permits`](crate::Store::permits): how many permits of a key one
/// replica is to hold.
///
/// A call states totals and no differences, so it may be repeated. Calls of a replica are numbered,
/// so a late call changes nothing.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct PermitRequest<'a> {
    /// The policy. The state belongs to its name and the key.
    pub policy: &'a Concurrency,
    /// The key whose permits are held.
    pub key: &'a Key,
    /// The number of permits that all replicas hold at most.
    pub limit: u32,
    /// The random name of the replica.
    pub replica: u64,
    /// The number of the call. It grows with each call of the replica.
    pub number: u64,
    /// The permits that the replica keeps if more than the limit are held: it may have so many in
    /// use when the reply arrives.
    pub kept: u32,
    /// The permits that the replica has handed out.
    pub used: u32,
    /// The permits that the replica needs at least, those in use included.
    pub needed: u32,
    /// The permits that the replica wants on top, to hand them out without a call.
    pub extra: u32,
    /// The replica waits for permits that others hold idle.
    pub waits: bool,
    /// The time after which the permits lapse unless they are renewed.
    pub life: Duration,
    /// The time limit of the caller. `None` for a store in the process.
    pub deadline: Option<Deadline>,
}

impl PermitRequest<'_> {
    /// Copies the request, for a future that outlives the call.
    ///
    /// ```
    /// use tollgate::{Key, permits::Concurrency, store::{KeptPermitRequest, PermitRequest}};
    ///
    /// fn keep(request: PermitRequest<'_>) -> KeptPermitRequest {
    ///     request.keep()
    /// }
    /// # let _ = keep;
    /// ```
    #[must_use]
    pub fn keep(self) -> KeptPermitRequest {
        KeptPermitRequest {
            policy: self.policy.clone(),
            key: self.key.clone(),
            limit: self.limit,
            replica: self.replica,
            number: self.number,
            kept: self.kept,
            used: self.used,
            needed: self.needed,
            extra: self.extra,
            waits: self.waits,
            life: self.life,
            deadline: self.deadline,
        }
    }
}

/// Holds a [`PermitRequest`] in a future: see [`PermitRequest::keep`].
pub struct KeptPermitRequest {
    policy: Concurrency,
    key: Key,
    limit: u32,
    replica: u64,
    number: u64,
    kept: u32,
    used: u32,
    needed: u32,
    extra: u32,
    waits: bool,
    life: Duration,
    deadline: Option<Deadline>,
}

impl KeptPermitRequest {
    /// Returns the request.
    #[must_use]
    pub fn request(&self) -> PermitRequest<'_> {
        PermitRequest {
            policy: &self.policy,
            key: &self.key,
            limit: self.limit,
            replica: self.replica,
            number: self.number,
            kept: self.kept,
            used: self.used,
            needed: self.needed,
            extra: self.extra,
            waits: self.waits,
            life: self.life,
            deadline: self.deadline,
        }
    }
}

impl fmt::Debug for KeptPermitRequest {
    /// Leaves out the key: it may identify a person.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.request().fmt(f)
    }
}

// Leaves out the key: it may identify a person.
crate::debug_fields! { PermitRequest<'a>: policy, number, kept, used, needed, extra, .. }

/// The answer of a store to a [`PermitRequest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PermitGrant {
    /// The permits that the replica holds now.
    pub held: u32,
    /// The permits that all replicas hold now.
    pub in_flight: u64,
    /// The permits that other replicas wait for.
    pub wanted: u64,
    /// The effect of the call on the permits.
    pub outcome: PermitOutcome,
}

/// The effect of a [`PermitRequest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PermitOutcome {
    /// The permits were granted as far as the limit allows.
    Decided,
    /// A later call of the same replica has arrived before. Nothing changed.
    Overtaken,
    /// The state did not have the permits in use, and they do not fit the limit. The replica holds
    /// none now.
    Lost,
    /// 64 other replicas hold permits of the key. Nothing was granted.
    TooManyReplicas,
}

/// The most replicas that hold permits of one key.
const MAX_REPLICAS: usize = 64;

/// The bytes of a holder.
const HOLDER: usize = 40;

/// The permits of one key.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PermitState {
    /// The time at which the state began, which only earlier versions read. Without holders there
    /// is no state.
    began_us: u64,
    holders: Vec<PermitHolder>,
}

/// The permits that one replica holds.
#[derive(Clone, Copy, Debug, PartialEq)]
struct PermitHolder {
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
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.holders.is_empty()
    }

    /// Decides a call.
    pub fn decide(&mut self, now_us: u64, request: &PermitRequest<'_>) -> PermitGrant {
        let began_us = if self.is_empty() {
            now_us
        } else {
            self.began_us
        };
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
            parts.push(PermitHolder {
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
            *self = Self {
                began_us,
                holders: parts,
            };
        }
        answer
    }

    /// Returns whether everything in the state has lapsed.
    #[must_use]
    pub fn is_lapsed(&self, now_us: u64) -> bool {
        self.holders.iter().all(|holder| holder.lapses_us <= now_us)
    }

    /// Returns the permits that a replica holds, lapsed ones included.
    #[cfg(feature = "testing")]
    #[must_use]
    pub fn held(&self, replica: u64) -> u64 {
        self.holders
            .iter()
            .find(|holder| holder.replica == replica)
            .map_or(0, |holder| holder.held.into())
    }

    /// Returns the permits that all replicas hold.
    #[cfg(feature = "testing")]
    #[must_use]
    pub fn held_by_all(&self, now_us: u64) -> u64 {
        self.holders
            .iter()
            .filter(|holder| holder.lapses_us > now_us)
            .map(|holder| u64::from(holder.held))
            .sum()
    }

    /// Returns the bytes that are stored, the same as the script stores.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = doubles(&[self.began_us]);
        for holder in &self.holders {
            bytes.extend_from_slice(&holder.replica.to_le_bytes());
            bytes.extend_from_slice(&holder.held.to_le_bytes());
            bytes.extend_from_slice(&holder.awaits.to_le_bytes());
            bytes.extend(doubles(&[holder.number, holder.life_us, holder.lapses_us]));
        }
        bytes
    }

    /// Reads the bytes of a state. `None` for bytes that are never stored.
    pub(crate) fn of_bytes(bytes: &[u8]) -> Option<Self> {
        let ([began_us], holders) = stored::split(bytes)?;
        let (holders, []) = holders.as_chunks::<HOLDER>() else {
            return None;
        };
        let holder = |bytes: &[u8; HOLDER]| {
            let (replica, rest) = bytes.split_first_chunk()?;
            let (held, rest) = rest.split_first_chunk()?;
            let (awaits, numbers) = rest.split_first_chunk()?;
            let ([number, life_us, lapses_us], _) = stored::split(numbers)?;
            Some(PermitHolder {
                replica: u64::from_le_bytes(*replica),
                held: u32::from_le_bytes(*held),
                awaits: u32::from_le_bytes(*awaits),
                number: whole(number)?,
                life_us: whole(life_us)?,
                lapses_us: whole(lapses_us)?,
            })
        };
        Some(Self {
            began_us: whole(began_us)?,
            holders: holders.iter().map(holder).collect::<Option<_>>()?,
        })
    }

    /// Returns when the bytes expire, in milliseconds since the Unix epoch.
    pub(crate) fn expires_ms(&self) -> u64 {
        self.holders
            .iter()
            .map(|holder| holder.lapses_us)
            .max()
            .unwrap_or(0)
            / 1_000
            + 1
    }
}
