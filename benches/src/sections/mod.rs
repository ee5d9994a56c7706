//! Measures one subject in each file.

mod check;
mod distance;
mod diversity;
mod envoy;
mod http;
mod instructions;
mod layer;
mod leases;
mod memory;
mod networks;
mod overload;
mod pool;
mod postgres;
mod repeat;
mod scripts;
mod throughput;

use std::{env, process::Command};

use crate::{pace::Pace, report::Findings};

/// Describes a section: its name on the command line, its purpose, and the function that measures.
pub(crate) struct Section {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) run: fn(&Pace) -> Findings,
}

/// Lists the sections in the order of the report.
pub(crate) const ALL: &[Section] = &[
    // This section is the first one, because its figures depend most on the memory layout that
    // earlier sections leave.
    Section {
        name: "layer",
        about: "one request through a layer around an empty service",
        run: layer::run,
    },
    Section {
        name: "check",
        about: "one decision in process",
        run: check::run,
    },
    Section {
        name: "networks",
        about: "an address among a hundred thousand networks",
        run: networks::run,
    },
    Section {
        name: "throughput",
        about: "concurrent callers through Redis",
        run: throughput::run,
    },
    Section {
        name: "postgres",
        about: "concurrent callers through PostgreSQL",
        run: postgres::run,
    },
    Section {
        name: "distance",
        about: "callers of a server that is milliseconds away",
        run: distance::run,
    },
    Section {
        name: "diversity",
        about: "many policies, costs and tenants on one store",
        run: diversity::run,
    },
    Section {
        name: "overload",
        about: "more requests than the server can decide",
        run: overload::run,
    },
    Section {
        name: "pool",
        about: "a pool as the source of connections",
        run: pool::run,
    },
    Section {
        name: "leases",
        about: "hot keys that are leased",
        run: leases::run,
    },
    Section {
        name: "denied",
        about: "clients that are denied again and again",
        run: repeat::run,
    },
    Section {
        name: "scripts",
        about: "server time of a decision, for each script",
        run: scripts::run,
    },
    Section {
        name: "memory",
        about: "a million keys in process",
        run: memory::run,
    },
    Section {
        name: "envoy",
        about: "the rate limit service for Envoy",
        run: envoy::run,
    },
    Section {
        name: "http",
        about: "an Axum service under wrk",
        run: http::run,
    },
    Section {
        name: "instructions",
        about: "the instructions of a request, by callgrind",
        run: instructions::run,
    },
];

/// Measures one contestant in this process, which was started for it, and prints the figures.
pub(crate) fn probe(words: &[String]) {
    let word = |at: usize| words.get(at).map(String::as_str).unwrap_or_default();
    let figures = match word(0) {
        diversity::PROBE => diversity::probe(word(1)),
        instructions::PROBE => instructions::serve(word(1)),
        name => memory::probe(name),
    };
    println!("{}", figures.map(|figure| figure.to_string()).join(" "));
}

/// Measures one contestant in a new process, and returns its figures.
///
/// The resident memory of the process then belongs to this contestant alone.
fn probed(words: &[&str]) -> [f64; 4] {
    let this = env::current_exe().expect("this program has a path");
    let output = Command::new(this)
        .arg("probe")
        .args(words)
        .output()
        .expect("this program starts again");
    let said = String::from_utf8_lossy(&output.stdout);
    let figures: Vec<f64> = said
        .split_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect();
    let complaint = || String::from_utf8_lossy(&output.stderr).into_owned();
    figures.try_into().unwrap_or_else(|_| {
        panic!(
            "the probe ended with {}: {said}{}",
            output.status,
            complaint()
        )
    })
}
