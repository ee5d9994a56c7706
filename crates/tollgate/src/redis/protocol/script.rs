//! Assembles the Lua scripts from the files in `scripts/`.
//!
//! A script is a frame (`check.lua`, `look.lua`, `batch.lua`, `mixed.lua`, `refund.lua`, `reserve.lua`, `commit.lua`, `lease.lua`)
//! filled with the sections of each policy's algorithm. So the script for one policy and the script for a set consist
//! of the same source lines. Parameters are never part of the text, so all sets of the same algorithms run the same
//! scripts: those of their [`Shape`].

mod assembler;
mod parts;

use std::sync::LazyLock;

pub(crate) use crate::model::shape::Script;
use crate::{
    Algorithm,
    model::{
        algorithm::source,
        shape::{Purpose, Shape},
    },
};
use assembler::Frame;
pub(crate) use parts::Form;
use parts::{Part, part};

const CHECK: &str = source!("check");
const LOOK: &str = source!("look");
const BATCH: &str = source!("batch");
const MIXED: &str = source!("mixed");
const REFUND: &str = source!("refund");
const RESERVE: &str = source!("reserve");
const COMMIT: &str = source!("commit");
const LEASE: &str = source!("lease");
const ENTRIES: &str = source!("entries");
const PERMITS: &str = source!("permits");
const REPLICAS: &str = source!("replicas");
const PUBLISH: &str = source!("publish");

impl Shape {
    /// Returns the script that decides one check. `is_capped` is true when it has ceilings, here and below.
    #[inline]
    pub(crate) fn check(&self, is_capped: bool) -> &Script {
        self.script(Purpose::Check, is_capped, || Script::check(self.algorithms(), form(self, is_capped)))
    }

    /// Returns the script that returns what a check would decide, and charges nothing.
    pub(crate) fn look(&self, is_capped: bool) -> &Script {
        self.script(Purpose::Look, is_capped, || Script::look(self.algorithms(), form(self, is_capped)))
    }

    /// Returns the script that decides for many keys with the same numbers, all at one cost.
    #[inline]
    pub(crate) fn batch(&self, is_capped: bool) -> &Script {
        self.script(Purpose::Batch, is_capped, || Script::batch(self.algorithms(), form(self, is_capped)))
    }

    /// Returns the script that decides for many keys, each with numbers and costs of its own.
    #[inline]
    pub(crate) fn mixed(&self, is_capped: bool) -> &Script {
        self.script(Purpose::Mixed, is_capped, || Script::mixed(self.algorithms(), form(self, is_capped)))
    }

    /// Returns the script that refunds. `is_capped` is true when it returns the places of a request under ceilings.
    #[inline]
    pub(crate) fn refund(&self, is_capped: bool) -> &Script {
        self.script(Purpose::Refund, is_capped, || Script::refund(self.algorithms(), form(self, is_capped)))
    }

    /// Returns the script that reserves.
    pub(crate) fn reserve(&self, is_capped: bool) -> &Script {
        self.script(Purpose::Reserve, is_capped, || Script::reserve(self.algorithms(), form(self, is_capped)))
    }

    /// Returns the script that settles a reservation.
    pub(crate) fn commit(&self) -> &Script {
        self.script(Purpose::Commit, false, || Script::commit(self.algorithms(), form(self, false)))
    }

    /// Returns the script that decides for many keys, takes reports and grants units. Only leased policies have one.
    pub(crate) fn lease(&self) -> &Script {
        self.script(Purpose::Lease, false, || Script::lease(self.algorithms()))
    }
}

/// Returns the form of a script. Leased policies have no ceilings.
fn form(shape: &Shape, is_capped: bool) -> Form {
    match is_capped {
        _ if shape.is_leased() => Form::Leased,
        true => Form::Capped,
        false => Form::Plain,
    }
}

impl Script {
    /// Returns the script that decides over policies of these algorithms.
    pub(crate) fn check(algorithms: &[Algorithm], form: Form) -> Self {
        Self::assemble(CHECK, algorithms, form)
    }

    /// Returns the script for a look at policies of these algorithms: what a check would decide.
    pub(crate) fn look(algorithms: &[Algorithm], form: Form) -> Self {
        Self::assemble(LOOK, algorithms, form)
    }

    /// Returns the script that decides over policies of these algorithms for many keys.
    pub(crate) fn batch(algorithms: &[Algorithm], form: Form) -> Self {
        Self::assemble(BATCH, algorithms, form)
    }

    /// Returns the script that decides for many keys, each with policies of its own of these algorithms and with costs of
    /// its own.
    pub(crate) fn mixed(algorithms: &[Algorithm], form: Form) -> Self {
        Self::assemble(MIXED, algorithms, form)
    }

    /// Returns the script that refunds units to policies of these algorithms.
    pub(crate) fn refund(algorithms: &[Algorithm], form: Form) -> Self {
        Self::assemble(REFUND, algorithms, form)
    }

    /// Returns the script that reserves units of policies of these algorithms.
    pub(crate) fn reserve(algorithms: &[Algorithm], form: Form) -> Self {
        Self::assemble(RESERVE, algorithms, form)
    }

    /// Returns the script that settles a reservation of units of policies of these algorithms.
    pub(crate) fn commit(algorithms: &[Algorithm], form: Form) -> Self {
        Self::assemble(COMMIT, algorithms, form)
    }

    /// Returns the script that decides for many keys over leased policies, takes reports and grants units.
    pub(crate) fn lease(algorithms: &[Algorithm]) -> Self {
        Self::assemble(LEASE, algorithms, Form::Leased)
    }

    /// Returns the script that lists the entries of a log.
    pub(crate) fn entries() -> &'static Self {
        static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(ENTRIES.to_owned()));
        &SCRIPT
    }

    /// Returns the script that grants permits.
    pub(crate) fn permits() -> &'static Self {
        static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(PERMITS.to_owned()));
        &SCRIPT
    }

    /// Returns the script that counts the processes of a prefix.
    pub(crate) fn replicas() -> &'static Self {
        static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(REPLICAS.to_owned()));
        &SCRIPT
    }

    /// Returns the script that shows limits to operators.
    pub(crate) fn publish() -> &'static Self {
        static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(PUBLISH.to_owned()));
        &SCRIPT
    }

    fn assemble(source: &'static str, algorithms: &[Algorithm], form: Form) -> Self {
        let parts: Vec<Part> =
            algorithms.iter().map(|&algorithm| part(algorithm, form, algorithms.len() == 1)).collect();
        let before = match source {
            BATCH | MIXED | LEASE => "at + ",
            // The record of a reservation has the first key.
            RESERVE | COMMIT => "1 + ",
            _ => "",
        };
        Self::new(Frame::new(source, &parts, before).script())
    }

    fn new(text: String) -> Self {
        let sha = sha1_smol::Sha1::from(&text).digest().to_string();
        Self { text, sha }
    }
}

#[cfg(test)]
mod tests;
