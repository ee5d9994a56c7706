//! Rejected requests whose bodies arrive after the response, over connections of HTTP/1.1.

use std::{net::SocketAddr, time::Duration};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{DefaultBodyLimit, Request, State},
    middleware::map_response,
    response::{IntoResponse, Response},
    routing::{get, post},
};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
    task::yield_now,
};
use tollgate::{
    Cost, Decision, Limiter, MemoryStore, Store,
    permits::{Concurrency, ConcurrencyLimiter, Permit},
    store::{Check, CheckFuture, StoreFuture},
};
use tollgate_tower::{
    ConcurrencyLayer, HandlerLimiter, RateLimitLayer, Rejected,
    drain::DrainLayer,
    key::{Global, Header},
};

use crate::{
    gates::Door,
    support::{ONE, StoppedClock, serve, still},
};

/// Answers after other tasks had their turn, while the clock stands still.
struct Remote(MemoryStore);

impl Store for Remote {
    fn check(&self, check: Check<'_>) -> CheckFuture {
        let answer = self.0.check(check);
        StoreFuture::pending(async {
            yield_now().await;
            answer.await
        })
    }

    fn refund(&self, check: Check<'_>, decision: Option<&Decision>) -> StoreFuture<()> {
        self.0.refund(check, decision)
    }

    fn reset(&self, check: Check<'_>) -> StoreFuture<()> {
        self.0.reset(check)
    }
}

/// Each path rejects every request, with this status.
pub(crate) const REJECTIONS: [(&str, u16); 8] = [
    ("/in-process", 429),
    ("/remote", 429),
    ("/without-key", 400),
    ("/reserving", 429),
    ("/permits", 429),
    ("/permits-without-key", 400),
    ("/own-gate", 503),
    ("/handler", 429),
];

/// Serves the paths of [`REJECTIONS`], and `/open` without a limit.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    _held: Permit,
}

impl Server {
    pub(crate) async fn start() -> Self {
        let store = still();
        let [local, remote] = [
            Limiter::new(store.clone(), ONE),
            Limiter::new(Remote(store), ONE),
        ];
        assert!(local.check("all").await.unwrap().is_allowed());
        let permits = ConcurrencyLimiter::new(MemoryStore::new(), Concurrency::new("permits", 1));
        let permit = permits.acquire("all").await.unwrap().unwrap();

        let answer = || post(|| async { "admitted" });
        let reserving = RateLimitLayer::builder(local.clone(), Global)
            .reserve(|_| Cost::ONE)
            .build();
        let handler: HandlerLimiter<Body> =
            RateLimitLayer::new(Limiter::new(still(), ONE), Global).handler_limiter(local.clone());
        let router = Router::new()
            .route(
                "/handler",
                post(refuse).layer(DrainLayer::new()).with_state(handler),
            )
            .route(
                "/in-process",
                answer().layer(RateLimitLayer::new(local.clone(), Global)),
            )
            .route(
                "/remote",
                answer().layer(RateLimitLayer::new(remote, Global)),
            )
            .route(
                "/without-key",
                answer().layer(RateLimitLayer::new(local, Header::new("x-api-key"))),
            )
            .route("/reserving", answer().layer(reserving))
            .route(
                "/permits",
                answer().layer(ConcurrencyLayer::new(permits.clone(), Global)),
            )
            .route(
                "/permits-without-key",
                answer().layer(ConcurrencyLayer::new(permits, Header::new("x-api-key"))),
            )
            .route("/own-gate", answer().layer(Door::closed()))
            .route(
                "/open",
                get(|| async { "open" })
                    .post(length)
                    .layer(DefaultBodyLimit::disable()),
            )
            .layer(map_response(hold_back));
        Self {
            address: serve(router).await,
            _held: permit,
        }
    }

    async fn connect(&self) -> Connection {
        Connection(BufReader::new(
            TcpStream::connect(self.address).await.unwrap(),
        ))
    }
}

/// Refuses a request before its body was read.
async fn refuse(
    State(limiter): State<HandlerLimiter<Body>>,
    request: Request,
) -> Result<Response, Rejected<Body>> {
    let (mut head, _unread) = request.into_parts();
    Ok(limiter
        .check(&mut head, "all")
        .await?
        .complete("admitted".into_response()))
}

