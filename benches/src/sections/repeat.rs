//! Measures repeated denials: a denied client sends more requests while the deny cache holds its
//! denial.
//!
//! The section measures the limiter over Redis, and the layer around it.

use std::{
    hint::black_box,
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use axum::extract::ConnectInfo;
use futures_util::FutureExt;
use http::{Request, StatusCode};
use tokio::runtime::Runtime;
use tollgate::{Key, Limiter, Policy, Quota, RedisStore, store::CheckFuture};
use tollgate_tower::{RateLimitLayer, key::PeerIp, rejection::Empty};
use tower_layer::Layer;
use tower_service::Service;

use super::layer::Nothing;
use crate::{
    load, machine,
    pace::Pace,
    report::{Findings, Table, Target, figure},
    rounds::{Case, alternate},
    server::Server,
};

const SCARCE: Policy = Policy::token_bucket("scarce", Quota::per_day(1));

/// Sets the number of denied clients.
const CLIENTS: u32 = 100;

/// Stores the results of one turn, for denials from the deny cache: nanoseconds, and calls to the
/// server, per denial.
struct Turn {
    ns: f64,
    calls: f64,
}

pub(crate) fn run(pace: &Pace) -> Findings {
    let server = Server::start();
    let runtime = load::runtime();
    // A check needs the runtime when the deny cache no longer holds the denial. Such a check is
    // dropped.
    let _inside = runtime.enter();
    let store = runtime
        .block_on(RedisStore::connect(server.url()))
        .expect("the server is up");
    let peers: Vec<SocketAddr> = (1..=CLIENTS)
        .map(|at| (Ipv4Addr::from_bits(0x0a00_0000 | at), 4_000).into())
        .collect();
    let keys: Vec<Key> = peers.iter().map(|peer| Key::from(peer.ip())).collect();
    let limiter = Limiter::new(store, SCARCE);

    let in_limiter = |time| {
        refusals(&runtime, &server, &limiter, &keys, time, |at| {
            let answer = limiter.check_key(&keys[at]).into_future();
            answer
                .into_ready()
                .is_ok_and(|answer| answer.is_ok_and(|decision| decision.is_denied()))
        })
    };
    let mut problem = RateLimitLayer::new(limiter.clone(), PeerIp).layer(Nothing);
    let mut empty = RateLimitLayer::builder(limiter.clone(), PeerIp)
        .respond_with(Empty)
        .build()
        .layer(Nothing);
    let in_layer = |time| {
        refusals(&runtime, &server, &limiter, &keys, time, |at| {
            is_refused(&mut problem, peers[at])
        })
    };
    let in_short = |time| {
        refusals(&runtime, &server, &limiter, &keys, time, |at| {
            is_refused(&mut empty, peers[at])
        })
    };
    let series = alternate(
        pace.inside,
        vec![
            Case::new("in the limiter", in_limiter),
            Case::new(
                "in the layer, 429 with a problem document and 5 fields",
                in_layer,
            ),
            Case::new("in the layer, 429 with 4 fields and no body", in_short),
        ],
    );
    let about = "A hundred denied clients send more requests to a limiter over Redis. The deny cache holds a denial \
                 for a second. The next check calls the server again, and is not part of the measured time.";
    let heads = ["", "ns of CPU per denial", "calls to the server per denial"];
    let mut table = Table::new("Denied again and again", about, &heads);
    for one in &series {
        table.row([
            one.name.clone(),
            figure(one.median(|it| it.ns)),
            format!("{:.6}", one.median(|it| it.calls)),
        ]);
    }
    let mut findings = Findings::default();
    findings.tables.push(table);
    let ns = |at: usize| series[at].median(|it: &Turn| it.ns);
    findings.goal(
        "repeated denial, in the limiter",
        Target::AtMost(150.0),
        ns(0),
        " ns",
    );
    findings.goal(
        "repeated denial, in the layer, with the 429 response",
        Target::AtMost(250.0),
        ns(2),
        " ns",
    );
    findings
}

/// Measures denials for `time`. Between the measured parts each key is denied at the server again.
fn refusals(
    runtime: &Runtime,
    server: &Server,
    limiter: &Limiter,
    keys: &[Key],
    time: Duration,
    mut is_refused: impl FnMut(usize) -> bool,
) -> Turn {
    let (mut spent, mut refused, mut calls) = (Duration::ZERO, 0_u64, 0);
    while spent < time {
        // The server denies each key again. Then the deny cache holds the denials for a second.
        for key in keys {
            let answer: CheckFuture = limiter.check_key(key).into_future();
            let _ = runtime.block_on(answer).expect("the server is up");
        }
        let before = server.usage();
        let started = machine::thread_cpu();
        for _ in 0..200 {
            refused += (0..keys.len())
                .filter(|&at| black_box(is_refused(black_box(at))))
                .count() as u64;
        }
        spent += machine::thread_cpu() - started;
        calls += server.usage().since(&before).calls("evalsha");
    }
    Turn {
        ns: spent.as_nanos() as f64 / refused.max(1) as f64,
        calls: calls as f64 / refused.max(1) as f64,
    }
}

fn is_refused<S>(service: &mut S, peer: SocketAddr) -> bool
where
    S: Service<
            Request<()>,
            Response = http::Response<axum::body::Body>,
            Error = std::convert::Infallible,
        >,
{
    let mut request = Request::new(());
    request.extensions_mut().insert(ConnectInfo(peer));
    let answer = service.call(request).now_or_never();
    answer.is_some_and(|Ok(answer)| answer.status() == StatusCode::TOO_MANY_REQUESTS)
}
