//! What a store keeps of a reservation: its record, who settled it, and what a commit changes.
//! What callers hold is in `limiter/reservation.rs`; the change of the states is a step of
//! `step.rs`.

use std::{collections::HashMap, fmt, str, sync::Arc};

use foldhash::fast::RandomState;
use sha2::{Digest, Sha256};
use smallvec::SmallVec;
use tollgate_model::{
    algorithm::{
        PolicyLevel, Reading,
        stored::{self, doubles, whole},
    },
    raw::{AlgorithmParts, Charge, DecisionParts, KeyParts, PolicyLevels, PolicySetParts, Span},
};

use crate::{Cost, Decision, Error, Key, Policy, PolicySet, random, store::Check};

/// Names a [`Reservation`](crate::reservation::Reservation) of a key.
///
/// A random id is the default. Use the id of a request instead, so that a repeated request is
/// charged once. Do not take an id from a client: a client that repeats an id is charged once for
/// many requests.
///
/// The text of an id has 1 to 64 ASCII letters, digits and the signs `-`, `_`, `.`. Longer ids, and
/// ids with other bytes, are replaced by a digest: 160 bits of their SHA-256.
///
/// ```
/// use tollgate::reservation::ReservationId;
///
/// let id = ReservationId::try_new("order-4711")?;
/// assert_eq!(id.as_str(), "order-4711");
///
/// let id = ReservationId::try_new(b"any bytes: {}\0")?;
/// assert_eq!(id.as_str().len(), 40);
/// assert_eq!(ReservationId::try_new(id.as_str())?, id);
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ReservationId(Arc<str>);

/// The most bytes of an id that is stored as it is.
const MAX_BYTES: usize = 64;

/// The bytes of a digest that are kept.
const DIGEST_BYTES: usize = 20;

impl ReservationId {
    /// Creates a random id of 128 bits.
    #[must_use]
    pub fn random() -> Self {
        Self(random::name().into())
    }

    /// Creates an id from any bytes.
    ///
    /// # Errors
    ///
    /// Fails with [`ErrorKind::Config`](crate::ErrorKind::Config) when the id is empty: all
    /// requests without an id would share one reservation.
    pub fn try_new(id: impl AsRef<[u8]>) -> Result<Self, Error> {
        let id = id.as_ref();
        if id.is_empty() {
            return Err(Error::config(
                "reservation id must have at least one byte, got none",
            ));
        }
        Ok(Self::of(id))
    }

    /// Returns the id of a slice of the [growing](crate::reservation::GrowingReservation) reservation
    /// with this id. The slices are counted from 0.
    pub(crate) fn slice(&self, number: u64) -> Self {
        match number {
            0 => self.clone(),
            _ => Self::of(format!("{self}..{number}").as_bytes()),
        }
    }

    fn of(id: &[u8]) -> Self {
        let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
        match str::from_utf8(id) {
            Ok(text) if id.len() <= MAX_BYTES && id.iter().all(is_plain) => Self(text.into()),
            _ => {
                let digest = Sha256::digest(id);
                let hex: String = digest
                    .iter()
                    .take(DIGEST_BYTES)
                    .map(|byte| format!("{byte:02x}"))
                    .collect();
                Self(hex.into())
            }
        }
    }

    /// Returns the text of the id. [`try_new`](Self::try_new) makes the same id of it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ReservationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ReservationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReservationId({})", self.0)
    }
}

/// Records what one reservation charged.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Record {
    pub(crate) lapse_us: u64,
    /// The number of the commit that settled the reservation. 0 while it is held.
    pub(crate) settled_by: u64,
    pub(crate) at_us: u64,
    pub(crate) charged: SmallVec<[ChargedPolicy; 2]>,
}

/// Records what a reservation charged on one policy of its set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ChargedPolicy {
    pub(crate) cost: u64,
    pub(crate) reading: Reading,
}

/// The outcome of a call that reserves.
#[derive(Debug)]
pub(crate) struct Reserved {
    pub(crate) levels: PolicyLevels,
    pub(crate) charge: Charge,
    pub(crate) at_us: u64,
}

impl Reserved {
    pub(crate) fn decision(self, check: Check<'_>) -> Decision {
        let charge = self.charge.borrow();
        Decision::from_levels(check.policies, self.levels, charge, self.at_us)
    }
}

