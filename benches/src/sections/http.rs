//! Measures an Axum service with a trivial handler behind each limiter. wrk sends the requests.

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    Router,
    extract::Request,
    middleware::{Next, from_fn},
    response::IntoResponse,
    routing::get,
};
use http::{HeaderMap, StatusCode};
use tokio::runtime::Runtime;
use tollgate::{Lease, Limiter, MemoryStore, Policy, Quota, RedisStore, Store};
use tollgate_tower::{RateLimitLayer, key::Header};
use tower_governor::{
    GovernorError, GovernorLayer, governor::GovernorConfigBuilder, key_extractor::KeyExtractor,
};

use super::PLENTY;
use crate::{
    keys::KEYS,
    load::{self, Answer, Decide},
    machine,
    pace::Pace,
    peers::{
        Call, PerCall, gcra,
        wrk::{self, Run},
    },
    report::{Findings, Table, Target, figure},
    rounds::{Case, Series, alternate},
    server::Server,
};

const LEASED_ROW: &str = "tollgate, Redis, leased";

/// Admits six requests a minute from each of a few callers, so that about one request in a hundred
/// is admitted.
const SCARCE: Policy = Policy::token_bucket("scarce", Quota::per_minute(6).with_burst(1));
const FEW: usize = 1_000;

const KEY: &str = "x-api-key";

const CONNECTIONS: usize = 64;
const MANY_CONNECTIONS: usize = 256;

/// The work of a handler that is not trivial, which keeps its thread busy for so long.
const WORK: Duration = Duration::from_millis(1);
const WORKING_CONNECTIONS: usize = 4;

/// The round trip of a server in the same data centre.
const AWAY: Duration = Duration::from_micros(300);

/// Stores the results of one turn: the figures of wrk, and the processor time per request of the
/// service and Redis.
struct Turn {
    run: Run,
    service_us: f64,
    redis_us: f64,
}

pub(crate) fn run(pace: &Pace) -> Findings {
    let Some(bench) = Bench::new(pace) else {
        return Findings::left_out("Axum under wrk", MISSING);
    };
    let line = bench.server.at_a_distance(AWAY);
    let per_call = PerCall::new(&bench.server, Call::ours(&bench.server, PLENTY));
    let mut findings = Findings::default();

    let admitted = bench.turns(
        KEYS,
        CONNECTIONS,
        false,
        vec![
            ("no limiter", hello()),
            ("tollgate, Redis", ours(hello(), bench.redis(), PLENTY)),
            (
                "tollgate, Redis 0.3 ms away",
                ours(hello(), bench.at(&line.url()), PLENTY),
            ),
            (
                "deadpool, a checkout per call, same script",
                by_hand(hello(), per_call),
            ),
            (
                "tollgate, in process",
                ours(hello(), MemoryStore::new(), PLENTY),
            ),
            ("tower_governor, in process", governor(true)),
            (
                LEASED_ROW,
                ours(hello(), bench.redis(), PLENTY.leased(Lease::new())),
            ),
            ("tower-rate-limiter, Redis", bench.tower_rate_limiter()),
        ],
    );
    let many = bench.turns(
        KEYS,
        MANY_CONNECTIONS,
        false,
        vec![
            ("no limiter", hello()),
            ("tollgate, Redis", ours(hello(), bench.redis(), PLENTY)),
            (
                "tollgate, in process",
                ours(hello(), MemoryStore::new(), PLENTY),
            ),
        ],
    );
    let denied = bench.turns(
        FEW,
        CONNECTIONS,
        true,
        vec![
            ("no limiter", hello()),
            ("tollgate, Redis", ours(hello(), bench.redis(), SCARCE)),
            (
                "tollgate, in process",
                ours(hello(), MemoryStore::new(), SCARCE),
            ),
            ("tower_governor, in process", governor(false)),
        ],
    );
    for (measure, least, [one, to]) in [
        (
            "over Redis, to no limiter",
            0.65,
            [&admitted[1], &admitted[0]],
        ),
        (
            "over Redis, 256 connections, to no limiter",
            0.65,
            [&many[1], &many[0]],
        ),
        (
            "over Redis, 99 % denied, to no limiter",
            0.85,
            [&denied[1], &denied[0]],
        ),
        ("leased, to in process", 0.9, [&admitted[6], &admitted[4]]),
    ] {
        let measure = format!("Axum hello {measure}");
        findings.goal(
            measure,
            Target::AtLeast(least),
            one.ratio(to, per_second),
            " ×",
        );
    }
    findings.tables.push(table(
        "Axum under wrk, all admitted",
        &format!("10 000 callers within their limit, 64 connections. {TRIVIAL}"),
        &admitted,
    ));
    findings.tables.push(table(
        "Axum under wrk, all admitted, 256 connections",
        &format!("10 000 callers within their limit, 256 connections. {TRIVIAL}"),
        &many,
    ));
    findings.tables.push(table(
        "Axum under wrk, 99 % over the limit",
        &format!("1 000 callers, six admitted a minute each, 64 connections. {TRIVIAL}"),
        &denied,
    ));
    findings
}

