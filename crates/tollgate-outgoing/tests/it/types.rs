//! Futures that a task of a runtime with several threads may await.

use http::Request;
use tollgate_outgoing::{Outgoing, ReqwestClient};
use tollgate_tower::key::Global;
use tower::Service;

fn send(_: impl Future + Send) {}

fn futures_of_a_client(
    mut client: ReqwestClient,
    mut api: Outgoing<ReqwestClient, Global>,
    (own, first, second): (
        reqwest::Request,
        Request<reqwest::Body>,
        Request<reqwest::Body>,
    ),
) {
    send(api.execute(own));
    send(api.call(first));
    send(client.call(second));
}

#[test]
fn futures_of_clients_can_be_awaited_in_a_spawned_task() {
    // That these compile is the test.
    let _ = futures_of_a_client;
}
