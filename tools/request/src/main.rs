//! Counts the source files that work for a request: `cargo xtask request`.
//!
//! The program starts a Redis server. It runs itself twice under callgrind: once with 101 requests,
//! once with 301. A request passes a layer with a fixed limiter, and one caller sends one after
//! another. What the second run costs more is the cost of 200 warm requests. Connecting and
//! starting are not counted, nor what only the first requests do: the second one assembles a
//! script. A file counts when its code runs for most of the requests.
//!
//! callgrind attributes inlined code to the file that holds it, so what the compiler inlines
//! changes nothing. The tool is compiled in the profile `request`, with few optimisations, so that
//! no code disappears.

use std::{env, fs, path::Path, process::Command};

use http::{Request, Response};
use tollgate::{Limiter, Policy, Quota};
use tollgate_tests::RedisServer;
use tollgate_tower::{RateLimitLayer, key::Header};
use tower::{Layer, Service, ServiceExt, service_fn};

mod profile;

use profile::Profile;

/// Requests that are counted: the difference of the two runs.
const REQUESTS: u64 = 200;

/// Requests of both runs that come first, and are not counted.
const FIRST_REQUESTS: u64 = 101;

/// Instructions per request from which a file counts. What runs less is a timer or a refill between
/// requests.
const LEAST_INSTRUCTIONS: f64 = 1.5;

type Error = Box<dyn std::error::Error>;

fn main() -> Result<(), Error> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match &arguments[..] {
        [] => count(),
        [url, requests] => {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?;
            runtime.block_on(send(url, requests.parse()?))
        }
        _ => Err("usage: tollgate-request [URL REQUESTS]".into()),
    }
}

/// Prints the files that work for a request, with their instructions.
fn count() -> Result<(), Error> {
    let server = RedisServer::start();
    let directory = tempfile::tempdir()?;
    let profile = |requests: u64| -> Result<Profile, Error> {
        let file = directory.path().join(format!("{requests}.callgrind"));
        profiled(&file, &server.url(), requests)?;
        Ok(Profile::parse(&fs::read_to_string(&file)?))
    };
    let (first, all) = (
        profile(FIRST_REQUESTS)?,
        profile(FIRST_REQUESTS + REQUESTS)?,
    );
    let files = all.since(&first, REQUESTS);
    let counted: Vec<_> = files
        .iter()
        .filter(|file| file.instructions >= LEAST_INSTRUCTIONS)
        .collect();
    if counted.is_empty() {
        return Err(
            "callgrind names no file of the product: was the program compiled without debug information?".into()
        );
    }
    for file in &counted {
        println!("{:8.1} {}", file.instructions, file.path);
    }
    let instructions: f64 = counted.iter().map(|file| file.instructions).sum();
    println!(
        "{} files work for a request, with {instructions:.0} instructions",
        counted.len()
    );
    Ok(())
}

/// Runs this program under callgrind, which writes what each file cost.
fn profiled(file: &Path, url: &str, requests: u64) -> Result<(), Error> {
    let mut valgrind = Command::new(env::var_os("VALGRIND").unwrap_or_else(|| "valgrind".into()));
    valgrind
        .args(["--quiet", "--tool=callgrind"])
        .arg(format!("--callgrind-out-file={}", file.display()));
    let status = valgrind
        .arg(env::current_exe()?)
        .args([url, &requests.to_string()])
        .status();
    let status = status.map_err(|error| format!("cannot start valgrind: {error}"))?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("valgrind failed: {status}").into())
    }
}

/// Sends requests through a layer, one after another.
async fn send(url: &str, requests: u64) -> Result<(), Error> {
    let store = tollgate::connect(url).await?;
    let limiter = Limiter::new(
        store,
        Policy::token_bucket("api", Quota::per_second(1_000_000)),
    );
    let inner = service_fn(|_: Request<()>| async {
        Ok::<_, std::convert::Infallible>(Response::new("hello".to_owned()))
    });
    let mut service = RateLimitLayer::new(limiter, Header::new("x-api-key")).layer(inner);
    for sent in 0..requests {
        let request = Request::builder().header("x-api-key", "acme").body(())?;
        let response = service.ready().await?.call(request).await?;
        if !response.status().is_success() {
            return Err(format!("request {sent} was answered with {}", response.status()).into());
        }
    }
    Ok(())
}
