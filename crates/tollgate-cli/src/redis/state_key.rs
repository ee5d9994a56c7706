//! The keys of states: `prefix:{outermost level}>inner levels:policy:version`.

use tollgate::Algorithm;

/// Names the state of a policy for a subject.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct StateKey {
    /// The key of the limiter, as `Key::encoded` returns it.
    pub(crate) subject: String,
    pub(crate) policy: String,
    pub(crate) kind: Kind,
}

/// The layout of a state, which follows from its algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    TokenBucket,
    IntervalBucket,
    LeakyBucket,
    FixedWindow,
    WindowFromFirstHit,
    SlidingWindow,
    SlidingBuckets,
    SlidingLog,
    CalendarWindow,
}

/// The versions at the end of a key, and the names of the algorithms.
const KINDS: [(Kind, &str, &str); 9] = [
    (Kind::TokenBucket, "t1", "token_bucket"),
    (Kind::IntervalBucket, "i1", "interval_bucket"),
    (Kind::LeakyBucket, "l1", "leaky_bucket"),
    (Kind::FixedWindow, "f1", "fixed_window"),
    (Kind::WindowFromFirstHit, "h1", "window_from_first_hit"),
    (Kind::SlidingWindow, "w1", "sliding_window"),
    (Kind::SlidingBuckets, "b1", "sliding_buckets"),
    (Kind::SlidingLog, "s1", "sliding_log"),
    (Kind::CalendarWindow, "c1", "calendar_window"),
];

impl Kind {
    /// Returns the layout of an algorithm.
    pub(crate) fn of(algorithm: Algorithm) -> Option<Self> {
        let text = algorithm.to_string();
        let name = text.split('(').next().unwrap_or_default();
        KINDS.iter().find(|(_, _, known)| *known == name).map(|(kind, ..)| *kind)
    }

    /// Returns the name of the algorithm.
    pub(crate) fn name(self) -> &'static str {
        KINDS.iter().find(|(kind, ..)| *kind == self).map_or("", |(_, _, name)| name)
    }

    /// Returns the version of the layout: the end of a key.
    pub(super) fn tag(self) -> &'static str {
        KINDS.iter().find(|(kind, ..)| *kind == self).map_or("", |(_, version, _)| version)
    }
}

impl StateKey {
    /// Reads a key of Redis. Returns `None` for a key that no store with this prefix writes.
    pub(crate) fn parse(prefix: &str, key: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(key).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_graphic()))?;
        let rest = text.strip_prefix(prefix)?.strip_prefix(":{")?;
        let (outermost, rest) = rest.split_once('}')?;
        let (rest, version) = rest.rsplit_once(':')?;
        let (kind, ..) = KINDS.iter().find(|(_, known, _)| *known == version)?;
        // A colon may stand in a level and never in the name of a policy.
        let (inner, policy) = rest.rsplit_once(':')?;
        let is_level = inner.is_empty() || inner.starts_with('>');
        let is_whole = !outermost.is_empty() && !policy.is_empty() && !inner.contains(['{', '}']);
        (is_level && is_whole).then(|| Self {
            subject: format!("{outermost}{inner}"),
            policy: policy.to_owned(),
            kind: *kind,
        })
    }

    /// Returns the key of Redis.
    pub(crate) fn redis_key(&self, prefix: &str) -> String {
        let (outermost, inner) = self.subject.split_at(self.subject.find('>').unwrap_or(self.subject.len()));
        format!("{prefix}:{{{outermost}}}{inner}:{}:{}", self.policy, self.kind.tag())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_read_as_it_is_written() {
        for (text, subject, policy) in [
            ("tollgate:{acme}:api:t1", "acme", "api"),
            ("tollgate:{acme}>ann>x:y:api:s1", "acme>ann>x:y", "api"),
            ("tollgate:{*2001:db8::/64}:per-minute:f1", "*2001:db8::/64", "per-minute"),
        ] {
            let key = StateKey::parse("tollgate", text.as_bytes()).unwrap_or_else(|| panic!("{text}"));
            assert_eq!((key.subject.as_str(), key.policy.as_str()), (subject, policy));
            assert_eq!(key.redis_key("tollgate"), text);
        }
    }

    #[test]
    fn keys_of_other_programs_are_refused() {
        for text in [
            "tollgate:{replicas}",
            "tollgate:{replicas}:0123456789abcdef",
            "tollgate:{acme}:api:t9",
            "tollgate:{acme}:t1",
            "tollgate:{}:api:t1",
            "tollgate:{acme}::t1",
            "tollgate:{acme}x:api:t1",
            "tollgate:{acme}>{x}:api:t1",
            "tollgate2:{acme}:api:t1",
            "other",
            "",
            "tollgate:{a\u{1b}[0m}:api:t1",
        ] {
            assert_eq!(StateKey::parse("tollgate", text.as_bytes()), None, "{text}");
        }
        assert_eq!(StateKey::parse("tollgate", b"tollgate:{\xff}:api:t1"), None);
    }
}
