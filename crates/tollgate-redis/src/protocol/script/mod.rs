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
pub use shape::{Purpose, Script, ScriptsOf, Shape};
use sources::source;
use tollgate_core::Algorithm;

/// Lists the entries of a log.
pub(crate) static ENTRIES: LazyLock<Script> = LazyLock::new(|| Script::new(source!("entries")));

/// Grants permits.
pub(crate) static PERMITS: LazyLock<Script> = LazyLock::new(|| Script::new(source!("permits")));

/// Counts the processes of a prefix.
pub(crate) static REPLICAS: LazyLock<Script> = LazyLock::new(|| Script::new(source!("replicas")));

/// Shows limits to operators.
pub(crate) static PUBLISH: LazyLock<Script> = LazyLock::new(|| Script::new(source!("publish")));

/// Reads exceptions.
pub(crate) static EXCEPTIONS: LazyLock<Script> =
    LazyLock::new(|| Script::new(source!("exceptions")));

/// Grants or withdraws an exception.
pub(crate) static EXCEPT: LazyLock<Script> = LazyLock::new(|| Script::new(source!("except")));

/// Keeps what a process reports to operators that it enforces.
pub(crate) static REPORT: LazyLock<Script> = LazyLock::new(|| Script::new(source!("report")));

/// Exchanges the reports of processes on who spends much.
pub(crate) static SPENDING: LazyLock<Script> = LazyLock::new(|| Script::new(source!("spending")));

impl Shape {
    /// Returns the script for a purpose, which is assembled once. `is_capped` is true for a check
    /// under ceilings, and for the refund of one. Leased policies have no ceilings.
    #[inline]
    pub fn script(&self, purpose: Purpose, is_capped: bool) -> &Script {
        let form = || match is_capped {
            _ if self.is_leased() => Form::Leased,
            true => Form::Capped,
            false => Form::Plain,
        };
        self.assembled(purpose, is_capped, || {
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
            Purpose::Check => (source!("check"), ""),
            Purpose::Look => (source!("look"), ""),
            Purpose::Batch => (source!("batch"), "at + "),
            Purpose::Mixed => (source!("mixed"), "at + "),
            Purpose::Refund => (REFUND, ""),
            Purpose::Reserve => (source!("reserve"), "1 + "),
            Purpose::Cascade => (source!("cascade"), "1 + "),
            Purpose::Commit => (COMMIT, "1 + "),
            Purpose::Lease => (source!("lease"), "at + "),
        };
        Self::new(Frame::new(frame, &parts, before).script())
    }

    pub(crate) fn new(text: impl Into<String>) -> Self {
        let text = text.into();
        let sha = sha1_smol::Sha1::from(&text).digest().to_string();
        Self { text, sha }
    }
}

#[cfg(test)]
mod tests;
