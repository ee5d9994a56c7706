//! Measures one request through a layer around a service that does nothing, for Tollgate,
//! tower_governor and tower-rate-limiter.
//!
//! The difference to the service without a layer is the cost that the layer adds.

use std::{
    convert::Infallible,
    future::{Ready, ready},
    hint::black_box,
    net::{Ipv4Addr, SocketAddr},
    task::{Context, Poll, Waker},
    time::Duration,
};

use axum::{body::Body, extract::ConnectInfo};
use futures_util::FutureExt;
use http::{Request, Response, StatusCode};
use tokio::runtime::Runtime;
use tollgate::{Limiter, MemoryStore, Policy, Quota, RedisStore};
use tollgate_tower::{RateLimitLayer, key::PeerIp};
use tower_governor::{
    GovernorLayer, governor::GovernorConfigBuilder, key_extractor::PeerIpKeyExtractor,
};
use tower_layer::Layer;
use tower_rate_limiter::{GcraQuota, IpKeyExtractor, MemoryGcra};
use tower_service::Service;

use super::PLENTY;
use crate::{
    keys::{self, KEYS},
    load, machine,
    pace::Pace,
    report::{Findings, Table, Target, figure},
    rounds::{Case, Series, alternate},
    server::Server,
};

/// A limit that each client has used up after its first request.
const SCARCE: Policy = Policy::token_bucket("scarce", Quota::per_day(1));

/// The clients whose denials are remembered: few enough to be denied again in a moment.
const REMEMBERED: usize = 100;

pub(crate) fn run(pace: &Pace) -> Findings {
    let client = |at: u32| (Ipv4Addr::from_bits(0x0a00_0000 + at), 50_000).into();
    let peers: Vec<SocketAddr> = keys::shuffled((0..KEYS as u32).map(client).collect());
    let (server, runtime) = (Server::start(), load::runtime());
    let mut findings = Findings::default();

    let ok = StatusCode::OK;
    let admitted = vec![
        case("no layer", &peers, 0, ok, Nothing),
        case("tower_governor, 2 fields", &peers, 2, ok, governor(true)),
        case("tollgate, 2 fields", &peers, 2, ok, ours(PLENTY)),
        case(
            "tower-rate-limiter, 2 fields",
            &peers,
            2,
            ok,
            tower_rate_limiter(true),
        ),
    ];
    let series = alternate(pace.inside, admitted);
    let added = added(&series);
    let measure = "layer, in process, admitted, to tower_governor with the same number of fields";
    let ratio = added[2].ratio(&added[1], |&ns| ns);
    findings.goal(measure, Target::AtMost(1.1), ratio, " ×");
    findings.tables.push(table("admitted", &series, &added));

    let too_many = StatusCode::TOO_MANY_REQUESTS;
    let denied = vec![
        case("no layer", &peers, 0, ok, Nothing),
        case(
            "tower_governor, 4 fields, text",
            &peers,
            4,
            too_many,
            governor(false),
        ),
        case(
            "tollgate, 5 fields, problem document",
            &peers,
            5,
            too_many,
            ours(SCARCE),
        ),
        case(
            "tower-rate-limiter, 3 fields, no body",
            &peers,
            3,
            too_many,
            tower_rate_limiter(false),
        ),
        remembered(&peers[..REMEMBERED], &runtime, &server),
    ];
    let series = alternate(pace.inside, denied);
    findings
        .tables
        .push(table("denied", &series, &self::added(&series)));
    findings
}

/// Returns the differences to the first series.
fn added(series: &[Series<f64>]) -> Vec<Series<f64>> {
    series.iter().map(|one| one.beyond(&series[0])).collect()
}

fn table(outcome: &str, series: &[Series<f64>], added: &[Series<f64>]) -> Table {
    let about = "One thread sends requests from 10 000 client addresses. Counts are kept in process. *Added* is the \
                 difference to the first row, which builds the request and calls a service that does nothing. *Fields* \
                 are header fields of the response. *Over Redis, remembered* is a denial of the server that the process \
                 still knows, for 100 clients. For each denial, tower_governor creates a new clock and reads the \
                 processor's counter, which is expensive on a virtual machine.";
    let heads = [
        "",
        "ns of CPU per request",
        "added ns",
        "added, to tower_governor",
    ];
    let mut table = Table::new(&format!("Layer, {outcome}"), about, &heads);
    for (at, (one, beyond)) in series.iter().zip(added).enumerate() {
        let ns = |series: &Series<f64>| figure(series.median(|&ns| ns));
        let [more, ratio] = match at {
            0 => ["–", "–"].map(str::to_owned),
            _ => [ns(beyond), figure(beyond.ratio(&added[1], |&ns| ns))],
        };
        table.row([one.name.clone(), ns(one), more, ratio]);
    }
    table
}

/// Answers each request with an empty response, without waiting.
#[derive(Clone)]
struct Nothing;

