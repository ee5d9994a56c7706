//! Rejected requests whose bodies arrive after the response, over connections of HTTP/2.

use std::future::poll_fn;

use bytes::Bytes;
use h2::{
    Reason, SendStream,
    client::{SendRequest, handshake},
};
use http::Request;
use tokio::net::TcpStream;

use crate::{
    support::StoppedClock,
    unread_bodies::{REJECTIONS, Server},
};

/// The size of the frames in which bodies are sent.
const FRAME: usize = 16_000;

async fn connect(server: &Server) -> SendRequest<Bytes> {
    let (client, connection) = handshake(TcpStream::connect(server.address).await.unwrap())
        .await
        .unwrap();
    tokio::spawn(connection);
    client.ready().await.unwrap()
}

/// Sends the head of a request, and returns the status of the complete response with the stream of
/// the body.
async fn open(client: &mut SendRequest<Bytes>, path: &str) -> (u16, SendStream<Bytes>) {
    let head = Request::post(format!("http://localhost{path}"))
        .body(())
        .unwrap();
    let (response, upload) = client.send_request(head, false).unwrap();
    let (head, mut body) = response.await.unwrap().into_parts();
    while let Some(data) = body.data().await {
        body.flow_control()
            .release_capacity(data.unwrap().len())
            .unwrap();
    }
    (head.status.as_u16(), upload)
}

/// Sends `length` bytes as the window allows, and returns the reason when the server resets the
/// stream before.
async fn send(upload: &mut SendStream<Bytes>, length: usize) -> Result<(), Reason> {
    let mut left = length;
    while left > 0 {
        upload.reserve_capacity(left.min(FRAME));
        if let Some(Ok(capacity)) = poll_fn(|cx| upload.poll_capacity(cx)).await {
            let part = capacity.min(left);
            left -= part;
            if upload.send_data(Bytes::from(vec![0; part]), false).is_ok() {
                continue;
            }
        }
        return Err(poll_fn(|cx| upload.poll_reset(cx)).await.unwrap());
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_client_that_sends_a_long_body_after_its_rejection_is_not_reset() {
    let _clock = StoppedClock::start();
    let server = Server::start().await;
    let mut client = connect(&server).await;
    for (path, status) in REJECTIONS {
        let (found, mut upload) = open(&mut client, path).await;
        assert_eq!(found, status, "{path}");
        assert_eq!(send(&mut upload, 10_000_000).await, Ok(()), "{path}");
        upload.send_data(Bytes::new(), true).unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_too_long_ends_its_stream_without_an_error_and_no_other() {
    let _clock = StoppedClock::start();
    let server = Server::start().await;
    let mut client = connect(&server).await;
    for (path, status) in REJECTIONS {
        let (found, mut upload) = open(&mut client, path).await;
        assert_eq!(
            (found, send(&mut upload, 20_000_000).await),
            (status, Err(Reason::NO_ERROR)),
            "{path}"
        );
    }
    let (_, mut upload) = open(&mut client, "/in-process").await;
    assert_eq!(send(&mut upload, 1_000_000).await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_end_is_reset_at_the_time_limit() {
    let clock = StoppedClock::start();
    let server = Server::start().await;
    let mut client = connect(&server).await;
    for (path, _) in REJECTIONS {
        let (_, mut upload) = open(&mut client, path).await;
        assert_eq!(send(&mut upload, 100_000).await, Ok(()), "{path}");
        clock.advance(std::time::Duration::from_secs(2)).await;
        assert_eq!(
            poll_fn(|cx| upload.poll_reset(cx)).await.unwrap(),
            Reason::NO_ERROR,
            "{path}"
        );
    }
}

/// The window of the connection is 1 MiB: kept unread, one body would take it from all other
/// requests.
#[tokio::test(start_paused = true)]
async fn a_late_body_takes_nothing_of_the_window_of_the_connection() {
    let _clock = StoppedClock::start();
    let server = Server::start().await;
    let mut client = connect(&server).await;
    let mut late = Vec::new();
    for (path, _) in REJECTIONS {
        let (_, mut upload) = open(&mut client, path).await;
        assert_eq!(send(&mut upload, 1_000_000).await, Ok(()), "{path}");
        late.push(upload);
    }
    let head = Request::post("http://localhost/open").body(()).unwrap();
    let (response, mut upload) = client.send_request(head, false).unwrap();
    assert_eq!(send(&mut upload, 3_000_000).await, Ok(()));
    upload.send_data(Bytes::new(), true).unwrap();
    let mut body = response.await.unwrap().into_body();
    assert_eq!(body.data().await.unwrap().unwrap(), "3000000");
    for mut upload in late {
        upload.send_data(Bytes::new(), true).unwrap();
    }
}
