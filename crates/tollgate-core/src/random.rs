//! Random bits and names that no other process has, without a crate for them.
//! Pauses that only have to differ use `fastrand` where they are made.

use std::hash::{BuildHasher, Hasher, RandomState};

/// Returns 64 random bits.
///
/// The keys of a [`RandomState`] stem from the operating system, and no two of a process are alike.
/// So nobody can guess the bits, and other processes have others.
#[must_use]
pub fn bits() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Returns the name of a thing that no other process names: 128 random bits in hexadecimal digits.
#[must_use]
pub fn name() -> String {
    format!("{:016x}{:016x}", bits(), bits())
}
