//! Denied calls whose messages arrive after the status, on one connection.

use std::{io, net::SocketAddr, sync::mpsc};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
};
use tollgate::{Cost, Limiter};
use tollgate_tonic::{AsyncRateLimitInterceptor, RateLimitInterceptor};
use tollgate_tower::{drain::DrainLayer, key::Global};
use tonic::transport::Server;
use tonic_async_interceptor::async_interceptor;

use crate::support::*;

/// More calls than h2 allows that nothing has read the messages of, most often: 2100 to 3500.
const CALLS: usize = 3_000;

/// Far more calls, for the set-ups that most servers have.
const MANY_CALLS: usize = 10_000;

const MESSAGE: &[u8] = b"\0\0\0\0\x05\x0a\x03Ada";

/// The fields of a call: `:method` and `:scheme` by their numbers, then `:path`, `content-type` and
/// `te` (RFC 7541).
const FIELDS: &[u8] =
    b"\x83\x86\x04\x10/echo.Echo/Unary\x0f\x10\x10application/grpc\x00\x02te\x08trailers";

// Kinds of frames, a reason and flags (RFC 9113).
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const ENHANCE_YOUR_CALM: u8 = 11;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// A client that writes its frames itself: it sends messages also to calls that the server has
/// reset, as any client does whose messages are under way at that time.
struct Connection(BufReader<TcpStream>);

struct Frame {
    kind: u8,
    flags: u8,
    stream: u32,
    payload: Vec<u8>,
}

/// Counts the outcomes of denied calls.
#[derive(Debug, Default, PartialEq)]
struct Denials {
    answered: usize,
    reset: usize,
    /// The reason with which the server ended the connection.
    end: Option<u8>,
}

impl Connection {
    async fn open(server: SocketAddr) -> Self {
        let stream = TcpStream::connect(server).await.unwrap();
        // The frames are short, and follow each other.
        stream.set_nodelay(true).unwrap();
        let mut connection = Self(BufReader::new(stream));
        connection
            .0
            .get_mut()
            .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
            .await
            .unwrap();
        connection.send(SETTINGS, 0, 0, b"").await.unwrap();
        connection
    }

    async fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> io::Result<()> {
        let [_, length @ ..] = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let frame = [&length, &[kind, flags][..], &stream.to_be_bytes(), payload].concat();
        self.0.get_mut().write_all(&frame).await
    }

    async fn receive(&mut self) -> io::Result<Frame> {
        let mut head = [0; 9];
        self.0.read_exact(&mut head).await?;
        let [a, b, c, kind, flags, stream @ ..] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        self.0.read_exact(&mut payload).await?;
        Ok(Frame {
            kind,
            flags,
            stream: u32::from_be_bytes(stream),
            payload,
        })
    }

    /// Sends the head of a call, and its message after the status. Sets the end if there is no
    /// status.
    async fn call(&mut self, stream: u32, denials: &mut Denials) -> io::Result<()> {
        self.send(HEADERS, END_HEADERS, stream, FIELDS).await?;
        loop {
            let frame = self.receive().await?;
            match frame.kind {
                // Without a message, no other status than a denial ends a call.
                HEADERS if frame.stream == stream && frame.flags & END_STREAM != 0 => break,
                RST_STREAM => denials.reset += 1,
                GOAWAY => {
                    denials.end = frame.payload.get(7).copied();
                    return Err(io::ErrorKind::ConnectionAborted.into());
                }
                _ => {}
            }
        }
        denials.answered += 1;
        self.send(DATA, 0, stream, MESSAGE).await?;
        self.send(DATA, END_STREAM, stream, b"").await
    }
}

/// Makes denied unary calls, one after the other, until the server ends the connection. The message
/// of each call follows its status.
async fn denials_with_late_messages(server: SocketAddr, calls: usize) -> Denials {
    let (mut connection, mut denials) = (Connection::open(server).await, Denials::default());
    for stream in (1..).step_by(2).take(calls) {
        if let Err(error) = connection.call(stream, &mut denials).await {
            assert!(denials.end.is_some(), "{denials:?}: {error}");
            break;
        }
    }
    denials
}

/// Makes denied unary calls, one after the other. The server takes the message of each, which
/// follows its status.
async fn call_with_late_messages(server: SocketAddr, calls: usize) {
    let denials = denials_with_late_messages(server, calls).await;
    assert_eq!(
        denials,
        Denials {
            answered: calls,
            ..Denials::default()
        }
    );
}

