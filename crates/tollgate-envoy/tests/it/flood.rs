//! Clients that reset their calls, and those whose requests do not come whole.

use bytes::{Buf, Bytes};
use h2::{RecvStream, client::SendRequest};
use http::{Method, Request, Response};
use prost::Message;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinSet,
    time::timeout,
};
use tollgate_envoy::proto::ratelimit::rate_limit_response::Code;
use tonic::Code as Grpc;

use crate::support::{LIMIT, Running, service, tenant};

const PATH: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

// Types and flags of frames (RFC 9113).
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const CANCEL: [u8; 4] = [0, 0, 0, 8];
const ENHANCE_YOUR_CALM: u32 = 11;

/// A client of HTTP/2 that writes the frames of many calls at once, as they lie in the system's
/// memory after a pause of the server.
struct Frames {
    stream: TcpStream,
    written: Vec<u8>,
    read: Vec<u8>,
    next: u32,
}

impl Frames {
    async fn connect(server: &Running) -> Self {
        let mut client = Self {
            stream: TcpStream::connect(server.grpc.to_string()).await.unwrap(),
            written: b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
            read: Vec::new(),
            next: 1,
        };
        client.frame(SETTINGS, 0, 0, &[]);
        client
    }

    fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        self.written.extend(&length[1..]);
        self.written.extend([kind, flags]);
        self.written.extend(stream.to_be_bytes());
        self.written.extend(payload);
    }

    /// Begins a call. Returns its number.
    fn call(&mut self) -> u32 {
        // `POST` and `http` have numbers, and so have the names `:authority`, `:path` and
        // `content-type` (RFC 7541).
        let mut block = vec![0x83, 0x86];
        for (name, value) in [
            (&[0x01][..], "test"),
            (&[0x04], PATH),
            (&[0x0f, 0x10], "application/grpc"),
            (b"\0\x02te", "trailers"),
        ] {
            block.extend(name);
            block.push(u8::try_from(value.len()).unwrap());
            block.extend(value.as_bytes());
        }
        let number = self.next;
        self.next += 2;
        self.frame(HEADERS, END_HEADERS, number, &block);
        number
    }

    fn reset(&mut self, calls: u32) {
        for _ in 0..calls {
            let number = self.call();
            self.frame(RST_STREAM, 0, number, &CANCEL);
        }
    }

    async fn send(&mut self) {
        let written = std::mem::take(&mut self.written);
        self.stream.write_all(&written).await.unwrap();
    }

    /// Reads a frame. `None` when the server has closed the connection.
    async fn next(&mut self) -> Option<(u8, u8, u32, Vec<u8>)> {
        loop {
            if let Some((head, rest)) = self.read.split_at_checked(9) {
                let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8;
                let length = length | usize::from(head[2]);
                if rest.len() >= length {
                    let number = (&head[5..]).get_u32();
                    let frame = (head[3], head[4], number, rest[..length].to_vec());
                    self.read.drain(..9 + length);
                    return Some(frame);
                }
            }
            if self.stream.read_buf(&mut self.read).await.ok()? == 0 {
                return None;
            }
        }
    }

    /// Waits until a call has been answered.
    async fn answered(&mut self, call: u32) {
        loop {
            let (kind, flags, number, payload) = self.next().await.expect("it is answered");
            assert_ne!(kind, GOAWAY, "{payload:?}");
            if (kind, number) == (HEADERS, call) && flags & END_STREAM != 0 {
                return;
            }
        }
    }
}

/// Returns a request as it is sent, with its length.
fn framed() -> Bytes {
    let message = tenant("acme").encode_to_vec();
    let length = u32::try_from(message.len()).unwrap();
    [&[0][..], &length.to_be_bytes(), &message].concat().into()
}

#[tokio::test]
async fn calls_that_are_reset_end_no_other_call_of_their_connection() {
    let server = Running::start(service()).await;
    let mut client = Frames::connect(&server).await;
    let first = client.call();
    client.reset(1_000);
    client.frame(DATA, END_STREAM, first, &framed());
    client.send().await;
    client.answered(first).await;
    let second = client.call();
    client.frame(DATA, END_STREAM, second, &framed());
    client.send().await;
    client.answered(second).await;
}

