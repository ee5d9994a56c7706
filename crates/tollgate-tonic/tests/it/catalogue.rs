//! A table of hostile and unusual inputs, sent frame by frame over a real connection, and the
//! status of each call.
//!
//! Every key has a quota of one call. So two calls that end with OK and RESOURCE_EXHAUSTED had the
//! same key, and two calls that end with OK had different keys.

use std::net::SocketAddr;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request};
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tollgate::{Key, KeySecret, Policy, Quota};
use tollgate_tonic::key::{Metadata, RpcMethod, RpcService};
use tollgate_tower::{
    KeyExtractor,
    key::{Extraction, PeerIp},
    key_fn,
};
use tonic::transport::{Endpoint, Server};

use crate::support::*;

/// Part of some inputs. No response may contain it.
const SECRET: &str = "secret-from-the-client";

const OK: &str = "0";
const INVALID: &str = "3";
const EXHAUSTED: &str = "8";
/// Refused by HTTP/2, before the layer sees the call.
const REFUSED: &str = "refused";
const UNKNOWN_METHOD: &str = "12";

const SAME_KEY: [&str; 2] = [OK, EXHAUSTED];
const DIFFERENT_KEYS: [&str; 2] = [OK, OK];

/// Selects the key extractor of a server.
#[derive(Clone, Copy, Debug)]
enum By {
    Ascii,
    Binary,
    Two,
    Peer,
    Method,
    Service,
}

impl KeyExtractor for By {
    fn extract(&self, parts: &http::request::Parts) -> Extraction {
        match self {
            Self::Ascii => Metadata::new("x-api-key").extract(parts),
            Self::Binary => Metadata::new("id-bin").extract(parts),
            Self::Two => (Metadata::new("x-api-key"), Metadata::new("id-bin")).extract(parts),
            Self::Peer => PeerIp.extract(parts),
            Self::Method => RpcMethod.extract(parts),
            Self::Service => RpcService.extract(parts),
        }
    }
}

fn layer(by: By) -> tollgate_tower::RateLimitLayer<By, tollgate_tonic::GrpcStatus> {
    let one = Policy::token_bucket("one", Quota::per_hour(1));
    tollgate_tonic::layer(limiter(one), by)
}

/// Describes the headers of a call.
#[derive(Clone, Debug)]
struct Call {
    path: String,
    metadata: Vec<(&'static str, Vec<u8>)>,
    content_type: &'static str,
    has_authority: bool,
}

impl Call {
    fn new() -> Self {
        let (path, content_type) = ("/echo.Echo/Unary".to_owned(), "application/grpc");
        Self {
            path,
            metadata: Vec::new(),
            content_type,
            has_authority: true,
        }
    }

    fn with(mut self, name: &'static str, value: impl AsRef<[u8]>) -> Self {
        self.metadata.push((name, value.as_ref().to_vec()));
        self
    }

    fn to(path: &str) -> Self {
        Self {
            path: path.to_owned(),
            ..Self::new()
        }
    }

