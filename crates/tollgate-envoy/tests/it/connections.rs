//! Clients that hold connections, and those that are slow.

use std::time::Duration;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};
use tollgate_envoy::{
    Component, GrpcListen,
    proto::ratelimit::{
        rate_limit_response::Code, rate_limit_service_client::RateLimitServiceClient,
    },
};
use tollgate_tests::{
    RateLimitService,
    rate_limit_service::{get, idle_connections},
    wait,
};
use tonic::transport::{Channel, Endpoint};
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};

use crate::{
    program::{RULES, decide},
    support::{LIMIT, Running, http, service, tenant},
};

/// The time after which an idle connection is closed, with some more for the way.
const IDLE: Duration = Duration::from_secs(2_000);

/// Starts the program with 64 descriptors.
async fn with_few_descriptors(arguments: &[&str]) -> RateLimitService {
    let service = RateLimitService::start_with_descriptors(RULES, arguments, 64);
    let answers = async || {
        get(service.place("HTTP"), "/healthcheck")
            .await
            .is_ok_and(|it| it.starts_with("HTTP/1.1 200"))
    };
    wait::until_async("a healthy service", LIMIT, answers).await;
    service
}

async fn grpc(service: &RateLimitService) -> Channel {
    Endpoint::from_shared(format!("http://{}", service.grpc()))
        .unwrap()
        .connect()
        .await
        .unwrap()
}

#[tokio::test]
async fn a_flood_of_one_port_leaves_the_others_answering() {
    let mut service = with_few_descriptors(&[]).await;
    let flood = idle_connections(service.grpc(), 90).await.unwrap();
    service
        .process()
        .wait_for_line("further connections wait until one ends");
    for _ in 0..20 {
        let answer = timeout(LIMIT, http(service.place("HTTP"), "GET /healthcheck", "")).await;
        assert_eq!(answer.expect("HTTP answers").0, 200);
    }
    assert_eq!(service.counter("ratelimit_server.accept_error").await, 0);
    assert!(service.counter("ratelimit_server.connection_limit").await > 0);
    drop(flood);
    let answer = timeout(LIMIT, decide(&grpc(&service).await)).await;
    assert_eq!(answer.expect("gRPC answers").unwrap().0, Code::Ok);
}

#[tokio::test]
async fn the_end_of_the_descriptors_is_counted_and_logged_once() {
    let mut service = with_few_descriptors(&["--max-connections=1000"]).await;
    let flood = idle_connections(service.grpc(), 90).await.unwrap();
    service
        .process()
        .wait_for_line("connections cannot be accepted");
    drop(flood);
    let answer = timeout(LIMIT, decide(&grpc(&service).await)).await;
    assert_eq!(answer.expect("gRPC answers").unwrap().0, Code::Ok);
    let errors = service.counter("ratelimit_server.accept_error").await;
    // A loop without a pause comes to a hundred thousand in a second.
    assert!((1..1_000).contains(&errors), "{errors}");
    let output = service.process().output();
    let lines = output
        .matches("connections cannot be accepted port=\"gRPC\"")
        .count();
    assert_eq!(lines, 1, "{output}");
}

