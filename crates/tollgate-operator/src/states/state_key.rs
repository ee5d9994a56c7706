//! The keys of states: `prefix:{outermost level}>inner levels:policy:version`.
//! Values behind the keys are read in `scan.rs`.

use tollgate::{Algorithm, Policy};

/// The end of the version of a leased state. Alone, it is the version of a leaky bucket.
const LEASED: &str = "l1";

/// The end of the key beside a leased state, which has the units that processes hold.
const HELD: &str = ":o";

/// Names the state of a policy for a subject.
///
/// ```
/// use tollgate_operator::states::StateKey;
///
/// let key = StateKey::parse("tollgate", b"tollgate:{acme}>ann:api:t1").unwrap();
/// assert_eq!((key.subject.as_str(), key.policy.as_str()), ("acme>ann", "api"));
/// assert_eq!(key.kind.name(), "token_bucket");
/// assert_eq!(key.redis_key("tollgate"), "tollgate:{acme}>ann:api:t1");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StateKey {
    /// The key of the limiter, as `Key::encoded` returns it.
    pub subject: String,
    /// The name of the policy.
    pub policy: String,
    /// The layout of the state.
    pub kind: Kind,
}

/// The layout of a state, which follows from its policy: the version at the end of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Kind {
    tag: &'static str,
    is_leased: bool,
}

impl Kind {
    /// Returns the layout of a policy's states.
    #[must_use]
    pub fn of(policy: &Policy) -> Self {
        Self {
            tag: policy.algorithm().tag(),
            is_leased: policy.lease().is_some(),
        }
    }

    /// Reads the version at the end of a key: `t1`, or `t1l1` of a leased state.
    pub(super) fn parse(version: &str) -> Option<Self> {
        let (tag, is_leased) = match version.strip_suffix(LEASED) {
            Some(tag) if !tag.is_empty() => (tag, true),
            _ => (version, false),
        };
        let algorithm = Algorithm::of_tag(tag)?;
        (algorithm.is_leasable() || !is_leased).then(|| Self {
            tag: algorithm.tag(),
            is_leased,
        })
    }

    /// Returns the name of the algorithm.
    #[must_use]
    pub fn name(self) -> &'static str {
        Algorithm::of_tag(self.tag).map_or("", Algorithm::name)
    }

    /// Returns whether units of the state are leased.
    pub(super) fn is_leased(self) -> bool {
        self.is_leased
    }

    /// Returns the tag of the algorithm. A leased state has the value of one that is not.
    pub(super) fn tag(self) -> &'static str {
        self.tag
    }

    /// Returns whether the state is a list. Every other one is a string.
    pub(super) fn is_log(self) -> bool {
        self.tag == Algorithm::SlidingLog.tag()
    }
}

impl StateKey {
    /// Reads a key of Redis. Returns `None` for a key that no store with this prefix writes.
    #[must_use]
    pub fn parse(prefix: &str, key: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(key)
            .ok()
            .filter(|text| text.bytes().all(|byte| byte.is_ascii_graphic()))?;
        let rest = text.strip_prefix(prefix)?.strip_prefix(":{")?;
        let (outermost, rest) = rest.split_once('}')?;
        let (rest, version) = rest.rsplit_once(':')?;
        let kind = Kind::parse(version)?;
        // A colon may stand in a level and never in the name of a policy.
        let (inner, policy) = rest.rsplit_once(':')?;
        let is_level = inner.is_empty() || inner.starts_with('>');
        let is_whole = !outermost.is_empty() && !policy.is_empty() && !inner.contains(['{', '}']);
        (is_level && is_whole).then(|| Self {
            subject: format!("{outermost}{inner}"),
            policy: policy.to_owned(),
            kind,
        })
    }

    /// Returns the key of Redis.
    #[must_use]
    pub fn redis_key(&self, prefix: &str) -> String {
        let (outermost, inner) = self
            .subject
            .split_at(self.subject.find('>').unwrap_or(self.subject.len()));
        format!(
            "{prefix}:{{{outermost}}}{inner}:{}:{}{}",
            self.policy,
            self.kind.tag,
            if self.kind.is_leased { LEASED } else { "" }
        )
    }

    /// Returns the key beside that of a leased state, which has the units that processes hold.
    pub(super) fn held_key(&self, prefix: &str) -> Option<String> {
        self.kind.is_leased.then(|| self.redis_key(prefix) + HELD)
    }

    /// Returns whether a key of Redis is the [one beside](Self::held_key) that of a leased state.
    pub(super) fn is_held_key(prefix: &str, key: &[u8]) -> bool {
        key.strip_suffix(HELD.as_bytes())
            .and_then(|state| Self::parse(prefix, state))
            .is_some_and(|state| state.kind.is_leased)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(key: &str) -> Option<StateKey> {
        StateKey::parse("t", key.as_bytes())
    }

    #[test]
    fn a_leased_state_has_two_tags_and_is_no_leaky_bucket() {
        for (version, name, is_leased) in [
            ("t1", "token_bucket", false),
            ("t1l1", "token_bucket", true),
            ("l1", "leaky_bucket", false),
            ("s1", "sliding_log", false),
            ("s1l1", "sliding_log", true),
        ] {
            let text = format!("t:{{acme}}>ann:api:{version}");
            let key = parse(&text).unwrap();
            assert_eq!(
                (key.kind.name(), key.kind.is_leased),
                (name, is_leased),
                "{version}"
            );
            assert_eq!(key.kind.is_log(), name == "sliding_log", "{version}");
            assert_eq!(
                (key.subject.as_str(), key.policy.as_str()),
                ("acme>ann", "api")
            );
            assert_eq!(key.redis_key("t"), text);
        }
        for version in ["l1l1", "k1l1", "t1l1l1", "t1l2", "l1t1", "t1:l1", ""] {
            assert_eq!(parse(&format!("t:{{acme}}:api:{version}")), None);
        }
    }

    #[test]
    fn a_policy_has_the_layout_of_its_keys() {
        for (text, version) in [
            ("api=1000/s, token_bucket", "t1"),
            ("api=1000/s, token_bucket, leased(5s, 1/8)", "t1l1"),
            ("api=1000/s, leaky_bucket", "l1"),
        ] {
            let policy: Policy = text.parse().unwrap();
            assert_eq!(Some(Kind::of(&policy)), Kind::parse(version), "{text}");
        }
    }

    #[test]
    fn the_key_of_held_units_lies_beside_a_leased_state_alone() {
        let held_key = |key: &str| parse(key).unwrap().held_key("t");
        let held = "t:{acme}>ann:api:t1l1:o";
        assert_eq!(held_key("t:{acme}>ann:api:t1l1").as_deref(), Some(held));
        assert_eq!(held_key("t:{acme}>ann:api:t1"), None);
        assert!(StateKey::is_held_key("t", held.as_bytes()));
        assert_eq!(parse(held), None, "it is no state");
        for other in [
            "t:{acme}:api:t1l1",
            "t:{acme}:api:t1:o",
            "t:{acme}:api:l1:o",
            "u:{acme}:api:t1l1:o",
            ":o",
        ] {
            assert!(!StateKey::is_held_key("t", other.as_bytes()), "{other}");
        }
    }
}
