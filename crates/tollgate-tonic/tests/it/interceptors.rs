//! Limits in interceptors.

use tollgate::{Limiter, MemoryStore, Policy, Quota, RedisStore, limiter::events, store::Clock};
use tollgate_tests::Log;
use tollgate_tonic::{
    AsyncRateLimitInterceptor, GrpcStatus, RateLimitInterceptor,
    key::{Metadata, RpcMethod, key_of},
};
use tollgate_tower::{
    HeaderFormat, KeyExtractor,
    key::{Extraction, Global, KeyError},
    key_fn,
};
use tonic::{Code, Request, Status, transport::Server};
use tonic_async_interceptor::async_interceptor;
use tonic_types::StatusExt;
use tracing::Level;

use crate::support::*;

#[tokio::test]
async fn with_a_store_in_process_an_interceptor_limits_calls() {
    let interceptor = RateLimitInterceptor::new(limiter(TWO), Metadata::new("x-api-key")).unwrap();
    let server = Server::builder().add_service(EchoServer::with_interceptor(Echoing, interceptor));
    let mut client = client(serve(server).await).await;
    assert_eq!(codes(&mut client, "acme", 3).await, TWO_OF_THREE);
    assert_eq!(codes(&mut client, "other", 3).await, TWO_OF_THREE);
    let status = denial(&mut client).await;
    assert_eq!(retry_secs(&status), 30);
    let status = client.unary(message("hello")).await.unwrap_err();
    assert_eq!(
        (status.code(), status.message()),
        (Code::InvalidArgument, "metadata x-api-key is missing")
    );
}

#[tokio::test]
async fn an_interceptor_and_a_layer_raise_the_events_of_their_limiter() {
    let observed = || {
        let (observer, events) = events::channel(10);
        (
            Limiter::builder(frozen_store())
                .policies(TWO)
                .observer(observer)
                .build(),
            events,
        )
    };
    let (in_interceptor, by_interceptor) = observed();
    let (in_layer, by_layer) = observed();
    let key = || Metadata::new("x-api-key");
    let interceptor = RateLimitInterceptor::new(in_interceptor, key()).unwrap();
    let intercepted =
        Server::builder().add_service(EchoServer::with_interceptor(Echoing, interceptor));
    let layered = Server::builder()
        .layer(tollgate_tonic::layer(in_layer, key()))
        .add_service(EchoServer::new(Echoing));
    for (server, mut events) in [
        (serve(intercepted).await, by_interceptor),
        (serve(layered).await, by_layer),
    ] {
        assert_eq!(
            codes(&mut client(server).await, "acme", 3).await,
            TWO_OF_THREE
        );
        let names: Vec<_> = std::iter::from_fn(|| events.try_recv())
            .map(|event| event.name())
            .collect();
        assert_eq!(names, ["near_limit", "denied"]);
    }
}

#[tokio::test]
async fn a_limiter_over_redis_is_refused_and_the_error_names_the_alternatives() {
    let limiter = Limiter::new(RedisStore::open("redis://127.0.0.1:1/").unwrap(), TWO);
    let error = RateLimitInterceptor::new(limiter, Global)
        .unwrap_err()
        .to_string();
    for alternative in [
        "tollgate_tonic::layer",
        "named_layer",
        "AsyncRateLimitInterceptor",
        "after_layer",
    ] {
        assert!(error.contains(alternative), "{error}");
    }
}

#[tokio::test]
async fn behind_a_layer_an_interceptor_enforces_the_decisions_of_the_layer() {
    let layer = tollgate_tonic::builder(remote_limiter(TWO), Metadata::new("x-api-key"))
        .shadow(true)
        .expose_decisions(true)
        .header_format(HeaderFormat::None)
        .build();
    let interceptor = RateLimitInterceptor::after_layer();
    let server = Server::builder()
        .layer(layer)
        .add_service(EchoServer::with_interceptor(Echoing, interceptor));
    let mut client = client(serve(server).await).await;
    assert_eq!(codes(&mut client, "acme", 3).await, TWO_OF_THREE);
    let status = denial(&mut client).await;
    assert_eq!(quota_of(&status), "two");
}

