//! The keys everybody decides about: texts of 21 bytes, in an order that no cache foresees.

/// How many there are unless a section says otherwise.
pub(crate) const KEYS: usize = 10_000;

/// The key of that number, as redis-benchmark writes its random numbers into `customer:__rand_int__`.
pub(crate) fn key(number: usize) -> String {
    format!("customer:{number:012}")
}

/// What redis-benchmark turns into one of the [`key`]s.
pub(crate) const ANY_KEY: &str = "customer:__rand_int__";

/// The first `count` keys.
pub(crate) fn first(count: usize) -> impl Iterator<Item = String> {
    (0..count).map(key)
}

/// The first `count` keys, shuffled.
pub(crate) fn shuffled(count: usize) -> Vec<String> {
    let mut keys: Vec<String> = first(count).collect();
    let mut random = Random::new(count as u64);
    for at in (1..count).rev() {
        keys.swap(at, random.below(at + 1));
    }
    keys
}

/// Marsaglia's xorshift: a nanosecond a number, and random enough to choose keys.
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((u128::from(self.0) * bound as u128) >> 64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_of_21_bytes_and_all_there() {
        let mut keys = shuffled(1_000);
        assert!(keys.iter().all(|key| key.len() == 21) && ANY_KEY.len() == 21);
        assert_ne!(keys[..3], [key(0), key(1), key(2)]);
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), 1_000);
    }

    #[test]
    fn random_numbers_reach_everything_below_the_bound() {
        let mut random = Random::new(7);
        let mut seen = [false; 16];
        (0..1_000).for_each(|_| seen[random.below(16)] = true);
        assert_eq!(seen, [true; 16]);
    }
}
