use std::{ops::Range, sync::Arc};

use smallvec::SmallVec;

use super::script::{self, Script};
use crate::{Algorithm, Policy};

/// What a policy set needs at the server, worked out once.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) check: Script,
    pub(crate) batch: Script,
    pub(crate) refund: Script,
    /// What follows the hash tag in each policy's key: its name and the storage version.
    pub(super) suffixes: Box<[String]>,
    /// Whether the check takes a tag, before the arguments of the policies.
    pub(crate) tagged: bool,
    /// The numbers of all policies, as a call has them.
    numbers: Box<[u8]>,
    /// Where in a reply the words of each policy stand.
    pub(super) words: Box<[Range<usize>]>,
}

impl Plan {
    pub(crate) fn new(policies: &[Arc<Policy>]) -> Self {
        let algorithms: Vec<Algorithm> = policies.iter().map(|policy| policy.algorithm()).collect();
        let suffix = |policy: &Arc<Policy>| format!("}}:{}:{}", policy.name(), policy.algorithm().tag());
        let mut at = 0;
        let mut range = |words| {
            at += words;
            at - words..at
        };
        Self {
            check: Script::check(&algorithms),
            batch: Script::batch(&algorithms),
            refund: Script::refund(&algorithms),
            suffixes: policies.iter().map(suffix).collect(),
            tagged: script::is_tagged(&algorithms),
            numbers: policies
                .iter()
                .flat_map(|policy| script::args(policy))
                .flat_map(|number| (number as f64).to_le_bytes())
                .collect(),
            words: script::words(policies).map(&mut range).collect(),
        }
    }

    /// The numbers of a call: what is its own, then what is each policy's, as doubles side by side. Whole numbers below
    /// 2^53, and so exact; −1 where a time is the server's to say.
    pub(crate) fn pack(&self, own: &[f64]) -> SmallVec<[u8; 128]> {
        let mut packed: SmallVec<_> = own.iter().flat_map(|number| number.to_le_bytes()).collect();
        packed.extend_from_slice(&self.numbers);
        packed
    }

    /// How many words the reply has for one subject.
    pub(super) fn words_in_all(&self) -> usize {
        self.words.last().map_or(0, |last| last.end)
    }

    #[cfg(feature = "testing")]
    pub(crate) fn keys(&self, prefix: &str, subject: &str) -> impl Iterator<Item = String> {
        self.suffixes.iter().map(move |suffix| [prefix, ":{", subject, suffix].concat())
    }
}