/// Makes three calls behind two layers in shadow, of which `outer` is the outer one. Returns the
/// result of the last call.
async fn third_call_behind_layers(outer: Policy, inner: Policy) -> Result<(), Status> {
    let layer = |policy| {
        let key = Metadata::new("x-api-key");
        tollgate_tonic::builder(limiter(policy), key)
            .shadow(true)
            .expose_decisions(true)
            .build()
    };
    let service = EchoServer::with_interceptor(Echoing, RateLimitInterceptor::after_layer());
    let server = Server::builder()
        .layer(layer(outer))
        .layer(layer(inner))
        .add_service(service);
    let mut client = client(serve(server).await).await;
    codes(&mut client, "acme", 2).await;
    client
        .unary(request_from("acme", message("hello")))
        .await
        .map(drop)
}

#[tokio::test]
async fn behind_several_layers_an_interceptor_denies_what_any_of_them_denied_with_the_longest_wait()
{
    const SLOW: Policy = Policy::token_bucket("slow", Quota::per_hour(2));
    for (outer, inner, expected) in [
        (TWO, MANY, Some(("two", 30))),
        (MANY, TWO, Some(("two", 30))),
        (TWO, SLOW, Some(("slow", 1800))),
        (SLOW, TWO, Some(("slow", 1800))),
        (MANY, MANY, None),
    ] {
        let result = third_call_behind_layers(outer.clone(), inner.clone()).await;
        let denial = result.err().map(|status| {
            let violation = status
                .get_details_quota_failure()
                .unwrap()
                .violations
                .remove(0);
            (violation.quota_id, retry_secs(&status))
        });
        let denial = denial
            .as_ref()
            .map(|(policy, seconds)| (policy.as_str(), *seconds));
        assert_eq!(denial, expected, "{} around {}", outer.name(), inner.name());
    }
}

/// Returns the lines that are logged while `work` runs.
fn logged(work: impl FnOnce()) -> String {
    let (log, guard) = Log::of_this_thread_from(Level::DEBUG);
    work();
    drop(guard);
    log.text()
}

#[test]
fn a_wrong_set_up_of_an_interceptor_or_a_handler_is_logged_and_a_missing_key_is_not() {
    use tonic::service::Interceptor;
    let intercept = |request, key: Box<dyn KeyExtractor>| {
        RateLimitInterceptor::new(limiter(TWO), key)
            .unwrap()
            .call(request)
            .unwrap_err()
            .code()
    };
    let wrong = logged(|| {
        assert_eq!(
            intercept(Request::new(()), Box::new(RpcMethod)),
            Code::Internal
        );
        assert_eq!(
            key_of(&Request::new(()), &RpcMethod).unwrap_err().code(),
            Code::Internal
        );
    });
    let reason = "interceptors and handlers cannot read the method of a call";
    assert_eq!(wrong.matches("ERROR").count(), 2, "{wrong}");
    assert_eq!(wrong.matches(reason).count(), 2, "{wrong}");

    let missing = logged(|| {
        let key = || Metadata::new("x-api-key");
        assert_eq!(
            intercept(Request::new(()), Box::new(key())),
            Code::InvalidArgument
        );
        assert_eq!(
            key_of(&Request::new(()), &key()).unwrap_err().code(),
            Code::InvalidArgument
        );
    });
    assert_eq!(missing, "");
}

#[test]
fn a_store_that_claims_to_be_in_process_and_waits_is_an_internal_error_that_is_logged() {
    use tonic::service::Interceptor;
    let mut interceptor = RateLimitInterceptor::new(pending_limiter(TWO), Global).unwrap();
    let log = logged(|| {
        let status = interceptor.call(Request::new(())).unwrap_err();
        assert_eq!(
            (status.code(), status.message()),
            (Code::Internal, "internal error")
        );
    });
    assert_eq!(log.matches("ERROR").count(), 1, "{log}");
    assert!(
        log.contains("the store of this limiter is not in process"),
        "{log}"
    );
}

#[tokio::test]
async fn an_async_interceptor_waits_for_a_remote_store() {
    let interceptor =
        AsyncRateLimitInterceptor::new(remote_limiter(TWO), Metadata::new("x-api-key"));
    let server = Server::builder()
        .layer(async_interceptor(interceptor))
        .add_service(EchoServer::new(Echoing));
    let mut client = client(serve(server).await).await;
    assert_eq!(codes(&mut client, "acme", 3).await, TWO_OF_THREE);
    let status = client.unary(message("hello")).await.unwrap_err();
    assert_eq!(
        (status.code(), status.message()),
        (Code::InvalidArgument, "metadata x-api-key is missing")
    );
}

