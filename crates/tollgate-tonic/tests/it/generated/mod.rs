//! Code that is generated from `.proto` files. It is committed, so that a build needs only cargo;
//! `tests/full` of the workspace compares it with what is generated anew.

#[allow(missing_docs, missing_debug_implementations, unreachable_pub, clippy::all, reason = "generated")]
#[rustfmt::skip]
pub(crate) mod echo;