/// The change that a commit makes on one policy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Adjustment {
    None,
    /// Returns units. The end of their places is for a queue.
    Refund(u64, Option<Span>),
    /// Charges units as a debt.
    Owe(u64),
}

impl Record {
    /// Creates the record of an admitted check.
    pub(crate) fn new(check: Check<'_>, levels: &PolicyLevels, now_us: u64, life_us: u64) -> Self {
        let charged = levels
            .iter(check.policies)
            .enumerate()
            .map(|(at, (_, level))| ChargedPolicy {
                cost: check.cost_of(at).units(),
                reading: level.reading,
            });
        Self {
            lapse_us: now_us + life_us,
            settled_by: 0,
            at_us: now_us,
            charged: charged.collect(),
        }
    }

    /// Returns the outcome for a call that repeats the reservation.
    pub(crate) fn repeated(&self, check: Check<'_>) -> Reserved {
        let level = |charged: &ChargedPolicy| PolicyLevel {
            fits: true,
            reading: charged.reading,
        };
        let levels = self.charged.iter().map(level);
        let levels = PolicyLevels::collect(check.policies.iter().zip(levels));
        let costs = self.charged.iter().map(|charged| Cost::new(charged.cost));
        Reserved {
            levels,
            charge: check.charge().divided(costs),
            at_us: self.at_us,
        }
    }

    /// Returns the answer to the commit of this number. The same commit may be sent again.
    pub(crate) fn settlement(&self, number: u64) -> Settlement {
        match self.settled_by {
            0 => Settlement::Settled,
            settled_by if settled_by == number => Settlement::Settled,
            _ => Settlement::AlreadySettled,
        }
    }

    /// Returns what a final cost changes on the policy at this place of the set.
    pub(crate) fn change(&self, at: usize, policy: &Policy, cost: Cost) -> Adjustment {
        let Some(charged) = self.charged.get(at) else {
            return Adjustment::None;
        };
        match cost.units().checked_sub(charged.cost) {
            Some(0) => Adjustment::None,
            Some(more) => Adjustment::Owe(more),
            None => {
                let end = policy
                    .algorithm()
                    .is_queued(false)
                    .then(|| (self.at_us + charged.reading[0], charged.reading[1]));
                Adjustment::Refund(charged.cost - cost.units(), end)
            }
        }
    }

    /// Returns the bytes that are stored, the same as the script stores.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = doubles(&[self.lapse_us, self.settled_by, self.at_us]);
        for charged in &self.charged {
            bytes.extend(doubles(&[charged.cost]));
            bytes.extend(doubles(&charged.reading));
        }
        bytes
    }

    /// Reads the record of a reservation over so many policies. `None` for bytes that are never
    /// stored.
    pub(crate) fn of_bytes(policies: usize, bytes: &[u8]) -> Option<Self> {
        let ([lapse_us, settled_by, at_us], mut rest) = stored::split(bytes)?;
        let mut charged = SmallVec::new();
        while let Some(([cost, a, b, c, d], others)) = stored::split(rest) {
            charged.push(ChargedPolicy {
                cost: whole(cost)?,
                reading: [whole(a)?, whole(b)?, whole(c)?, whole(d)?],
            });
            rest = others;
        }
        let is_whole = rest.is_empty() && charged.len() == policies;
        let (lapse_us, settled_by, at_us) = (whole(lapse_us)?, whole(settled_by)?, whole(at_us)?);
        is_whole.then_some(Self {
            lapse_us,
            settled_by,
            at_us,
            charged,
        })
    }

    /// Returns when the bytes expire, in milliseconds since the Unix epoch.
    pub(crate) fn expires_ms(&self) -> u64 {
        self.lapse_us / 1_000 + 1
    }
}

/// The records of one shard of the in-process store, in a bounded room.
///
/// A record that is dropped for room lapses early. What it charged stays charged, so no limit is
/// passed.
#[derive(Debug)]
pub(crate) struct Records {
    records: HashMap<Box<[u8]>, Record, RandomState>,
    room: usize,
}

impl Records {
    pub(crate) fn new(room: usize, hasher: RandomState) -> Self {
        Self {
            records: HashMap::with_hasher(hasher),
            room,
        }
    }

    /// Returns the record that has not lapsed.
    pub(crate) fn get(
        &self,
        policies: &PolicySet,
        key: &Key,
        id: &ReservationId,
        now_us: u64,
    ) -> Option<&Record> {
        if self.records.is_empty() {
            return None;
        }
        self.records
            .get(&name(policies, key, id))
            .filter(|record| now_us < record.lapse_us)
    }

