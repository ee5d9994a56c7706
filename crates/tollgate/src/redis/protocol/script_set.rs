use std::{ops::Range, sync::Arc};

use smallvec::SmallVec;

use super::script::{self, Script};
use crate::{Algorithm, Key, Policy};

/// Holds the scripts of a policy set, with the parts of a call that never change.
#[derive(Debug)]
pub(crate) struct ScriptSet {
    pub(crate) check: Script,
    pub(crate) batch: Script,
    pub(crate) refund: Script,
    /// The parts of each policy's key on the server that are the same for all keys.
    pub(in crate::redis) key_ends: Box<[KeyEnd]>,
    /// Tells whether a check has a tag argument, before the arguments of the policies.
    pub(crate) tagged: bool,
    /// The packed numbers of all policies.
    numbers: Box<[u8]>,
    /// The range of each policy's words in a reply.
    pub(super) words: Box<[Range<usize>]>,
}

impl ScriptSet {
    pub(crate) fn new(policies: &[Arc<Policy>]) -> Self {
        let algorithms: Vec<Algorithm> = policies.iter().map(|policy| policy.algorithm()).collect();
        let mut at = 0;
        let mut range = |words| {
            at += words;
            at - words..at
        };
        let numbers = policies.iter().flat_map(|policy| script::args(policy));
        Self {
            check: Script::check(&algorithms),
            batch: Script::batch(&algorithms),
            refund: Script::refund(&algorithms),
            key_ends: policies.iter().map(|policy| KeyEnd::new(policy)).collect(),
            tagged: script::is_tagged(&algorithms),
            numbers: numbers.flat_map(|number| (number as f64).to_le_bytes()).collect(),
            words: script::words(policies).map(&mut range).collect(),
        }
    }

    /// Packs the numbers of a call as doubles: the numbers of this call, then those of the policies. All are whole
    /// numbers below 2^53, so they are exact. A time of −1 stands for the server's own clock.
    pub(crate) fn pack(&self, own: &[f64]) -> SmallVec<[u8; 128]> {
        let mut packed: SmallVec<_> = own.iter().flat_map(|number| number.to_le_bytes()).collect();
        packed.extend_from_slice(&self.numbers);
        packed
    }

    /// Returns the number of words that a reply has for one key.
    pub(super) fn words_in_all(&self) -> usize {
        self.words.last().map_or(0, |last| last.end)
    }

    #[cfg(feature = "testing")]
    pub(crate) fn keys(&self, prefix: &str, key: &Key) -> impl Iterator<Item = String> {
        self.key_ends.iter().map(move |end| {
            let mut text = format!("{prefix}:{{").into_bytes();
            end.write(key, &mut text);
            String::from_utf8_lossy(&text).into_owned()
        })
    }
}

/// Writes the end of a key on the server, from the hash tag on: the metered levels, the name of the policy and the storage
/// version.
#[derive(Debug)]
pub(in crate::redis) struct KeyEnd {
    /// The number of levels that the policy meters; 0 for the whole key.
    depth: u8,
    suffix: String,
}

impl KeyEnd {
    fn new(policy: &Policy) -> Self {
        Self { depth: policy.depth(), suffix: format!(":{}:{}", policy.name(), policy.algorithm().tag()) }
    }

    /// Appends the end of a key whose opening brace is written.
    ///
    /// The hash tag is the outermost level alone, so the states of all levels lie in one slot.
    #[inline]
    pub(in crate::redis) fn write(&self, key: &Key, text: &mut Vec<u8>) {
        let (metered, outermost) = (key.level(self.depth).as_bytes(), key.outermost().len());
        text.extend_from_slice(&metered[..outermost]);
        text.push(b'}');
        text.extend_from_slice(&metered[outermost..]);
        text.extend_from_slice(self.suffix.as_bytes());
    }
}
