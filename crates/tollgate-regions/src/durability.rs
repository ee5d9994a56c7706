//! The guard against a home that loses grants.
//! See `carrier.rs` for how a grant waits for it.

/// Guards against a home that loses grants when another server takes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Durability {
    /// A grant counts only when so many replicas of the home have it: all that may be promoted.
    ///
    /// Then nothing is admitted twice when one of them takes over, and a master that was cut off
    /// grants nothing. While a replica is away, nothing is granted either: regions spend what they
    /// hold. Fewer than all is not exact.
    Replicas(u32),
    /// The home is trusted not to lose what it has written. After a loss, the burst may be admitted
    /// once more, and with it what regions held.
    Trust,
}
