//! Names what stores and limiters read of the types beyond their public face: charges, levels of
//! policies, the parts of keys and sets.
//!
//! `tollgate_core::raw` has the same names beside those of its own. Semantic versioning covers them.

// Names only: each stands in its room. What nobody but this crate needs does not belong here.

pub use crate::{
    algorithm::AlgorithmParts,
    charge::{Account, Ask, Cascade, CeilingParts, Ceilings, Charge, ChargeRef, EachCost, Spender},
    concurrency::ConcurrencyParts,
    cost::{CostParts, CostsParts},
    customer::CustomerParts,
    decision::{DecisionParts, PolicyLevels},
    enforcement::EnforcementParts,
    entry::TAG_BYTES,
    error::ErrorKindParts,
    key::{KeyLevel, KeyParts, MAX_BRANCHES, PADDING, hash_text},
    lease::LeaseParts,
    micros::micros,
    policy::{
        LEASED_READING, MAX_POLICIES, PolicyParts, hash_name,
        numbers::{ceiling_numbers, for_each_number, numbers},
    },
    policy_set::{Derived, PolicySetParts},
    priority::{PriorityParts, refuse_leased},
    quota::{MAX_EXACT, QuotaParts, Span},
};

#[cfg(feature = "test-util")]
pub use crate::decision::ScriptedDecision;
