//! Measures one subject in each file.

mod check;
mod envoy;
mod http;
mod instructions;
mod layer;
mod memory;
mod overload;
mod postgres;
mod scripts;
mod setups;
mod streams;
mod throughput;

use tollgate::{Policy, Quota};

use crate::{pace::Pace, report::Findings};

/// Sets a limit that is never used up. A unit takes a whole number of microseconds, as with most
/// limits.
const PLENTY: Policy = Policy::token_bucket(
    "plenty",
    Quota::per_second(1_000_000).with_burst(1_000_000_000_000),
);

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
    section("layer", "a request through a layer", layer::run),
    section("check", "a decision in process", check::run),
    section("memory", "a million keys in process", memory::run),
    section("throughput", "callers through Redis", throughput::run),
    section("setups", "TLS, io-threads, the same zone", setups::run),
    section("scripts", "server time of a decision", scripts::run),
    section("overload", "more than Redis can decide", overload::run),
    section("streams", "streams of unknown length", streams::run),
    section("postgres", "callers through PostgreSQL", postgres::run),
    section("envoy", "the service for Envoy", envoy::run),
    section("http", "an Axum service under wrk", http::run),
    section(
        "work",
        "the same, with a handler that works for 1 ms",
        http::run_working,
    ),
    section("instructions", "a request, by callgrind", instructions::run),
];

const fn section(name: &'static str, about: &'static str, run: fn(&Pace) -> Findings) -> Section {
    Section { name, about, run }
}

/// Measures in this process, which was started for it.
pub(crate) fn probe(words: &[&str]) {
    match words {
        [instructions::PROBE, service, url] => instructions::serve(service, url, true),
        // For a load from outside, to compare two programs.
        ["serve", service, url] => instructions::serve(service, url, false),
        [streams::PROBE, words @ ..] => println!("{}", streams::probe(words)),
        [memory::PROBE, name] => println!("{}", memory::probe(name)),
        _ => panic!("there is no such probe: {words:?}"),
    }
}