    fn request(&self, server: SocketAddr) -> Request<()> {
        let origin = if self.has_authority {
            format!("http://{server}")
        } else {
            String::new()
        };
        let mut request = Request::post(format!("{origin}{}", self.path))
            .header("content-type", self.content_type);
        for (name, value) in &self.metadata {
            request = request.header(*name, HeaderValue::from_bytes(value).unwrap());
        }
        request.body(()).unwrap()
    }
}

/// Makes a call. Returns the gRPC status, or the HTTP status, or `REFUSED`; and the headers and
/// trailers.
async fn outcome(server: SocketAddr, call: &Call) -> (String, HeaderMap) {
    let (response, mut body) = http2(server)
        .await
        .send_request(call.request(server), false)
        .unwrap();
    // Fails when the server has refused the call already.
    let _ = body.send_data(Bytes::from_static(&[0; 5]), true);
    let mut response = match response.await {
        Ok(response) => response,
        Err(_) => return (REFUSED.to_owned(), HeaderMap::new()),
    };
    while let Some(Ok(data)) = response.body_mut().data().await {
        let _ = response
            .body_mut()
            .flow_control()
            .release_capacity(data.len());
    }
    let mut headers = response.headers().clone();
    headers.extend(
        response
            .body_mut()
            .trailers()
            .await
            .ok()
            .flatten()
            .unwrap_or_default(),
    );
    let status = match headers
        .get("grpc-status")
        .map(|status| status.to_str().unwrap())
    {
        Some(status) => status.to_owned(),
        None if response.status() == http::StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => {
            REFUSED.to_owned()
        }
        None => format!("HTTP {}", response.status().as_u16()),
    };
    (status, headers)
}

/// The name of an input, the key extractor, the calls one after the other, and the status of each.
type Row = (&'static str, By, Vec<Call>, Vec<&'static str>);

fn rows() -> Vec<Row> {
    let rows = [ascii(), binary(), paths(), others()];
    rows.into_iter().flatten().collect()
}

fn ascii() -> Vec<Row> {
    let key = |value: &[u8]| Call::new().with("x-api-key", value);
    let long =
        |bytes: usize, last: &str| key(format!("{}{last}", "x".repeat(bytes - 1)).as_bytes());
    let planted = |bytes: &[u8]| key(&[SECRET.as_bytes(), bytes].concat());
    vec![
        ("no metadata", By::Ascii, vec![Call::new()], vec![INVALID]),
        ("an empty value", By::Ascii, vec![key(b"")], vec![INVALID]),
        (
            "a blank value",
            By::Ascii,
            vec![key(b" \t ")],
            vec![INVALID],
        ),
        (
            "a value in two entries",
            By::Ascii,
            vec![key(b"a").with("x-api-key", "a")],
            vec![INVALID],
        ),
        (
            "two values in one entry",
            By::Ascii,
            vec![key(b"a,b"), key(b"a")],
            DIFFERENT_KEYS.into(),
        ),
        (
            "blanks around a value",
            By::Ascii,
            vec![key(b" a "), key(b"a")],
            SAME_KEY.into(),
        ),
        (
            "no UTF-8",
            By::Ascii,
            vec![
                planted(b"\xff\xfe"),
                planted(b"\xff\xfe"),
                planted(b"\xff\xff"),
            ],
            vec![OK, EXHAUSTED, OK],
        ),
        // The server accepts at most 16 KiB of headers.
        (
            "64 KiB",
            By::Ascii,
            vec![long(64 << 10, "a")],
            vec![REFUSED],
        ),
    ]
}

fn binary() -> Vec<Row> {
    let id = |value: &str| Call::new().with("id-bin", value);
    let two = |one: &str, other: &str| Call::new().with("x-api-key", one).with("id-bin", other);
    vec![
        (
            "binary metadata, with and without padding",
            By::Binary,
            vec![id("//4="), id("//4")],
            SAME_KEY.into(),
        ),
        (
            "trailing bits that make no byte",
            By::Binary,
            vec![id("//4"), id("//5"), id("//8")],
            vec![OK, EXHAUSTED, OK],
        ),
        (
            "other bytes",
            By::Binary,
            vec![id("AAAA"), id("AAAB")],
            DIFFERENT_KEYS.into(),
        ),
        (
            "control bytes",
            By::Binary,
            vec![id("AAoN"), id("AAoN"), id("AAoO")],
            vec![OK, EXHAUSTED, OK],
        ),
        ("no base64", By::Binary, vec![id("%")], vec![INVALID]),
        (
            "base64 for URLs",
            By::Binary,
            vec![id("__4")],
            vec![INVALID],
        ),
        ("empty base64", By::Binary, vec![id("")], vec![INVALID]),
        (
            "two values in one entry of bytes",
            By::Binary,
            vec![id("AAAA,AAAA")],
            vec![INVALID],
        ),
        (
            "the text of the bytes is another key",
            By::Two,
            vec![two("//4", "AAAA"), two("AAAA", "//4")],
            DIFFERENT_KEYS.into(),
        ),
        (
            "a delimiter in a part",
            By::Two,
            vec![two("a", "Yjpj"), two("a:b", "Yw")],
            DIFFERENT_KEYS.into(),
        ),
    ]
}

fn paths() -> Vec<Row> {
    let mut rows = vec![
        (
            "one method",
            By::Method,
            vec![Call::new(), Call::new()],
            SAME_KEY.to_vec(),
        ),
        (
            "another method",
            By::Service,
            vec![Call::new(), Call::to("/echo.Echo/Server")],
            SAME_KEY.into(),
        ),
        (
            "a query",
            By::Method,
            vec![Call::new(), Call::to("/echo.Echo/Unary?a=b")],
            SAME_KEY.into(),
        ),
        ("no service", By::Method, vec![Call::to("/")], vec![INVALID]),
        (
            "no method",
            By::Method,
            vec![Call::to("/echo.Echo")],
            vec![INVALID],
        ),
        (
            "an empty method",
            By::Method,
            vec![Call::to("/echo.Echo/")],
            vec![INVALID],
        ),
    ];
    // These paths are not equal to the path of the method, so no handler is called.
    for (input, path) in [
        ("`//`", "//echo.Echo/Unary"),
        ("a slash at the end", "/echo.Echo/Unary/"),
        ("lower case", "/echo.echo/unary"),
        ("an escape", "/echo.Echo/%55nary"),
        ("a dot", "/./echo.Echo/Unary"),
    ] {
        rows.push((
            input,
            By::Peer,
            vec![Call::to(path), Call::new()],
            vec![UNKNOWN_METHOD, EXHAUSTED],
        ));
    }
    rows
}

fn others() -> Vec<Row> {
    let mut without_authority = Call::new();
    without_authority.has_authority = false;
    let mut json = Call::new();
    json.content_type = "application/json";
    vec![
        (
            "no authority",
            By::Peer,
            vec![without_authority.clone(), without_authority.clone()],
            SAME_KEY.into(),
        ),
        (
            "no authority and no key",
            By::Ascii,
            vec![without_authority],
            vec![INVALID],
        ),
        (
            "forwarding headers",
            By::Peer,
            vec![
                Call::new(),
                Call::new().with("x-forwarded-for", "203.0.113.7"),
            ],
            SAME_KEY.into(),
        ),
        ("no gRPC", By::Ascii, vec![json], vec!["HTTP 400"]),
    ]
}

#[tokio::test]
async fn every_input_ends_with_the_status_in_the_table() {
    let rows = rows();
    let mut wrong = Vec::new();
    for (input, by, calls, expected) in &rows {
        let server = serve(
            Server::builder()
                .layer(layer(*by))
                .add_service(EchoServer::new(Echoing)),
        )
        .await;
        let mut statuses = Vec::new();
        for call in calls {
            let (status, headers) = outcome(server, call).await;
            if format!("{headers:?}").contains(SECRET) {
                wrong.push(format!("{input}: the response contains the input"));
            }
            if status == EXHAUSTED && !headers.contains_key("grpc-status-details-bin") {
                wrong.push(format!("{input}: a denial has no details"));
            }
            statuses.push(status);
        }
        if statuses != *expected {
            wrong.push(format!("{input}: got {statuses:?}, expected {expected:?}"));
        }
    }
    println!("{} rows", rows.len());
    assert!(
        wrong.is_empty(),
        "{} of {}:\n{}",
        wrong.len(),
        rows.len(),
        wrong.join("\n")
    );
}

#[tokio::test]
async fn a_peer_address_on_a_unix_socket_is_an_internal_error() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let incoming = UnixListenerStream::new(UnixListener::bind(&path).unwrap());
    let server = Server::builder()
        .layer(layer(By::Peer))
        .add_service(EchoServer::new(Echoing));
    tokio::spawn(server.serve_with_incoming(incoming));
    let channel = Endpoint::from_shared(format!("unix://{}", path.display()))
        .unwrap()
        .connect()
        .await
        .unwrap();
    let status = EchoClient::new(channel)
        .unary(message("hello"))
        .await
        .unwrap_err();
    assert_eq!(status.code(), tonic::Code::Internal);
    assert_eq!(status.message(), "internal error");
}