/// Keeps a paused clock of tokio from moving, so that no message is too late to be read.
fn stopped_clock() -> mpsc::Sender<()> {
    let (running, receiver) = mpsc::channel();
    // The clock does not advance while a blocking task runs.
    tokio::task::spawn_blocking(move || receiver.recv());
    running
}

/// Returns a limiter of a frozen quota that is spent, without and with a store that is pending at
/// first.
async fn spent_limiters() -> [Limiter; 2] {
    let limiters = [limiter(TWO), remote_limiter(TWO)];
    for limiter in &limiters {
        assert!(
            limiter
                .check("all")
                .cost(Cost::new(2))
                .await
                .unwrap()
                .is_allowed()
        );
    }
    limiters
}

#[tokio::test(start_paused = true)]
async fn the_connection_of_a_tonic_server_survives_messages_that_come_after_their_denial() {
    let _clock = stopped_clock();
    for (limiter, calls) in spent_limiters().await.into_iter().zip([MANY_CALLS, CALLS]) {
        let layer = tollgate_tonic::layer(limiter, Global);
        let server = serve_behind(layer).await;
        call_with_late_messages(server, calls).await;
    }
}

#[cfg(feature = "axum")]
#[tokio::test(start_paused = true)]
async fn the_connection_of_an_axum_server_survives_messages_that_come_after_their_denial() {
    let _clock = stopped_clock();
    for limiter in spent_limiters().await {
        let router = tonic::service::Routes::new(EchoServer::new(Echoing)).into_axum_router();
        let router = router.layer(tollgate_tonic::layer(limiter, Global));
        call_with_late_messages(serve_axum(router).await, CALLS).await;
    }
}

/// The documented set-up: a layer outside reads the messages that an interceptor does not reach.
#[tokio::test(start_paused = true)]
async fn the_connection_survives_messages_that_come_after_an_interceptor_denied_them_behind_a_layer_that_drains()
 {
    let _clock = stopped_clock();
    let [local, remote] = spent_limiters().await;
    let interceptor = RateLimitInterceptor::new(local, Global).unwrap();
    let mut server = Server::builder().layer(DrainLayer::new());
    let server =
        serve(server.add_service(EchoServer::with_interceptor(Echoing, interceptor))).await;
    call_with_late_messages(server, MANY_CALLS).await;

    let checked = tollgate_tonic::builder(remote.clone(), Global)
        .shadow(true)
        .expose_decisions(true)
        .build();
    let mut server = Server::builder().layer(DrainLayer::new()).layer(checked);
    let service = EchoServer::with_interceptor(Echoing, RateLimitInterceptor::after_layer());
    call_with_late_messages(serve(server.add_service(service)).await, CALLS).await;

    let interceptor = AsyncRateLimitInterceptor::new(remote, Global);
    let mut server = Server::builder()
        .layer(DrainLayer::new())
        .layer(async_interceptor(interceptor));
    call_with_late_messages(
        serve(server.add_service(EchoServer::new(Echoing))).await,
        CALLS,
    )
    .await;
}

/// The other documented set-up: a connection survives one late message for each 512 bytes of its
/// window.
#[tokio::test]
async fn behind_an_interceptor_alone_the_documented_window_of_the_connection_holds_as_many_late_messages()
 {
    let [limiter, _] = spent_limiters().await;
    let denials = async |window, calls| {
        let interceptor = RateLimitInterceptor::new(limiter.clone(), Global).unwrap();
        let mut server = Server::builder().initial_connection_window_size(window);
        let server =
            serve(server.add_service(EchoServer::with_interceptor(Echoing, interceptor))).await;
        denials_with_late_messages(server, calls).await
    };
    let Denials { answered, end, .. } = denials(Some(512 * MANY_CALLS as u32), MANY_CALLS).await;
    assert_eq!((answered, end), (MANY_CALLS, None));
    // So the window is what holds them. With the least one, nearly each connection ends before: how
    // the server's frames and the client's messages cross decides when.
    for _ in 0..10 {
        if let Denials {
            answered,
            end: Some(reason),
            ..
        } = denials(Some(65_535), 10 * MANY_CALLS).await
        {
            assert!(answered < 10 * MANY_CALLS, "{answered}");
            assert_eq!(reason, ENHANCE_YOUR_CALM);
            return;
        }
    }
    panic!("ten connections with the least window took all late messages");
}
