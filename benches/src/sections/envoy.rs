//! Measures the rate limit service for Envoy: calls per second beside a bare echo.

use std::{net::SocketAddr, time::Duration};

use tokio::{net::TcpListener, runtime::Runtime};
use tokio_stream::wrappers::TcpListenerStream;
use tollgate::{MemoryStore, RedisStore, Store};
use tollgate_envoy::{
    RateLimitService,
    proto::ratelimit::{
        RateLimitDescriptor, RateLimitRequest, RateLimitResponse,
        rate_limit_descriptor::Entry,
        rate_limit_response::{Code, DescriptorStatus},
        rate_limit_service_client::RateLimitServiceClient,
        rate_limit_service_server::{RateLimitService as Service, RateLimitServiceServer},
    },
};
use tollgate_rules::{Format, RuleLimiter, RuleSet, Rules};
use tonic::{
    Request, Response, Status,
    service::Routes,
    transport::{Channel, Endpoint, Server as GrpcServer},
};

use crate::{
    keys::{self, KEYS},
    load::{self, Answer, Contestant, Crowd, Decide, Load},
    pace::Pace,
    report::{Findings, Table, Target, figure},
    server::Server,
};

/// The limit is never used up.
const RULES: &str = "{domain: shop, descriptors: [{key: customer, rate_limit: {quota: 1000000/s burst 1000000000}}]}";

/// Sets how long a decision may take.
const DEADLINE: Duration = Duration::from_millis(50);

pub(crate) fn run(pace: &Pace) -> Findings {
    let server = Server::start();
    let runtime = load::runtime();
    let redis = runtime.block_on(RedisStore::connect(server.url()));
    let redis = redis.expect("the server is up");
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
    let contestants = [
        ("echo", echo()),
        (
            "tollgate, embedded store",
            service(MemoryStore::new(), DEADLINE),
        ),
        ("tollgate, Redis", service(redis, DEADLINE)),
    ]
    .map(|(name, routes)| {
        let client = runtime.block_on(Client::connect(serve(&runtime, routes)));
        Contestant::new(name, &runtime, None, client)
    });
    for streams in [64, 256] {
        let series = load::turns(&contestants, pace.load, Crowd::near(streams, KEYS));
        for one in &series {
            table.row([
                streams.to_string(),
                one.name.clone(),
                figure(one.median(Load::per_second)),
                figure(one.ratio(&series[0], Load::per_second)),
                figure(one.median(|load| load.client_us)),
                figure(one.median(|load| load.p50_us)),
                figure(one.median(|load| load.p99_us)),
            ]);
        }
        for (one, target) in series[1..].iter().zip([0.9, 0.8]) {
            let ratio = one.ratio(&series[0], Load::per_second);
            let measure = format!("Envoy, {}, {streams} streams, to an echo", one.name);
            findings.goal(measure, Target::AtLeast(target), ratio, " ×");
        }
    }
    findings.tables.push(table);
    findings
}

/// Returns a service that answers every request with the same response.
pub(super) fn echo() -> Routes {
    Routes::new(RateLimitServiceServer::new(Echo))
}

struct Echo;

#[tonic::async_trait]
impl Service for Echo {
    async fn should_rate_limit(
        &self,
        request: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        let status = DescriptorStatus {
            code: Code::Ok.into(),
            ..DescriptorStatus::default()
        };
        Ok(Response::new(RateLimitResponse {
            overall_code: Code::Ok.into(),
            statuses: vec![status; request.get_ref().descriptors.len()],
            ..RateLimitResponse::default()
        }))
    }
}

/// Returns the service, over this store.
pub(super) fn service(store: impl Store, deadline: Duration) -> Routes {
    let rules = RuleSet::parse(RULES, Format::Yaml).expect("the rules are right");
    let limiter = RuleLimiter::builder(Rules::new(rules), store)
        .deadline(deadline)
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

/// Calls the service, as Envoy does.
pub(super) struct Client(RateLimitServiceClient<Channel>);

impl Client {
    pub(super) async fn connect(address: SocketAddr) -> Self {
        let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("an address");
        let channel = endpoint.connect().await.expect("the server is up");
        Self(RateLimitServiceClient::new(channel))
    }

    /// Returns whether a request of this customer passes.
    pub(super) async fn call(&self, customer: usize) -> Result<bool, Status> {
        let entry = Entry {
            key: "customer".to_owned(),
            value: keys::all()[customer].clone(),
        };
        let descriptor = RateLimitDescriptor {
            entries: vec![entry],
            ..RateLimitDescriptor::default()
        };
        let request = RateLimitRequest {
            domain: "shop".to_owned(),
            descriptors: vec![descriptor],
            hits_addend: 1,
        };
        let response = self.0.clone().should_rate_limit(request).await?;
        Ok(response.into_inner().overall_code() == Code::Ok)
    }
}

impl Decide for Client {
    async fn decide(&self, customer: usize) -> Answer {
        Answer::by_store(self.call(customer).await.expect("the service answers"))
    }
}
