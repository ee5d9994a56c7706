//! The four kinds of calls, allowed and denied.

use tokio_stream::StreamExt;
use tollgate_tonic::key::Metadata;
use tonic::{Code, Status, transport::Channel};
use tonic_types::StatusExt;

use crate::support::*;

/// Calls each method once; an allowed call must do its work.
pub(crate) async fn call_all(client: &mut EchoClient<Channel>) -> [Result<(), Status>; 4] {
    let three = || tokio_stream::iter([message(1), message(2), message(3)]);
    let texts = async |messages: tonic::Response<tonic::Streaming<Message>>| {
        let messages: Vec<_> = messages.into_inner().map(|it| it.map(|it| it.text)).collect().await;
        messages.into_iter().collect::<Result<Vec<_>, _>>()
    };
    let unary = client.unary(from("acme", message("hello"))).await;
    let server = client.server(from("acme", message(3))).await;
    let client_streaming = client.client(from("acme", three())).await;
    let bidi = client.bidi(from("acme", three())).await;
    [
        unary.map(|it| assert_eq!(it.into_inner().text, "hello")),
        match server {
            Ok(messages) => texts(messages).await.map(|it| assert_eq!(it, ["0", "1", "2"])),
            Err(status) => Err(status),
        },
        client_streaming.map(|it| assert_eq!(it.into_inner().text, "3")),
        match bidi {
            Ok(messages) => texts(messages).await.map(|it| assert_eq!(it, ["1", "2", "3"])),
            Err(status) => Err(status),
        },
    ]
}

#[tokio::test]
async fn a_call_of_each_kind_is_charged_once_when_it_is_opened() {
    let limiter = tollgate::Limiter::new(still(), MANY);
    let mut client = limited(tollgate_tonic::layer(limiter.clone(), Metadata::new("x-api-key"))).await;
    for result in call_all(&mut client).await {
        result.unwrap();
    }
    let left = limiter.peek("acme").await.unwrap();
    assert_eq!(left.state("many").unwrap().remaining(), 996);
}

#[tokio::test]
async fn a_call_of_each_kind_is_denied_with_details() {
    let mut client = limited(tollgate_tonic::layer(two(), Metadata::new("x-api-key"))).await;
    codes(&mut client, "acme", 2).await;
    for result in call_all(&mut client).await {
        let status = result.unwrap_err();
        assert_eq!((status.code(), status.message()), (Code::ResourceExhausted, "rate limit exceeded"));
        assert_eq!(status.get_details_retry_info().unwrap().retry_delay.unwrap().as_secs(), 30);
        let violations = status.get_details_quota_failure().unwrap().violations;
        assert_eq!(violations.len(), 1);
        assert_eq!(violations[0].quota_id, "two");
        let info = status.get_details_error_info().unwrap();
        assert_eq!((info.reason.as_str(), info.domain.as_str()), ("RATE_LIMIT_EXCEEDED", "tollgate"));
        assert!(!status.metadata().contains_key("grpc-retry-pushback-ms"));
    }
}

#[tokio::test]
async fn a_closed_limiter_whose_store_is_away_is_unavailable() {
    let mut client = limited(tollgate_tonic::layer(closed(), Metadata::new("x-api-key"))).await;
    let status = client.unary(from("acme", message("hello"))).await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::Unavailable, "rate limiter unavailable"));
    assert_eq!(status.get_details_error_info().unwrap().reason, "LIMITER_UNAVAILABLE");
}

#[tokio::test]
async fn a_missing_key_is_an_invalid_argument_that_says_what_is_missing() {
    let mut client = limited(tollgate_tonic::layer(two(), Metadata::new("x-api-key"))).await;
    let status = client.unary(message("hello")).await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::InvalidArgument, "metadata x-api-key is missing"));
}

#[tokio::test]
async fn a_service_that_is_set_up_wrongly_tells_the_client_nothing() {
    let key = tollgate_tower::key_fn(|_| {
        Err::<tollgate::Key, _>(tollgate_tower::key::KeyError::misconfigured("the secret layer is missing"))
    });
    let mut client = limited(tollgate_tonic::layer(two(), key)).await;
    let status = client.unary(message("hello")).await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::Internal, "internal error"));
}

#[tokio::test]
async fn a_cost_that_never_fits_is_not_to_be_retried() {
    let layer = tollgate_tonic::builder(two(), Metadata::new("x-api-key"))
        .cost(|_| tollgate::Cost::new(3))
        .respond_with(tollgate_tonic::GrpcStatus::new().pushback())
        .build();
    let status = limited(layer).await.unary(from("acme", message("hello"))).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert_eq!(status.get_details_error_info().unwrap().reason, "COST_EXCEEDS_LIMIT");
    assert!(status.get_details_retry_info().is_none());
    assert_eq!(status.metadata().get("grpc-retry-pushback-ms").unwrap(), "-1");
    assert!(!status.metadata().contains_key("retry-after"));
}
