//! The end of the program.

use std::process::Command;

use tokio::{
    io::AsyncReadExt,
    net::{TcpListener, UnixStream},
    time::timeout,
};
use tollgate_envoy::{GrpcListen, proto::ratelimit::rate_limit_response::Code};
use tollgate_tests::{Process, wait};
use tonic::transport::Endpoint;
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};

use crate::{
    program::{Files, RULES, channel, command, decide, is_healthy, place, start, until_healthy},
    support::{LIMIT, Running, http, service},
};

/// Starts the program with these arguments, and waits until it is healthy.
async fn serve(files: &Files, arguments: &[&str]) -> Process {
    let mut command = command();
    command
        .arg("--rules")
        .arg(files.write("rules.yaml", RULES))
        .args(arguments);
    let process = start(command);
    until_healthy(&process).await;
    process
}

/// Sends a signal, and does not wait for its effect.
fn send(process: &Process, signal: &str) {
    let status = Command::new("kill")
        .args([signal, &process.pid().to_string()])
        .status()
        .unwrap();
    assert!(status.success());
}

#[tokio::test]
async fn at_the_end_the_health_fails_first_and_calls_are_waited_for() {
    let files = Files::new();
    let mut process = serve(&files, &[]).await;
    let http_place = place(&process, "HTTP");
    let mut client = HealthClient::new(channel(&process).await);
    // A watch is a call that lasts until the client ends it.
    let request = HealthCheckRequest {
        service: "ratelimit".to_owned(),
    };
    let mut watch = client.watch(request).await.unwrap().into_inner();
    assert_eq!(
        watch.message().await.unwrap().unwrap().status(),
        ServingStatus::Serving
    );
    let ending = tokio::task::spawn_blocking(move || {
        let status = process.terminate();
        (status, process.output())
    });
    assert_eq!(
        watch.message().await.unwrap().unwrap().status(),
        ServingStatus::NotServing
    );
    assert_eq!(http(http_place, "GET /healthcheck", "").await.0, 500);
    assert!(!ending.is_finished());
    drop((watch, client));
    let (status, output) = ending.await.unwrap();
    assert_eq!(status.code(), Some(0), "{output}");
}

#[tokio::test]
async fn clients_are_served_while_they_learn_that_the_health_has_failed() {
    for signal in ["-TERM", "-INT"] {
        let files = Files::new();
        let mut process = serve(&files, &["--drain-delay=1h"]).await;
        send(&process, signal);
        wait::until_async("a failed health", LIMIT, async || {
            !is_healthy(&process).await
        })
        .await;
        // On a new connection.
        let channel = channel(&process).await;
        assert_eq!(decide(&channel).await.unwrap(), (Code::Ok, 1), "{signal}");
        let request = HealthCheckRequest {
            service: "ratelimit".to_owned(),
        };
        let health = HealthClient::new(channel)
            .check(request)
            .await
            .unwrap()
            .into_inner();
        assert_eq!(health.status(), ServingStatus::NotServing);
        // A second signal does not wait.
        let status = tokio::task::spawn_blocking(move || process.terminate())
            .await
            .unwrap();
        assert_eq!(status.code(), Some(1), "{signal}");
    }
}

#[tokio::test]
async fn sigquit_ends_the_program_without_the_delay_and_in_order() {
    let files = Files::new();
    let socket = files.0.path().join("rls.sock");
    let uds = format!("--grpc-uds={}", socket.display());
    let mut process = serve(&files, &["--drain-delay=1h", &uds]).await;
    let status = tokio::task::spawn_blocking(move || process.quit())
        .await
        .unwrap();
    assert_eq!(status.code(), Some(0));
    assert!(!socket.exists());
}

#[tokio::test]
async fn the_socket_of_a_successor_stays_when_the_last_calls_have_ended() {
    let files = Files::new();
    let socket = files.0.path().join("rls.sock");
    let listen = GrpcListen::Unix(socket.clone());
    let mut old = Running::start_with(service(), |server| {
        server.grpc(listen.clone()).drain_timeout(LIMIT)
    })
    .await;
    let uri = format!("unix://{}", socket.display());
    let channel = Endpoint::from_shared(uri).unwrap().connect().await.unwrap();
    let mut client = HealthClient::new(channel);
    // A watch is a call that lasts until the client ends it.
    let request = HealthCheckRequest {
        service: "ratelimit".to_owned(),
    };
    let watch = client.watch(request).await.unwrap();
    drop(old.end.take());
    wait::until_async("a closed listener", LIMIT, async || {
        UnixStream::connect(&socket).await.is_err()
    })
    .await;
    let new = Running::start_with(service(), |server| server.grpc(listen.clone())).await;
    assert!(!old.served.is_finished());
    drop((watch, client));
    timeout(LIMIT, old.served).await.unwrap().unwrap().unwrap();
    UnixStream::connect(&socket).await.unwrap();
    new.end().await.unwrap();
    assert!(!socket.exists());
}

#[tokio::test]
async fn the_last_counters_reach_statsd() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let files = Files::new();
    let port = format!("--statsd-port={}", listener.local_addr().unwrap().port());
    let mut process = serve(
        &files,
        &[
            "--use-statsd",
            "--statsd-host=127.0.0.1",
            &port,
            "--stats-flush-interval=1h",
        ],
    )
    .await;
    // The first counters are sent at the start, and the next ones an hour later.
    let (mut stream, _) = timeout(LIMIT, listener.accept()).await.unwrap().unwrap();
    let mut first = String::new();
    while !first.contains("config_load_success:1|c\n") {
        let mut read = [0; 1_024];
        let length = timeout(LIMIT, stream.read(&mut read))
            .await
            .unwrap()
            .unwrap();
        assert!(length > 0, "{first}");
        first += std::str::from_utf8(&read[..length]).unwrap();
    }
    let channel = channel(&process).await;
    decide(&channel).await.unwrap();
    drop(channel);
    let ending = tokio::task::spawn_blocking(move || process.terminate());
    let mut last = String::new();
    stream.read_to_string(&mut last).await.unwrap();
    assert!(
        last.contains("ratelimit.service.rate_limit.shop.tenant.total_hits:1|c"),
        "{last}"
    );
    assert_eq!(ending.await.unwrap().code(), Some(0));
}
