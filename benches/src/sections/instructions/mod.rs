//! Counts what a request of a service with a trivial handler takes, by callgrind: instructions and
//! allocations, without a limiter and with each way to limit.
//!
//! Each service (`probe.rs`) runs under callgrind in a process of its own, on one thread, and 64
//! connections send it requests (`callers.rs`). Counting begins and ends at two requests of the
//! handler, so connecting and the first batches do not count. Nothing depends on the speed of the
//! machine but the sizes of batches.

mod callers;
mod probe;

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

pub(super) use probe::serve;

use crate::{
    callgrind::{self, Profile},
    pace::Pace,
    report::{Findings, Table, Target, figure},
    server::Server,
};

/// Names the probe that is the service, on the command line.
pub(super) const PROBE: &str = "instructions";

const TITLE: &str = "Instructions of a request";

const BODY: &str = "hello";
const KEY: &str = "x-api-key";
const CONNECTIONS: usize = 64;

/// The requests before those that are counted, in which each key has its first, and the number of
/// these.
const FIRST: u64 = 12_800;
const COUNTED: u64 = 6_400;

/// Allocations for a request from which a function is listed.
const LEAST_ALLOCATIONS: f64 = 0.02;

/// Instructions for a request from which a file counts. What runs less is a timer, or work between
/// requests.
const LEAST_INSTRUCTIONS: f64 = 1.5;

/// The programs that serve: that of this run, and those beside it, which `cargo xtask bench` builds.
const OWN: &str = "";
const METRICS: &str = "-metrics";
const MIMALLOC: &str = "-mimalloc";

