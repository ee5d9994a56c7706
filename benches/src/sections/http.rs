//! Measures an Axum service with a trivial handler behind each limiter. wrk sends the requests.

use std::{convert::Infallible, net::SocketAddr, sync::Arc};

use axum::{
    Router,
    extract::Request,
    middleware::{Next, from_fn},
    response::{IntoResponse, Response},
    routing::get,
};
use http::{HeaderMap, StatusCode};
use tokio::runtime::Runtime;
use tollgate::{Lease, Limiter, MemoryStore, Policy, Quota, RedisStore};
use tollgate_tower::{RateLimitLayer, key::Header};
use tower_governor::{
    GovernorError, GovernorLayer, governor::GovernorConfigBuilder, key_extractor::KeyExtractor,
};

use crate::{
    keys::{self, KEYS},
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

const PLENTY: Policy = Policy::token_bucket(
    "plenty",
    Quota::per_second(900_000).with_burst(1_000_000_000),
);

/// The same limit, leased.
const LEASED: Policy = PLENTY.leased(Lease::new());

const LEASED_ROW: &str = "tollgate, Redis, leased";

/// Admits six requests a minute from each of a few callers, so that about one request in a hundred
/// is admitted.
const SCARCE: Policy = Policy::token_bucket("scarce", Quota::per_minute(6).with_burst(1));
const FEW: usize = 1_000;

const KEY: &str = "x-api-key";

/// Stores the results of one turn: the figures of wrk, and the processor time per request of the
/// service and Redis.
struct Turn {
    run: Run,
    service_us: f64,
    redis_us: f64,
}

pub(crate) fn run(pace: &Pace) -> Findings {
    if wrk::find().is_none() {
        return Findings::left_out("Axum under wrk", "wrk is not installed");
    }
    let bench = Bench {
        server: Server::start(),
        runtime: load::runtime(),
        pace,
    };
    let mut findings = Findings::default();

    let admitted = bench.turns(
        KEYS,
        false,
        vec![
            ("no limiter", bench.serve(hello())),
            ("tollgate, Redis", bench.serve(bench.ours(PLENTY))),
            (
                "deadpool, a checkout per call, same script",
                bench.serve(bench.per_call()),
            ),
            ("tollgate, in process", bench.serve(in_process(PLENTY))),
            ("tower_governor, in process", bench.serve(governor(true))),
            (LEASED_ROW, bench.serve(bench.ours(LEASED))),
            (
                "tower-rate-limiter, Redis",
                bench.serve(bench.tower_rate_limiter()),
            ),
        ],
    );
    let denied = bench.turns(
        FEW,
        true,
        vec![
            ("no limiter", bench.serve(hello())),
            ("tollgate, Redis", bench.serve(bench.ours(SCARCE))),
            ("tollgate, in process", bench.serve(in_process(SCARCE))),
            ("tower_governor, in process", bench.serve(governor(false))),
        ],
    );
    for (measure, target, series, at) in [
        (
            "Axum hello over Redis, all admitted, to no limiter",
            0.7,
            &admitted,
            1,
        ),
        (
            "Axum hello over Redis, 99 % over the limit, to no limiter",
            0.92,
            &denied,
            1,
        ),
        (
            "Axum hello in process, all admitted, to no limiter",
            0.93,
            &admitted,
            3,
        ),
        (
            "Axum hello in process, 99 % over the limit, to no limiter",
            0.93,
            &denied,
            2,
        ),
    ] {
        findings.goal(
            measure,
            Target::AtLeast(target),
            series[at].ratio(&series[0], per_second),
            " ×",
        );
    }
    let leased = admitted[5].ratio(&admitted[3], per_second);
    findings.goal(
        "Axum hello over Redis, leased, all admitted, to in process",
        Target::AtLeast(0.97),
        leased,
        " ×",
    );
    findings.tables.push(table(
        "Axum under wrk, all admitted",
        "10 000 callers within their limit.",
        &admitted,
    ));
    findings.tables.push(table(
        "Axum under wrk, 99 % over the limit",
        "1 000 callers, six admitted a minute each.",
        &denied,
    ));
    findings
}

fn per_second(turn: &Turn) -> f64 {
    turn.run.per_second
}

fn table(title: &str, load: &str, series: &[Series<Turn>]) -> Table {
    let about = format!(
        "{load} 64 connections. The service runs on one core, Redis and wrk on the other. Without a limiter, 70 to \
         80 % of the CPU time of the service is the kernel's work for sockets. With a handler that does more work, the \
         ratios to no limiter are higher."
    );
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

struct Bench<'a> {
    server: Server,
    runtime: Runtime,
    pace: &'a Pace,
}

impl Bench<'_> {
    /// Starts the service on a free port, where it runs until the bench ends.
    fn serve(&self, router: Router) -> SocketAddr {
        let listener = self
            .runtime
            .block_on(tokio::net::TcpListener::bind("127.0.0.1:0"))
            .expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        self.runtime
            .spawn(async move { axum::serve(listener, router).await });
        address
    }

    fn turns(
        &self,
        callers: usize,
        denies: bool,
        served: Vec<(&str, SocketAddr)>,
    ) -> Vec<Series<Turn>> {
        let folder = std::env::temp_dir();
        let script = wrk::write_script(&folder, callers);
        let cases = served.into_iter().map(|(name, address)| {
            let script = &script;
            Case::new(name, move |time| {
                let counts = time >= self.pace.load.turn;
                let seconds = if counts && !self.pace.is_quick { 2 } else { 1 };
                // Two generations that do not count: the units of a lease follow the rate of its
                // key, and lapse between turns.
                if counts && name == LEASED_ROW {
                    wrk::run(address, script, if self.pace.is_quick { 1 } else { 10 });
                }
                let (before, cpu) = (self.server.usage(), machine::own_cpu());
                let run = wrk::run(address, script, seconds);
                let cpu = machine::own_cpu() - cpu;
                let redis = self.server.usage().since(&before).cpu;
                let refused = run.refused as f64 / run.requests as f64;
                let as_expected = if denies && name != "no limiter" {
                    refused > 0.9
                } else {
                    refused == 0.0
                };
                // The warm-up turn does not count. In it, the first request of each caller is
                // admitted.
                assert!(
                    as_expected || denies && !counts,
                    "{name}: {} of {} refused",
                    run.refused,
                    run.requests
                );
                let each = |cpu: std::time::Duration| cpu.as_secs_f64() * 1e6 / run.requests as f64;
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

    fn ours(&self, policy: Policy) -> Router {
        let store = self
            .runtime
            .block_on(RedisStore::connect(self.server.url()))
            .expect("the server is up");
        hello().layer(RateLimitLayer::new(
            Limiter::new(store, policy),
            Header::new(KEY),
        ))
    }

    fn tower_rate_limiter(&self) -> Router {
        let policy = self.runtime.block_on(gcra(&self.server));
        let layer = tower_rate_limiter::RateLimitLayer::builder(ApiKey)
            .policy_name("plenty")
            .with_policy(policy);
        hello().layer(layer.build().expect("a name"))
    }

    fn per_call(&self) -> Router {
        by_hand(PerCall::new(
            &self.server,
            Call::ours(&self.server, PLENTY, keys::first(KEYS)),
        ))
    }
}

fn hello() -> Router {
    Router::new().route("/", get(|| async { "hello" }))
}

fn in_process(policy: Policy) -> Router {
    hello().layer(RateLimitLayer::new(
        Limiter::new(MemoryStore::new(), policy),
        Header::new(KEY),
    ))
}

/// Builds a limiter without a limiter library: a function around the next service.
fn by_hand(decide: impl Decide) -> Router {
    let decide = Arc::new(decide);
    hello().layer(from_fn(move |request: Request, next: Next| {
        let decide = Arc::clone(&decide);
        async move {
            let key = api_key(request.headers())
                .and_then(|key| key.trim_start_matches("customer:").parse().ok());
            match key {
                Some(number) if decide.decide(number).await == Answer::Admitted => {
                    Ok::<Response, Infallible>(next.run(request).await)
                }
                Some(_) => Ok(StatusCode::TOO_MANY_REQUESTS.into_response()),
                None => Ok(StatusCode::BAD_REQUEST.into_response()),
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