impl Service<Request<()>> for Nothing {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        ready(Ok(Response::new(Body::empty())))
    }
}

/// Names the type of all services in this file.
trait Limited: Service<Request<()>, Response = Response<Body>, Error = Infallible> {}

impl<S: Service<Request<()>, Response = Response<Body>, Error = Infallible>> Limited for S {}

fn ours(policy: Policy) -> impl Limited {
    RateLimitLayer::new(Limiter::new(MemoryStore::new(), policy), PeerIp).layer(Nothing)
}

fn governor(admits: bool) -> impl Limited {
    let mut config = GovernorConfigBuilder::default().key_extractor(PeerIpKeyExtractor);
    if admits {
        config.per_nanosecond(1_000).burst_size(1_000_000_000);
    } else {
        config.per_second(86_400).burst_size(1);
    }
    let config = config.use_headers().finish();
    GovernorLayer::new(config.expect("a quota above zero")).layer(Nothing)
}

/// Returns tower-rate-limiter with its default fields, and its policy that counts in process.
fn tower_rate_limiter(admits: bool) -> impl Limited {
    let quota = if admits {
        GcraQuota::new(1_000, Duration::from_secs(1), 1_000_000_000)
    } else {
        GcraQuota::new(1, Duration::from_secs(86_400), 1)
    };
    let policy = MemoryGcra::new(quota.expect("a quota above zero"));
    let layer = tower_rate_limiter::RateLimitLayer::builder(IpKeyExtractor::new())
        .policy_name("burst")
        .with_policy(policy);
    layer.build().expect("a name").layer(Nothing)
}

/// Sends a request of this client. Returns `None` where the response waits for a server.
fn ask(service: &mut impl Limited, peer: SocketAddr) -> Option<Response<Body>> {
    let mut request = Request::new(());
    request.extensions_mut().insert(ConnectInfo(peer));
    let mut context = Context::from_waker(Waker::noop());
    assert!(service.poll_ready(&mut context).is_ready());
    let answer = service.call(request).now_or_never()?;
    Some(answer.unwrap_or_else(|never| match never {}))
}

/// Measures the nanoseconds per request. The requests come from all client addresses in turn.
///
/// # Panics
///
/// When a response has another status, or when the first response has another number of header
/// fields.
fn case<'a>(
    name: &str,
    peers: &'a [SocketAddr],
    fields: usize,
    status: StatusCode,
    mut service: impl Limited + 'a,
) -> Case<'a, f64> {
    let mut ask = move |peer| ask(&mut service, peer).expect("a service that does not wait");
    if status != StatusCode::OK {
        peers.iter().for_each(|&peer| drop(ask(peer)));
    }
    let seen = ask(peers[0]);
    assert_eq!(
        (seen.status(), seen.headers().len()),
        (status, fields),
        "{name}: {seen:?}"
    );
    Case::new(name, move |time| {
        let (mut requests, mut as_expected) = (0_u64, 0_u64);
        let started = machine::thread_cpu();
        loop {
            for &peer in peers {
                let response = black_box(ask(black_box(peer)));
                as_expected += u64::from(response.status() == status);
            }
            requests += peers.len() as u64;
            let elapsed = machine::thread_cpu() - started;
            if elapsed >= time {
                assert_eq!(
                    as_expected, requests,
                    "not all responses had the status {status}"
                );
                return elapsed.as_nanos() as f64 / requests as f64;
            }
        }
    })
}

/// Measures responses to denials that the process remembers for a second. Before that is over, the
/// server denies the clients again, which does not count.
fn remembered<'a>(peers: &'a [SocketAddr], runtime: &'a Runtime, server: &Server) -> Case<'a, f64> {
    let store = runtime.block_on(RedisStore::connect(server.url()));
    let limiter = Limiter::new(store.expect("the server is up"), SCARCE);
    let mut service = RateLimitLayer::new(limiter.clone(), PeerIp).layer(Nothing);
    let name = "tollgate over Redis, remembered, 5 fields, problem document";
    Case::new(name, move |time| {
        let _inside = runtime.enter();
        let (mut spent, mut denied) = (Duration::ZERO, 0_u64);
        while spent < time {
            for peer in peers.iter().chain(peers) {
                let decision = runtime.block_on(limiter.check(peer.ip()).into_future());
                let _ = decision.expect("the server decides");
            }
            let started = machine::thread_cpu();
            for &peer in peers.iter().cycle().take(2_000) {
                let response = black_box(ask(&mut service, black_box(peer)));
                let is_denied =
                    |response: Response<Body>| response.status() == StatusCode::TOO_MANY_REQUESTS;
                denied += u64::from(response.is_some_and(is_denied));
            }
            spent += machine::thread_cpu() - started;
        }
        spent.as_nanos() as f64 / denied.max(1) as f64
    })
}
