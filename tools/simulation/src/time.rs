//! Times of the model, in nanoseconds.

/// A time in nanoseconds.
pub(crate) type Nanos = u64;

pub(crate) const SECOND: Nanos = 1_000_000_000;
pub(crate) const MS: Nanos = 1_000_000;

/// The time between two values of a course.
pub(crate) const STEP: Nanos = 20_000_000;
