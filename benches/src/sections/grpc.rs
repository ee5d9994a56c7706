//! Measures unary calls of a tonic service with and without the layer, to show the cost that the
//! layer adds to a call.

use std::{
    net::SocketAddr,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use tokio::{net::TcpListener, runtime::Runtime};
use tokio_stream::wrappers::TcpListenerStream;
use tollgate::{Limiter, MemoryStore, Policy, Quota};
use tollgate_examples_grpc::{
    Greeting,
    helloworld::{HelloRequest, greeter_client::GreeterClient, greeter_server::GreeterServer},
};
use tollgate_tonic::{
    key::PeerIp,
    messages::{MessageCharge, MessageLayer},
};
use tonic::{
    Code, Status,
    service::Routes,
    transport::{Channel, Endpoint, Server},
};

use crate::{
    load, machine,
    pace::Pace,
    report::{Findings, Table, figure},
    rounds::{Case, alternate},
};

const PLENTY: Policy = Policy::token_bucket(
    "plenty",
    Quota::per_second(1_000_000).with_burst(1_000_000_000),
);
const SCARCE: Policy = Policy::token_bucket("scarce", Quota::per_day(1));

/// Sets the number of calls in flight on the connection.
const CALLS: usize = 32;

/// Stores the results of one turn.
struct Turn {
    per_second: f64,
    cpu_us: f64,
}

pub(crate) fn run(pace: &Pace) -> Findings {
    let runtime = load::runtime();
    let limit =
        |policy| tollgate_tonic::builder(Limiter::new(MemoryStore::new(), policy), PeerIp::new());
    let cases = vec![
        (
            "no layer",
            Code::Ok,
            serve(&runtime, tower_layer::Identity::new()),
        ),
        (
            "tollgate, admitted",
            Code::Ok,
            serve(&runtime, limit(PLENTY).build()),
        ),
        (
            "tollgate, denied",
            Code::ResourceExhausted,
            serve(&runtime, limit(SCARCE).build()),
        ),
        (
            "tollgate, admitted, messages charged",
            Code::Ok,
            serve(
                &runtime,
                MessageLayer::new(limit(PLENTY), MessageCharge::both()),
            ),
        ),
    ];
    let runtime = &runtime;
    let cases = cases.into_iter().map(|(name, code, address)| {
        let client = runtime.block_on(connect(address));
        if code != Code::Ok {
            // The first call is admitted. It uses up the quota, so that the measured calls are
            // denied.
            runtime.block_on(call(client.clone()));
        }
        Case::new(name, move |time| turn(runtime, &client, code, time))
    });
    let series = alternate(pace.load, cases.collect());

    let about = format!(
        "`SayHello` over one connection without TLS, with {CALLS} calls in flight. The client and the server share a \
         core. Counts are kept in process. The CPU time is the sum of the client and the server, per call. A denied \
         call runs no handler and sends one frame less, but its status has to be encoded and decoded."
    );
    let heads = [
        "",
        "calls/s",
        "calls/s, to no layer",
        "CPU µs per call",
        "CPU, to no layer",
    ];
    let mut table = Table::new("gRPC, unary calls", about, &heads);
    for one in &series {
        table.row([
            one.name.clone(),
            figure(one.median(|turn| turn.per_second)),
            figure(one.ratio(&series[0], |turn| turn.per_second)),
            figure(one.median(|turn| turn.cpu_us)),
            figure(one.ratio(&series[0], |turn| turn.cpu_us)),
        ]);
    }
    Findings {
        tables: vec![table],
        ..Findings::default()
    }
}

/// Starts a server on a free port, which runs until the bench ends.
fn serve<L, B>(runtime: &Runtime, layer: L) -> SocketAddr
where
    L: tower_layer::Layer<Routes> + Clone + Send + 'static,
    L::Service: tower_service::Service<
            http::Request<tonic::body::Body>,
            Response = http::Response<B>,
            Error = std::convert::Infallible,
            Future: Send,
        > + Clone
        + Send
        + 'static,
    B: http_body::Body<Data = bytes::Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>>
        + Send
        + 'static,
{
    let listener = runtime
        .block_on(TcpListener::bind("127.0.0.1:0"))
        .expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let router = Server::builder()
        .layer(layer)
        .add_service(GreeterServer::new(Greeting));
    runtime.spawn(router.serve_with_incoming(TcpListenerStream::new(listener)));
    address
}

async fn connect(address: SocketAddr) -> GreeterClient<Channel> {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("an address");
    GreeterClient::new(endpoint.connect().await.expect("the server is up"))
}

async fn call(mut client: GreeterClient<Channel>) -> Status {
    let request = HelloRequest {
        name: "Ada".to_owned(),
    };
    client
        .say_hello(request)
        .await
        .err()
        .unwrap_or_else(|| Status::ok(""))
}

/// Makes calls for about `time`.
///
/// # Panics
///
/// When a call does not end with `code`.
fn turn(runtime: &Runtime, client: &GreeterClient<Channel>, code: Code, time: Duration) -> Turn {
    let calls = AtomicU64::new(0);
    let (started, cpu) = (Instant::now(), machine::own_cpu());
    runtime.block_on(async {
        let caller = async || {
            while started.elapsed() < time {
                let status = call(client.clone()).await;
                assert_eq!(
                    status.code(),
                    code,
                    "a call ended with another code: {status:?}"
                );
                calls.fetch_add(1, Ordering::Relaxed);
            }
        };
        futures_util::future::join_all((0..CALLS).map(|_| caller())).await;
    });
    let (elapsed, cpu) = (started.elapsed(), machine::own_cpu() - cpu);
    let calls = calls.into_inner() as f64;
    Turn {
        per_second: calls / elapsed.as_secs_f64(),
        cpu_us: cpu.as_secs_f64() * 1e6 / calls,
    }
}
