//! Compares the figures with the targets for a server at a distance.

use std::time::Duration;

use super::{Cells, OURS, PLAIN};
use crate::{
    report::{Findings, Target},
    steady::Flow,
};

/// The default deadline of a limiter.
const DEADLINE: Duration = Duration::from_millis(50);

/// Adds the goals. `capacity` is the number of decisions per second without a distance.
pub(super) fn add(findings: &mut Findings, cells: &[Cells], capacity: f64) {
    let mut distances: Vec<Duration> = cells.iter().map(|cells| cells.trip).collect();
    distances.dedup();
    for trip in distances {
        let ms = trip.as_millis();
        let here = || cells.iter().filter(move |cells| cells.trip == trip);
        let ratio =
            |cells: &Cells| cells.series[OURS].ratio(&cells.series[PLAIN], Flow::per_second);
        let lowest = here().map(ratio).fold(f64::NAN, f64::min);
        findings.goal(
            format!(
                "{ms} ms away, decisions/s to a plain client, lowest of all numbers of callers"
            ),
            Target::AtLeast(1.0),
            lowest,
            " ×",
        );
        let limited: Vec<f64> = here()
            .filter(|cells| is_server_limited(cells))
            .map(ratio)
            .collect();
        if let Some(lowest) = limited.into_iter().reduce(f64::min) {
            findings.goal(
                format!("{ms} ms away, the same where the server limits the plain client"),
                Target::AtLeast(2.0),
                lowest,
                " ×",
            );
        }
        let offered = |cells: &Cells| cells.callers as f64 / trip.as_secs_f64();
        let beyond = |cells: &Cells| {
            cells.series[OURS].median(|flow| flow.p99_ms) - trip.as_secs_f64() * 1e3
        };
        let calm = here().filter(|cells| offered(cells) < 0.8 * capacity);
        if let Some(highest) = calm.map(beyond).reduce(f64::max) {
            findings.goal(
                format!("{ms} ms away, p99 beyond the round trip, below saturation"),
                Target::AtMost(5.0),
                highest,
                " ms",
            );
        }
        let fits = |cells: &&Cells| {
            cells.callers as f64 / capacity + trip.as_secs_f64() < DEADLINE.as_secs_f64()
        };
        let without = |cells: &Cells| 100.0 * cells.series[OURS].median(Flow::share_without);
        if let Some(highest) = here().filter(fits).map(without).reduce(f64::max) {
            findings.goal(
                format!("{ms} ms away, decided without the store, where the deadline has room"),
                Target::AtMost(0.0),
                highest,
                " %",
            );
        }
    }
}

/// Returns whether the plain client makes clearly fewer decisions than its callers could in their
/// round trips alone.
fn is_server_limited(cells: &Cells) -> bool {
    let made = cells.series[PLAIN].median(Flow::per_second);
    made < 0.6 * cells.callers as f64 / cells.trip.as_secs_f64()
}
