//! Contains the limits themselves: policies, alone and in sets, the algorithms that meter them, what a check asks of them,
//! and the terms of leases.
//! Quotas and keys, which know nothing of policies, and decisions, which are made of all of these, are
//! beside.

// A policy has an algorithm, and each step of an algorithm takes its policy; a cost is checked against
// a set, and a set checks a cost. So the modules know each other: to cut them, each step would take six
// numbers in the place of a policy.

pub mod algorithm;
pub(crate) mod charge;
pub(crate) mod cost;
pub(crate) mod lease;
pub(crate) mod policy;
pub(crate) mod policy_set;
pub(crate) mod priority;
