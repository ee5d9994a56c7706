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