#[tokio::test]
async fn a_key_from_a_closure_may_be_any_bytes() {
    let key = key_fn(|parts| {
        parts
            .headers
            .get("authorization")
            .map(|value| Key::bytes(value.as_bytes()))
    });
    let limiter = limiter(Policy::token_bucket("one", Quota::per_hour(1)));
    let server = Server::builder()
        .layer(tollgate_tonic::layer(limiter, key))
        .add_service(EchoServer::new(Echoing));
    let server = serve(server).await;
    for (value, expected) in [
        (&b"\xff"[..], OK),
        (b"\xff", EXHAUSTED),
        (b"\xfe", OK),
        (b"{\xff}", OK),
    ] {
        assert_eq!(
            outcome(server, &Call::new().with("authorization", value))
                .await
                .0,
            expected,
            "{value:?}"
        );
    }
}

#[test]
fn with_a_secret_the_key_is_a_digest_of_the_decoded_value() {
    let secret = KeySecret::new(b"secret");
    let request = Request::builder().header("id-bin", "//4").body(());
    let (parts, ()) = request.unwrap().into_parts();
    let key = Metadata::new("id-bin").secret(secret.clone());
    assert_eq!(
        key.extract(&parts).unwrap(),
        Some(Key::secret([0xff, 0xfe], &secret))
    );
}
