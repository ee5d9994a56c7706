//! Creates the keys that all contestants use: texts of 21 bytes, in an order that no cache can
//! predict.

/// Sets the number of keys. A section that needs another number defines its own.
pub(crate) const KEYS: usize = 10_000;

/// Returns the key with that number.
///
/// The number has twelve digits, because redis-benchmark puts twelve digits in place of
/// `__rand_int__`.
pub(crate) fn key(number: usize) -> String {
    format!("customer:{number:012}")
}

/// Stands for any key. redis-benchmark replaces the end by a random number, which makes it one of
/// the [`key`]s.
pub(crate) const ANY_KEY: &str = "customer:__rand_int__";

/// Returns the first `count` keys in order.
pub(crate) fn first(count: usize) -> impl Iterator<Item = String> {
    (0..count).map(key)
}

/// Returns the first `count` keys in random order.
pub(crate) fn shuffled(count: usize) -> Vec<String> {
    let mut keys: Vec<String> = first(count).collect();
    let mut random = Random::new(count as u64);
    for at in (1..count).rev() {
        keys.swap(at, random.below(at + 1));
    }
    keys
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
    fn every_key_has_21_bytes_and_is_present_once() {
        let mut keys = shuffled(1_000);
        assert!(keys.iter().all(|key| key.len() == 21) && ANY_KEY.len() == 21);
        assert_ne!(keys[..3], [key(0), key(1), key(2)]);
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), 1_000);
    }

    #[test]
    fn random_numbers_reach_every_value_below_the_bound() {
        let mut random = Random::new(7);
        let mut seen = [false; 16];
        (0..1_000).for_each(|_| seen[random.below(16)] = true);
        assert_eq!(seen, [true; 16]);
    }
}
