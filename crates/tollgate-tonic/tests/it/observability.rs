//! The service and the method in the metrics and in the log.

use tollgate_tests::Log;
use tracing::Level;

use crate::placement::{one_port, send};

#[tokio::test]
async fn the_log_has_the_service_and_the_method_but_not_the_key() {
    let (log, _guard) = Log::of_this_thread_from(Level::DEBUG);
    let router = one_port();
    for _ in 0..3 {
        send(&router, Some("application/grpc")).await;
    }
    let log = log.text();
    let line = log.lines().find(|line| line.contains(" denied ")).unwrap();
    assert!(
        line.contains(r#"policy="two" shadow=false rpc.service="echo.Echo" rpc.method="Unary""#),
        "{log}"
    );
    assert!(!log.contains("acme"), "{log}");
}

#[tokio::test]
async fn a_request_that_is_not_a_grpc_call_is_logged_without_a_service() {
    let (log, _guard) = Log::of_this_thread_from(Level::DEBUG);
    let router = one_port();
    for _ in 0..3 {
        send(&router, Some("application/json")).await;
    }
    let log = log.text();
    let line = log.lines().find(|line| line.contains(" denied ")).unwrap();
    assert!(!line.contains("rpc."), "{log}");
}

#[cfg(feature = "metrics")]
mod counts {
    use std::collections::BTreeMap;

    use http::Request;
    use metrics_util::debugging::DebugValue;
    use tollgate::Limiter;
    use tollgate_tests::Series;
    use tollgate_tonic::{
        MethodLimiters,
        messages::{MessageCharge, MessageLayer},
        metric_labels,
    };
    use tollgate_tower::key::Global;
    use tonic::{body::Body, service::Routes};
    use tower::{Layer, ServiceExt};

    use crate::support::*;

    /// Calls each path once, and returns all counters.
    fn counters_after<L>(
        layer: &L,
        paths: impl IntoIterator<Item = String>,
    ) -> BTreeMap<String, u64>
    where
        L: Layer<Routes>,
        L::Service: tower::Service<
                Request<Body>,
                Response = http::Response<Body>,
                Error = std::convert::Infallible,
            > + Clone,
    {
        let series = Series::of(async {
            let service = layer.layer(Routes::new(EchoServer::new(Echoing)).prepare());
            for path in paths {
                let request = Request::post(path).header("content-type", "application/grpc");
                let body = http_body_util::Full::new(bytes::Bytes::from_static(&[
                    0, 0, 0, 0, 3, 0x0a, 1, b'3',
                ]));
                let Ok(response) = service
                    .clone()
                    .oneshot(request.body(Body::new(body)).unwrap())
                    .await;
                http_body_util::BodyExt::collect(response.into_body())
                    .await
                    .unwrap();
            }
        });
        let counters = series
            .0
            .into_iter()
            .filter_map(|(name, value)| match value {
                DebugValue::Counter(count) => Some((name, count)),
                _ => None,
            });
        counters.collect()
    }

    /// Returns 30 000 paths of methods that do not exist, a third of them in a service that exists.
    fn unknown_paths() -> impl Iterator<Item = String> {
        (0..10_000).flat_map(|number| {
            [
                format!("/echo.Echo/Invented{number}"),
                format!("/invented.Service{number}/Unary"),
                format!("/{number}"),
            ]
        })
    }

    const ALLOWED: &str = "tollgate_decisions_total policy=two outcome=allowed";
    const DENIED: &str = "tollgate_decisions_total policy=two outcome=denied";

    #[test]
    fn a_table_of_methods_sets_the_labels_and_clients_cannot_add_labels() {
        let store = frozen_store();
        let limiter = |policy| Limiter::new(store.clone(), policy);
        let methods = MethodLimiters::new(limiter(TWO))
            .service("echo.Echo", limiter(TWO))
            .method("/echo.Echo/Unary", limiter(TWO))
            .exempt("grpc.health.v1.Health");
        let unary = || ["/echo.Echo/Unary".to_owned()];
        let counts = counters_after(
            &tollgate_tonic::layer(methods, Global),
            unary().into_iter().chain(unknown_paths()).chain(unary()),
        );
        let [unary, known, other] = [
            "rpc_service=echo.Echo rpc_method=Unary",
            "rpc_service=echo.Echo rpc_method=other",
            "rpc_service=other rpc_method=other",
        ];
        assert_eq!(counts[&format!("{ALLOWED} {unary}")], 1);
        assert_eq!(counts[&format!("{ALLOWED} {known}")], 1);
        assert_eq!(counts[&format!("{DENIED} {unary}")], 1);
        assert_eq!(counts[&format!("{DENIED} {known}")], 9_999);
        assert_eq!(counts[&format!("{DENIED} {other}")], 20_000);
        assert_eq!(
            counts[&format!("tollgate_rejections_total reason=denied {other}")],
            20_000
        );
        // Three outcomes and one reason, with three labels each. The limiters have one name: three
        // outcomes and one policy.
        assert_eq!(counts.len(), 3 * 4 + 4, "{:?}", counts.keys());
    }

    #[test]
    fn exempt_names_are_no_labels_and_exempt_calls_are_not_counted() {
        let methods = MethodLimiters::new(limiter(TWO))
            .exempt("/echo.Echo/Client")
            .exempt("other.Service");
        let paths = [
            "/echo.Echo/Client",
            "/other.Service/Method",
            "/echo.Echo/Unary",
            "/echo.Echo/Server",
        ];
        let counts = counters_after(
            &tollgate_tonic::layer(methods, Global),
            paths.map(str::to_owned),
        );
        assert_eq!(
            counts[&format!("{ALLOWED} rpc_service=other rpc_method=other")],
            2
        );
        // The metrics of the limiter have no labels of the layer.
        let mut of_layer = counts.keys().filter(|name| !name.contains(" limiter="));
        assert!(
            of_layer.all(|name| name.ends_with("rpc_service=other rpc_method=other")),
            "{:?}",
            counts.keys()
        );
    }

    #[test]
    fn a_path_without_a_service_or_a_method_has_no_labels() {
        let labels = metric_labels(["/echo.Echo/Unary", "other.Service"]);
        let layer = tollgate_tonic::builder(limiter(MANY), Global)
            .metric_labels(labels)
            .build();
        let paths = [
            "//Unary",
            "/echo.Echo/",
            "/echo.Echo",
            "/",
            "/echo.Echo/Unary/more",
        ];
        let counts = counters_after(&layer, paths.map(str::to_owned));
        let allowed = "tollgate_decisions_total policy=many outcome=allowed";
        assert_eq!(
            counts[&format!("{allowed} rpc_service=other rpc_method=other")],
            5
        );
        // The metrics of the limiter have no labels of the layer.
        let of_layer = counts
            .iter()
            .filter(|(name, _)| !name.contains(" limiter="));
        let labelled =
            of_layer.filter(|(name, count)| !name.contains("rpc_service=other") && **count > 0);
        assert_eq!(labelled.count(), 0, "{counts:?}");
    }

    #[test]
    fn metric_labels_of_the_builder_set_the_labels() {
        let layer = tollgate_tonic::builder(limiter(TWO), Global)
            .metric_labels(metric_labels([
                "/echo.Echo/Unary",
                "/echo.Echo/Server",
                "other.Service",
            ]))
            .build();
        let paths = [
            "/echo.Echo/Server".to_owned(),
            "/other.Service/Method".to_owned(),
        ];
        let counts = counters_after(&layer, paths.into_iter().chain(unknown_paths()));
        assert_eq!(
            counts[&format!("{ALLOWED} rpc_service=echo.Echo rpc_method=Server")],
            1
        );
        assert_eq!(
            counts[&format!("{ALLOWED} rpc_service=other.Service rpc_method=other")],
            1
        );
        assert_eq!(
            counts[&format!("{DENIED} rpc_service=echo.Echo rpc_method=other")],
            10_000
        );
        assert_eq!(
            counts[&format!("{DENIED} rpc_service=other rpc_method=other")],
            20_000
        );
        assert_eq!(counts.len(), 4 * 3 + 2 + 4, "{:?}", counts.keys());
    }

    #[test]
    fn messages_are_counted_under_the_method_of_the_call() {
        let calls = tollgate_tonic::builder(limiter(TWO), Global)
            .metric_labels(metric_labels(["/echo.Echo/Server"]));
        let layer = MessageLayer::new(calls, MessageCharge::sent());
        let counts = counters_after(&layer, ["/echo.Echo/Server".to_owned()]);
        let name = "rpc_service=echo.Echo rpc_method=Server";
        assert_eq!(counts[&format!("{ALLOWED} {name}")], 2);
        assert_eq!(counts[&format!("{DENIED} {name}")], 1);
        assert_eq!(
            counts[&format!("tollgate_rejections_total reason=denied {name}")],
            1
        );
    }
}
