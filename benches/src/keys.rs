//! Creates the keys that all contestants use: texts of 21 bytes, in an order that no cache can
//! predict.

use std::sync::LazyLock;

/// Sets the number of keys. A section that needs more of them makes them by [`key`].
pub(crate) const KEYS: usize = 10_000;

/// Returns the key with that number.
pub(crate) fn key(number: usize) -> String {
    format!("customer:{number:012}")
}

/// Returns the first [`KEYS`] keys in order.
pub(crate) fn all() -> &'static [String] {
    static ALL: LazyLock<Vec<String>> = LazyLock::new(|| (0..KEYS).map(key).collect());
    &ALL
}

/// Puts these in an order that no cache can predict, the same in each run.
pub(crate) fn shuffled<T>(mut these: Vec<T>) -> Vec<T> {
    let mut random = Random::new(these.len() as u64);
    for at in (1..these.len()).rev() {
        these.swap(at, random.below(at + 1));
    }
    these
}

/// Generates random numbers with Marsaglia's xorshift.
///
/// A number takes about a nanosecond, and is random enough to choose keys.
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }

    /// Returns a number from 0 to 1. It is never 1.
    pub(crate) fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shuffled_keys_are_all_there_in_another_order() {
        let mut keys = shuffled(all().to_vec());
        assert_ne!(keys[..3], all()[..3]);
        keys.sort();
        assert_eq!(keys, all());
    }

    #[test]
    fn random_numbers_reach_every_value_below_the_bound() {
        let mut random = Random::new(7);
        let mut seen = [false; 16];
        (0..1_000).for_each(|_| seen[random.below(16)] = true);
        assert_eq!(seen, [true; 16]);
    }
}
