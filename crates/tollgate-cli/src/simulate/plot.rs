//! Draws the requests and the denials of each rule over time.
//! Lines and axes are drawn in `svg.rs`, which knows no rules.

use super::{
    series::BinnedCounts,
    simulator::Simulator,
    svg::{self, Panel},
    tally::Tally,
};

/// The most rules in one picture: those with the most denials.
const MAX_RULES: usize = 16;

const SECOND_US: u64 = 1_000_000;

/// Draws a picture as SVG.
pub(crate) fn plot(simulator: &Simulator) -> String {
    let mut tallies: Vec<&Tally> = simulator
        .tallies
        .iter()
        .filter(|tally| tally.requests > 0)
        .collect();
    tallies.sort_by_key(|tally| std::cmp::Reverse((tally.denied, tally.requests)));
    tallies.truncate(MAX_RULES);
    let totals = &simulator.totals;
    let unit = Unit::of(totals.last_us - totals.first_us);
    let panels: Vec<_> = tallies.iter().map(|tally| panel(tally, &unit)).collect();
    svg::draw(
        "Requests and denials by rule",
        ["requests", "denied"],
        &panels,
    )
}

fn panel(tally: &Tally, unit: &Unit) -> Panel {
    let (rule, series) = (&tally.rule, &tally.series);
    let width = series.width_us() / SECOND_US;
    Panel {
        title: format!("{} ({}) · requests per {width} s", rule.metric, rule.limit),
        x_label: format!("{} since the start", unit.name),
        lines: [
            points(series, unit, |bin| bin.requests),
            points(series, unit, |bin| bin.denied),
        ],
    }
}

fn points(
    series: &BinnedCounts,
    unit: &Unit,
    count: impl Fn(&super::series::Bin) -> u64,
) -> Vec<(f64, f64)> {
    let width = series.width_us() as f64 / unit.micros as f64;
    let bins = series.bins().iter().enumerate();
    bins.map(|(at, bin)| (at as f64 * width, count(bin) as f64))
        .collect()
}

/// The unit of the axis of time.
struct Unit {
    name: &'static str,
    micros: u64,
}

impl Unit {
    /// Returns the unit for a span.
    fn of(span_us: u64) -> Self {
        let (name, seconds) = match span_us / SECOND_US {
            0..300 => ("seconds", 1),
            300..18_000 => ("minutes", 60),
            18_000..432_000 => ("hours", 3_600),
            _ => ("days", 86_400),
        };
        Self {
            name,
            micros: seconds * SECOND_US,
        }
    }
}
