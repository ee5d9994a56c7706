//! The level of a policy for one key: the integers of a reply, and the numbers derived from them.

/// What a script replies for one policy, and what the pure functions say: the meaning of each word
/// belongs to the algorithm. Words that an algorithm does not use are zero.
pub(crate) type Words = [u64; 4];

/// What one policy reads at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PolicyLevel {
    /// Whether the cost fits (or fitted, when it was charged).
    pub(crate) fits: bool,
    /// The level after the charge; before it, when nothing was charged.
    pub(crate) words: Words,
}

/// What the caller is told of one policy. Times are microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Numbers {
    /// Units that would pass at this instant.
    pub(crate) remaining: u64,
    /// Until the cost that was asked fits, if nobody else spends; 0 when it fits.
    pub(crate) retry_us: u64,
    /// Until the state equals a fresh one.
    pub(crate) reset_us: u64,
    /// Until one more unit than `remaining` would pass; 0 when all are there.
    pub(crate) more_us: u64,
}
