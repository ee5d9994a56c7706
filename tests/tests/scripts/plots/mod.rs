//! The pictures in `docs/plots`: the same traffic under each algorithm, decided by the Rust functions.
//!
//! The test compares them with what the functions draw; `cargo xtask plots` draws them again.

mod svg;
mod traffic;

use std::{env, fs, path::Path};

use tollgate::Algorithm;

const PICTURES: &[(&str, Algorithm)] = &[
    ("token_bucket", Algorithm::TokenBucket),
    ("interval_bucket", Algorithm::IntervalBucket),
    ("leaky_bucket", Algorithm::LeakyBucket),
    ("fixed_window", Algorithm::FixedWindow),
    ("window_from_first_hit", Algorithm::WindowFromFirstHit),
    ("sliding_window", Algorithm::SlidingWindow),
    ("sliding_buckets", Algorithm::SlidingBuckets { buckets: 10 }),
    ("sliding_log", Algorithm::SlidingLog),
];

#[test]
fn the_pictures_are_what_the_functions_draw() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/plots");
    let mut differing = Vec::new();
    for &(name, algorithm) in PICTURES {
        let path = folder.join(format!("{name}.svg"));
        let drawn = svg::draw(name, algorithm, &traffic::passed(algorithm));
        if env::var_os("TOLLGATE_BLESS").is_some() {
            fs::write(&path, &drawn).expect("docs/plots can be written");
        }
        if fs::read_to_string(&path).is_ok_and(|committed| committed == drawn) {
            continue;
        }
        differing.push(name);
    }
    assert!(differing.is_empty(), "these pictures differ, `cargo xtask plots` draws them again: {differing:?}");
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
