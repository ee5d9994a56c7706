//! The attribute on functions of all shapes, and its errors.
//!
//! A crate of its own: cargo compiles what the tests of a macro need for the compiler's host, and so
//! `tollgate` and all that it depends on once more.

#![cfg(test)]

mod compile_errors;
mod functions;
mod periods;
mod waiting;
