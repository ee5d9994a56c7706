//! A state in the form in which Redis stores it. The tests compare the in-process store with the scripts by it.

/// A stored state as Redis holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The value.
    pub value: Value,
    /// When the key expires, in milliseconds since the epoch.
    pub expires_ms: u64,
}

/// The value of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A string.
    Bytes(Vec<u8>),
    /// A list: a sliding log.
    List(Vec<Vec<u8>>),
}

/// The bytes of a state that is a few doubles.
pub(super) fn doubles(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|&word| (word as f64).to_le_bytes()).collect()
}