/// The clock jumps to the next timer when everything waits.
#[tokio::test(start_paused = true)]
async fn idle_connections_are_closed_and_calls_that_last_have_a_grace() {
    let server = Running::start(service()).await;
    let GrpcListen::Tcp(host, port) = &server.grpc else {
        panic!("it is not a Unix socket")
    };
    let address = format!("{host}:{port}").parse().unwrap();
    for mut stream in idle_connections(address, 3).await.unwrap() {
        let mut read = Vec::new();
        timeout(IDLE, stream.read_to_end(&mut read))
            .await
            .expect("the server closes it")
            .unwrap();
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
    let asked = HealthCheckRequest {
        service: "ratelimit".to_owned(),
    };
    let mut watch = health.watch(asked).await.unwrap().into_inner();
    assert_eq!(
        watch.message().await.unwrap().unwrap().status(),
        ServingStatus::Serving
    );
    timeout(IDLE, watch.message()).await.unwrap_err();
    server.health.set(Component::Store, false).await;
    assert_eq!(
        watch.message().await.unwrap().unwrap().status(),
        ServingStatus::NotServing
    );
}

#[tokio::test(start_paused = true)]
async fn a_time_of_zero_and_the_longest_one_are_no_limit_of_a_connection() {
    for time in [Duration::ZERO, Duration::MAX] {
        let server = Running::start_with(service(), |server| {
            server.max_connection_age(time, time).idle_timeout(time)
        })
        .await;
        let stream = TcpStream::connect(server.grpc.to_string()).await.unwrap();
        let (mut client, mut connection) = h2::client::handshake(stream).await.unwrap();
        let request = http::Request::post("http://test/none").body(()).unwrap();
        let (response, _) = client.send_request(request, true).unwrap();
        let answered = async {
            drop(response.await.unwrap());
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = answered => {}
            ended = timeout(IDLE, &mut connection) => {
                assert!(ended.is_err(), "{time:?}: {ended:?}");
            }
        }
    }
    // The call goes on after the age of its connection.
    let age = Duration::from_secs(100);
    let server = Running::start_with(service(), |server| {
        server.max_connection_age(age, Duration::ZERO)
    })
    .await;
    let mut health = HealthClient::new(server.channel().await);
    let asked = HealthCheckRequest {
        service: "ratelimit".to_owned(),
    };
    let mut watch = health.watch(asked).await.unwrap().into_inner();
    watch.message().await.unwrap().unwrap();
    timeout(IDLE, watch.message()).await.unwrap_err();
}

#[tokio::test(start_paused = true)]
async fn a_slow_request_over_http_is_given_up() {
    let server = Running::start(service()).await;
    for (sent, expected) in [
        (
            "POST /json HTTP/1.1\r\nhost: a\r\ncontent-length: 100\r\n\r\n{",
            "HTTP/1.1 408 ",
        ),
        ("GET /healthcheck HTTP/1.1\r\nhost:", ""),
        ("", ""),
    ] {
        let start = tokio::time::Instant::now();
        let mut stream = TcpStream::connect(server.page("HTTP")).await.unwrap();
        stream.write_all(sent.as_bytes()).await.unwrap();
        let mut read = String::new();
        let result = stream.read_to_string(&mut read).await;
        assert!(
            result.is_ok() && read.starts_with(expected),
            "{sent:?}: {result:?} {read:?}"
        );
        assert!(start.elapsed() < Duration::from_secs(120), "{sent:?}");
    }
}

/// The clock stands still while there is something to do.
#[tokio::test(start_paused = true)]
async fn silent_connections_give_way_when_a_port_is_full() {
    // One connection to the debug pages.
    let server = Running::start_with(service(), |server| server.max_connections(1)).await;
    for said in ["", "GET /stats HTTP/1.1\r\nhost:"] {
        let mut silent = TcpStream::connect(server.page("debug pages"))
            .await
            .unwrap();
        silent.write_all(said.as_bytes()).await.unwrap();
        let answer = timeout(LIMIT, http(server.page("debug pages"), "GET /stats", "")).await;
        assert_eq!(
            answer
                .unwrap_or_else(|_| panic!("{said:?} keeps the place"))
                .0,
            200
        );
    }
}

/// Sends a request over HTTP/1.1. Returns the first line of the answer, which has a short body.
async fn ask(stream: &mut TcpStream, path: &str) -> String {
    let text = format!("GET {path} HTTP/1.1\r\nhost: test\r\n\r\n");
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut answer = vec![0; 4_096];
    let length = stream.read(&mut answer).await.unwrap();
    let answer = String::from_utf8_lossy(&answer[..length]).into_owned();
    answer.lines().next().unwrap_or_default().to_owned()
}

#[tokio::test(start_paused = true)]
async fn a_full_port_answers_health_checks() {
    let server = Running::start_with(service(), |server| server.max_connections(2)).await;
    let mut held = Vec::new();
    for _ in 0..2 {
        let mut stream = TcpStream::connect(server.page("HTTP")).await.unwrap();
        assert_eq!(ask(&mut stream, "/healthcheck").await, "HTTP/1.1 200 OK");
        held.push(stream);
    }
    // One that says nothing waits too, and each one before the next check.
    let _silent = TcpStream::connect(server.page("HTTP")).await.unwrap();
    for _ in 0..5 {
        let answer = timeout(LIMIT, http(server.page("HTTP"), "GET /healthcheck", "")).await;
        assert_eq!(answer.unwrap(), (200, "OK".to_owned()));
        let answer = timeout(LIMIT, http(server.page("HTTP"), "POST /json", "{}")).await;
        assert_eq!(answer.unwrap().0, 503);
    }
    server.health.set(Component::Store, false).await;
    let answer = timeout(LIMIT, http(server.page("HTTP"), "GET /healthcheck", "")).await;
    assert_eq!(answer.unwrap().0, 500);
    // The connections that fill the port have kept their places.
    for stream in &mut held {
        let line = ask(stream, "/healthcheck").await;
        assert_eq!(line, "HTTP/1.1 500 Internal Server Error");
    }
    drop(held);
    let served = async { while http(server.page("HTTP"), "POST /json", "{}").await.0 == 503 {} };
    timeout(LIMIT, served)
        .await
        .expect("the port has places again");
}

#[tokio::test(start_paused = true)]
async fn a_connection_beyond_the_bound_is_served_when_another_one_ends() {
    let service = service();
    let server = Running::start_with(service.clone(), |server| server.max_connections(1)).await;
    let mut first = server.client().await;
    first.should_rate_limit(tenant("acme")).await.unwrap();
    let counters = service
        .metrics()
        .counters(service.limiter().rules().loads());
    assert!(
        counters.contains(&("ratelimit_server.connection_limit".to_owned(), 1)),
        "{counters:?}"
    );
    let endpoint = Endpoint::from_shared(format!("http://{}", server.grpc)).unwrap();
    let mut second = RateLimitServiceClient::new(endpoint.connect_lazy());
    let second = tokio::spawn(async move { second.should_rate_limit(tenant("acme")).await });
    // The first connection is served as before.
    for _ in 0..3 {
        first.should_rate_limit(tenant("acme")).await.unwrap();
    }
    assert!(!second.is_finished());
    drop(first);
    let answer = timeout(LIMIT, second)
        .await
        .unwrap()
        .unwrap()
        .unwrap()
        .into_inner();
    assert_eq!(answer.overall_code(), Code::Ok);
}
