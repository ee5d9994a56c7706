//! Many processes on one server.

use tollgate_charts::{Axis, Panel, Picture};

use super::{NEAR, USUAL, client, run, trip};
use crate::{
    controller::Kind,
    line::Route,
    page::{Part, percent, short, thousands},
    process::Client,
    results::Results,
    time::{MS, Nanos, SECOND},
    world::World,
};

const PROCESSES: usize = 8;
/// The callers of each process. All of them together keep the server busy for 7.6 ms, or for 30 ms.
const CALLERS: usize = 512;
const MANY_CALLERS: usize = 2_048;

/// Runs processes at these distances, which begin a tenth of a second after one another.
fn processes(round_trips: &[Nanos], callers: usize, kind: Kind) -> Results {
    let client =
        |(at, &far): (usize, &Nanos)| Client { from: at as Nanos * SECOND / 10, ..client(callers, Route::new(far)) };
    run(USUAL, round_trips.iter().enumerate().map(client).collect(), kind, 9)
}

/// Returns the standard deviation of the sum over its mean, after the first second.
fn unrest(results: &Results) -> f64 {
    let total = results.course.total();
    let settled = &total[total.len() / 10..];
    let mean = settled.iter().sum::<f64>() / settled.len() as f64;
    let variance = settled.iter().map(|rate| (rate - mean).powi(2)).sum::<f64>() / settled.len() as f64;
    variance.sqrt() / mean
}

pub(super) fn together() -> Part {
    let alike = |far: Nanos| [far; PROCESSES];
    let mixed = [NEAR, NEAR, MS, MS, 5 * MS, 5 * MS, 20 * MS, 20 * MS];
    let cases = [
        (format!("{} ms", trip(NEAR)), CALLERS, alike(NEAR)),
        (format!("{} ms", trip(NEAR)), MANY_CALLERS, alike(NEAR)),
        ("1 ms".to_owned(), CALLERS, alike(MS)),
        ("1 ms".to_owned(), MANY_CALLERS, alike(MS)),
        ("5 ms".to_owned(), CALLERS, alike(5 * MS)),
        ("20 ms".to_owned(), CALLERS, alike(20 * MS)),
        ("two each at 0.05, 1, 5 and 20 ms".to_owned(), CALLERS, mixed),
    ];
    let mut rows = Vec::new();
    let mut panels = Vec::new();
    for (name, callers, round_trips) in cases {
        for kind in [Kind::Pacer, Kind::FourBatches] {
            let results = processes(&round_trips, callers, kind);
            rows.push(vec![
                name.clone(),
                callers.to_string(),
                if kind == Kind::Pacer { "window" } else { "four batches" }.to_owned(),
                thousands(results.rate()),
                percent(results.rate() / USUAL.capacity()),
                short(results.fairness()),
                short(results.lowest_to_highest()),
                short(results.wait_ms),
                short(results.wait_p99_ms),
                percent(unrest(&results)),
                percent(results.late),
            ]);
            if kind == Kind::Pacer && callers == CALLERS && (round_trips == alike(MS) || round_trips == mixed) {
                let mut panel = Panel::new(&name, Axis::linear("seconds"), Axis::linear("decisions/s"));
                for process in 0..PROCESSES {
                    let course = &results.course;
                    panel.line(process, smooth(&course.seconds, &course.decisions[process]));
                }
                panels.push(panel);
            }
        }
    }
    let names: Vec<String> = (1..=PROCESSES).map(|number| format!("{number}")).collect();
    Part {
        name: "simulation_eight",
        title: "Eight processes on one server",
        text: format!(
            "They begin a tenth of a second after one another. {CALLERS} callers of each keep the server busy for 7.6 ms, \
             {MANY_CALLERS} for 30 ms. *Fairness* is Jain's index: 1 when all have the same rate, 0.125 when \
             one has all. *Unrest* is the standard deviation of all decisions in 20 ms, divided by their mean. The \
             picture shows windows, one line for each process."
        ),
        heads: vec![
            "round trips",
            "callers of each",
            "",
            "decisions/s",
            "of the capacity",
            "fairness",
            "lowest to highest",
            "mean wait at the server ms",
            "p99 wait ms",
            "unrest",
            "late",
        ],
        rows,
        picture: Picture::new("Decisions of eight processes", names.iter().map(String::as_str), panels),
    }
}

/// Returns the means of ten steps each.
fn smooth(seconds: &[f64], values: &[f64]) -> Vec<(f64, f64)> {
    let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len() as f64;
    seconds.chunks(10).zip(values.chunks(10)).map(|(at, values)| (mean(at), mean(values))).collect()
}

/// Runs processes of which one more begins each second, and which end in the same order.
fn staggered(kind: Kind) -> Results {
    let number = PROCESSES as Nanos;
    let client = |at: Nanos| Client {
        callers: CALLERS,
        route: Route::new(MS),
        from: at * SECOND,
        until: (number + 1 + at) * SECOND,
    };
    let clients = (0..number).map(client).collect();
    World { server: USUAL, clients, kind, from: 0, until: (2 * number + 1) * SECOND }.run()
}

pub(super) fn coming_and_going() -> Part {
    let mut rows = Vec::new();
    let mut panels = Vec::new();
    for (name, kind) in [("window", Kind::Pacer), ("four batches", Kind::FourBatches)] {
        let results = staggered(kind);
        let course = &results.course;
        let together: Vec<f64> = course.total()[350..440].to_vec();
        rows.push(vec![
            name.to_owned(),
            thousands(results.rate()),
            thousands(together.iter().sum::<f64>() / together.len() as f64),
            short(results.wait_ms),
            short(results.wait_p99_ms),
            percent(results.late),
        ]);
        if kind == Kind::Pacer {
            let mut decisions = Panel::new("", Axis::linear("seconds"), Axis::linear("decisions/s"));
            let mut wait = Panel::new("", Axis::linear("seconds"), Axis::linear("longest wait at the server, ms"));
            for process in 0..PROCESSES {
                decisions.line(process, smooth(&course.seconds, &course.decisions[process]));
            }
            wait.line(2, smooth(&course.seconds, &course.wait_ms));
            panels = vec![decisions, wait];
        }
    }
    let names: Vec<String> = (1..=PROCESSES).map(|number| format!("{number}")).collect();
    Part {
        name: "simulation_coming",
        title: "Processes that come and go",
        text: format!(
            "A process begins each second until there are {PROCESSES}, and then one ends each second, the oldest first. \
             The round trip is 1 ms. A new process begins with nothing but its first round trip."
        ),
        heads: vec![
            "",
            "decisions/s, whole run",
            "decisions/s, all eight",
            "mean wait at the server ms",
            "p99 wait ms",
            "late",
        ],
        rows,
        picture: Picture::new("Processes that come and go", names.iter().map(String::as_str), panels).columns(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_processes_at_one_distance_share_fairly_and_fill_the_server() {
        let results = processes(&[MS; PROCESSES], CALLERS, Kind::Pacer);
        assert!(results.fairness() > 0.95, "fairness {}", results.fairness());
        assert!(results.rate() > 0.9 * USUAL.capacity(), "{} of {}", results.rate(), USUAL.capacity());
        assert!(results.late < 0.001, "late: {}", results.late);
    }

    #[test]
    fn each_run_gives_the_same_figures() {
        let run = || processes(&[MS, 5 * MS], CALLERS, Kind::Pacer).course.decisions;
        assert_eq!(run(), run());
    }
}
