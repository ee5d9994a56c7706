//! The numbers in the bytes of a state, as the scripts write and read them: doubles that are whole.
//! Which numbers a state has is decided in the file of its algorithm.

use crate::quota::MAX_EXACT;

/// Returns the bytes of numbers below 2^53.
#[must_use]
pub fn doubles(numbers: &[u64]) -> Vec<u8> {
    numbers
        .iter()
        .flat_map(|&number| (number as f64).to_le_bytes())
        .collect()
}

/// Splits bytes into their first `N` doubles and the rest. `None` for fewer bytes.
#[must_use]
pub fn split<const N: usize>(bytes: &[u8]) -> Option<([f64; N], &[u8])> {
    let (numbers, rest) = bytes.split_at_checked(8 * N)?;
    let (numbers, _) = numbers.as_chunks::<8>();
    let mut doubles = [0.0; N];
    for (double, number) in doubles.iter_mut().zip(numbers) {
        *double = f64::from_le_bytes(*number);
    }
    Some((doubles, rest))
}

/// Returns a double as a whole number from 0 up to 2^53. `None` for every other one.
#[must_use]
pub fn whole(double: f64) -> Option<u64> {
    ((0.0..MAX_EXACT as f64).contains(&double) && double.fract() == 0.0).then_some(double as u64)
}
