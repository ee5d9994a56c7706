//! Reservations over real connections: a client that reads all, and a client that hangs up in the
//! middle.

use std::convert::Infallible;

use axum::{
    Router,
    response::{Sse, sse::Event},
    routing::get,
};
use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use http::Request;
use http_body_util::{BodyExt, Empty};
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use tollgate_tower::{Meter, RateLimitLayer, key::Header};

use super::{ESTIMATE, Ledger, until_charged};
use crate::support::serve;

/// Sends two events of 10 tokens each. The stream then ends, or stays open.
fn events(
    meter: &Meter,
    is_endless: bool,
) -> Sse<impl Stream<Item = Result<Event, Infallible>> + use<>> {
    let tokens = meter.counter("tokens").unwrap();
    let two = stream::iter(["one", "two"]).map(move |word| {
        tokens.add(10);
        Ok(Event::default().data(word))
    });
    let rest = if is_endless {
        stream::pending().left_stream()
    } else {
        stream::empty().right_stream()
    };
    Sse::new(two.chain(rest))
}

#[tokio::test]
async fn streams_over_http_1_and_http_2_are_settled_at_their_end_and_when_the_client_hangs_up() {
    for is_http2 in [false, true] {
        let ledger = Ledger::new(true);
        let limiter = ledger.limiter();
        let layer = RateLimitLayer::builder(limiter.clone(), Header::new("x-api-key"))
            .reserve(|_| ESTIMATE)
            .build();
        let router = Router::new()
            .route(
                "/whole",
                get(|meter: Meter| async move { events(&meter, false) }),
            )
            .route(
                "/endless",
                get(|meter: Meter| async move { events(&meter, true) }),
            )
            .layer(layer);
        let address = serve(router).await;
        for (at, path) in ["/whole", "/endless"].into_iter().enumerate() {
            let client = Client::builder(TokioExecutor::new())
                .http2_only(is_http2)
                .build_http::<Empty<Bytes>>();
            let request =
                Request::get(format!("http://{address}{path}")).header("x-api-key", "acme");
            let mut response = client
                .request(request.body(Empty::new()).unwrap())
                .await
                .unwrap();
            // The connection may join or split the frames.
            let mut text = Vec::new();
            while !text.ends_with(b"two\n\n") {
                text.extend(
                    response
                        .frame()
                        .await
                        .unwrap()
                        .unwrap()
                        .into_data()
                        .unwrap(),
                );
            }
            assert_eq!(String::from_utf8_lossy(&text), "data: one\n\ndata: two\n\n");
            if path == "/whole" {
                assert_eq!(response.body_mut().collect().await.unwrap().to_bytes(), "");
            }
            drop(response);
            drop(client);
            let sent = at as u64 + 1;
            until_charged(&limiter, (sent, 20 * sent)).await;
            assert_eq!(ledger.commits(), at + 1, "{path}, HTTP/2: {is_http2}");
        }
    }
}