async fn length(body: Bytes) -> String {
    body.len().to_string()
}

/// Holds a response back, so that a server that asks for the body after all asks before the
/// response.
async fn hold_back(response: Response) -> Response {
    for _ in 0..10 {
        yield_now().await;
    }
    response
}

/// A connection whose bytes the test writes and reads.
struct Connection(BufReader<TcpStream>);

impl Connection {
    async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.write_all(bytes.as_ref()).await.unwrap();
    }

    /// Sends the head of a request with a body.
    async fn send_head(&mut self, path: &str, fields: &str) {
        self.send(format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\n{fields}\r\n\r\n"
        ))
        .await;
    }

    /// Reads one response, and returns its status. `None` when the server has closed the
    /// connection.
    async fn status(&mut self) -> Option<u16> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            if self.0.read_until(b'\n', &mut head).await.unwrap_or(0) == 0 {
                return None;
            }
        }
        let head = String::from_utf8(head).unwrap().to_lowercase();
        let (line, fields) = head.split_once("\r\n").unwrap();
        let length = fields
            .lines()
            .find_map(|field| field.strip_prefix("content-length: "))
            .unwrap();
        self.0
            .read_exact(&mut vec![0; length.parse().unwrap()])
            .await
            .unwrap();
        Some(line.split(' ').nth(1).unwrap().parse().unwrap())
    }

    /// Asserts that the server answers another request of this connection.
    async fn assert_is_open(&mut self, path: &str) {
        self.send("GET /open HTTP/1.1\r\nhost: localhost\r\n\r\n")
            .await;
        assert_eq!(self.status().await, Some(200), "after {path}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_survives_rejections_whose_bodies_come_after_the_responses() {
    let _clock = StoppedClock::start();
    let server = Server::start().await;
    let (some, more) = ("a".repeat(4000), "b".repeat(6000));
    for (path, status) in REJECTIONS {
        let mut connection = server.connect().await;
        for (head, body) in [
            ("content-length: 10000", [&some, &more].map(String::as_str)),
            (
                "transfer-encoding: chunked",
                ["5\r\nhello\r\n", "0\r\nx-trailer: there\r\n\r\n"],
            ),
            ("content-length: 10000", [&more, &some].map(String::as_str)),
        ] {
            connection.send_head(path, head).await;
            assert_eq!(connection.status().await, Some(status), "{path}");
            for part in body {
                connection.send(part).await;
            }
            connection.assert_is_open(path).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_expects_100_continue_is_not_asked_for_its_body() {
    let _clock = StoppedClock::start();
    let server = Server::start().await;
    for (path, status) in REJECTIONS {
        let mut connection = server.connect().await;
        connection
            .send_head(path, "content-length: 10000\r\nexpect: 100-continue")
            .await;
        assert_eq!(connection.status().await, Some(status), "{path}");
        assert_eq!(connection.status().await, None, "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_survives_a_rejection_with_a_long_body() {
    let _clock = StoppedClock::start();
    let server = Server::start().await;
    for (path, status) in REJECTIONS {
        let mut connection = server.connect().await;
        connection.send_head(path, "content-length: 10000000").await;
        connection.send(vec![b'a'; 10_000_000]).await;
        assert_eq!(connection.status().await, Some(status), "{path}");
        connection.assert_is_open(path).await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_response_to_a_body_that_is_too_long_comes_first_and_then_the_connection_ends() {
    let _clock = StoppedClock::start();
    let server = Server::start().await;
    for (path, status) in REJECTIONS {
        let mut connection = server.connect().await;
        connection
            .send_head(path, "content-length: 1000000000")
            .await;
        assert_eq!(connection.status().await, Some(status), "{path}");
        while connection.0.write_all(&[b'a'; 65536]).await.is_ok() {}
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_whose_body_does_not_come_is_closed_at_the_time_limit() {
    let clock = StoppedClock::start();
    let server = Server::start().await;
    let mut connection = server.connect().await;
    connection
        .send_head("/in-process", "content-length: 10000")
        .await;
    assert_eq!(connection.status().await, Some(429));
    connection.send("some").await;
    clock.advance(Duration::from_secs(2)).await;
    assert_eq!(connection.status().await, None);
}
