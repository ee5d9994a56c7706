//! The examples of gRPC.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    process::Command,
    thread,
    time::Instant,
};

use tokio::runtime::Runtime;
use tokio_stream::StreamExt;
use tollgate_examples_grpc::helloworld::{HelloRequest, greeter_client::GreeterClient};
use tollgate_tests::{Process, RedisServer, machine, ports};
use tonic::{
    Code,
    transport::{Channel, Endpoint},
};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
use tonic_reflection::pb::v1::{
    ServerReflectionRequest, server_reflection_client::ServerReflectionClient,
    server_reflection_request::MessageRequest, server_reflection_response::MessageResponse,
};
use tonic_types::StatusExt;

use crate::STANDSTILL;

/// Starts an example on a free port; it counts in `redis` when there is one.
fn start(name: &str, redis: Option<&RedisServer>) -> (Process, SocketAddr) {
    let address = SocketAddr::from(([127, 0, 0, 1], ports::free()));
    let mut command: Command = Process::example(name);
    command.env("LISTEN", address.to_string());
    if let Some(redis) = redis {
        command.env("REDIS_URL", redis.url());
    }
    (Process::start(command, "Listening on"), address)
}

async fn channel(address: SocketAddr) -> Channel {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("a URL");
    endpoint.connect().await.expect("the server listens")
}

fn ada() -> HelloRequest {
    HelloRequest {
        name: "Ada".to_owned(),
    }
}

/// Calls each server in turn. Returns the number of allowed calls, and the greatest number that the
/// limit allows.
async fn flood(clients: &mut [GreeterClient<Channel>], calls: usize) -> (usize, usize) {
    let began = Instant::now();
    let mut allowed = 0;
    for call in 0..calls {
        let at = call % clients.len();
        match clients[at].say_hello(ada()).await {
            Ok(reply) => {
                assert_eq!(reply.into_inner().message, "Hello Ada!");
                allowed += 1;
            }
            Err(status) => assert_eq!(status.code(), Code::ResourceExhausted, "{status}"),
        }
    }
    (
        allowed,
        10 + (began.elapsed().as_secs_f64() * 5.0).ceil() as usize,
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_limits_greetings_but_not_health_and_reflection() {
    let (mut server, address) = start("grpc_server", None);
    let channel = channel(address).await;
    let mut client = GreeterClient::new(channel.clone());

    let stream = client.say_hello_stream(ada()).await.unwrap().into_inner();
    let greetings: Vec<_> = stream.map(|it| it.unwrap().message).collect().await;
    assert_eq!(
        greetings,
        [
            "Hello Ada, 1 of 3!",
            "Hello Ada, 2 of 3!",
            "Hello Ada, 3 of 3!"
        ]
    );

    let (allowed, limit) = flood(&mut [client.clone()], 40).await;
    assert!(
        (9..=limit).contains(&allowed),
        "{allowed} allowed, the limit is {limit}"
    );
    let status = loop {
        if let Err(status) = client.say_hello_stream(ada()).await {
            break status;
        }
    };
    let delay = status
        .get_details_retry_info()
        .unwrap()
        .retry_delay
        .unwrap();
    assert!(delay.as_millis() <= 200, "{delay:?}");

    let mut health = HealthClient::new(channel.clone());
    let mut reflection = ServerReflectionClient::new(channel);
    for _ in 0..20 {
        let request = HealthCheckRequest {
            service: "helloworld.Greeter".to_owned(),
        };
        assert_eq!(health.check(request).await.unwrap().into_inner().status, 1);
    }
    for _ in 0..20 {
        let list = Some(MessageRequest::ListServices(String::new()));
        let request = ServerReflectionRequest {
            host: String::new(),
            message_request: list,
        };
        let mut answers = reflection
            .server_reflection_info(tokio_stream::iter([request]))
            .await
            .unwrap()
            .into_inner();
        let answer = answers.next().await.unwrap().unwrap().message_response;
        let Some(MessageResponse::ListServicesResponse(list)) = answer else {
            panic!("{answer:?}")
        };
        assert!(
            list.service
                .iter()
                .any(|it| it.name == "helloworld.Greeter"),
            "{list:?}"
        );
    }
    drop((health, reflection, client));
    assert!(
        server.terminate().success(),
        "SIGTERM must end the server with success"
    );
    assert!(server.output().ends_with("Stopped."), "{}", server.output());
}

#[test]
fn two_servers_with_one_redis_share_one_limit() {
    machine::undisturbed(STANDSTILL, || {
        Runtime::new().unwrap().block_on(two_servers());
    });
}

async fn two_servers() {
    let redis = RedisServer::start();
    let ((mut one, at_one), (mut other, at_other)) = (
        start("grpc_server", Some(&redis)),
        start("grpc_server", Some(&redis)),
    );
    let mut clients = [
        GreeterClient::new(channel(at_one).await),
        GreeterClient::new(channel(at_other).await),
    ];
    let (allowed, limit) = flood(&mut clients, 40).await;
    assert!(
        (10..=limit).contains(&allowed),
        "{allowed} allowed, the limit is {limit}"
    );
    // Each process caches denials, so denied calls need not reach Redis.
    let scripts = redis.calls("evalsha");
    assert!(
        scripts >= allowed as u64,
        "Redis ran {scripts} scripts for {allowed} allowed calls"
    );
    drop(clients);
    assert!(one.interrupt().success() && other.terminate().success());
}

/// Two clients ask for more than two bursts, which is the most that is there when the machine stands
/// still for a moment.
#[tokio::test(flavor = "multi_thread")]
async fn the_client_waits_for_the_retry_delay_and_is_served_twelve_times() {
    let (_server, address) = start("grpc_server", None);
    let start = || {
        let mut command = Process::example("grpc_client");
        command.arg(format!("http://{address}"));
        thread::spawn(move || Process::start(command, "12: Hello Ada!").output())
    };
    let outputs = [start(), start()].map(|client| client.join().expect("a client"));
    for output in &outputs {
        assert_eq!(output.matches("Hello Ada!").count(), 12, "{output}");
    }
    let waits = "rate limit exceeded (greeter: 5 per 1s, 10 at once), waiting";
    assert!(
        outputs.iter().any(|output| output.contains(waits)),
        "{outputs:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn on_one_port_grpc_and_http_share_a_limit_and_are_denied_in_their_own_protocol() {
    let (mut server, address) = start("grpc_and_http_one_port", None);
    let get = || {
        let mut stream = TcpStream::connect(address).unwrap();
        write!(
            stream,
            "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.to_ascii_lowercase()
    };
    assert!(get().starts_with("http/1.1 200"));
    let mut client = GreeterClient::new(channel(address).await);
    let (allowed, limit) = flood(&mut [client.clone()], 40).await;
    assert!(
        (9..=limit).contains(&allowed),
        "{allowed} allowed, the limit is {limit}"
    );
    let denied = (0..20)
        .map(|_| get())
        .find(|answer| answer.starts_with("http/1.1 429"))
        .unwrap();
    for part in [
        "retry-after: 1",
        "ratelimit-policy: \"everything\";q=10;w=2",
        "application/problem+json",
    ] {
        assert!(denied.contains(part), "{part} in {denied}");
    }
    let (_, _) = flood(&mut [client.clone()], 20).await;
    let status = client.say_hello(ada()).await;
    assert!(status.is_ok() || status.is_err_and(|it| it.get_details_retry_info().is_some()));
    drop(client);
    assert!(
        server.interrupt().success(),
        "Ctrl-C must end the server with success"
    );
}