/// A row: what it is called, the program that serves, and its word for the service.
type Row = (&'static str, &'static str, &'static str);

/// The services that each table has.
const MAIN: [Row; 3] = [
    ("no limiter", OWN, "none"),
    ("in process", OWN, "memory"),
    ("over Redis", OWN, "redis"),
];

/// Names what is switched on beside the limiter, and the service for Envoy.
const OTHERS: [Row; 13] = [
    ("over Redis, leased", OWN, "leased"),
    ("over Redis, published", OWN, "published"),
    ("in process, fair shares", OWN, "fair"),
    ("no limiter, feature `metrics`", METRICS, "none"),
    ("in process, metrics for Prometheus", METRICS, "memory"),
    ("over Redis, metrics for Prometheus", METRICS, "redis"),
    ("no limiter, mimalloc", MIMALLOC, "none"),
    ("in process, mimalloc", MIMALLOC, "memory"),
    ("over Redis, mimalloc", MIMALLOC, "redis"),
    ("gRPC echo", OWN, "echo"),
    ("service for Envoy, in process", OWN, "envoy"),
    ("service for Envoy, over Redis", OWN, "envoy-redis"),
    (
        "service for Envoy, over Redis, mimalloc",
        MIMALLOC,
        "envoy-redis",
    ),
];

pub(crate) fn run(_: &Pace) -> Findings {
    let valgrind = env::var_os("VALGRIND").unwrap_or_else(|| "valgrind".into());
    let is_there = Command::new(&valgrind).arg("--version").output();
    if !is_there.is_ok_and(|said| said.status.success()) {
        return Findings::left_out(TITLE, "valgrind is not installed");
    }
    let (valgrind, server) = (Path::new(&valgrind), Server::start());
    let names = MAIN.map(|(name, ..)| name);
    let profiled =
        |(_, suffix, word): Row| Some(profiled(valgrind, &program(suffix)?, word, &server.url()));
    let profiles = MAIN.map(|row| profiled(row).expect("this program is there"));
    let each = |count: u64| count as f64 / COUNTED as f64;

    let mut findings = Findings::default();
    let [_, inside, outside] = profiles.each_ref().map(Profile::instructions).map(each);
    findings.goal(
        "Axum hello over Redis, instructions of a request beyond those in process",
        Target::AtMost(6.0),
        (outside - inside) / 1e3,
        " k",
    );
    let about = format!(
        "Counted by callgrind in the service, for {COUNTED} requests on {CONNECTIONS} connections: an Axum service \
         with a trivial handler, on one thread, or a gRPC service with as many streams of one connection. The kernel \
         is left out. *Own files* are the files of the product whose code runs for a request. The allocator is that \
         of the system where no other is named. *Leased* units decide most requests without a call. *Published* writes \
         the limiter into Redis every two seconds. With *fair shares* the key is the customer, too."
    );
    let heads = ["", "instructions", "allocations", "own files"];
    let mut totals = Table::new(TITLE, about, &heads);
    let mut total = |name: &str, profile: &Profile| {
        totals.row([
            name.to_owned(),
            format!("{:.0}", each(profile.instructions())),
            figure(each(profile.allocations().values().sum())),
            own_files(profile).len().to_string(),
        ]);
    };
    names
        .iter()
        .zip(&profiles)
        .for_each(|(name, profile)| total(name, profile));
    for row in OTHERS {
        match profiled(row) {
            Some(profile) => total(row.0, &profile),
            None => eprintln!(
                "{}: left out, `cargo xtask bench` builds the program",
                row.0
            ),
        }
    }
    findings.tables.push(totals);

    let heads = ["", names[0], names[1], names[2]];
    let about = "The same requests. Code that was inlined counts for the crate that it stands in.";
    let mut by_crate = Table::new("Instructions of a request, by crate", about, &heads);
    let crates = profiles.each_ref().map(Profile::crates);
    let all: BTreeSet<&str> = crates
        .iter()
        .flat_map(|crates| crates.keys().copied())
        .collect();
    for name in all {
        let row = crates
            .each_ref()
            .map(|crates| each(crates.get(name).copied().unwrap_or(0)));
        if row.iter().any(|instructions| *instructions >= 10.0) {
            by_crate.row(std::iter::once(name.to_owned()).chain(row.map(figure)));
        }
    }
    findings.tables.push(by_crate);

    let about = "The same requests: how many allocations each function makes, those of collections for it \
                 included.";
    let mut by_function = Table::new("Allocations of a request, by function", about, &heads);
    let functions = profiles.each_ref().map(Profile::allocations);
    let mut all: Vec<_> = functions
        .iter()
        .flat_map(|functions| functions.keys().copied())
        .collect::<BTreeSet<&str>>()
        .into_iter()
        .map(|name| {
            let of =
                |functions: &BTreeMap<&str, u64>| each(functions.get(name).copied().unwrap_or(0));
            (name, functions.each_ref().map(of))
        })
        .filter(|(_, row)| row.iter().any(|count| *count >= LEAST_ALLOCATIONS))
        .collect();
    all.sort_by(|(_, one), (_, other)| other[2].total_cmp(&one[2]));
    for (name, row) in all {
        let name = format!("`{name}`");
        by_function.row(std::iter::once(name).chain(row.map(|count| format!("{count:.2}"))));
    }
    findings.tables.push(by_function);

    let about =
        "The files of the product whose code runs for a request over Redis, the dearest first.";
    let mut by_file = Table::new(
        "Files of a request over Redis",
        about,
        &["", "instructions"],
    );
    for (path, instructions) in own_files(&profiles[2]) {
        by_file.row([format!("`{path}`"), figure(instructions)]);
    }
    findings.tables.push(by_file);
    findings
}

/// Returns the files of the product whose code runs for a request, the dearest first.
fn own_files(profile: &Profile) -> Vec<(&str, f64)> {
    let each = |(path, instructions): (_, u64)| (path, instructions as f64 / COUNTED as f64);
    let mut files: Vec<_> = profile
        .own_files()
        .map(each)
        .filter(|(_, instructions)| *instructions >= LEAST_INSTRUCTIONS)
        .collect();
    files.sort_by(|one, other| other.1.total_cmp(&one.1));
    files
}

/// Returns the program of the benches with this at the end of its name.
fn program(suffix: &str) -> Option<PathBuf> {
    let own = env::current_exe().expect("this program has a path");
    if suffix == OWN {
        return Some(own);
    }
    let name = env!("CARGO_PKG_NAME");
    let other = own.with_file_name(format!("{name}{suffix}{}", env::consts::EXE_SUFFIX));
    other.is_file().then_some(other)
}

/// Runs the service of a program under callgrind, and sends it requests until it ends.
fn profiled(valgrind: &Path, program: &Path, word: &str, url: &str) -> Profile {
    let file = env::temp_dir().join(format!("tollgate-{}.callgrind", std::process::id()));
    let mut service = Command::new(valgrind)
        .args(["--quiet", "--tool=callgrind"])
        .args(callgrind::separated())
        .args([
            "--zero-before=*counting_begins*",
            "--dump-before=*counting_ends*",
        ])
        .arg(format!("--callgrind-out-file={}", file.display()))
        .arg(program)
        .args(["probe", PROBE, word, url])
        .stdout(Stdio::piped())
        .spawn()
        .expect("valgrind starts");
    let said = service.stdout.take().expect("it is piped");
    let mut line = String::new();
    let heard = BufReader::new(said).read_line(&mut line);
    heard.expect("the service says where it listens");
    let address = line.trim().parse().expect("an address");
    if probe::is_grpc(word) {
        callers::grpc(address);
    } else {
        callers::http(address);
    }
    let ended = service.wait().expect("the service ends");
    assert!(ended.success(), "the service failed: {ended}");
    // The costs between the two points are in the first dump, and those after it in the second.
    let dump = file.with_extension("callgrind.1");
    let profile = Profile::parse(&fs::read_to_string(&dump).expect("callgrind wrote a dump"));
    for written in [file, dump] {
        // A file that cannot be deleted does no harm in the folder of temporary files.
        let _ = fs::remove_file(written);
    }
    profile
}
