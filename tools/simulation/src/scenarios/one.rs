//! One process at several distances.

use tollgate_charts::{Axis, Panel, Picture};

use super::{NEAR, USUAL, client, ideal, run, trip};
use crate::{
    controller::Kind,
    line::Route,
    page::{Part, percent, short, thousands},
    results::Results,
    time::{MS, Nanos},
};

const ROUND_TRIPS: [Nanos; 4] = [NEAR, MS, 5 * MS, 20 * MS];
const CALLERS: [usize; 4] = [64, 256, 1_024, 4_096];

/// Holds both controllers for one distance and one number of callers.
struct Cell {
    round_trip: Nanos,
    callers: usize,
    window: Results,
    four: Results,
    ideal: f64,
}

fn cell(round_trip: Nanos, callers: usize) -> Cell {
    let of = |kind| run(USUAL, vec![client(callers, Route::new(round_trip))], kind, 4);
    Cell {
        round_trip,
        callers,
        window: of(Kind::Pacer),
        four: of(Kind::FourBatches),
        ideal: ideal(USUAL, callers, round_trip),
    }
}

pub(super) fn distances() -> Part {
    let cells: Vec<Cell> = ROUND_TRIPS.iter().flat_map(|&far| CALLERS.map(|callers| cell(far, callers))).collect();
    let row = |cell: &Cell| {
        vec![
            trip(cell.round_trip),
            cell.callers.to_string(),
            thousands(cell.ideal),
            thousands(cell.window.rate()),
            percent(cell.window.rate() / cell.ideal),
            short(cell.window.wait_ms),
            short(cell.window.p99_ms),
            percent(cell.window.late),
            thousands(cell.four.rate()),
            percent(cell.four.late),
        ]
    };
    Part {
        name: "simulation_distance",
        title: "One process, near and far",
        text: "One process and a server at four distances. Decisions in time are counted. The checks of 64 callers at 0.05 ms \
               leave together, because this saves wake-ups. A wake-up costs nothing in this model, so it shows the price \
               alone."
            .to_owned(),
        heads: vec![
            "round trip ms",
            "callers",
            "ideal/s",
            "window/s",
            "of the ideal",
            "mean wait at the server ms",
            "p99 ms",
            "late",
            "four batches/s",
            "late",
        ],
        rows: cells.iter().map(row).collect(),
        picture: picture(&cells),
    }
}

fn picture(cells: &[Cell]) -> Picture {
    let panel = |far: Nanos| {
        let title = format!("{} ms", trip(far));
        let mut panel = Panel::new(title, Axis::logarithmic("callers"), Axis::linear("decisions/s"));
        let here = || cells.iter().filter(move |cell| cell.round_trip == far);
        panel.line(2, here().map(|cell| (cell.callers as f64, cell.ideal)));
        panel.line(1, here().map(|cell| (cell.callers as f64, cell.four.rate())));
        panel.line(0, here().map(|cell| (cell.callers as f64, cell.window.rate())));
        panel
    };
    let panels = ROUND_TRIPS.map(panel).into();
    Picture::new("One process: decisions in time", ["window", "four batches", "ideal"], panels).columns(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_fills_a_far_line_and_four_batches_do_not() {
        let cell = cell(20 * MS, 4_096);
        let (window, four) = (cell.window.rate() / cell.ideal, cell.four.rate() / cell.ideal);
        assert!(window > 0.8 && four < 0.1, "window {window}, four batches {four}, of the ideal");
        assert!(cell.window.late < 0.01, "late: {}", cell.window.late);
    }

    #[test]
    fn the_window_keeps_the_wait_at_a_near_server_short() {
        let cell = cell(NEAR, 4_096);
        assert!(cell.window.rate() / cell.ideal > 0.8, "{} of {}", cell.window.rate(), cell.ideal);
        assert!(cell.window.wait_p99_ms < 3.0, "{} ms", cell.window.wait_p99_ms);
    }

    #[test]
    fn no_rate_is_above_the_ideal() {
        for far in [NEAR, 5 * MS] {
            let cell = cell(far, 64);
            assert!(cell.window.rate() <= 1.05 * cell.ideal, "{} of {}", cell.window.rate(), cell.ideal);
        }
    }
}
