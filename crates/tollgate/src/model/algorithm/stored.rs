//! A state in the form in which Redis stores it. The tests compare the in-process store with the scripts by it.

/// Holds a state in the form in which Redis stores it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The value of the key.
    pub value: Value,
    /// The time at which the key expires, in milliseconds since the Unix epoch.
    pub expires_ms: u64,
}

/// Holds the value of a Redis key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A string, for all algorithms but the sliding log.
    Bytes(Vec<u8>),
    /// A list, for a sliding log.
    List(Vec<Vec<u8>>),
}

/// Returns the bytes of a state that is a few doubles.
pub(super) fn doubles(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|&word| (word as f64).to_le_bytes()).collect()
}
