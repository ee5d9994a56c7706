//! Calls of the four kinds, allowed and denied.

use tollgate_tonic::key::Metadata;
use tonic::Code;
use tonic_types::StatusExt;

use crate::support::*;

#[tokio::test]
async fn a_call_of_each_kind_is_charged_once_when_it_is_opened() {
    let limiter = limiter(MANY);
    let mut client = client_behind(tollgate_tonic::layer(
        limiter.clone(),
        Metadata::new("x-api-key"),
    ))
    .await;
    for result in call_each_method(&mut client).await {
        result.unwrap();
    }
    assert_eq!(remaining(&limiter, "acme").await, 996);
}

#[tokio::test]
async fn a_call_of_each_kind_is_denied_with_details() {
    let mut client = client_behind(tollgate_tonic::layer(
        limiter(TWO),
        Metadata::new("x-api-key"),
    ))
    .await;
    codes(&mut client, "acme", 2).await;
    for result in call_each_method(&mut client).await {
        let status = result.unwrap_err();
        assert_eq!(
            (status.code(), status.message()),
            (Code::ResourceExhausted, "rate limit exceeded")
        );
        assert_eq!(retry_secs(&status), 30);
        let violations = status.get_details_quota_failure().unwrap().violations;
        assert_eq!(violations.len(), 1);
        assert_eq!(violations[0].quota_id, "two");
        let info = status.get_details_error_info().unwrap();
        assert_eq!(
            (info.reason.as_str(), info.domain.as_str()),
            ("RATE_LIMIT_EXCEEDED", "tollgate")
        );
        assert!(!status.metadata().contains_key("grpc-retry-pushback-ms"));
    }
}

#[tokio::test]
async fn a_cost_that_never_fits_tells_the_client_not_to_retry() {
    let layer = tollgate_tonic::builder(limiter(TWO), Metadata::new("x-api-key"))
        .cost(|_| tollgate::Cost::new(3))
        .respond_with(tollgate_tonic::GrpcStatus::new().pushback(true))
        .build();
    let status = denial(&mut client_behind(layer).await).await;
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert_eq!(reason_of(&status), "COST_EXCEEDS_LIMIT");
    assert!(status.get_details_retry_info().is_none());
    assert_eq!(
        status.metadata().get("grpc-retry-pushback-ms").unwrap(),
        "-1"
    );
    assert!(!status.metadata().contains_key("retry-after"));
}
