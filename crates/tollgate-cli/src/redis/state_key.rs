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

/// The layout of a state, which follows from its algorithm: the version at the end of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Kind(&'static str);

impl Kind {
    /// A list. Every other state is a string.
    pub(crate) const LOG: Self = Self::of(Algorithm::SlidingLog);

    /// Returns the layout of an algorithm.
    pub(crate) const fn of(algorithm: Algorithm) -> Self {
        Self(algorithm.tag())
    }

    /// Returns the name of the algorithm.
    pub(crate) fn name(self) -> &'static str {
        Algorithm::of_tag(self.0).map_or("", Algorithm::name)
    }

    /// Returns the version of the layout: the end of a key.
    pub(super) fn tag(self) -> &'static str {
        self.0
    }
}

impl StateKey {
    /// Reads a key of Redis. Returns `None` for a key that no store with this prefix writes.
    pub(crate) fn parse(prefix: &str, key: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(key)
            .ok()
            .filter(|text| text.bytes().all(|byte| byte.is_ascii_graphic()))?;
        let rest = text.strip_prefix(prefix)?.strip_prefix(":{")?;
        let (outermost, rest) = rest.split_once('}')?;
        let (rest, version) = rest.rsplit_once(':')?;
        let kind = Kind::of(Algorithm::of_tag(version)?);
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
    pub(crate) fn redis_key(&self, prefix: &str) -> String {
        let (outermost, inner) = self
            .subject
            .split_at(self.subject.find('>').unwrap_or(self.subject.len()));
        format!(
            "{prefix}:{{{outermost}}}{inner}:{}:{}",
            self.policy,
            self.kind.tag()
        )
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
            (
                "tollgate:{*2001:db8::/64}:per-minute:f1",
                "*2001:db8::/64",
                "per-minute",
            ),
        ] {
            let key =
                StateKey::parse("tollgate", text.as_bytes()).unwrap_or_else(|| panic!("{text}"));
            assert_eq!(
                (key.subject.as_str(), key.policy.as_str()),
                (subject, policy)
            );
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
