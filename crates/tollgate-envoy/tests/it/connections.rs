//! Clients that hold connections, and those that are slow.

use std::{process::Command, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};
use tollgate_envoy::{
    Component,
    proto::ratelimit::{rate_limit_response::Code, rate_limit_service_client::RateLimitServiceClient},
};
use tollgate_tests::Process;
use tonic::transport::Endpoint;
use tonic_health::pb::{HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient};

use crate::{
    program::{Files, RULES, channel, command, decide, place, start, until_healthy},
    support::{LIMIT, Running, http, service, tenant},
};

/// The time after which an idle connection is closed, with some more for the way.
const IDLE: Duration = Duration::from_secs(2_000);

/// Starts the program with 64 descriptors.
async fn with_few_descriptors(files: &Files, arguments: &[&str]) -> Process {
    let program = command();
    let mut shell = Command::new("sh");
    shell.env_clear().envs(program.get_envs().filter_map(|(name, value)| Some((name, value?))));
    shell.args(["-c", "ulimit -n 64; exec \"$@\"", "sh"]).arg(program.get_program()).args(program.get_args());
    shell.arg("--rules").arg(files.write("rules.yaml", RULES)).args(arguments);
    let process = start(shell);
    until_healthy(&process).await;
    process
}

/// Opens connections of HTTP/2 that make no call.
async fn idle_connections(address: &str, count: usize) -> Vec<TcpStream> {
    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    let mut all = Vec::new();
    for _ in 0..count {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(PREFACE).await.unwrap();
        all.push(stream);
    }
    all
}

/// Returns a counter of the program.
async fn counter(process: &Process, name: &str) -> u64 {
    let (_, page) = http(place(process, "debug pages"), "GET /stats", "").await;
    let value = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    value.map_or(0, |value| value.parse().unwrap())
}

#[tokio::test]
async fn a_flood_of_one_port_leaves_the_others_answering() {
    let files = Files::new();
    let mut process = with_few_descriptors(&files, &[]).await;
    let flood = idle_connections(&place(&process, "gRPC"), 90).await;
    process.wait_for_line("further connections wait until one ends");
    for _ in 0..20 {
        let answer = timeout(LIMIT, http(place(&process, "HTTP"), "GET /healthcheck", "")).await;
        assert_eq!(answer.expect("HTTP answers").0, 200);
    }
    assert_eq!(counter(&process, "ratelimit_server.accept_error").await, 0);
    assert!(counter(&process, "ratelimit_server.connection_limit").await > 0);
    drop(flood);
    let answer = timeout(LIMIT, decide(&channel(&process).await)).await;
    assert_eq!(answer.expect("gRPC answers").unwrap().0, Code::Ok);
}

#[tokio::test]
async fn the_end_of_the_descriptors_is_counted_and_logged_once() {
    let files = Files::new();
    let mut process = with_few_descriptors(&files, &["--max-connections=1000"]).await;
    let flood = idle_connections(&place(&process, "gRPC"), 90).await;
    process.wait_for_line("connections cannot be accepted");
    drop(flood);
    let answer = timeout(LIMIT, decide(&channel(&process).await)).await;
    assert_eq!(answer.expect("gRPC answers").unwrap().0, Code::Ok);
    let errors = counter(&process, "ratelimit_server.accept_error").await;
    // A loop without a pause comes to a hundred thousand in a second.
    assert!((1..1_000).contains(&errors), "{errors}");
    let output = process.output();
    let lines = output.matches("connections cannot be accepted port=\"gRPC\"").count();
    assert_eq!(lines, 1, "{output}");
}

/// The clock jumps to the next timer when everything waits.
#[tokio::test(start_paused = true)]
async fn idle_connections_are_closed_and_calls_that_last_have_a_grace() {
    let server = Running::start(service()).await;
    for mut stream in idle_connections(&server.grpc.to_string(), 3).await {
        let mut read = Vec::new();
        timeout(IDLE, stream.read_to_end(&mut read)).await.expect("the server closes it").unwrap();
    }
    let stream = TcpStream::connect(server.grpc.to_string()).await.unwrap();
    let (mut client, mut connection) = h2::client::handshake(stream).await.unwrap();
    let request = http::Request::post("http://test/none").body(()).unwrap();
    let (response, _) = client.send_request(request, true).unwrap();
    let answered = async {
        let response = response.await.unwrap();
        drop(response);
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = answered => {}
        ended = timeout(IDLE, &mut connection) => ended.expect("the server closes it").unwrap(),
    }
    // A call that lasts has the grace of an old connection.
    let mut health = HealthClient::new(server.channel().await);
    let asked = HealthCheckRequest { service: "ratelimit".to_owned() };
    let mut watch = health.watch(asked).await.unwrap().into_inner();
    assert_eq!(watch.message().await.unwrap().unwrap().status(), ServingStatus::Serving);
    timeout(IDLE, watch.message()).await.unwrap_err();
    server.health.set(Component::Store, false).await;
    assert_eq!(watch.message().await.unwrap().unwrap().status(), ServingStatus::NotServing);
}

#[tokio::test(start_paused = true)]
async fn a_slow_request_over_http_is_given_up() {
    let server = Running::start(service()).await;
    for (sent, expected) in [
        ("POST /json HTTP/1.1\r\nhost: a\r\ncontent-length: 100\r\n\r\n{", "HTTP/1.1 408 "),
        ("GET /healthcheck HTTP/1.1\r\nhost:", ""),
        ("", ""),
    ] {
        let start = tokio::time::Instant::now();
        let mut stream = TcpStream::connect(server.page("HTTP")).await.unwrap();
        stream.write_all(sent.as_bytes()).await.unwrap();
        let mut read = String::new();
        let result = stream.read_to_string(&mut read).await;
        assert!(result.is_ok() && read.starts_with(expected), "{sent:?}: {result:?} {read:?}");
        assert!(start.elapsed() < Duration::from_secs(120), "{sent:?}");
    }
}

#[tokio::test]
async fn a_connection_beyond_the_bound_is_served_when_another_one_ends() {
    let service = service();
    let server = Running::start_with(service.clone(), |server| server.max_connections(1)).await;
    let mut first = server.client().await;
    first.should_rate_limit(tenant("acme")).await.unwrap();
    let counters = service.metrics().counters(service.limiter().rules().loads());
    assert!(counters.contains(&("ratelimit_server.connection_limit".to_owned(), 1)), "{counters:?}");
    let endpoint = Endpoint::from_shared(format!("http://{}", server.grpc)).unwrap();
    let mut second = RateLimitServiceClient::new(endpoint.connect_lazy());
    let second = tokio::spawn(async move { second.should_rate_limit(tenant("acme")).await });
    // The first connection is served as before.
    for _ in 0..3 {
        first.should_rate_limit(tenant("acme")).await.unwrap();
    }
    assert!(!second.is_finished());
    drop(first);
    let answer = timeout(LIMIT, second).await.unwrap().unwrap().unwrap().into_inner();
    assert_eq!(answer.overall_code(), Code::Ok);
}
