//! Purses and homes: what regions hold of a limit that they share, and what is used of it.
//! Their values are read in tollgate-regions. All other states are in `state_key.rs` and `entry.rs`.

use serde::Serialize;
use tollgate::Quota;
use tollgate_regions::inspect::{StoredHome, StoredPurse};

use super::{limits::Limits, state_key::StateKey};

/// The ends of the keys of purses and homes. What stands before is the key that the state would have on
/// one server.
const SUFFIXES: [&str; 2] = [StoredPurse::SUFFIX, StoredHome::SUFFIX];

/// Names a purse, or a home.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RegionalKey {
    pub(super) state: StateKey,
    suffix: &'static str,
}

/// Describes what the server of a region holds of a limit at one moment.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct PurseEntry {
    /// The encoded key.
    pub subject: String,
    /// The name of the policy.
    pub policy: String,
    /// The units that may be spent in the region.
    pub free: u64,
    /// The units that processes of the region hold, or have spent and not reported.
    pub leased: u64,
    /// The units that were spent, and not yet reported to the home.
    pub unreported: u64,
    /// The units that the region asks for in a second.
    pub demand: f64,
    /// A call of the home is under way.
    pub awaits_units: bool,
    /// The milliseconds until the purse expires.
    pub expires_ms: u64,
    /// The key in Redis.
    pub redis_key: String,
}

/// Describes what is used of a limit that regions share, at one moment.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct HomeEntry {
    /// The encoded key.
    pub subject: String,
    /// The name of the policy.
    pub policy: String,
    /// The units that are spent, without those that regions hold.
    pub spent: u64,
    /// The units that regions hold, or have spent and not reported.
    pub outstanding: u64,
    /// The number of regions that have called in the last generations.
    pub regions: usize,
    /// The units that can be spent at once, when the quota is known.
    pub limit: Option<u64>,
    /// The quota as text, when it is known.
    pub quota: Option<String>,
    /// The milliseconds until the state expires. Nothing is spent then.
    pub expires_ms: u64,
    /// The key in Redis.
    pub redis_key: String,
}

/// Lists what a server has of limits that regions share.
#[derive(Debug, Default, Serialize)]
#[non_exhaustive]
pub struct Regional {
    /// The units that the region of the server holds.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub purses: Vec<PurseEntry>,
    /// The units used of limits whose home is on the server.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub homes: Vec<HomeEntry>,
}

impl RegionalKey {
    /// Reads a key of Redis. `None` for one that is neither a purse nor a home.
    pub(super) fn parse(prefix: &str, key: &[u8]) -> Option<Self> {
        let key = std::str::from_utf8(key).ok()?;
        let (state, end) = key.rsplit_once(':')?;
        let suffix = SUFFIXES.into_iter().find(|suffix| *suffix == end)?;
        let state = StateKey::parse(prefix, state.as_bytes())?;
        let key = Self { state, suffix };
        key.state.kind.is_leased().then_some(key)
    }

    /// Returns the keys of the purse and the home beside a state, if the policy is leased.
    pub(super) fn of(state: &StateKey) -> impl Iterator<Item = Self> + use<> {
        let state = state.kind.is_leased().then(|| state.clone());
        state.into_iter().flat_map(|state| {
            SUFFIXES.map(|suffix| Self {
                state: state.clone(),
                suffix,
            })
        })
    }

    /// Returns the key of Redis.
    pub(super) fn redis_key(&self, prefix: &str) -> String {
        format!("{}:{}", self.state.redis_key(prefix), self.suffix)
    }
}

impl Regional {
    /// Adds what is stored under a key, unless it is something else.
    pub(super) fn add(
        &mut self,
        (key, prefix): (&RegionalKey, &str),
        limits: &Limits,
        now_us: u64,
        (value, expires_ms): (&[u8], u64),
    ) {
        let (subject, policy) = (key.state.subject.clone(), key.state.policy.clone());
        let redis_key = key.redis_key(prefix);
        if key.suffix == StoredPurse::SUFFIX {
            self.purses
                .extend(StoredPurse::decode(value).map(|purse| PurseEntry {
                    subject,
                    policy,
                    free: purse.free(now_us),
                    leased: purse.leased(now_us),
                    unreported: purse.unreported(now_us),
                    demand: purse.demand(),
                    awaits_units: purse.awaits_units(),
                    expires_ms,
                    redis_key,
                }));
        } else {
            let quota = limits.quota(&key.state);
            self.homes
                .extend(StoredHome::decode(value).map(|home| HomeEntry {
                    subject,
                    policy,
                    spent: home.spent(now_us, quota.as_ref()),
                    outstanding: home.outstanding(),
                    regions: home.regions(),
                    limit: quota.as_ref().map(Quota::burst),
                    quota: quota.map(|quota| quota.to_string()),
                    expires_ms,
                    redis_key,
                }));
        }
    }

    /// Adds what another server has.
    pub fn append(&mut self, mut other: Self) {
        self.purses.append(&mut other.purses);
        self.homes.append(&mut other.homes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_of_a_purse_and_that_of_a_home_are_known_and_no_states() {
        for suffix in SUFFIXES {
            let text = format!("t:{{acme}}>ann:api:t1l1:{suffix}");
            let key = RegionalKey::parse("t", text.as_bytes()).expect("a key of regions");
            let state = &key.state;
            assert_eq!((&*state.subject, &*state.policy), ("acme>ann", "api"));
            assert_eq!(key.redis_key("t"), text);
            assert!(StateKey::parse("t", text.as_bytes()).is_none());
        }
        for other in [
            "t:{acme}:api:t1l1",
            "t:{acme}:api:t1:home1",
            "u:{acme}:api:t1l1:home1",
            "t:{acme}:api:t1l1:home2",
        ] {
            assert_eq!(RegionalKey::parse("t", other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn a_leased_state_has_both_beside_it() {
        let of = |key: &str| {
            let state = StateKey::parse("t", key.as_bytes()).expect("a state");
            let keys = RegionalKey::of(&state).map(|key| key.redis_key("t"));
            keys.collect::<Vec<_>>()
        };
        assert_eq!(
            of("t:{acme}:api:t1l1"),
            ["t:{acme}:api:t1l1:purse2", "t:{acme}:api:t1l1:home1"]
        );
        assert!(of("t:{acme}:api:t1").is_empty());
    }
}
