//! The pictures in `docs/plots` and in the guide of `tollgate`: the same traffic under each
//! algorithm, decided by the Rust functions.
//!
//! The test compares them with what the functions draw; `cargo xtask plots` draws them again.

mod traffic;

use std::{env, fs, path::Path};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use tollgate::{Algorithm, testing::ALGORITHMS};
use tollgate_charts::{Axis, Panel, Picture};

use traffic::{AMOUNT, END, SECOND};

/// The time for which a point counts requests.
const BIN: u64 = SECOND / 10;

#[test]
fn the_pictures_are_what_the_functions_draw() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut differing = Vec::new();
    for algorithm in ALGORITHMS {
        let name = algorithm.name();
        let drawn = picture(name, algorithm).svg();
        let embedded = embedded(name, &drawn);
        for (path, drawn) in [
            (folder.join(format!("docs/plots/{name}.svg")), drawn),
            (
                folder.join(format!("crates/tollgate/src/guide/plots/{name}.md")),
                embedded,
            ),
        ] {
            if env::var_os("TOLLGATE_BLESS").is_some() {
                fs::write(&path, &drawn).expect("the folders of the pictures can be written");
            }
            if !fs::read_to_string(&path).is_ok_and(|committed| committed == drawn) {
                differing.push(path);
            }
        }
    }
    assert!(
        differing.is_empty(),
        "these pictures differ, `cargo xtask plots` draws them again: {differing:?}"
    );
}

/// Draws what was asked and what passed in each tenth of a second, and what passed within the last
/// second.
fn picture(name: &str, algorithm: Algorithm) -> Picture {
    let (asked, passed) = (traffic::arrivals(), traffic::passed(algorithm));
    let verb = if algorithm == Algorithm::LeakyBucket {
        "departing"
    } else {
        "admitted"
    };
    let seconds = |at: u64| at as f64 / SECOND as f64;
    let bins = |times: &[u64]| {
        let bin = |from: u64| {
            let count = times
                .iter()
                .filter(|&&at| (from..from + BIN).contains(&at))
                .count() as f64;
            [(seconds(from), count), (seconds(from + BIN), count)]
        };
        (0..END / BIN)
            .flat_map(|bin_at| bin(bin_at * BIN))
            .collect::<Vec<_>>()
    };
    let mut steps = vec![(0.0, 0.0)];
    for (at, count) in traffic::last_second(&passed)
        .into_iter()
        .take_while(|&(at, _)| at <= END)
    {
        let before = steps[steps.len() - 1].1;
        steps.extend([(seconds(at), before), (seconds(at), f64::from(count))]);
    }
    let mut panel = Panel::new(
        "",
        Axis::linear("seconds"),
        Axis::linear("requests").up_to(20.0),
    );
    panel.line(0, bins(&passed));
    panel.line(1, steps);
    panel.line(2, bins(&asked));
    panel.line(3, [(0.0, AMOUNT as f64), (seconds(END), AMOUNT as f64)]);
    let (title, most) = (name.replace('_', " "), traffic::most_in_a_second(&passed));
    let title = format!(
        "{title}: {} of {} pass, at most {most} in any second",
        passed.len(),
        asked.len()
    );
    let [each, last, limit] = [
        format!("{verb} in each 100 ms"),
        format!("{verb} in the last second"),
        format!("{AMOUNT} per second"),
    ];
    Picture::new(
        title,
        [&each, &last, "asked in each 100 ms", &limit],
        vec![panel],
    )
}

/// Returns a picture as a line of Markdown that contains it, for the guide: its pages are packed
/// without `docs`.
///
/// A page of rustdoc may be dark where the system is light, so the picture has a background of its
/// own.
fn embedded(name: &str, svg: &str) -> String {
    let svg = svg.replacen("<style>\n", "<style>\nsvg{background:#ffffff}\n", 1);
    let dark = "@media(prefers-color-scheme:dark){\n";
    let svg = svg.replacen(dark, &format!("{dark}svg{{background:#0d1117}}\n"), 1);
    let title = name.replace('_', " ");
    format!(
        "![Admissions under a {title}](data:image/svg+xml;base64,{})\n",
        STANDARD.encode(svg)
    )
}

/// Checks what `docs/algorithms.md` says about the pictures.
#[test]
fn the_traffic_shows_what_the_text_says_of_it() {
    let most = |algorithm| traffic::most_in_a_second(&traffic::passed(algorithm));
    assert_eq!(most(Algorithm::FixedWindow), 20, "2n around the edge");
    assert_eq!(
        most(Algorithm::WindowFromFirstHit),
        19,
        "2n - 1 from the first hit on"
    );
    assert_eq!(
        most(Algorithm::TokenBucket),
        19,
        "the burst, and what accrues meanwhile"
    );
    assert_eq!(most(Algorithm::SlidingBuckets { buckets: 10 }), 10);
    assert_eq!(most(Algorithm::SlidingLog), 10);
    let departures = traffic::passed(Algorithm::LeakyBucket);
    assert!(
        departures
            .windows(2)
            .all(|pair| pair[1] - pair[0] >= 100_000),
        "one leaves each 100 ms"
    );
}
