//! Draws the costs of requests.

use std::sync::atomic::{AtomicU64, Ordering};

/// Draws costs from 1 to a bound, in an order that looks random.
#[derive(Debug)]
pub(crate) struct Costs {
    most: u64,
    drawn: AtomicU64,
}

impl Costs {
    /// Makes each cost 1.
    pub(crate) fn one() -> Self {
        Self::up_to(1)
    }

    pub(crate) fn up_to(most: u64) -> Self {
        Self {
            most,
            drawn: AtomicU64::new(0),
        }
    }

    /// Returns the next cost.
    pub(crate) fn next(&self) -> u64 {
        if self.most == 1 {
            return 1;
        }
        // Multiples of the golden ratio are spread evenly, and neighbours differ.
        let number = self
            .drawn
            .fetch_add(1, Ordering::Relaxed)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15);
        1 + ((u128::from(number) * u128::from(self.most)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cost_up_to_the_bound_is_drawn() {
        let costs = Costs::up_to(10);
        let mut seen = [0; 11];
        (0..1_000).for_each(|_| seen[costs.next() as usize] += 1);
        assert!(
            seen[0] == 0 && seen[1..].iter().all(|count| (80..=120).contains(count)),
            "{seen:?}"
        );
        assert_eq!(Costs::one().next(), 1);
    }
}