#[tokio::test(start_paused = true)]
async fn an_async_interceptor_delays_calls_in_a_leaky_bucket() {
    use tonic_async_interceptor::AsyncInterceptor;
    let store = MemoryStore::builder().clock(Clock::tokio()).build();
    let limiter = Limiter::new(
        store,
        Policy::leaky_bucket("queue", Quota::per_second(1).with_burst(3)),
    );
    let mut interceptor = AsyncRateLimitInterceptor::new(limiter.clone(), Global);
    let start = tokio::time::Instant::now();
    for second in 0..3 {
        assert!(interceptor.call(Request::new(())).await.is_ok());
        assert_eq!(start.elapsed().as_secs(), second);
    }
    // A call that is cancelled leaves the queue.
    let left = remaining(&limiter, "all").await;
    let mut waiting = std::pin::pin!(interceptor.call(Request::new(())));
    tokio::select! {
        biased;
        _ = &mut waiting => panic!("the call waits"),
        () = std::future::ready(()) => {}
    }
    assert_eq!(remaining(&limiter, "all").await, left - 1);
    waiting.set(interceptor.call(Request::new(())));
    assert_eq!(remaining(&limiter, "all").await, left);
}

#[tokio::test]
async fn the_status_of_an_interceptor_has_the_options_of_its_responder() {
    use tonic::service::Interceptor;
    use tonic_async_interceptor::AsyncInterceptor;
    let responder = || GrpcStatus::new().pushback(true);
    let mut interceptor = RateLimitInterceptor::new(limiter(TWO), Global)
        .unwrap()
        .respond_with(responder());
    let mut asynchronous =
        AsyncRateLimitInterceptor::new(limiter(TWO), Global).respond_with(responder());
    for _ in 0..2 {
        assert!(interceptor.call(Request::new(())).is_ok());
        assert!(asynchronous.call(Request::new(())).await.is_ok());
    }
    let denied = [
        interceptor.call(Request::new(())),
        asynchronous.call(Request::new(())).await,
    ];
    for result in denied {
        assert_eq!(
            result
                .unwrap_err()
                .metadata()
                .get("grpc-retry-pushback-ms")
                .unwrap(),
            "30000"
        );
    }
}

#[test]
fn a_call_that_no_route_matches_is_unimplemented() {
    let key = key_fn(|_| -> Extraction { Err(KeyError::no_route("no route matches the request")) });
    let status = key_of(&Request::new(()), &key).unwrap_err();
    assert_eq!(
        (status.code(), status.message()),
        (Code::Unimplemented, "no route matches the request")
    );
}

#[tokio::test]
async fn an_interceptor_passes_the_request_on_unchanged() {
    use tonic::service::Interceptor;
    let mut request = request_from("acme", ());
    request.extensions_mut().insert("an extension");
    let before = format!("{request:?}");
    let mut interceptor =
        RateLimitInterceptor::new(limiter(TWO), Metadata::new("x-api-key")).unwrap();
    assert_eq!(format!("{:?}", interceptor.call(request).unwrap()), before);
}

/// Compiles for a future that a task of a runtime with several threads may await.
fn send(_: impl Future + Send) {}

fn futures_of_calls(
    mut interceptor: AsyncRateLimitInterceptor,
    mut charged: tollgate_tonic::messages::MessageService<EchoServer<Echoing>>,
    mut counted: tollgate_tonic::messages::MessageCounterService<EchoServer<Echoing>>,
    (first, second): (
        http::Request<tonic::body::Body>,
        http::Request<tonic::body::Body>,
    ),
) {
    use tonic_async_interceptor::AsyncInterceptor;
    use tower::Service;

    send(interceptor.call(Request::new(())));
    send(charged.call(first));
    send(counted.call(second));
}

#[test]
fn every_future_of_a_call_can_be_awaited_in_a_spawned_task() {
    // That it compiles is the test.
    let _ = futures_of_calls;
}
