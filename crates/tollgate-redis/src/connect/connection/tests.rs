use std::task::Waker;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

#[tokio::test]
async fn the_bytes_that_left_and_the_end_are_recorded() {
    let (near, mut far) = tokio::io::duplex(64);
    let wire = Wire::watched();
    let mut stream = Watched::new(near, &wire);
    stream.write_all(b"PING").await.expect("there is room");
    assert_eq!((wire.written(), wire.has_ended()), (Some(4), false));
    far.write_all(b"+PONG").await.expect("there is room");
    let mut answer = [0; 5];
    stream.read_exact(&mut answer).await.expect("it was sent");
    assert!(!wire.has_ended());
    drop(far);
    assert_eq!(stream.read(&mut answer).await.expect("the end"), 0);
    wire.until_over().await;
    assert!(stream.write_all(b"PING").await.is_err());
    assert_eq!(wire.written(), Some(4), "a failed write takes no byte");
}

#[tokio::test]
async fn small_writes_gather_from_the_next_one_on() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a port");
    let near = tokio::net::TcpStream::connect(listener.local_addr().expect("an address")).await;
    let wire = Wire::watched();
    let mut stream = Watched::new(near.expect("it listens"), &wire);
    stream.stream.set_nodelay(true).expect("a socket");
    for is_nagling in [false, true, true, false] {
        wire.set_nagle(is_nagling);
        stream.write_all(b"PING").await.expect("there is room");
        assert_eq!(stream.stream.nodelay().expect("a socket"), !is_nagling);
    }
}

#[cfg(target_os = "linux")]
#[tokio::test(start_paused = true)]
async fn nothing_is_written_to_a_connection_that_was_closed_at_rest() {
    for rest in [Duration::ZERO, AT_REST * 2] {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a port");
        let address = listener.local_addr().expect("an address");
        let near = tokio::net::TcpStream::connect(address)
            .await
            .expect("it listens");
        let (mut far, _) = listener.accept().await.expect("it was connected");
        let wire = Wire::watched();
        let mut stream = Watched::new(near, &wire);
        far.write_all(b"+PONG").await.expect("there is room");
        stream.read_exact(&mut [0; 5]).await.expect("it was sent");
        tokio::time::advance(rest).await;
        // A TLS server says goodbye before it closes.
        far.write_all(b"bye").await.expect("there is room");
        drop(far);
        let is_taken = stream.write_all(b"PING").await.is_ok();
        assert_eq!(
            (is_taken, wire.has_ended()),
            (rest.is_zero(), !rest.is_zero())
        );
        assert_eq!(wire.written(), Some(if is_taken { 4 } else { 0 }));
    }
}

#[tokio::test]
async fn a_stream_that_is_dropped_is_closed() {
    let wire = Wire::watched();
    let driver = Driver::start(
        {
            let stream = Watched::new(tokio::io::duplex(1).0, &wire);
            async move {
                let _stream = stream;
                std::future::pending::<()>().await;
            }
        },
        &wire,
    );
    drop(driver);
    wire.until_over().await;
}

#[tokio::test]
async fn a_call_that_the_task_of_its_connection_never_took_ends_with_the_task() {
    let wire = Wire::watched();
    let (end, ended) = tokio::sync::oneshot::channel::<()>();
    let driver = Driver::start(async move { drop(ended.await) }, &wire);
    let (mut early, mut stuck) = (
        pin!(wire.answer(async { 1 })),
        pin!(wire.answer(std::future::pending::<u8>())),
    );
    assert_eq!(early.as_mut().await, Some(1));
    assert!(
        stuck
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
            .is_pending()
    );
    end.send(()).expect("the task waits");
    assert_eq!(stuck.await, None);
    assert_eq!(
        wire.answer(std::future::pending::<u8>()).await,
        None,
        "a call after the end of the task"
    );
    assert_eq!(
        wire.answer(async { 2 }).await,
        Some(2),
        "an answer that came before the end"
    );
    drop(driver);
}

#[tokio::test(start_paused = true)]
async fn a_connection_of_another_owner_is_at_rest_without_answers() {
    let wire = Wire::unwatched();
    tokio::time::advance(AT_REST * 2).await;
    assert!(wire.is_at_rest() && wire.written().is_none());
    wire.answered();
    assert!(!wire.is_at_rest());
    assert!(!Wire::watched().is_at_rest());
}

#[tokio::test]
async fn answers_that_nobody_asked_for_end_the_stream() {
    let (near, mut far) = tokio::io::duplex(4_096);
    let wire = Wire::watched();
    let mut stream = Bounded::new(near, &ReplyBound::default(), &wire);
    let mut buffer = [0; 4_096];
    let answers = |count: usize| b"+OK\r\n".repeat(count);
    wire.asks(100);
    far.write_all(&answers(100 + MOST_UNASKED as usize))
        .await
        .expect("there is room");
    assert!(stream.read(&mut buffer).await.is_ok());
    far.write_all(&answers(1)).await.expect("there is room");
    let error = stream.read(&mut buffer).await.expect_err("one too many");
    assert_eq!(
        error.to_string(),
        "redis sent answers that nobody asked for"
    );
}
