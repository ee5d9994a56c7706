//! Health and reflection over gRPC.

use tollgate_envoy::{
    Ads, Component, Health, RateLimitService, Server, ServerBuilder,
    proto::ratelimit::RateLimitRequest,
};
use tollgate_rules::Rules;
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};
use tonic_reflection::pb::v1::{
    ServerReflectionRequest, server_reflection_client::ServerReflectionClient,
    server_reflection_request::MessageRequest, server_reflection_response::MessageResponse,
};

use crate::support::{Running, service};

fn of(service: &str) -> HealthCheckRequest {
    HealthCheckRequest {
        service: service.to_owned(),
    }
}

#[tokio::test]
async fn health_is_told_under_the_name_ratelimit() {
    let server = Running::start(service()).await;
    let mut client = HealthClient::new(server.channel().await);
    for name in ["ratelimit", ""] {
        let answer = client.check(of(name)).await.unwrap().into_inner();
        assert_eq!(answer.status(), ServingStatus::Serving, "{name:?}");
    }
    assert_eq!(
        client.check(of("other")).await.unwrap_err().code(),
        tonic::Code::NotFound
    );

    let mut watch = client.watch(of("ratelimit")).await.unwrap().into_inner();
    assert_eq!(
        watch.message().await.unwrap().unwrap().status(),
        ServingStatus::Serving
    );
    server.health.set(Component::Store, false).await;
    assert_eq!(
        watch.message().await.unwrap().unwrap().status(),
        ServingStatus::NotServing
    );
}

#[tokio::test]
async fn reflection_describes_the_service() {
    let server = Running::start(service()).await;
    let mut client = ServerReflectionClient::new(server.channel().await);
    let ask = |message| ServerReflectionRequest {
        host: String::new(),
        message_request: Some(message),
    };
    let asked = [
        ask(MessageRequest::ListServices(String::new())),
        ask(MessageRequest::FileContainingSymbol(
            "envoy.service.ratelimit.v3.RateLimitService".to_owned(),
        )),
    ];
    let mut answers = client
        .server_reflection_info(tokio_stream::iter(asked))
        .await
        .unwrap()
        .into_inner();
    let list = answers
        .message()
        .await
        .unwrap()
        .unwrap()
        .message_response
        .unwrap();
    let MessageResponse::ListServicesResponse(list) = list else {
        panic!("{list:?}")
    };
    let names: Vec<_> = list
        .service
        .iter()
        .map(|service| service.name.as_str())
        .collect();
    assert!(
        names.contains(&"envoy.service.ratelimit.v3.RateLimitService"),
        "{names:?}"
    );
    assert!(names.contains(&"grpc.health.v1.Health"), "{names:?}");
    let file = answers
        .message()
        .await
        .unwrap()
        .unwrap()
        .message_response
        .unwrap();
    assert!(
        matches!(file, MessageResponse::FileDescriptorResponse(_)),
        "{file:?}"
    );
}

/// Compiles for a future that a task of a runtime with several threads may await.
fn send(_: impl Future + Send) {}

fn futures_of_a_server(
    (builder, server, ads, rules): (ServerBuilder, Server, Ads, Rules),
    (health, service, request): (&Health, &RateLimitService, &RateLimitRequest),
) {
    send(builder.bind());
    send(server.run(std::future::pending()));
    send(ads.run(rules));
    send(Health::new());
    send(health.set(Component::Store, true));
    send(service.decide(request));
}

#[test]
fn every_future_of_a_server_can_be_awaited_in_a_spawned_task() {
    // That it compiles is the test.
    let _ = futures_of_a_server;
}
