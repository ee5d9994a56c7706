//! Denied calls whose messages arrive after the status, on one connection.

use std::net::SocketAddr;

use bytes::Bytes;
use http::Request;
use tollgate::{Cost, Limiter};
use tollgate_tower::key::Global;
use tonic::transport::Server;

use crate::support::*;

/// More calls than the server can reset: h2 ends a connection after about 2100 short frames that nothing has read.
const CALLS: usize = 3000;

/// Makes denied unary calls, one after the other. The message of each follows its status.
async fn call_with_late_messages(server: SocketAddr) {
    let mut connection = http2(server).await;
    for at in 0..CALLS {
        let call = Request::post(format!("http://{server}/echo.Echo/Unary"))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(())
            .unwrap();
        connection = connection.ready().await.unwrap();
        let (response, mut body) = connection.send_request(call, false).unwrap();
        let response = response.await.unwrap();
        assert_eq!(response.headers()["grpc-status"], "8", "call {at}");
        assert!(response.body().is_end_stream());
        let sent = body
            .send_data(Bytes::from_static(b"\0\0\0\0\x05\x0a\x03Ada"), false)
            .and_then(|()| body.send_data(Bytes::new(), true));
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
    for limiter in spent_limiters().await {
        let layer = tollgate_tonic::layer(limiter, Global);
        let server = serve(Server::builder().layer(layer).add_service(EchoServer::new(Echoing))).await;
        call_with_late_messages(server).await;
    }
}

#[cfg(feature = "axum")]
#[tokio::test]
async fn the_connection_of_an_axum_server_survives_messages_that_come_after_their_denial() {
    for limiter in spent_limiters().await {
        let router = tonic::service::Routes::new(EchoServer::new(Echoing)).into_axum_router();
        let router = router.layer(tollgate_tonic::layer(limiter, Global));
        call_with_late_messages(serve_axum(router).await).await;
    }
}