/// Measures a service whose handler does more than to answer.
pub(crate) fn run_working(pace: &Pace) -> Findings {
    const TITLE: &str = "Axum under wrk, a handler that works for 1 ms";
    let Some(bench) = Bench::new(pace) else {
        return Findings::left_out(TITLE, MISSING);
    };
    let per_call = PerCall::new(&bench.server, Call::ours(&bench.server, PLENTY));
    let working = bench.turns(
        KEYS,
        WORKING_CONNECTIONS,
        false,
        vec![
            ("no limiter", works()),
            ("tollgate, Redis", ours(works(), bench.redis(), PLENTY)),
            (
                "tollgate, in process",
                ours(works(), MemoryStore::new(), PLENTY),
            ),
            (
                "deadpool, a checkout per call, same script",
                by_hand(works(), per_call),
            ),
        ],
    );
    let mut findings = Findings::default();
    findings.tables.push(table(
        TITLE,
        "10 000 callers within their limit, 4 connections. The handler keeps the only thread of the service busy, so that \
         checks and answers wait for it.",
        &working,
    ));
    findings
}

fn per_second(turn: &Turn) -> f64 {
    turn.run.per_second
}

fn table(title: &str, load: &str, series: &[Series<Turn>]) -> Table {
    let about = format!("{load} The service runs on one core, Redis and wrk on the other.");
    let heads = [
        "",
        "requests/s",
        "requests/s, to no limiter",
        "p99 µs",
        "service CPU µs",
        "Redis CPU µs",
    ];
    let mut table = Table::new(title, about, &heads);
    for one in series {
        table.row([
            one.name.clone(),
            figure(one.median(per_second)),
            figure(one.ratio(&series[0], per_second)),
            figure(one.median(|turn| turn.run.p99_us)),
            figure(one.median(|turn| turn.service_us)),
            figure(one.median(|turn| turn.redis_us)),
        ]);
    }
    table
}

const TRIVIAL: &str = "Without a limiter, 70 to 80 % of the CPU time of the service is the kernel's work for \
                       sockets. With a handler that does more work, the ratios to no limiter are higher.";

const MISSING: &str = "wrk is not installed";

struct Bench<'a> {
    server: Server,
    runtime: Runtime,
    pace: &'a Pace,
}

impl<'a> Bench<'a> {
    /// Returns `None` without wrk.
    fn new(pace: &'a Pace) -> Option<Self> {
        wrk::find()?;
        Some(Self {
            server: Server::start(),
            runtime: load::runtime(),
            pace,
        })
    }

    fn turns(
        &self,
        callers: usize,
        connections: usize,
        denies: bool,
        served: Vec<(&str, Router)>,
    ) -> Vec<Series<Turn>> {
        let script = wrk::write_script(&std::env::temp_dir(), callers);
        let cases = served.into_iter().map(|(name, router)| {
            let (script, address) = (&script, self.serve(router));
            let denies = denies && name != "no limiter";
            Case::new(name, move |time| {
                let counts = time >= self.pace.load.turn;
                let seconds = if counts && !self.pace.is_quick { 2 } else { 1 };
                // Two generations that do not count: the units of a lease follow the rate of its
                // key, and lapse between turns.
                if counts && name == LEASED_ROW {
                    let seconds = if self.pace.is_quick { 1 } else { 10 };
                    wrk::run(address, script, connections, seconds);
                }
                let (redis, cpu) = (self.server.cpu(), machine::own_cpu());
                let run = wrk::run(address, script, connections, seconds);
                let (cpu, redis) = (machine::own_cpu() - cpu, self.server.cpu() - redis);
                let refused = run.refused as f64 / run.requests as f64;
                let is_expected = if denies {
                    refused > 0.9
                } else {
                    refused == 0.0
                };
                // The warm-up turn does not count. In it, the first request of each caller is
                // admitted.
                assert!(
                    is_expected || denies && !counts,
                    "{name}: {refused} refused"
                );
                let each = |cpu: Duration| cpu.as_secs_f64() * 1e6 / run.requests as f64;
                Turn {
                    run,
                    service_us: each(cpu),
                    redis_us: each(redis),
                }
            })
        });
        let series = alternate(self.pace.load, cases.collect());
        // A script that cannot be deleted does no harm in the folder of temporary files.
        let _ = std::fs::remove_file(&script);
        series
    }

