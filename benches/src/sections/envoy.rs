//! Measures the rate limit service for Envoy: calls per second beside a bare echo, and matching.

use std::{
    fmt::Write as _,
    hint::black_box,
    net::SocketAddr,
    sync::atomic::{AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use tokio::{net::TcpListener, runtime::Runtime};
use tokio_stream::wrappers::TcpListenerStream;
use tollgate::{MemoryStore, RedisStore, Store};
use tollgate_envoy::{
    RateLimitService,
    proto::ratelimit::{
        RateLimitDescriptor, RateLimitRequest, RateLimitResponse,
        rate_limit_descriptor::Entry,
        rate_limit_response,
        rate_limit_service_client::RateLimitServiceClient,
        rate_limit_service_server::{RateLimitService as Service, RateLimitServiceServer},
    },
};
use tollgate_rules::{Descriptor, Format, RuleLimiter, RuleSet, Rules};
use tonic::{
    Request, Response, Status,
    service::Routes,
    transport::{Channel, Endpoint, Server as GrpcServer},
};

use crate::{
    keys::{self, KEYS, Random},
    load::{self, percentile},
    machine,
    pace::Pace,
    report::{Findings, Table, Target, figure},
    rounds::{Case, Series, alternate},
    server::Server,
};

/// The limit is never used up.
const RULES: &str = "{domain: shop, descriptors: [{key: customer, rate_limit: {quota: 1000000/s burst 1000000000}}]}";

/// Sets how long a decision may take.
const DEADLINE: Duration = Duration::from_millis(50);

/// Sets the positions of the contestants in a round.
const ECHO: usize = 0;
const MEMORY: usize = 1;
const REDIS: usize = 2;

/// Stores the results of one turn.
struct Turn {
    per_second: f64,
    cpu_us: f64,
    p50_us: f64,
    p99_us: f64,
}

pub(crate) fn run(pace: &Pace) -> Findings {
    let server = Server::start();
    let runtime = load::runtime();
    let redis = runtime
        .block_on(RedisStore::connect(server.url()))
        .expect("the server is up");
    let mut findings = Findings::default();
    let about = "`ShouldRateLimit` over one connection without TLS, with one descriptor of 10 000 customers. The client and the \
                 service share a core. The CPU time is the sum of both, per call. *Echo* is the same gRPC stack with a \
                 fixed response. limitador's server is left out, because it is not on crates.io.";
    let heads = [
        "streams",
        "",
        "calls/s",
        "calls/s, to echo",
        "CPU µs per call",
        "p50 µs",
        "p99 µs",
    ];
    let mut table = Table::new("Rate limit service for Envoy", about, &heads);
    let addresses = [
        serve(&runtime, Routes::new(RateLimitServiceServer::new(Echo))),
        serve(&runtime, service(MemoryStore::new())),
        serve(&runtime, service(redis)),
    ];
    for streams in [64, 256] {
        let names = ["echo", "tollgate, embedded store", "tollgate, Redis"];
        let cases = names.into_iter().zip(addresses).map(|(name, address)| {
            let client = runtime.block_on(connect(address));
            let runtime = &runtime;
            Case::new(name, move |time| turn(runtime, &client, streams, time))
        });
        let series = alternate(pace.load, cases.collect());
        rows(&mut table, streams, &series);
        for (at, name, target) in [(MEMORY, "embedded store", 0.9), (REDIS, "Redis", 0.75)] {
            let ratio = series[at].ratio(&series[ECHO], |turn| turn.per_second);
            let measure =
                format!("service for Envoy, {name}, {streams} streams, calls/s to a bare echo");
            findings.goal(measure, Target::AtLeast(target), ratio, " ×");
        }
    }
    findings.tables.push(table);
    matching(&mut findings, pace);
    findings
}

fn rows(table: &mut Table, streams: usize, series: &[Series<Turn>]) {
    for one in series {
        table.row([
            streams.to_string(),
            one.name.clone(),
            figure(one.median(|turn| turn.per_second)),
            figure(one.ratio(&series[ECHO], |turn| turn.per_second)),
            figure(one.median(|turn| turn.cpu_us)),
            figure(one.median(|turn| turn.p50_us)),
            figure(one.median(|turn| turn.p99_us)),
        ]);
    }
}

/// Answers every request with the same response.
struct Echo;

#[tonic::async_trait]
impl Service for Echo {
    async fn should_rate_limit(
        &self,
        request: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        let status = rate_limit_response::DescriptorStatus {
            code: rate_limit_response::Code::Ok.into(),
            ..rate_limit_response::DescriptorStatus::default()
        };
        Ok(Response::new(RateLimitResponse {
            overall_code: rate_limit_response::Code::Ok.into(),
            statuses: vec![status; request.get_ref().descriptors.len()],
            ..RateLimitResponse::default()
        }))
    }
}

fn service(store: impl Store) -> Routes {
    let rules = RuleSet::parse(RULES, Format::Yaml).expect("the rules are right");
    let limiter = RuleLimiter::builder(Rules::new(rules), store)
        .deadline(DEADLINE)
        .build();
    Routes::new(RateLimitService::new(limiter).into_server())
}

/// Starts a server on a free port, which runs until the bench ends.
fn serve(runtime: &Runtime, routes: Routes) -> SocketAddr {
    let listener = runtime
        .block_on(TcpListener::bind("127.0.0.1:0"))
        .expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    runtime.spawn(
        GrpcServer::builder()
            .add_routes(routes)
            .serve_with_incoming(TcpListenerStream::new(listener)),
    );
    address
}

async fn connect(address: SocketAddr) -> RateLimitServiceClient<Channel> {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("an address");
    RateLimitServiceClient::new(endpoint.connect().await.expect("the server is up"))
}

fn request(customer: usize) -> RateLimitRequest {
    let entry = Entry {
        key: "customer".to_owned(),
        value: keys::key(customer),
    };
    let descriptor = RateLimitDescriptor {
        entries: vec![entry],
        ..RateLimitDescriptor::default()
    };
    RateLimitRequest {
        domain: "shop".to_owned(),
        descriptors: vec![descriptor],
        hits_addend: 1,
    }
}

/// Makes calls on several streams for about `time`. Returns the times of all calls in nanoseconds.
///
/// # Panics
///
/// When a call is not admitted.
async fn calls(
    client: &RateLimitServiceClient<Channel>,
    streams: usize,
    time: Duration,
) -> Vec<u32> {
    let started = Instant::now();
    let next = AtomicUsize::new(0);
    let caller = async || {
        let mut random = Random::new(1 + next.fetch_add(1, Ordering::Relaxed) as u64);
        let (mut client, mut times) = (client.clone(), Vec::new());
        while started.elapsed() < time {
            let request = request(random.below(KEYS));
            let asked = Instant::now();
            let response = client
                .should_rate_limit(request)
                .await
                .expect("the service answers")
                .into_inner();
            assert_eq!(
                response.overall_code(),
                rate_limit_response::Code::Ok,
                "a call was denied"
            );
            times.push(u32::try_from(asked.elapsed().as_nanos()).unwrap_or(u32::MAX));
        }
        times
    };
    let times = futures_util::future::join_all((0..streams).map(|_| caller())).await;
    let mut times = times.concat();
    times.sort_unstable();
    times
}

fn turn(
    runtime: &Runtime,
    client: &RateLimitServiceClient<Channel>,
    streams: usize,
    time: Duration,
) -> Turn {
    let (started, cpu) = (Instant::now(), machine::own_cpu());
    let times = runtime.block_on(calls(client, streams, time));
    let (elapsed, cpu) = (started.elapsed(), machine::own_cpu() - cpu);
    let count = times.len() as f64;
    Turn {
        per_second: count / elapsed.as_secs_f64(),
        cpu_us: cpu.as_secs_f64() * 1e6 / count,
        p50_us: percentile(&times, 0.5) / 1e3,
        p99_us: percentile(&times, 0.99) / 1e3,
    }
}

/// Measures how long the limit of a descriptor of five levels is looked for, among 5 000
/// descriptors.
fn matching(findings: &mut Findings, pace: &Pace) {
    const BRANCHES: usize = 1_000;
    const LEVELS: usize = 5;
    let mut text = String::from("domain: shop\ndescriptors:\n");
    for branch in 0..BRANCHES {
        for level in 0..LEVELS {
            let space = " ".repeat(level * 4);
            // Writing to memory cannot fail.
            let _ = write!(
                text,
                "{space}- key: level{level}\n{space}  value: value{branch}\n"
            );
            let _ = match level + 1 {
                LEVELS => writeln!(
                    text,
                    "{space}  rate_limit: {{unit: minute, requests_per_unit: 10}}"
                ),
                _ => writeln!(text, "{space}  descriptors:"),
            };
        }
    }
    let rules = RuleSet::parse(&text, Format::Yaml).expect("the rules are right");
    let values: Vec<_> = (0..BRANCHES)
        .map(|branch| format!("value{branch}"))
        .collect();
    let descriptors: Vec<Descriptor<'_>> = values
        .iter()
        .map(|value| {
            ["level0", "level1", "level2", "level3", "level4"]
                .map(|key| (key, value.as_str()))
                .into()
        })
        .collect();
    assert!(
        descriptors
            .iter()
            .all(|descriptor| rules.find("shop", descriptor).is_some()),
        "a descriptor has no limit"
    );
    let series = alternate(
        pace.inside,
        vec![Case::new("five levels", |time: Duration| {
            let (mut random, mut found) = (Random::new(1), 0_u32);
            let (started, cpu) = (Instant::now(), machine::thread_cpu());
            while started.elapsed() < time {
                for _ in 0..64 {
                    black_box(rules.find("shop", &descriptors[random.below(BRANCHES)]));
                    found += 1;
                }
            }
            (machine::thread_cpu() - cpu).as_secs_f64() * 1e9 / f64::from(found)
        })],
    );
    let ns = series[0].median(|ns| *ns);
    let mut table = Table::new(
        "Matching a descriptor",
        "5 000 descriptors in 1 000 branches of five levels. The limit of a random branch is looked for.",
        &["entries", "ns of CPU"],
    );
    table.row([LEVELS.to_string(), figure(ns)]);
    findings.tables.push(table);
    findings.goal(
        "matching among 5 000 descriptors of five levels",
        Target::AtMost(2_000.0),
        ns,
        " ns",
    );
}