    pub(crate) fn insert(
        &mut self,
        policies: &PolicySet,
        key: &Key,
        id: &ReservationId,
        record: Record,
    ) {
        let name = name(policies, key, id);
        if self.records.len() >= self.room && !self.records.contains_key(&name) {
            self.make_room(record.at_us);
        }
        self.records.insert(name, record);
    }

    /// Drops the records that have lapsed. When a sixteenth of the room is not free then, drops
    /// those that lapse first, until it is.
    fn make_room(&mut self, now_us: u64) {
        self.records.retain(|_, record| now_us < record.lapse_us);
        let goal = self.room - (self.room / 16).max(1);
        if self.records.len() <= goal {
            return;
        }
        let mut lapses: Vec<u64> = self
            .records
            .values()
            .map(|record| record.lapse_us)
            .collect();
        let surplus = lapses.len() - goal;
        let (_, &mut last, _) = lapses.select_nth_unstable(surplus - 1);
        let mut left = surplus;
        self.records.retain(|_, record| {
            let is_dropped = record.lapse_us <= last && left > 0;
            left -= usize::from(is_dropped);
            !is_dropped
        });
    }
}

/// Returns the name of a record. No id contains a colon, and the policies have a fixed size, so the
/// last colon before them ends the key.
fn name(policies: &PolicySet, key: &Key, id: &ReservationId) -> Box<[u8]> {
    [
        key.level(0).as_bytes(),
        b":",
        id.as_str().as_bytes(),
        &policies.fingerprint().to_le_bytes(),
    ]
    .concat()
    .into()
}

/// The effect of a commit on a [`Reservation`](crate::reservation::Reservation).
///
/// A reservation is settled once. No commit after the first one changes anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Settlement {
    /// This commit settled the reservation.
    Settled,
    /// An earlier commit settled the reservation.
    AlreadySettled,
    /// No reservation with this id is held: its time to live has ended, it was denied or never
    /// made, or [`Outage::Open`](crate::Outage::Open) admitted it. What a lapsed reservation
    /// charged stays charged.
    Lapsed,
}

impl Settlement {
    /// Returns the stable word for metrics: `settled`, `already_settled` or `lapsed`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Settled => "settled",
            Self::AlreadySettled => "already_settled",
            Self::Lapsed => "lapsed",
        }
    }
}

#[cfg(test)]
mod records_tests {
    use tollgate_model::raw::PriorityParts;

    use super::*;
    use crate::{MemoryStore, Policy, Priority, Quota, clock::Clock, store::check::CheckParts};

    #[test]
    fn a_full_table_drops_lapsed_records_and_then_those_that_lapse_first() {
        let mut records = Records::new(16, RandomState::default());
        let policies = PolicySet::from(Policy::token_bucket("p", Quota::per_second(1)));
        let (key, id) = (Key::new("acme"), |at: u64| {
            ReservationId::try_new(at.to_string()).expect("an id")
        });
        let record = |at: u64| Record {
            lapse_us: at + 100,
            settled_by: 0,
            at_us: at,
            charged: Default::default(),
        };
        for at in 0..1_000 {
            records.insert(&policies, &key, &id(at), record(at));
            assert!(records.records.len() <= 16);
            assert!(records.get(&policies, &key, &id(at), at).is_some());
        }
        assert!(records.get(&policies, &key, &id(0), 999).is_none());
        assert!(records.get(&policies, &key, &id(999), 1_098).is_some());
        assert!(
            records.get(&policies, &key, &id(999), 1_099).is_none(),
            "it has lapsed"
        );
    }

    #[test]
    fn a_repeated_reservation_tells_what_its_rank_can_have() {
        let store = MemoryStore::builder().clock(Clock::manual(0)).build();
        let policies = PolicySet::from(Policy::token_bucket("p", Quota::per_hour(10)));
        let (key, id) = (Key::new("acme"), ReservationId::random());
        let ranked = Priority::BACKGROUND
            .rank(&policies, Cost::new(2).into())
            .expect("a cost within the share");
        let check = Check::new(&policies, &key, Cost::new(2)).with_charge(&ranked);
        for call in ["the first", "the same again"] {
            let decision = store.reserve_now(check, &id, 1_000_000);
            let state = decision.state("p").expect("a state");
            assert_eq!((state.remaining(), state.spent()), (4, 2), "{call}");
        }
    }
}
