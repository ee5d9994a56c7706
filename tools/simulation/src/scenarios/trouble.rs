//! Lines and servers that change, stall or are slow.

use tollgate_charts::{Axis, Panel, Picture};

use super::{NEAR, USUAL, client, run, trip};
use crate::{
    controller::Kind,
    line::{Pulse, Route},
    page::{Part, percent, short, thousands},
    results::{Course, Results},
    time::{MS, Nanos, SECOND},
    world::{Server, World},
};

/// The heads of the tables in this file.
const HEADS: [&str; 7] = ["", "controller", "decisions/s", "p50 ms", "p99 ms", "mean wait at the server ms", "late"];

pub(super) fn all() -> Vec<Part> {
    vec![jump(), disturbed(), speeds()]
}

fn row(name: &str, kind: Kind, results: &Results) -> Vec<String> {
    vec![
        name.to_owned(),
        if kind == Kind::Pacer { "window" } else { "four batches" }.to_owned(),
        thousands(results.rate()),
        short(results.p50_ms),
        short(results.p99_ms),
        short(results.wait_ms),
        percent(results.late),
    ]
}

/// Draws one value of two courses, one panel each.
fn panels(name: &str, window: &Course, four: &Course) -> Vec<Panel> {
    let panel = |label: &str, value: fn(&Course) -> Vec<f64>| {
        let mut panel = Panel::new(name, Axis::linear("seconds"), Axis::linear(label));
        for (number, course) in [window, four].into_iter().enumerate() {
            panel.line(number, course.seconds.iter().copied().zip(value(course)));
        }
        panel
    };
    vec![panel("decisions/s", Course::total), panel("keys under way", |course| course.under_way[0].clone())]
}

fn jumping(callers: usize, kind: Kind) -> Results {
    let round_trips = vec![(0, MS), (3 * SECOND, 40 * MS), (6 * SECOND, MS)];
    let route = Route { round_trips, ..Route::new(MS) };
    World { server: USUAL, clients: vec![client(callers, route)], kind, from: 0, until: 9 * SECOND }.run()
}

fn jump() -> Part {
    let mut rows = Vec::new();
    let mut drawn = Vec::new();
    for callers in [64, 256, 1_024] {
        let (window, four) = (jumping(callers, Kind::Pacer), jumping(callers, Kind::FourBatches));
        rows.push(row(&format!("{callers} callers"), Kind::Pacer, &window));
        rows.push(row(&format!("{callers} callers"), Kind::FourBatches, &four));
        if callers == 1_024 {
            drawn = panels("", &window.course, &four.course);
        }
    }
    Part {
        name: "simulation_jump",
        title: "A round trip that jumps",
        text: "The round trip is 1 ms, then 40 ms from the third second on, and 1 ms again from the sixth. The store also \
               decides by the distance whether a deadline has room for a round trip; that is not part of this model. The \
               picture shows 1024 callers."
            .to_owned(),
        heads: HEADS.to_vec(),
        rows,
        picture: Picture::new("A round trip of 1, 40 and 1 ms", ["window", "four batches"], drawn).columns(1),
    }
}

fn disturbed() -> Part {
    let stall = Some(Pulse { period: SECOND, length: 30 * MS });
    let cases = [
        ("no disturbance", Route::new(MS)),
        ("answers in bursts, each 5 ms", Route { bursts: Some(5 * MS), ..Route::new(MS) }),
        ("a stall of 30 ms each second", Route { stall, ..Route::new(MS) }),
        ("a jitter of 1 ms on average", Route { jitter: MS, ..Route::new(MS) }),
    ];
    let mut rows = Vec::new();
    let mut drawn = Vec::new();
    for (name, route) in cases {
        let of = |kind| run(USUAL, vec![client(1_024, route.clone())], kind, 4);
        let (window, four) = (of(Kind::Pacer), of(Kind::FourBatches));
        rows.push(row(name, Kind::Pacer, &window));
        rows.push(row(name, Kind::FourBatches, &four));
        drawn.extend(panels(name, &window.course, &four.course));
    }
    Part {
        name: "simulation_disturbed",
        title: "Bursts, stalls and jitter",
        text: "One process with 1024 callers, and a round trip of 1 ms.".to_owned(),
        heads: HEADS.to_vec(),
        rows,
        picture: Picture::new("A disturbed line, 1024 callers", ["window", "four batches"], drawn).columns(2),
    }
}

/// Returns a server that decides so many keys in a millisecond.
fn server(keys_per_ms: Nanos) -> Server {
    Server { call: 0, key: MS / keys_per_ms, jitter: 0.2 }
}

fn speeds() -> Part {
    let mut rows = Vec::new();
    let mut drawn = Vec::new();
    for (name, keys_per_ms) in [("20 keys in a ms", 20), ("200 keys in a ms", 200), ("1000 keys in a ms", 1_000)] {
        for round_trip in [NEAR, 5 * MS] {
            let name = format!("{name}, {} ms away", trip(round_trip));
            let of = |kind| run(server(keys_per_ms), vec![client(512, Route::new(round_trip))], kind, 4);
            let (window, four) = (of(Kind::Pacer), of(Kind::FourBatches));
            rows.push(row(&name, Kind::Pacer, &window));
            rows.push(row(&name, Kind::FourBatches, &four));
            if round_trip > NEAR {
                let mut panel = Panel::new(&name, Axis::linear("seconds"), Axis::linear("longest wait, ms"));
                for (number, results) in [&window, &four].into_iter().enumerate() {
                    let Course { seconds, wait_ms, .. } = &results.course;
                    panel.line(number, seconds.iter().copied().zip(wait_ms.iter().copied()));
                }
                drawn.push(panel);
            }
        }
    }
    Part {
        name: "simulation_speeds",
        title: "Slow and fast servers",
        text: "One process with 512 callers. The slow server takes 26 ms for all of them, more than half of the deadline. \
               The picture shows the longest wait at the server in each 20 ms."
            .to_owned(),
        heads: HEADS.to_vec(),
        rows,
        picture: Picture::new("The longest wait at the server", ["window", "four batches"], drawn).columns(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_trip_that_shortens_again_is_used_again() {
        let results = jumping(1_024, Kind::Pacer);
        let total = results.course.total();
        let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len() as f64;
        let (before, after) = (mean(&total[50..150]), mean(&total[350..]));
        assert!(after > 0.9 * before, "{after} after the jump, {before} before");
    }

    #[test]
    fn a_slow_server_is_not_flooded() {
        let of = |callers, far| run(server(20), vec![client(callers, Route::new(far))], Kind::Pacer, 2);
        // 1024 keys take it 51 ms. Most of them have to wait in the process.
        let wait = of(1_024, 20 * MS).wait_p99_ms;
        assert!(wait < 35.0, "{wait} ms");
        let late = of(512, NEAR).late;
        assert!(late < 0.001, "late: {late}");
    }
}
