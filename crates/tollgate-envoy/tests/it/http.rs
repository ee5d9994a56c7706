//! Health and decisions over HTTP.

use tollgate_envoy::Component;

use crate::support::{Running, http, service};

const ONCE: &str = r#"{"domain": "shop", "descriptors": [{"entries": [{"key": "tenant", "value": "once"}]}]}"#;

#[tokio::test]
async fn json_is_decided_as_grpc_is() {
    let server = Running::start(service()).await;
    let address = server.page("HTTP");
    let (status, body) = http(address, "POST /json", ONCE).await;
    let body: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert_eq!((status, body["overallCode"].as_str()), (200, Some("OK")));
    assert_eq!(body["statuses"][0]["currentLimit"]["requestsPerUnit"], 1);
    assert_eq!(body["statuses"][0]["currentLimit"]["unit"], "DAY");
    let (status, body) = http(address, "POST /json", ONCE).await;
    assert_eq!(status, 429);
    assert!(body.contains(r#""overallCode":"OVER_LIMIT""#), "{body}");
}

#[tokio::test]
async fn a_request_that_cannot_be_decided_is_refused() {
    let server = Running::start(service()).await;
    let address = server.page("HTTP");
    for body in ["", "{", r#"{"domain": "shop"}"#, r#"{"domain": "", "descriptors": [{}]}"#, r#"{"dom": "shop"}"#] {
        assert_eq!(http(address, "POST /json", body).await.0, 400, "{body}");
    }
    assert_eq!(http(address, "POST /json", &" ".repeat(2 << 20)).await.0, 413);
    assert_eq!(http(address, "GET /nothing", "").await.0, 404);
}

#[tokio::test]
async fn the_healthcheck_tells_the_health() {
    let server = Running::start(service()).await;
    let address = server.page("HTTP");
    assert_eq!(http(address, "GET /healthcheck", "").await, (200, "OK".to_owned()));
    for component in [Component::Store, Component::Rules, Component::Running] {
        server.health.set(component, false).await;
        assert_eq!(http(address, "GET /healthcheck", "").await.0, 500, "{component:?}");
        server.health.set(component, true).await;
    }
    assert_eq!(http(address, "GET /healthcheck", "").await.0, 200);
}
