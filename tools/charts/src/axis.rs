//! Maps values to places on an axis, and chooses the ticks.

/// Describes one axis: its label and its scale.
#[derive(Clone, Debug)]
pub struct Axis {
    pub(crate) label: String,
    is_logarithmic: bool,
    /// The least upper end. The axis is longer when a value is above it.
    at_least: f64,
}

/// Maps the values of an axis to the range from 0 to 1.
#[derive(Clone, Debug)]
pub(crate) struct Scale {
    is_logarithmic: bool,
    low: f64,
    high: f64,
    ticks: Vec<f64>,
}

impl Axis {
    /// Creates an axis that begins at zero.
    #[must_use]
    pub fn linear(label: impl Into<String>) -> Self {
        Self {
            label: label.into(),
            is_logarithmic: false,
            at_least: 0.0,
        }
    }

    /// Creates an axis on which each step multiplies by the same factor. It has a tick at each
    /// value of the points.
    #[must_use]
    pub fn logarithmic(label: impl Into<String>) -> Self {
        Self {
            label: label.into(),
            is_logarithmic: true,
            at_least: 0.0,
        }
    }

    /// Makes the axis reach at least up to `value`.
    #[must_use]
    pub fn up_to(self, value: f64) -> Self {
        Self {
            at_least: value,
            ..self
        }
    }

    /// Returns whether the axis has a place for the value.
    pub(crate) fn takes(&self, value: f64) -> bool {
        value.is_finite() && (!self.is_logarithmic || value > 0.0)
    }

    /// Returns the scale for these values.
    pub(crate) fn scale(&self, values: impl Iterator<Item = f64>) -> Scale {
        let mut values: Vec<f64> = values.collect();
        values.sort_unstable_by(f64::total_cmp);
        values.dedup();
        let highest = values.last().copied().unwrap_or(1.0).max(self.at_least);
        if self.is_logarithmic {
            let low = values.first().copied().unwrap_or(0.5);
            let high = if highest > low { highest } else { low * 2.0 };
            return Scale {
                is_logarithmic: true,
                low,
                high,
                ticks: values,
            };
        }
        let highest = if highest > 0.0 { highest } else { 1.0 };
        let step = round_step(highest / 4.0);
        let steps = (highest / step).ceil().max(1.0);
        let ticks = (0..=steps as u32).map(|at| f64::from(at) * step).collect();
        Scale {
            is_logarithmic: false,
            low: 0.0,
            high: steps * step,
            ticks,
        }
    }
}

impl Scale {
    /// Returns the place of a value, from 0 to 1.
    pub(crate) fn place(&self, value: f64) -> f64 {
        let share = if self.is_logarithmic {
            (value / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        share.clamp(0.0, 1.0)
    }

    pub(crate) fn ticks(&self) -> &[f64] {
        &self.ticks
    }
}

/// Rounds up to 1, 2, 2.5 or 5 times a power of ten.
fn round_step(step: f64) -> f64 {
    let power = 10_f64.powf(step.log10().floor());
    let factors = [1.0, 2.0, 2.5, 5.0, 10.0];
    // The tolerance keeps a step of exactly 1, 2 or 5 although the power of ten is rounded.
    factors
        .iter()
        .map(|factor| factor * power)
        .find(|round| *round >= step * 0.999_999)
        .unwrap_or(step)
}

/// Formats the value of a tick: `64`, `1.5`, `300 k`, `2 M`.
pub(crate) fn tick(value: f64) -> String {
    let (value, unit) = match value.abs() {
        it if it >= 1e6 => (value / 1e6, " M"),
        it if it >= 1e4 => (value / 1e3, " k"),
        _ => (value, ""),
    };
    let text = format!("{value:.2}");
    format!("{}{unit}", text.trim_end_matches('0').trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_reach_the_highest_value() {
        for (highest, expected) in [
            (330e3, 400e3),
            (0.9, 1.0),
            (50.0, 60.0),
            (1.0, 1.0),
            (0.0, 1.0),
        ] {
            let scale = Axis::linear("").scale([0.0, highest].into_iter());
            let last = scale.ticks().last().copied().expect("a tick");
            assert!(
                (last - expected).abs() < 1e-9 * expected,
                "{highest}: {last}"
            );
        }
    }

    #[test]
    fn a_logarithmic_axis_gives_equal_room_to_equal_factors() {
        let scale = Axis::logarithmic("").scale([64.0, 256.0, 1024.0].into_iter());
        assert!((scale.place(256.0) - 0.5).abs() < 1e-9);
        assert_eq!(scale.ticks(), [64.0, 256.0, 1024.0]);
    }

    #[test]
    fn an_axis_reaches_the_value_that_it_is_given() {
        assert!(
            Axis::linear("")
                .up_to(50.0)
                .scale([1.0].into_iter())
                .place(25.0)
                <= 0.5
        );
    }

    #[test]
    fn ticks_are_short() {
        assert_eq!(
            [0.0, 1.5, 1024.0, 300e3, 2.5e6].map(tick),
            ["0", "1.5", "1024", "300 k", "2.5 M"]
        );
    }
}
