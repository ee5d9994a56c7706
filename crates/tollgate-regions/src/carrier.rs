//! Carries a call of a purse to the home, and its grant back.
//! The purse chooses the process that carries, in `scripts/purse.lua`. Checks are in `store.rs`.

use std::{
    hash::{BuildHasher, RandomState},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::{
    sync::Notify,
    task::JoinSet,
    time::{Instant, sleep, timeout},
};
use tollgate_core::{
    Error, Key, PolicySet,
    raw::{MAX_EXACT, micros, runtime::Background},
};
use tollgate_redis::{
    RedisStore,
    raw::{self, Place},
};

use crate::{
    durability::Durability,
    floor::Floor,
    held::Held,
    leases::Leases,
    rules::{Call, Grant, Seen, Terms},
    terms, wire,
};

/// The sets of waiting checks. Those of a key wait in one of them.
const ARRIVALS: usize = 64;

/// The longest time for which the home waits for its replicas, in round trips.
const WAIT_TRIPS: u32 = 1;

/// Counts what became of the calls that this process has carried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RegionFigures {
    /// The units that the purses of the region held when this process saw them last, without those
    /// that have lapsed since.
    pub held: u64,
    /// The units that this process has leased of them, and may spend without a trip.
    pub leased: u64,
    /// The checks that such units decided.
    pub trips_saved: u64,
    /// The calls of the home, without those that were sent again.
    pub calls: u64,
    /// The calls that were answered.
    pub answered: u64,
    /// The calls that were sent again, because no answer came in time.
    pub resent: u64,
    /// The calls that were given up. What they reported lapses at the home.
    pub given_up: u64,
    /// The units that were granted.
    pub granted: u64,
    /// The granted units that nobody could spend: the purse did not take them, they lapsed in it, or
    /// they were there when another server took over. They count as used at the home until they
    /// lapse.
    pub lost: u64,
}

#[derive(Debug, Default)]
struct Counts {
    calls: AtomicU64,
    answered: AtomicU64,
    resent: AtomicU64,
    given_up: AtomicU64,
    granted: AtomicU64,
    lost: AtomicU64,
}

/// The servers of a store, and what this process knows of them.
pub(crate) struct Servers {
    pub(crate) local: RedisStore,
    pub(crate) home: RedisStore,
    /// The number of the region.
    pub(crate) region: u64,
    pub(crate) floor: Floor,
    pub(crate) held: Held,
    pub(crate) leases: Leases,
    /// Sets the series of the region, and gives leased units back.
    pub(crate) task: Background,
    /// Policies that are not leased are decided by the server of the region.
    pub(crate) takes_unleased: bool,
    durability: Durability,
    trip: Duration,
    /// The estimate of a round trip to the home, in microseconds.
    measured_us: AtomicU64,
    arrivals: [Notify; ARRIVALS],
    hasher: RandomState,
    counts: Counts,
}

tollgate_core::debug_fields! { Servers: local, home, durability, trip, .. }

impl Servers {
    pub(crate) fn new(
        (local, home): (RedisStore, RedisStore),
        region: &str,
        durability: Durability,
        trip: Duration,
        takes_unleased: bool,
    ) -> Self {
        Self {
            local,
            home,
            region: number(region),
            floor: Floor::default(),
            held: Held::default(),
            leases: Leases::new(),
            task: Background::new(),
            takes_unleased,
            durability,
            trip,
            measured_us: AtomicU64::new(0),
            arrivals: [const { Notify::const_new() }; ARRIVALS],
            hasher: RandomState::new(),
            counts: Counts::default(),
        }
    }

    /// Returns the time of a round trip as it was set.
    pub(crate) fn set_trip(&self) -> Duration {
        self.trip
    }

    /// Returns the time of a round trip: as it was set, or a longer one that was measured.
    pub(crate) fn trip(&self) -> Duration {
        let measured = self.measured();
        // A home that stood still for a while must not let a region ask for units of minutes.
        self.trip.max(measured.min(self.trip * 4))
    }

    /// Returns the estimate of a round trip. Zero before the first one.
    pub(crate) fn measured(&self) -> Duration {
        Duration::from_micros(self.measured_us.load(Relaxed))
    }

    /// Returns what wakes the checks of a key when units arrive.
    pub(crate) fn arrival(&self, key: &Key) -> &Notify {
        &self.arrivals[self.hash(key) as usize % ARRIVALS]
    }

    /// Returns the hash by which this process finds what it knows of a key.
    pub(crate) fn hash(&self, key: &Key) -> u64 {
        self.hasher.hash_one(key)
    }

    /// Notes what a reply of a purse shows: the time of its server, units that nobody could spend,
    /// and those that it holds.
    pub(crate) fn note(&self, place: Place<'_>, terms: &Terms, seen: Seen, free: u64) {
        self.floor.note(seen.now_us);
        self.counts.lost.fetch_add(seen.lost, Relaxed);
        let purse = self.hasher.hash_one((place.policy.name(), place.key));
        let life = Duration::from_micros(2 * terms.length_us);
        self.held.note(purse, free, life);
    }

    pub(crate) fn figures(&self) -> RegionFigures {
        let (counts, leases) = (&self.counts, self.leases.counts());
        RegionFigures {
            leased: leases.held,
            trips_saved: leases.trips_saved,
            held: self.held.sum(),
            calls: counts.calls.load(Relaxed),
            answered: counts.answered.load(Relaxed),
            resent: counts.resent.load(Relaxed),
            given_up: counts.given_up.load(Relaxed),
            granted: counts.granted.load(Relaxed),
            lost: counts.lost.load(Relaxed),
        }
    }

