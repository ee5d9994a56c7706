//! The attribute on functions of all shapes. What the compiler says about a wrong one is in
//! `tests/macro_errors`.
//!
//! A crate of its own: cargo compiles what the tests of a macro need for the compiler's host, and so
//! `tollgate` and all that it depends on once more.

#[cfg(test)]
mod functions;
#[cfg(test)]
mod periods;
#[cfg(test)]
mod waiting;

/// Compiles the examples of the macro's README with the tests.
#[cfg(doctest)]
#[doc = include_str!("../../../crates/tollgate-macros/README.md")]
struct Readme;