    /// Starts the service on a free port, where it runs until the bench ends.
    fn serve(&self, router: Router) -> SocketAddr {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0");
        let listener = self.runtime.block_on(listener).expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        self.runtime
            .spawn(async move { axum::serve(listener, router).await });
        address
    }

    fn redis(&self) -> RedisStore {
        self.at(&self.server.url())
    }

    fn at(&self, url: &str) -> RedisStore {
        let store = self.runtime.block_on(RedisStore::connect(url));
        store.expect("the server is up")
    }

    fn tower_rate_limiter(&self) -> Router {
        let policy = self.runtime.block_on(gcra(&self.server));
        let layer = tower_rate_limiter::RateLimitLayer::builder(ApiKey)
            .policy_name("plenty")
            .with_policy(policy);
        hello().layer(layer.build().expect("a name"))
    }
}

fn hello() -> Router {
    Router::new().route("/", get(|| async { "hello" }))
}

/// Returns a service whose handler works for [`WORK`], without giving way to others.
fn works() -> Router {
    let work = async || {
        let began = Instant::now();
        while began.elapsed() < WORK {
            std::hint::spin_loop();
        }
        "worked"
    };
    Router::new().route("/", get(work))
}

fn ours(service: Router, store: impl Store, policy: Policy) -> Router {
    let limiter = Limiter::new(store, policy);
    service.layer(RateLimitLayer::new(limiter, Header::new(KEY)))
}

/// Builds a limiter without a limiter library: a function around the next service.
fn by_hand(service: Router, decide: impl Decide) -> Router {
    let decide = Arc::new(decide);
    service.layer(from_fn(move |request: Request, next: Next| {
        let decide = Arc::clone(&decide);
        async move {
            let key = api_key(request.headers());
            let key = key.and_then(|key| key.trim_start_matches("customer:").parse().ok());
            match key {
                Some(number) if decide.decide(number).await == Answer::Admitted => {
                    next.run(request).await
                }
                Some(_) => StatusCode::TOO_MANY_REQUESTS.into_response(),
                None => StatusCode::BAD_REQUEST.into_response(),
            }
        }
    }))
}

fn api_key(headers: &HeaderMap) -> Option<&str> {
    headers.get(KEY)?.to_str().ok()
}

#[derive(Clone)]
struct ApiKey;

impl KeyExtractor for ApiKey {
    type Key = String;

    fn extract<T>(&self, request: &http::Request<T>) -> Result<String, GovernorError> {
        api_key(request.headers())
            .map(str::to_owned)
            .ok_or(GovernorError::UnableToExtractKey)
    }
}

impl tower_rate_limiter::KeyExtractor for ApiKey {
    type Key = String;

    fn extract<T>(
        &self,
        request: &http::Request<T>,
    ) -> Result<String, tower_rate_limiter::RateLimitError> {
        let missing =
            || tower_rate_limiter::RateLimitError::Key("missing".to_owned(), KEY.to_owned());
        api_key(request.headers())
            .map(str::to_owned)
            .ok_or_else(missing)
    }
}

fn governor(admits: bool) -> Router {
    let mut config = GovernorConfigBuilder::default().key_extractor(ApiKey);
    if admits {
        config.per_nanosecond(1_000).burst_size(1_000_000_000);
    } else {
        config.per_second(10).burst_size(1);
    }
    let config = config.use_headers().finish().expect("a quota above zero");
    hello().layer(GovernorLayer::new(config))
}
