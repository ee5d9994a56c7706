//! Starts servers in this process, and makes requests.

use std::time::Duration;

use tokio::{sync::oneshot, task::JoinHandle};
use tollgate::MemoryStore;
use tollgate_envoy::{
    Component, GrpcListen, Health, RateLimitService, Server, ServerBuilder, ServerError,
    proto::ratelimit::{
        RateLimitDescriptor, RateLimitRequest, rate_limit_descriptor::Entry,
        rate_limit_service_client::RateLimitServiceClient,
    },
};
use tollgate_rules::{Compat, Format, RuleLimiter, RuleSet, Rules};
use tonic::transport::{Channel, Endpoint};

/// The longest time that a test waits for a condition.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

pub(crate) const RULES: &str = "
domain: shop
descriptors:
  - {key: tenant, rate_limit: {unit: day, requests_per_unit: 10}}
  - {key: tenant, value: internal}
  - {key: tenant, value: free, rate_limit: {unlimited: true}}
  - {key: tenant, value: once, rate_limit: {name: once, unit: day, requests_per_unit: 1}}
  - {key: route, value: /never, rate_limit: {unit: minute, requests_per_unit: 0}}
  - {key: route, value: /burst, rate_limit: {name: burst, quota: 60/h burst 2}}
";

/// Returns rules of a text.
pub(crate) fn rules(text: &str, compat: Compat) -> Rules {
    Rules::new(
        RuleSet::builder()
            .compat(compat)
            .parse(text, Format::Yaml)
            .unwrap(),
    )
}

/// Returns a limiter in the memory of the test.
pub(crate) fn limiter(text: &str, compat: Compat) -> RuleLimiter {
    RuleLimiter::new(rules(text, compat), MemoryStore::new())
}

/// Returns a service in native mode.
pub(crate) fn service() -> RateLimitService {
    RateLimitService::new(limiter(RULES, Compat::Native))
}

/// Returns a descriptor with one entry.
pub(crate) fn descriptor(key: &str, value: &str) -> RateLimitDescriptor {
    let entry = Entry {
        key: key.to_owned(),
        value: value.to_owned(),
    };
    RateLimitDescriptor {
        entries: vec![entry],
        ..RateLimitDescriptor::default()
    }
}

/// Returns a request of the domain `shop`.
pub(crate) fn request(
    descriptors: impl IntoIterator<Item = RateLimitDescriptor>,
) -> RateLimitRequest {
    RateLimitRequest {
        domain: "shop".to_owned(),
        descriptors: descriptors.into_iter().collect(),
        hits_addend: 0,
    }
}

pub(crate) fn tenant(name: &str) -> RateLimitRequest {
    request([descriptor("tenant", name)])
}

/// A server in this process.
pub(crate) struct Running {
    pub(crate) grpc: GrpcListen,
    pages: Vec<(&'static str, std::net::SocketAddr)>,
    pub(crate) health: Health,
    pub(crate) end: Option<oneshot::Sender<()>>,
    pub(crate) served: JoinHandle<Result<(), ServerError>>,
}

impl Running {
    /// Starts a healthy server on free ports.
    pub(crate) async fn start(service: RateLimitService) -> Self {
        Self::start_with(service, |server| server).await
    }

    pub(crate) async fn start_with(
        service: RateLimitService,
        options: impl FnOnce(ServerBuilder) -> ServerBuilder,
    ) -> Self {
        let health = Health::new().await;
        health.set(Component::Store, true).await;
        health.set(Component::Rules, true).await;
        let server = Server::builder(service, health.clone())
            .grpc(GrpcListen::Tcp("127.0.0.1".to_owned(), 0));
        let server = server.http("127.0.0.1", 0).debug("127.0.0.1", 0);
        let server = options(server).bind().await.unwrap();
        let (end, ended) = oneshot::channel();
        let (grpc, pages) = (server.grpc().clone(), server.pages().collect());
        let served = tokio::spawn(server.run(async { drop(ended.await) }));
        Self {
            grpc,
            pages,
            health,
            end: Some(end),
            served,
        }
    }

    /// Returns the address of a page.
    pub(crate) fn page(&self, what: &str) -> std::net::SocketAddr {
        self.pages.iter().find(|(name, _)| *name == what).unwrap().1
    }

    pub(crate) async fn channel(&self) -> Channel {
        Endpoint::from_shared(format!("http://{}", self.grpc))
            .unwrap()
            .connect()
            .await
            .unwrap()
    }

    pub(crate) async fn client(&self) -> RateLimitServiceClient<Channel> {
        RateLimitServiceClient::new(self.channel().await)
    }

    /// Ends the server, and waits until it has ended.
    pub(crate) async fn end(mut self) -> Result<(), ServerError> {
        drop(self.end.take());
        self.served.await.unwrap()
    }
}

/// Sends a request over HTTP/1.1 on a connection of its own. Returns the status and the body.
pub(crate) async fn http(
    address: impl tokio::net::ToSocketAddrs,
    head: &str,
    body: &str,
) -> (u16, String) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let length = body.len();
    let text = format!(
        "{head} HTTP/1.1\r\nhost: test\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (
        head.split(' ').nth(1).unwrap().parse().unwrap(),
        body.to_owned(),
    )
}
