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
use governor::middleware::NoOpMiddleware;
use http::{Request, Response, StatusCode};
use tollgate::{Limiter, MemoryStore, Policy, Quota};
use tollgate_tower::{RateLimitLayer, key::PeerIp, rejection::Empty};
use tower_governor::{
    GovernorLayer, governor::GovernorConfigBuilder, key_extractor::PeerIpKeyExtractor,
};
use tower_layer::Layer;
use tower_rate_limiter::{GcraQuota, IpKeyExtractor, MemoryGcra};
use tower_service::Service;

use crate::{
    keys::{KEYS, Random},
    machine,
    pace::Pace,
    report::{Findings, Table, Target, figure},
    rounds::{Case, Series, alternate},
};

const PLENTY: Policy = Policy::token_bucket(
    "burst",
    Quota::per_second(1_000_000).with_burst(1_000_000_000),
);
const SCARCE: Policy = Policy::token_bucket("burst", Quota::per_day(1));

pub(crate) fn run(pace: &Pace) -> Findings {
    let peers = peers();
    let mut findings = Findings::default();

    let admitted = alternate(
        pace.inside,
        vec![
            case("no layer", &peers, 0, StatusCode::OK, Nothing),
            case(
                "tower_governor, 2 fields",
                &peers,
                2,
                StatusCode::OK,
                with_fields(true),
            ),
            case(
                "tollgate, 2 fields",
                &peers,
                2,
                StatusCode::OK,
                ours(PLENTY).layer(Nothing),
            ),
            case(
                "tower_governor, no fields",
                &peers,
                0,
                StatusCode::OK,
                without_fields(true),
            ),
            case(
                "tower-rate-limiter, 2 fields",
                &peers,
                2,
                StatusCode::OK,
                tower_rate_limiter(true),
            ),
        ],
    );
    let too_many = StatusCode::TOO_MANY_REQUESTS;
    let empty = RateLimitLayer::builder(Limiter::new(MemoryStore::new(), SCARCE), PeerIp)
        .respond_with(Empty);
    let denied = alternate(
        pace.inside,
        vec![
            case("no layer", &peers, 0, StatusCode::OK, Nothing),
            case(
                "tower_governor, 4 fields, text",
                &peers,
                4,
                too_many,
                with_fields(false),
            ),
            case(
                "tollgate, 5 fields, problem document",
                &peers,
                5,
                too_many,
                ours(SCARCE).layer(Nothing),
            ),
            case(
                "tollgate, 4 fields, no body",
                &peers,
                4,
                too_many,
                empty.build().layer(Nothing),
            ),
            case(
                "tower-rate-limiter, 3 fields, no body",
                &peers,
                3,
                too_many,
                tower_rate_limiter(false),
            ),
        ],
    );
    for (outcome, series) in [("admitted", &admitted), ("denied", &denied)] {
        let added: Vec<_> = series.iter().map(|one| one.beyond(&series[0])).collect();
        findings.tables.push(table(outcome, series, &added));
        if outcome == "admitted" {
            let measure =
                "layer, in process, admitted, to tower_governor with the same number of fields";
            findings.goal(
                measure,
                Target::AtMost(0.9),
                added[2].ratio(&added[1], |&ns| ns),
                " ×",
            );
        } else {
            let measure = "layer, in process, denied, tower_governor to tollgate";
            findings.goal(
                measure,
                Target::AtLeast(50.0),
                added[1].ratio(&added[2], |&ns| ns),
                " ×",
            );
        }
    }
    findings
}

fn table(outcome: &str, series: &[Series<f64>], added: &[Series<f64>]) -> Table {
    let about = "One thread sends requests from 10 000 client addresses. Counts are kept in process. *Added* is the \
                 difference to the first row, which builds the request and calls a service that does nothing. *Fields* \
                 are header fields of the response. For each denial, tower_governor creates a new clock and reads the \
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
pub(super) struct Nothing;

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

/// Returns the addresses of 10 000 clients, in an order that no cache can predict.
fn peers() -> Vec<SocketAddr> {
    let mut random = Random::new(1);
    let mut peers: Vec<SocketAddr> = (0..KEYS as u32)
        .map(|it| (Ipv4Addr::from_bits(0x0a00_0000 + it), 50_000).into())
        .collect();
    for at in (1..peers.len()).rev() {
        peers.swap(at, random.below(at + 1));
    }
    peers
}

fn ours(policy: Policy) -> RateLimitLayer<PeerIp> {
    RateLimitLayer::new(Limiter::new(MemoryStore::new(), policy), PeerIp)
}

/// Returns the configuration of tower_governor, before the header fields are switched on or left
/// off.
fn theirs(admits: bool) -> GovernorConfigBuilder<PeerIpKeyExtractor, NoOpMiddleware> {
    let mut config = GovernorConfigBuilder::default().key_extractor(PeerIpKeyExtractor);
    if admits {
        config.per_nanosecond(1_000).burst_size(1_000_000_000);
    } else {
        config.per_second(86_400).burst_size(1);
    }
    config
}

fn with_fields(admits: bool) -> impl Limited {
    GovernorLayer::new(
        theirs(admits)
            .use_headers()
            .finish()
            .expect("a quota above zero"),
    )
    .layer(Nothing)
}

fn without_fields(admits: bool) -> impl Limited {
    GovernorLayer::new(theirs(admits).finish().expect("a quota above zero")).layer(Nothing)
}

/// Returns tower-rate-limiter with its default fields, and its policy that counts in process.
fn tower_rate_limiter(admits: bool) -> impl Limited {
    let day = Duration::from_secs(86_400);
    let quota = if admits {
        GcraQuota::new(1_000, Duration::from_secs(1), 1_000_000_000)
    } else {
        GcraQuota::new(1, day, 1)
    };
    let policy = MemoryGcra::new(quota.expect("a quota above zero"));
    let layer = tower_rate_limiter::RateLimitLayer::builder(IpKeyExtractor::new())
        .policy_name("burst")
        .with_policy(policy);
    layer.build().expect("a name").layer(Nothing)
}

/// Names the type of all services in this file.
trait Limited: Service<Request<()>, Response = Response<Body>, Error = Infallible> {}

impl<S: Service<Request<()>, Response = Response<Body>, Error = Infallible>> Limited for S {}

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
    let mut ask = move |peer: SocketAddr| {
        let mut request = Request::new(());
        request.extensions_mut().insert(ConnectInfo(peer));
        assert!(
            service
                .poll_ready(&mut Context::from_waker(Waker::noop()))
                .is_ready()
        );
        let answer = service
            .call(request)
            .now_or_never()
            .expect("the service answers without waiting");
        answer.unwrap_or_else(|never| match never {})
    };
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
