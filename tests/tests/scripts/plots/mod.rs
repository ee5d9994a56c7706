//! The pictures in `docs/plots` and in the guide of `tollgate`: the same traffic under each algorithm, decided by the Rust functions.
//!
//! The test compares them with what the functions draw; `cargo xtask plots` draws them again.

mod svg;
mod traffic;

use std::{env, fs, path::Path};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use tollgate::{Algorithm, testing::ALGORITHMS};

#[test]
fn the_pictures_are_what_the_functions_draw() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut differing = Vec::new();
    for algorithm in ALGORITHMS {
        let name = algorithm.name();
        let drawn = svg::draw(name, algorithm, &traffic::passed(algorithm));
        let embedded = embedded(name, &drawn);
        for (path, drawn) in [
            (folder.join(format!("docs/plots/{name}.svg")), drawn),
            (folder.join(format!("crates/tollgate/src/guide/plots/{name}.md")), embedded),
        ] {
            if env::var_os("TOLLGATE_BLESS").is_some() {
                fs::write(&path, &drawn).expect("the folders of the pictures can be written");
            }
            if !fs::read_to_string(&path).is_ok_and(|committed| committed == drawn) {
                differing.push(path);
            }
        }
    }
    assert!(differing.is_empty(), "these pictures differ, `cargo xtask plots` draws them again: {differing:?}");
}

/// Returns a picture as a line of Markdown that contains it, for the guide: its pages are packed without `docs`.
///
/// A page of rustdoc may be dark where the system is light, so the picture has a background of its own.
fn embedded(name: &str, svg: &str) -> String {
    let svg = svg.replacen("<style>\n", "<style>\nsvg{background:#ffffff}\n", 1);
    let dark = "@media(prefers-color-scheme:dark){\n";
    let svg = svg.replacen(dark, &format!("{dark}svg{{background:#0d1117}}\n"), 1);
    let title = name.replace('_', " ");
    format!("![Admissions under a {title}](data:image/svg+xml;base64,{})\n", STANDARD.encode(svg))
}

/// Checks what `docs/algorithms.md` says about the pictures.
#[test]
fn the_traffic_shows_what_the_text_says_of_it() {
    let most = |algorithm| traffic::most_in_a_second(&traffic::passed(algorithm));
    assert_eq!(most(Algorithm::FixedWindow), 20, "2n around the edge");
    assert_eq!(most(Algorithm::WindowFromFirstHit), 19, "2n - 1 from the first hit on");
    assert_eq!(most(Algorithm::TokenBucket), 19, "the burst, and what accrues meanwhile");
    assert_eq!(most(Algorithm::SlidingBuckets { buckets: 10 }), 10);
    assert_eq!(most(Algorithm::SlidingLog), 10);
    let departures = traffic::passed(Algorithm::LeakyBucket);
    assert!(departures.windows(2).all(|pair| pair[1] - pair[0] >= 100_000), "one leaves each 100 ms");
}
