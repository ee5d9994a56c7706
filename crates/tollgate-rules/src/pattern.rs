//! Patterns with `*`, and lists of them that are tried in the order of the file.
//! What a match means for a descriptor is decided in `rule_set/level.rs`.

use foldhash::fast::FixedState;
use hashbrown::HashTable;
use std::hash::BuildHasher;

/// A text in which each `*` stands for zero or more characters.
#[derive(Clone, Debug)]
pub(crate) struct Pattern {
    /// The literal parts between the stars. The first and the last may be empty.
    parts: Box<[Box<str>]>,
    /// The bytes of all parts.
    len: usize,
}

impl Pattern {
    /// Creates a pattern, and returns `None` for a text without a star.
    pub(crate) fn new(text: &str) -> Option<Self> {
        let parts: Box<[Box<str>]> = text.split('*').map(Into::into).collect();
        let len = parts.iter().map(|part| part.len()).sum();
        (parts.len() > 1).then_some(Self { parts, len })
    }

    /// Returns the literal part before the first star.
    pub(crate) fn prefix(&self) -> &str {
        self.parts.first().map_or("", |first| first)
    }

    /// Returns whether the pattern matches the whole text.
    ///
    /// Each middle part is found at its first place after the one before it. That is enough,
    /// because a later place only leaves less room for the others.
    pub(crate) fn matches(&self, text: &[u8]) -> bool {
        let [first, middle @ .., last] = &*self.parts else {
            return false;
        };
        if text.len() < self.len
            || !text.starts_with(first.as_bytes())
            || !text.ends_with(last.as_bytes())
        {
            return false;
        }
        let mut rest = &text[first.len()..text.len() - last.len()];
        for part in middle.iter().filter(|part| !part.is_empty()) {
            match rest
                .windows(part.len())
                .position(|window| window == part.as_bytes())
            {
                Some(at) => rest = &rest[at + part.len()..],
                None => return false,
            }
        }
        true
    }
}

/// Patterns of one level, in the order of the file, each with the number of its node.
#[derive(Debug, Default)]
pub(crate) struct PatternList {
    patterns: Vec<(Pattern, u32)>,
    /// Finds the patterns by their prefix, when there are many.
    index: Option<PrefixIndex>,
}

/// From this number on, an index is faster than trying each pattern.
const MANY: usize = 12;

impl PatternList {
    pub(crate) fn new(patterns: Vec<(Pattern, u32)>) -> Self {
        let index = (patterns.len() >= MANY).then(|| PrefixIndex::new(&patterns));
        Self { patterns, index }
    }

    /// Returns the node of the first pattern that matches.
    pub(crate) fn find(&self, text: &[u8]) -> Option<u32> {
        let matched = match &self.index {
            None => self
                .patterns
                .iter()
                .find(|(pattern, _)| pattern.matches(text)),
            Some(index) => index
                .first(text, &self.patterns)
                .map(|at| &self.patterns[at]),
        };
        matched.map(|(_, node)| *node)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Pattern, u32)> {
        self.patterns.iter().map(|(pattern, node)| (pattern, *node))
    }
}

/// Groups patterns by their prefix. A lookup hashes the text once for each length that a prefix
/// has.
#[derive(Debug)]
struct PrefixIndex {
    /// The lengths of all prefixes, shortest first.
    lengths: Vec<usize>,
    groups: HashTable<Group>,
}

#[derive(Debug)]
struct Group {
    prefix: Box<[u8]>,
    /// The numbers of the patterns, in the order of the file.
    patterns: Vec<usize>,
}

/// The texts of the table come from the file, so a client cannot make them collide.
const STATE: FixedState = FixedState::with_seed(0);

impl PrefixIndex {
    fn new(patterns: &[(Pattern, u32)]) -> Self {
        let (mut lengths, mut groups) = (Vec::new(), HashTable::<Group>::new());
        for (at, (pattern, _)) in patterns.iter().enumerate() {
            let prefix = pattern.prefix().as_bytes();
            lengths.push(prefix.len());
            let hash = |group: &Group| STATE.hash_one(&*group.prefix);
            let entry = groups.entry(
                STATE.hash_one(prefix),
                |group| &*group.prefix == prefix,
                hash,
            );
            let mut group = entry.or_insert_with(|| Group {
                prefix: prefix.into(),
                patterns: Vec::new(),
            });
            group.get_mut().patterns.push(at);
        }
        lengths.sort_unstable();
        lengths.dedup();
        Self { lengths, groups }
    }

    fn first(&self, text: &[u8], patterns: &[(Pattern, u32)]) -> Option<usize> {
        let mut first = None;
        for &length in self
            .lengths
            .iter()
            .take_while(|length| **length <= text.len())
        {
            let prefix = &text[..length];
            let Some(group) = self
                .groups
                .find(STATE.hash_one(prefix), |group| &*group.prefix == prefix)
            else {
                continue;
            };
            let earlier = group
                .patterns
                .iter()
                .take_while(|at| first.is_none_or(|first| **at < first));
            if let Some(at) = earlier.copied().find(|at| patterns[*at].0.matches(text)) {
                first = Some(at);
            }
        }
        first
    }
}