#[tokio::test]
async fn resets_are_bounded_by_what_a_connection_may_have_open() {
    let server = Running::start_with(service(), |server| server.max_streams(50)).await;
    let mut client = Frames::connect(&server).await;
    client.reset(190);
    client.send().await;
    let call = client.call();
    client.frame(DATA, END_STREAM, call, &framed());
    client.send().await;
    client.answered(call).await;
    client.reset(1_000);
    client.send().await;
    let ended = async {
        loop {
            let (kind, _, _, payload) = client.next().await.expect("it says why it ends");
            if kind == GOAWAY {
                return (&payload[4..]).get_u32();
            }
        }
    };
    assert_eq!(timeout(LIMIT, ended).await.unwrap(), ENHANCE_YOUR_CALM);
}

/// Opens a connection.
async fn connect(server: &Running) -> SendRequest<Bytes> {
    let stream = TcpStream::connect(server.grpc.to_string()).await.unwrap();
    let (client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(async move { drop(connection.await) });
    client
}

fn call() -> Request<()> {
    Request::builder()
        .method(Method::POST)
        .uri(format!("http://test{PATH}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(())
        .unwrap()
}

/// Returns the status of a call that was refused.
fn refused(response: &Response<RecvStream>) -> Grpc {
    let status = response.headers().get("grpc-status");
    Grpc::from_bytes(status.map_or(b"none", |status| status.as_bytes()))
}

#[tokio::test]
async fn a_port_waits_for_the_rest_of_a_bounded_number_of_requests() {
    let server = Running::start_with(service(), |server| server.max_streams(10)).await;
    let (mut held, mut responses) = (Vec::new(), JoinSet::new());
    for _ in 0..10 {
        let mut client = connect(&server).await;
        for _ in 0..10 {
            client = client.ready().await.unwrap();
            let (response, body) = client.send_request(call(), false).unwrap();
            held.push(body);
            responses.spawn(response);
        }
    }
    // 40 of 100 have a place.
    for at in 0..60 {
        let response = timeout(LIMIT, responses.join_next()).await;
        let response = response.unwrap_or_else(|_| panic!("{at} were refused"));
        let response = response.unwrap().unwrap().unwrap();
        assert_eq!(refused(&response), Grpc::Unavailable);
    }
    let mut client = server.client().await;
    for _ in 0..3 {
        let response = client.should_rate_limit(tenant("acme")).await.unwrap();
        assert_eq!(response.into_inner().overall_code(), Code::Ok);
    }
    drop((held, responses));
    server.end().await.unwrap();
}

/// The clock jumps to the next timer when everything waits.
#[tokio::test(start_paused = true)]
async fn a_request_that_does_not_come_whole_is_given_up() {
    let server = Running::start(service()).await;
    let request = framed();
    for sent in [0, 3, request.len() - 1, request.len()] {
        let mut client = connect(&server).await.ready().await.unwrap();
        let (response, mut body) = client.send_request(call(), false).unwrap();
        body.send_data(request.slice(..sent), false).unwrap();
        let response = timeout(LIMIT, response).await;
        let response = response.unwrap_or_else(|_| panic!("{sent} bytes keep it"));
        assert_eq!(refused(&response.unwrap()), Grpc::DeadlineExceeded);
    }
}

#[tokio::test]
async fn the_parts_of_a_request_may_come_one_after_the_other() {
    let server = Running::start(service()).await;
    let request = framed();
    let mut client = connect(&server).await.ready().await.unwrap();
    let (response, mut body) = client.send_request(call(), false).unwrap();
    let (most, last) = request.split_at(request.len() - 1);
    for part in most.chunks(3) {
        body.send_data(Bytes::copy_from_slice(part), false).unwrap();
        // The server reads this part before the next one.
        let mut other = server.client().await;
        other.should_rate_limit(tenant("other")).await.unwrap();
    }
    body.send_data(Bytes::copy_from_slice(last), true).unwrap();
    let mut body = response.await.unwrap().into_body();
    assert!(body.data().await.unwrap().unwrap().len() > 5);
    let trailers = body.trailers().await.unwrap().unwrap();
    assert_eq!(trailers["grpc-status"], "0");
}
