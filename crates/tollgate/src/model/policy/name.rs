//! The name of a policy and its hash.

use std::{
    hash::{Hash, Hasher},
    sync::Arc,
};

/// Holds the name of a policy, which several policies may share.
///
/// The hash has 32 bits and stands in each variant, so that it shares a word with the discriminant. A name takes three words
/// and not four, because a service may have a policy for each of its tenants.
#[derive(Clone)]
pub(super) enum Name {
    Literal { hash: u32, text: &'static str },
    Shared { hash: u32, text: Arc<str> },
}

impl Name {
    pub(super) const fn literal(text: &'static str) -> Self {
        Self::Literal { hash: upper(hash(text.as_bytes())), text }
    }

    pub(super) fn shared(text: String) -> Self {
        Self::Shared { hash: upper(hash(text.as_bytes())), text: text.into() }
    }

    #[inline]
    pub(super) fn text(&self) -> &str {
        match self {
            Self::Literal { text, .. } => text,
            Self::Shared { text, .. } => text,
        }
    }

    /// Returns the upper half of the hash. It is computed once, because every check in process needs it.
    #[inline]
    pub(super) fn upper_hash(&self) -> u32 {
        match self {
            Self::Literal { hash, .. } | Self::Shared { hash, .. } => *hash,
        }
    }

    /// Computes the whole hash. It is the same in all processes.
    pub(super) fn whole_hash(&self) -> u64 {
        hash(self.text().as_bytes())
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        self.upper_hash() == other.upper_hash() && self.text() == other.text()
    }
}

impl Eq for Name {}

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text().hash(state);
    }
}

/// Hashes a name by repeated multiplication. That is enough, because names are short and clients do not choose them.
pub(crate) const fn hash(name: &[u8]) -> u64 {
    let (mut hash, mut at) = (0, 0);
    while at < name.len() {
        hash = (hash ^ name[at] as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        at += 1;
    }
    hash
}

/// Returns the upper half of a hash. A multiplication mixes it better than the lower one.
const fn upper(hash: u64) -> u32 {
    (hash >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_takes_three_words_with_its_hash() {
        assert_eq!(size_of::<Name>(), size_of::<(u64, &str)>());
    }

    #[test]
    fn a_literal_and_a_text_of_the_same_characters_are_one_name() {
        let (literal, shared) = (Name::literal("api"), Name::shared("api".to_owned()));
        assert!(literal == shared && literal != Name::literal("apj"));
        assert_eq!((literal.text(), literal.upper_hash()), (shared.text(), shared.upper_hash()));
        assert_eq!(u64::from(literal.upper_hash()), literal.whole_hash() >> 32);
        assert_ne!(literal.upper_hash(), Name::literal("apj").upper_hash());
    }

    /// Records of reservations contain the hash, and replicas of two versions read them.
    #[test]
    fn the_whole_hash_is_the_same_in_all_versions() {
        assert_eq!(Name::literal("api").whole_hash(), 0xe998_85f5_6c47_e380);
    }
}
