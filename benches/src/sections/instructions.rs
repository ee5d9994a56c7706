//! Counts what a request of an Axum service with a trivial handler takes, by callgrind: instructions
//! and allocations, without a limiter, in process and over Redis.
//!
//! Each service runs under callgrind in a process of its own, on one thread, and 64 connections send
//! it requests. Counting begins and ends at two requests of the handler, so connecting and the first
//! batches do not count. Nothing depends on the speed of the machine but the sizes of batches.

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::Path,
    process::{Command, Stdio},
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::Duration,
};

use axum::{Router, routing::get};
use tollgate::{Limiter, MemoryStore, Policy, Quota, RedisStore};
use tollgate_tower::{RateLimitLayer, key::Header};

use crate::{
    callgrind::{self, Profile},
    keys,
    pace::Pace,
    report::{Findings, Table, Target, figure},
    server::Server,
};

/// Names the probe that is the service, on the command line.
pub(super) const PROBE: &str = "instructions";

const TITLE: &str = "Instructions of a request";

const PLENTY: Policy = Policy::token_bucket(
    "plenty",
    Quota::per_second(900_000).with_burst(1_000_000_000),
);

const KEY: &str = "x-api-key";
const CONNECTIONS: usize = 64;

/// The requests before those that are counted, in which each key has its first, and the number of
/// these.
const FIRST: u64 = 12_800;
const COUNTED: u64 = 6_400;

/// Nobody gives up: a service under callgrind is fifty times as slow.
const DEADLINE: Duration = Duration::from_secs(60);

/// Allocations for a request from which a function is listed.
const LEAST_ALLOCATIONS: f64 = 0.02;

/// Instructions for a request from which a file counts. What runs less is a timer, or work between
/// requests.
const LEAST_INSTRUCTIONS: f64 = 1.5;

pub(crate) fn run(_: &Pace) -> Findings {
    let valgrind = env::var_os("VALGRIND").unwrap_or_else(|| "valgrind".into());
    let is_there = Command::new(&valgrind).arg("--version").output();
    if !is_there.is_ok_and(|said| said.status.success()) {
        return Findings::left_out(TITLE, "valgrind is not installed");
    }
    let server = Server::start();
    let names = ["no limiter", "in process", "over Redis"];
    let stores = ["none".to_owned(), "memory".to_owned(), server.url()];
    let profiles = stores.map(|store| profiled(Path::new(&valgrind), &store));
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
         with a trivial handler, on one thread. The kernel is left out. *Own files* are the files of the product \
         whose code runs for a request."
    );
    let heads = ["", "instructions", "allocations", "own files"];
    let mut totals = Table::new(TITLE, about, &heads);
    for (name, profile) in names.iter().zip(&profiles) {
        totals.row([
            (*name).to_owned(),
            format!("{:.0}", each(profile.instructions())),
            figure(each(profile.allocations().values().sum())),
            own_files(profile).len().to_string(),
        ]);
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

/// Runs the service with this store under callgrind, and sends it requests until it ends.
fn profiled(valgrind: &Path, store: &str) -> Profile {
    let file = env::temp_dir().join(format!("tollgate-{}.callgrind", std::process::id()));
    let mut service = Command::new(valgrind)
        .args(["--quiet", "--tool=callgrind"])
        .args(callgrind::separated())
        .args([
            "--zero-before=*counting_begins*",
            "--dump-before=*counting_ends*",
        ])
        .arg(format!("--callgrind-out-file={}", file.display()))
        .arg(env::current_exe().expect("this program has a path"))
        .args(["probe", PROBE, store])
        .stdout(Stdio::piped())
        .spawn()
        .expect("valgrind starts");
    let said = service.stdout.take().expect("it is piped");
    let mut line = String::new();
    let heard = BufReader::new(said).read_line(&mut line);
    heard.expect("the service says where it listens");
    let address = line.trim().parse().expect("an address");
    thread::scope(|threads| {
        for first in 0..CONNECTIONS {
            threads.spawn(move || call(address, first));
        }
    });
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

/// Sends requests on one connection, each after the response to the one before, until the service
/// ends.
fn call(address: SocketAddr, first: usize) {
    let mut stream = TcpStream::connect(address).expect("the service listens");
    stream.set_nodelay(true).expect("a socket of TCP");
    let mut response = [0; 1_024];
    for number in (first..).step_by(CONNECTIONS) {
        // A multiplier without a common factor visits all keys, far from their order.
        let key = keys::key(number * 7_919 % keys::KEYS);
        let request = format!("GET / HTTP/1.1\r\nhost: localhost\r\n{KEY}: {key}\r\n\r\n");
        if stream.write_all(request.as_bytes()).is_err() {
            return;
        }
        let mut length = 0;
        while !response[..length].ends_with(BODY.as_bytes()) {
            match stream.read(&mut response[length..]) {
                Ok(0) | Err(_) => return,
                Ok(read) => length += read,
            }
        }
        assert!(
            response.starts_with(b"HTTP/1.1 200"),
            "a request is refused"
        );
    }
}

const BODY: &str = "hello";

/// Serves until the last request that is counted. `store` is that of the limiter, or `none`.
pub(super) fn serve(store: &str) -> ! {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let router = Router::new().route("/", get(hello));
    let limited = |limiter| {
        router
            .clone()
            .layer(RateLimitLayer::new(limiter, Header::new(KEY)))
    };
    runtime
        .block_on(async {
            let router = match store {
                "none" => router.clone(),
                "memory" => limited(Limiter::new(MemoryStore::new(), PLENTY)),
                url => {
                    let store = RedisStore::connect(url).await.expect("the server is up");
                    limited(
                        Limiter::builder(store)
                            .policies(PLENTY)
                            .deadline(DEADLINE)
                            .build(),
                    )
                }
            };
            let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
            println!("{}", listener.local_addr().expect("it is bound"));
            listener.set_nonblocking(true).expect("a socket");
            let listener = tokio::net::TcpListener::from_std(listener).expect("a socket");
            axum::serve(listener, router).await
        })
        .expect("the service serves");
    unreachable!("a service does not end by itself")
}

async fn hello() -> &'static str {
    static SERVED: AtomicU64 = AtomicU64::new(0);
    match SERVED.fetch_add(1, Ordering::Relaxed) {
        FIRST => counting_begins(),
        LAST => {
            counting_ends();
            std::process::exit(0);
        }
        _ => {}
    }
    BODY
}

const LAST: u64 = FIRST + COUNTED;

/// Begins the part of the run that callgrind counts. It knows the function by its name.
#[inline(never)]
fn counting_begins() {
    std::hint::black_box(());
}

/// Ends that part.
#[inline(never)]
fn counting_ends() {
    std::hint::black_box(true);
}
