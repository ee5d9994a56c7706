//! Opens the scripts to the project's own tests, which compare each with its pure function.
//!
//! They send batches of a given content, and scripts with a mistake. What the tests make of this
//! stands in `tests/support`. The module needs the feature `testing`, and semantic versioning does
//! not cover it.

// Only names and thin functions stand here: nothing of the product may depend on them.

use tollgate_core::PolicySet;

pub use crate::protocol::{Purpose, Script, ScriptsOf, Shape};
pub use tollgate_remote::lease::{Grant, HeldUnits, Report, Stamp, Stamps};

/// Packs the arguments of scripts, and reads their replies.
pub mod wire {
    pub use tollgate_core::raw::numbers;

    pub use crate::protocol::{
        BatchReply, MixedArgs, OUTSTANDING, Outcome, Packed, decision, entries, pack, pack_held,
        pack_permits, pack_refund, pack_seen, permit_grant, reserved, settlement, write_key,
        write_permit_key, write_record_key,
    };
}

/// Returns the scripts of a set.
#[must_use]
pub fn shape(policies: &PolicySet) -> &Shape {
    policies.shape()
}

/// Returns the number of lists of algorithms whose scripts are in memory, in the whole process.
#[must_use]
pub fn shapes() -> usize {
    Shape::count()
}

/// Returns the script that grants permits.
#[must_use]
pub fn permit_script() -> &'static Script {
    &crate::protocol::PERMITS
}
