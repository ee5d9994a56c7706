//! Alternates the turns of the contestants, and computes medians, and ratios within a round.
//!
//! The speed of a machine changes during a measurement, because of other processes, heat and the
//! scheduler. If one contestant ran after the other, this change would distort the comparison. Here
//! each contestant has a short turn in each round. A ratio is computed between two turns of the
//! same round, before the median is taken.

use std::time::Duration;

use crate::pace::Rounds;

/// Holds one contestant, and the function that runs one turn of it.
pub(crate) struct Case<'a, T> {
    name: String,
    turn: Box<dyn FnMut(Duration) -> T + 'a>,
}

/// Stores the results of a contestant, one for each round.
#[derive(Debug)]
pub(crate) struct Series<T> {
    pub(crate) name: String,
    turns: Vec<T>,
}

impl<'a, T> Case<'a, T> {
    /// Creates a case. `turn` works for about the time that it is given.
    pub(crate) fn new(name: impl Into<String>, turn: impl FnMut(Duration) -> T + 'a) -> Self {
        Self {
            name: name.into(),
            turn: Box::new(turn),
        }
    }
}

/// Runs one turn of each case in each round, after a shorter warm-up turn of each case that does
/// not count.
pub(crate) fn alternate<T>(rounds: Rounds, mut cases: Vec<Case<'_, T>>) -> Vec<Series<T>> {
    for case in &mut cases {
        (case.turn)(rounds.turn / 4);
    }
    let mut series: Vec<_> = cases
        .iter()
        .map(|case| Series {
            name: case.name.clone(),
            turns: Vec::with_capacity(rounds.count),
        })
        .collect();
    for _ in 0..rounds.count {
        for (case, series) in cases.iter_mut().zip(&mut series) {
            series.turns.push((case.turn)(rounds.turn));
        }
    }
    series
}

impl<T> Series<T> {
    /// Returns the median over all rounds.
    pub(crate) fn median(&self, of: impl Fn(&T) -> f64) -> f64 {
        median(self.turns.iter().map(of))
    }

    /// Returns the median of the ratios to another series, each computed within one round.
    pub(crate) fn ratio(&self, to: &Self, of: impl Fn(&T) -> f64) -> f64 {
        median(
            self.turns
                .iter()
                .zip(&to.turns)
                .map(|(ours, theirs)| of(ours) / of(theirs)),
        )
    }
}

impl Series<f64> {
    /// Returns the difference to `base` in each round.
    pub(crate) fn beyond(&self, base: &Self) -> Self {
        let turns = self
            .turns
            .iter()
            .zip(&base.turns)
            .map(|(turn, base)| turn - base);
        Self {
            name: self.name.clone(),
            turns: turns.collect(),
        }
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        len if len % 2 == 1 => values[len / 2],
        len => f64::midpoint(values[len / 2 - 1], values[len / 2]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(turns: &[f64]) -> Series<f64> {
        Series {
            name: String::new(),
            turns: turns.to_vec(),
        }
    }

    #[test]
    fn one_disturbed_turn_does_not_change_the_median() {
        assert_eq!(series(&[3.0, 1000.0, 2.0]).median(|&it| it), 3.0);
        assert_eq!(series(&[1.0, 2.0]).median(|&it| it), 1.5);
    }

    #[test]
    fn a_machine_that_slows_down_does_not_change_the_ratio() {
        let (ours, theirs) = (series(&[1.0, 10.0, 100.0]), series(&[2.0, 20.0, 200.0]));
        assert_eq!(ours.ratio(&theirs, |&it| it), 0.5);
    }
}
