//! The level of a policy for a key: its reading, and the numbers that a caller sees.
//! How an algorithm makes the one of the other is in its own file.

/// The reading of a meter: the integers of one policy in the reply of a script, which calls them its
/// *words*. The pure functions return the same. The algorithm defines the meaning of each. Unused ones
/// are zero.
pub type Reading = [u64; 4];

/// The level of one policy for one key at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicyLevel {
    /// The cost fits, or fitted before it was charged.
    pub fits: bool,
    /// The state after the charge, or the unchanged state when nothing was charged.
    pub reading: Reading,
}

/// The numbers that a caller sees for one policy. Times are in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Numbers {
    /// The units that would be admitted at this instant.
    pub remaining: u64,
    /// The time until the denied cost fits, if nobody else spends; 0 when it fits now.
    pub retry_us: u64,
    /// The time until the state equals a fresh one.
    pub reset_us: u64,
    /// The time until one unit more than `remaining` is available; 0 when nothing is spent.
    pub more_us: u64,
}
