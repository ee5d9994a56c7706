//! The descriptors of one level, found by the key and the value of a request.
//! The way from one level to the next is in `matching/`.

use std::{
    collections::HashMap,
    hash::{BuildHasher, Hasher},
};

use foldhash::fast::FixedState;
use hashbrown::HashTable;
use smallvec::SmallVec;

use crate::{
    Compat,
    pattern::{Pattern, PatternList},
    selector::Selector,
};

/// Finds the node of an entry among the nodes of a level.
#[derive(Debug)]
pub(crate) enum Level {
    Native(NativeLevel),
    Envoy(EnvoyLevel),
}

/// A node and how it was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LevelStep {
    pub(crate) node: u32,
    pub(crate) by: MatchedBy,
}

/// The way in which a rule matches an entry of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MatchedBy {
    /// The rule has this key and this value.
    Value,
    /// The rule has a pattern that matches the value.
    Pattern,
    /// The rule has this key and no value, so it is the default of the key.
    Default,
}

impl Level {
    /// Creates the level of these nodes, which are in the order of the file.
    pub(crate) fn new(compat: Compat, ids: &[u32], selectors: &[Selector]) -> Self {
        match compat {
            Compat::Native => Self::Native(NativeLevel::new(ids, selectors)),
            Compat::Envoy => Self::Envoy(EnvoyLevel::new(ids, selectors)),
        }
    }

    /// Returns the node of an entry: by its exact value, else by the first pattern that matches,
    /// else by its key alone.
    #[inline]
    pub(crate) fn find(&self, selectors: &[Selector], key: &str, value: &str) -> Option<LevelStep> {
        let step = |by| move |node| LevelStep { node, by };
        match self {
            Self::Native(level) => level
                .exact(selectors, key, value)
                .map(step(MatchedBy::Value))
                .or_else(|| {
                    let patterns = level.patterns.get(key)?;
                    patterns
                        .find(value.as_bytes())
                        .map(step(MatchedBy::Pattern))
                })
                .or_else(|| level.default(selectors, key).map(step(MatchedBy::Default))),
            Self::Envoy(level) => {
                let text = joined(key, value);
                level
                    .exact(&text)
                    .map(step(MatchedBy::Value))
                    .or_else(|| level.patterns.find(&text).map(step(MatchedBy::Pattern)))
                    .or_else(|| level.exact(key.as_bytes()).map(step(MatchedBy::Default)))
            }
        }
    }

    /// Returns the nodes with a pattern that could match the key, in the order in which they are
    /// tried.
    pub(crate) fn patterns(&self, key: &str) -> Vec<(&Pattern, u32)> {
        match self {
            Self::Native(level) => level
                .patterns
                .get(key)
                .into_iter()
                .flat_map(PatternList::iter)
                .collect(),
            Self::Envoy(level) => level.patterns.iter().collect(),
        }
    }

    /// Returns all nodes, in the order of the file.
    pub(crate) fn ids(&self) -> Vec<u32> {
        let mut ids: Vec<u32> = match self {
            Self::Native(level) => {
                let patterns = level
                    .patterns
                    .values()
                    .flat_map(PatternList::iter)
                    .map(|(_, id)| id);
                level
                    .exact
                    .iter()
                    .chain(&level.defaults)
                    .copied()
                    .chain(patterns)
                    .collect()
            }
            Self::Envoy(level) => level.nodes.values().copied().collect(),
        };
        ids.sort_unstable();
        ids
    }

    /// Returns the pattern that is tried before the node and matches everything that the node
    /// matches.
    ///
    /// A pattern covers another one when it matches its text: each star of the text is then matched
    /// by a star. A default is the pattern of all values.
    pub(crate) fn covering(&self, selector: &Selector, id: u32) -> Option<u32> {
        let value = selector.value.as_deref().unwrap_or("*");
        if !value.contains('*') {
            return None;
        }
        let (text, patterns) = match self {
            Self::Native(level) => (value.to_owned(), level.patterns.get(&*selector.key)?),
            Self::Envoy(level) => (format!("{}_{value}", selector.key), &level.patterns),
        };
        patterns.find(text.as_bytes()).filter(|first| *first != id)
    }

