//! The max-min fair shares of a limit.

/// Holds what one customer asks for and what it is owed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Demand {
    pub(super) asked: f64,
    pub(super) weight: f64,
}

/// Returns the level up to which each customer is served: it gets what it asks for, or the level times its weight. Together
/// they get the capacity, or all that they ask for.
pub(super) fn level(demands: &[Demand], capacity: f64) -> f64 {
    let mut sorted: Vec<Demand> = demands.to_vec();
    sorted.sort_unstable_by(|a, b| (a.asked / a.weight).total_cmp(&(b.asked / b.weight)));
    let (mut left, mut weight) = (
        capacity,
        sorted.iter().map(|demand| demand.weight).sum::<f64>(),
    );
    for demand in sorted {
        if demand.asked / demand.weight > left / weight {
            return left / weight;
        }
        left -= demand.asked;
        weight -= demand.weight;
    }
    f64::INFINITY
}

impl Demand {
    pub(super) fn share(self, level: f64) -> f64 {
        self.asked.min(level * self.weight)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_demands_are_met_and_the_others_share_the_rest_by_weight() {
        let demands = [(2.0, 1.0), (90.0, 1.0), (90.0, 3.0), (30.0, 1.0)]
            .map(|(asked, weight)| Demand { asked, weight });
        let level = level(&demands, 102.0);
        assert_eq!(
            demands.map(|demand| demand.share(level)),
            [2.0, 20.0, 60.0, 20.0]
        );
        assert_eq!(super::level(&demands, 212.0), f64::INFINITY);
    }
}
