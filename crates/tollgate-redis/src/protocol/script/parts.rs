//! Describes each algorithm to the assembler.
//! What an algorithm is called and how many numbers it has comes from its row in
//! `algorithm/mod.rs`.

use super::sources::AlgorithmSource;
use tollgate_core::{
    Algorithm,
    raw::{AlgorithmParts, LEASED_READING},
};

const WORDS: [&str; 4] = ["first", "second", "third", "fourth"];

/// Describes the algorithm of a policy to the assembler.
pub(super) struct Part {
    pub(super) source: &'static str,
    /// The file of the sections that this one does not have.
    pub(super) like: Option<&'static str>,
    args: &'static [&'static str],
    reading_len: usize,
    /// The ending of the sections that come before others.
    pub(super) variant: Option<&'static str>,
    /// A refund depends on the time until the bucket is full, as it was after the request.
    is_queued: bool,
    /// Replicas take units in advance.
    pub(super) leased: bool,
    /// Lists the numbers of the ceiling of a request, if it has one.
    pub(super) ceiling: &'static [&'static str],
    /// Names the number that is the ceiling of every other request.
    pub(super) top: &'static str,
}

impl Part {
    /// Returns the names that a policy has in the place of one in a list: its cost, its ceiling,
    /// its quota and the other numbers of the policy, the place of an earlier request (its words),
    /// the words of its reply, and its verdict.
    pub(super) fn list(&self, item: &str) -> Option<Vec<&'static str>> {
        let lease: &[_] = if self.leased {
            &["length", "most"]
        } else {
            &[]
        };
        let place: &[_] = if self.is_queued {
            &["was_first", "was_second"]
        } else {
            &[]
        };
        match item {
            "costs" => Some(vec!["cost"]),
            "ceilings" => Some(self.ceiling.to_vec()),
            "quotas" => Some([self.args, lease].concat()),
            "places" => Some(place.to_vec()),
            "words" => Some(WORDS[..self.reading_len].to_vec()),
            "fits" => Some(vec!["fits"]),
            _ => None,
        }
    }

    /// Returns the number of keys on the server.
    pub(super) fn keys(&self) -> usize {
        1 + usize::from(self.leased)
    }
}

/// Selects the form of a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Plain,
    /// Replicas take units of the policies in advance.
    Leased,
    /// The request has a ceiling for each policy.
    Capped,
}

/// Describes the algorithm of a policy, which may be the only one of the set.
pub(super) fn part(algorithm: Algorithm, form: Form, is_single: bool) -> Part {
    let source = AlgorithmSource::of(algorithm);
    let leased = form == Form::Leased;
    Part {
        source: source.text,
        like: source
            .text
            .split_once("\n--@ like ")
            .map(|(_, name)| AlgorithmSource::named(name.trim_end()).text),
        args: source.args,
        // The last word of a leased policy is the time until missing units have lapsed, unless its
        // words are times already.
        reading_len: if leased {
            LEASED_READING
        } else {
            algorithm.reading_len()
        },
        variant: match form {
            Form::Capped => Some("capped"),
            // Under a ceiling the time of the reply is a part of the places in a debt, so it is
            // never left out.
            Form::Plain if algorithm.is_parted() && is_single => Some("alone"),
            Form::Plain | Form::Leased => None,
        },
        is_queued: algorithm.is_queued(form == Form::Capped),
        leased,
        ceiling: if form == Form::Capped {
            source.ceiling
        } else {
            &[]
        },
        top: source.top,
    }
}