    /// Calls the home, and waits until a grant counts.
    pub(crate) async fn ask(
        &self,
        policies: &PolicySet,
        key: &Key,
        numbers: &[f64],
    ) -> Result<Grant, Error> {
        let place = Place {
            policy: terms::the_one(policies)?,
            key,
            suffix: wire::HOME,
        };
        let (script, begun) = (wire::home(), Instant::now());
        let reply = match self.durability {
            Durability::Trust => raw::run(&self.home, script, place, numbers, None).await?,
            Durability::Replicas(replicas) => {
                let within = self.trip * WAIT_TRIPS;
                raw::run_replicated(&self.home, script, place, numbers, (replicas, within)).await?
            }
        };
        let (taken_us, set_us) = (micros(begun.elapsed()), micros(self.trip));
        let next = |us: u64| Some(estimate(us, taken_us, set_us));
        let _ = self.measured_us.fetch_update(Relaxed, Relaxed, next);
        wire::granted(&reply)
    }
}

/// Carries the call of a purse to the home, and the grant back to the purse.
pub(crate) async fn carry(
    servers: Arc<Servers>,
    policies: PolicySet,
    key: Key,
    terms: Terms,
    call: Call,
) {
    servers.counts.calls.fetch_add(1, Relaxed);
    let Some(grant) = answered(&servers, &policies, &key, &terms, &call).await else {
        servers.counts.given_up.fetch_add(1, Relaxed);
        tracing::debug!("a call of the home got no answer");
        return;
    };
    servers.counts.answered.fetch_add(1, Relaxed);
    servers.counts.granted.fetch_add(grant.units, Relaxed);
    let taken = deposited(&servers, &policies, &key, &terms, &call, grant).await;
    match taken {
        Ok(true) => servers.arrival(&key).notify_waiters(),
        Ok(false) => {
            servers.counts.lost.fetch_add(grant.units, Relaxed);
        }
        Err(error) => {
            servers.counts.lost.fetch_add(grant.units, Relaxed);
            tracing::debug!(%error, "the purse of the region did not take units");
        }
    }
}

/// Sends a call until an answer comes, for half a generation. A later sending does not end the
/// earlier one: the first answer counts, and the ledger makes all of them equal.
async fn answered(
    servers: &Arc<Servers>,
    policies: &PolicySet,
    key: &Key,
    terms: &Terms,
    call: &Call,
) -> Option<Grant> {
    let birth = fastrand::u64(1..MAX_EXACT);
    let numbers: Arc<[f64]> =
        wire::call(wire::At::SERVER, terms, birth, servers.region, call).into();
    let (begun, patience) = (Instant::now(), Duration::from_micros(terms.length_us / 2));
    let mut sendings = JoinSet::new();
    loop {
        let (to, policies, key) = (Arc::clone(servers), policies.clone(), key.clone());
        let numbers = Arc::clone(&numbers);
        sendings.spawn(async move { to.ask(&policies, &key, &numbers).await });
        let pause = servers.trip() * 5 / 4;
        let sent = Instant::now();
        while let Ok(Some(ended)) =
            timeout(pause.saturating_sub(sent.elapsed()), sendings.join_next()).await
        {
            match ended {
                Ok(Ok(grant)) => return Some(grant),
                Ok(Err(error)) => tracing::debug!(%error, "the home did not answer a call"),
                Err(_) => return None,
            }
        }
        // All have failed at once when no server listens.
        sleep(pause.saturating_sub(sent.elapsed())).await;
        if begun.elapsed() >= patience {
            return None;
        }
        servers.counts.resent.fetch_add(1, Relaxed);
    }
}

async fn deposited(
    servers: &Servers,
    policies: &PolicySet,
    key: &Key,
    terms: &Terms,
    call: &Call,
    grant: Grant,
) -> Result<bool, Error> {
    let place = Place {
        policy: terms::the_one(policies)?,
        key,
        suffix: wire::PURSE,
    };
    let deposit = call.deposit(grant);
    let numbers = wire::deposit(wire::At::SERVER, servers.floor.now_us(), terms, &deposit);
    let reply = raw::run(&servers.local, wire::purse(), place, &numbers, None).await?;
    let (seen, deposited) = wire::deposited(&reply)?;
    servers.note(place, terms, seen, deposited.free);
    Ok(deposited.is_expected)
}

/// Returns the estimate of a round trip after one that has taken `taken_us`. `us` is the estimate before,
/// or zero.
///
/// The first one has connected, too: it counts as the trip that was set at most, or regions would ask for
/// the units of several trips until it is forgotten. One longer trip of many may have waited for a
/// processor, so it moves the estimate by half.
fn estimate(us: u64, taken_us: u64, set_us: u64) -> u64 {
    match us {
        0 => taken_us.min(set_us),
        _ if taken_us > us => us.midpoint(taken_us),
        _ => us - (us - taken_us) / 4,
    }
}

/// Returns a number of 52 bits that stands for the name of a region (FNV-1a). It stays as it is: the
/// processes of a region agree on it.
fn number(region: &str) -> u64 {
    let fold = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    region.bytes().fold(0xcbf2_9ce4_8422_2325, fold) >> 12
}

#[cfg(test)]
mod tests {
    use super::estimate;

    #[test]
    fn a_longer_trip_is_believed_by_halves_and_connecting_is_none() {
        let after = |trips: &[u64]| trips.iter().fold(0, |us, taken| estimate(us, *taken, 80));
        assert_eq!(after(&[320]), 80);
        assert_eq!(after(&[60]), 60);
        assert_eq!(after(&[320, 80, 240]), 160);
        assert_eq!(after(&[320, 80, 240, 80]), 140);
        assert!((318..=320).contains(&after(&[320; 9])));
    }
}
