//! Assembles the Lua scripts from the files in `scripts/`.
//!
//! A script is a frame (`check.lua`, `look.lua`, `batch.lua`, `mixed.lua`, `refund.lua`,
//! `reserve.lua`, `cascade.lua`, `commit.lua`, `lease.lua`) filled with the sections of each policy's algorithm.
//! So the script for one policy and the script for a set consist of the same source lines.
//! Parameters are never part of the text, so all sets of the same algorithms run the same scripts:
//! those of their [`Shape`].
//! The assembly is in `assembler.rs`, and numbers and keys of a call are in `protocol/check.rs` and
//! beside it.

mod assembler;
mod parts;
mod shape;
mod sources;

use std::sync::LazyLock;

use assembler::{COMMIT, Frame, REFUND};
pub(crate) use parts::Form;
use parts::{Part, part};
use shape::Purpose;
pub use shape::{Script, ScriptsOf, Shape};
use sources::source;
use tollgate_core::Algorithm;

const CHECK: &str = source!("check");
const LOOK: &str = source!("look");
const BATCH: &str = source!("batch");
const MIXED: &str = source!("mixed");
const RESERVE: &str = source!("reserve");
const CASCADE: &str = source!("cascade");
const LEASE: &str = source!("lease");
const ENTRIES: &str = source!("entries");
const PERMITS: &str = source!("permits");
const REPLICAS: &str = source!("replicas");
const PUBLISH: &str = source!("publish");
const REPORT: &str = source!("report");
const SPENDING: &str = source!("spending");

impl Shape {
    /// Returns the script that decides one check. `is_capped` is true when it has ceilings, here
    /// and below.
    #[inline]
    pub fn check(&self, is_capped: bool) -> &Script {
        self.assembled(Purpose::Check, is_capped)
    }

    /// Returns the script that returns what a check would decide, and charges nothing.
    pub fn look(&self, is_capped: bool) -> &Script {
        self.assembled(Purpose::Look, is_capped)
    }

    /// Returns the script that decides for many keys with the same numbers, all at one cost.
    #[inline]
    pub fn batch(&self, is_capped: bool) -> &Script {
        self.assembled(Purpose::Batch, is_capped)
    }

    /// Returns the script that decides for many keys, each with numbers and costs of its own.
    #[inline]
    pub fn mixed(&self, is_capped: bool) -> &Script {
        self.assembled(Purpose::Mixed, is_capped)
    }

    /// Returns the script that refunds. `is_capped` is true when it returns the places of a request
    /// under ceilings.
    #[inline]
    pub fn refund(&self, is_capped: bool) -> &Script {
        self.assembled(Purpose::Refund, is_capped)
    }

    /// Returns the script that reserves.
    pub fn reserve(&self, is_capped: bool) -> &Script {
        self.assembled(Purpose::Reserve, is_capped)
    }

    /// Returns the script that reserves units of policies that are spent one after the other, which
    /// are windows with one counter, and of others beside them.
    pub fn cascade(&self, is_capped: bool) -> &Script {
        self.assembled(Purpose::Cascade, is_capped)
    }

    /// Returns the script that settles a reservation.
    pub fn commit(&self) -> &Script {
        self.assembled(Purpose::Commit, false)
    }

    /// Returns the script that decides for many keys, takes reports and grants units. Only leased
    /// policies have one.
    pub fn lease(&self) -> &Script {
        self.assembled(Purpose::Lease, false)
    }

    /// Returns a script, which is assembled once. Leased policies have no ceilings.
    #[inline]
    fn assembled(&self, purpose: Purpose, is_capped: bool) -> &Script {
        let form = || match is_capped {
            _ if self.is_leased() => Form::Leased,
            true => Form::Capped,
            false => Form::Plain,
        };
        self.script(purpose, is_capped, || {
            Script::assemble(purpose, self.algorithms(), form())
        })
    }
}

impl Script {
    /// Returns the script for policies of these algorithms.
    pub(crate) fn assemble(purpose: Purpose, algorithms: &[Algorithm], form: Form) -> Self {
        let parts: Vec<Part> = algorithms
            .iter()
            .map(|&algorithm| part(algorithm, form, algorithms.len() == 1))
            .collect();
        // The frame, and what precedes the place of a key: the record of a reservation has the
        // first one.
        let (frame, before) = match purpose {
            Purpose::Check => (CHECK, ""),
            Purpose::Look => (LOOK, ""),
            Purpose::Batch => (BATCH, "at + "),
            Purpose::Mixed => (MIXED, "at + "),
            Purpose::Refund => (REFUND, ""),
            Purpose::Reserve => (RESERVE, "1 + "),
            Purpose::Cascade => (CASCADE, "1 + "),
            Purpose::Commit => (COMMIT, "1 + "),
            Purpose::Lease => (LEASE, "at + "),
        };
        Self::new(Frame::new(frame, &parts, before).script())
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

    /// Returns the script by which a process reports to operators what it enforces.
    pub(crate) fn report() -> &'static Self {
        static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(REPORT.to_owned()));
        &SCRIPT
    }

    /// Returns the script by which processes report to each other who spends much.
    pub(crate) fn spending() -> &'static Self {
        static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(SPENDING.to_owned()));
        &SCRIPT
    }

    fn new(text: String) -> Self {
        let sha = sha1_smol::Sha1::from(&text).digest().to_string();
        Self { text, sha }
    }
}

#[cfg(test)]
mod tests;
