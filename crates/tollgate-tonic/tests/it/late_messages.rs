//! Denied calls whose messages arrive after the status, on one connection.

use std::net::SocketAddr;

use bytes::Bytes;
use http::Request;
use tollgate::{Cost, Limiter};
use tollgate_tonic::{AsyncRateLimitInterceptor, RateLimitInterceptor};
use tollgate_tower::{drain::DrainLayer, key::Global};
use tonic::transport::Server;
use tonic_async_interceptor::async_interceptor;

use crate::support::*;

/// More calls than the server can reset: h2 ends a connection after about 2100 short frames that nothing has read.
const CALLS: usize = 3_000;

/// Far more calls, for the set-ups that most servers have.
const MANY_CALLS: usize = 10_000;

const MESSAGE: &[u8] = b"\0\0\0\0\x05\x0a\x03Ada";

fn call(server: SocketAddr) -> Request<()> {
    let call = Request::post(format!("http://{server}/echo.Echo/Unary"));
    call.header("content-type", "application/grpc").header("te", "trailers").body(()).unwrap()
}

/// Makes denied unary calls, one after the other. The message of each follows its status.
async fn call_with_late_messages(server: SocketAddr, calls: usize) {
    let mut connection = http2(server).await;
    for at in 0..calls {
        connection = connection.ready().await.unwrap();
        let (response, mut body) = connection.send_request(call(server), false).unwrap();
        let response = response.await.unwrap();
        assert_eq!(response.headers()["grpc-status"], "8", "call {at}");
        assert!(response.body().is_end_stream());
        let sent = body.send_data(Bytes::from_static(MESSAGE), false).and_then(|()| body.send_data(Bytes::new(), true));
        assert!(sent.is_ok(), "the server has reset call {at}: {sent:?}");
    }
    connection.ready().await.unwrap();
}

/// Returns a limiter of a frozen quota that is spent, without and with a store that is pending at first.
async fn spent_limiters() -> [Limiter; 2] {
    let limiters = [limiter(TWO), remote_limiter(TWO)];
    for limiter in &limiters {
        assert!(limiter.check_cost("all", Cost::new(2)).await.unwrap().is_allowed());
    }
    limiters
}

#[tokio::test]
async fn the_connection_of_a_tonic_server_survives_messages_that_come_after_their_denial() {
    for (limiter, calls) in spent_limiters().await.into_iter().zip([MANY_CALLS, CALLS]) {
        let layer = tollgate_tonic::layer(limiter, Global);
        let server = serve(Server::builder().layer(layer).add_service(EchoServer::new(Echoing))).await;
        call_with_late_messages(server, calls).await;
    }
}

#[cfg(feature = "axum")]
#[tokio::test]
async fn the_connection_of_an_axum_server_survives_messages_that_come_after_their_denial() {
    for limiter in spent_limiters().await {
        let router = tonic::service::Routes::new(EchoServer::new(Echoing)).into_axum_router();
        let router = router.layer(tollgate_tonic::layer(limiter, Global));
        call_with_late_messages(serve_axum(router).await, CALLS).await;
    }
}

/// The documented set-up: a layer outside reads the messages that an interceptor does not reach.
#[tokio::test]
async fn the_connection_survives_messages_that_come_after_an_interceptor_denied_them_behind_a_layer_that_drains() {
    let [local, remote] = spent_limiters().await;
    let interceptor = RateLimitInterceptor::new(local, Global).unwrap();
    let mut server = Server::builder().layer(DrainLayer::new());
    let server = serve(server.add_service(EchoServer::with_interceptor(Echoing, interceptor))).await;
    call_with_late_messages(server, MANY_CALLS).await;

    let checked = tollgate_tonic::builder(remote.clone(), Global).shadow(true).expose_decisions(true).build();
    let mut server = Server::builder().layer(DrainLayer::new()).layer(checked);
    let service = EchoServer::with_interceptor(Echoing, RateLimitInterceptor::after_layer());
    call_with_late_messages(serve(server.add_service(service)).await, CALLS).await;

    let interceptor = AsyncRateLimitInterceptor::new(remote, Global);
    let mut server = Server::builder().layer(DrainLayer::new()).layer(async_interceptor(interceptor));
    call_with_late_messages(serve(server.add_service(EchoServer::new(Echoing))).await, CALLS).await;
}