    /// Returns whether the value of a node, or a text that its pattern matches, selects another
    /// node without it.
    pub(crate) fn has_other(&self, selectors: &[Selector], selector: &Selector, id: u32) -> bool {
        let (key, value) = (&*selector.key, selector.value());
        let is_pattern = selector.pattern().is_some();
        let text = match self {
            Self::Native(_) => value.to_owned(),
            Self::Envoy(_) => selector.composite(),
        };
        // Overlaps of patterns are hard to find, so any other pattern of the key counts.
        let mut patterns = self.patterns(key).into_iter();
        self.exact_and_default(selectors, key, value).1.is_some()
            || patterns.any(|(pattern, other)| {
                other != id && (is_pattern || pattern.matches(text.as_bytes()))
            })
    }

    /// Returns the node with this exact value, and the node with the key alone.
    pub(crate) fn exact_and_default(
        &self,
        selectors: &[Selector],
        key: &str,
        value: &str,
    ) -> (Option<u32>, Option<u32>) {
        match self {
            Self::Native(level) => (
                level.exact(selectors, key, value),
                level.default(selectors, key),
            ),
            Self::Envoy(level) => (
                level.exact(&joined(key, value)),
                level.exact(key.as_bytes()),
            ),
        }
    }
}

/// A level whose nodes are found by pairs of key and value.
#[derive(Debug)]
pub(crate) struct NativeLevel {
    /// The nodes with a literal value, by key and value.
    exact: HashTable<u32>,
    /// The nodes without a value, by key.
    defaults: HashTable<u32>,
    /// The nodes with a pattern, by key.
    patterns: HashMap<Box<str>, PatternList, FixedState>,
}

/// The texts of the tables come from the file, so a client cannot make them collide.
const STATE: FixedState = FixedState::with_seed(0);

fn hash(key: &str, value: &str) -> u64 {
    let mut hasher = STATE.build_hasher();
    hasher.write(key.as_bytes());
    hasher.write(value.as_bytes());
    hasher.finish()
}

impl NativeLevel {
    fn new(ids: &[u32], selectors: &[Selector]) -> Self {
        let (mut exact, mut defaults) = (HashTable::new(), HashTable::new());
        let mut patterns: HashMap<Box<str>, Vec<(Pattern, u32)>> = HashMap::new();
        let selector = |id: &u32| &selectors[*id as usize];
        for id in ids {
            let found = selector(id);
            match (&found.value, found.pattern()) {
                (_, Some(pattern)) => patterns
                    .entry(found.key.clone())
                    .or_default()
                    .push((pattern, *id)),
                (Some(value), None) => {
                    let rehash = |id: &u32| hash(&selector(id).key, selector(id).value());
                    exact.insert_unique(hash(&found.key, value), *id, rehash);
                }
                (None, None) => {
                    defaults
                        .insert_unique(hash(&found.key, ""), *id, |id| hash(&selector(id).key, ""));
                }
            }
        }
        let patterns = patterns
            .into_iter()
            .map(|(key, list)| (key, PatternList::new(list)))
            .collect();
        Self {
            exact,
            defaults,
            patterns,
        }
    }

    #[inline]
    fn exact(&self, selectors: &[Selector], key: &str, value: &str) -> Option<u32> {
        let is_same = |id: &u32| {
            &*selectors[*id as usize].key == key && selectors[*id as usize].value() == value
        };
        self.exact.find(hash(key, value), is_same).copied()
    }

    #[inline]
    fn default(&self, selectors: &[Selector], key: &str) -> Option<u32> {
        self.defaults
            .find(hash(key, ""), |id| &*selectors[*id as usize].key == key)
            .copied()
    }
}

/// A level whose nodes are found by the text `key_value`, as in Envoy's service.
#[derive(Debug)]
pub(crate) struct EnvoyLevel {
    /// All nodes by their composite keys, also those with patterns.
    nodes: HashMap<Box<[u8]>, u32, FixedState>,
    patterns: PatternList,
}

impl EnvoyLevel {
    fn new(ids: &[u32], selectors: &[Selector]) -> Self {
        let composite = |id: &u32| selectors[*id as usize].composite();
        let patterns = ids
            .iter()
            .filter_map(|id| Pattern::new(&composite(id)).map(|pattern| (pattern, *id)));
        Self {
            patterns: PatternList::new(patterns.collect()),
            nodes: ids
                .iter()
                .map(|id| (composite(id).into_bytes().into(), *id))
                .collect(),
        }
    }

    fn exact(&self, text: &[u8]) -> Option<u32> {
        self.nodes.get(text).copied()
    }
}

/// Joins a key and a value. Short texts need no allocation.
fn joined(key: &str, value: &str) -> SmallVec<[u8; 128]> {
    let mut text = SmallVec::from_slice(key.as_bytes());
    text.push(b'_');
    text.extend_from_slice(value.as_bytes());
    text
}
