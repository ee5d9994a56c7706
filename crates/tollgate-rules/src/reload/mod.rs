//! Replaces rules while requests run.
//! How a file becomes rules is in `compile/` and `load.rs`.

#[cfg(feature = "watch")]
mod places;
mod rules;
#[cfg(feature = "watch")]
mod watch;

pub use rules::{LoadCounts, Rules};
#[cfg(feature = "watch")]
pub use watch::ReloadGuard;
