//! Ends connections whose clients do not read.
//! Clients that send nothing are ended in `connection.rs`.

use std::{
    future::pending,
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::watch,
    time::{Instant, sleep},
};

/// The longest time in which a client takes all that waits for it.
const UNREAD: Duration = Duration::from_secs(30);

/// The same where the port has no place for another client.
const UNREAD_OF_MANY: Duration = Duration::from_secs(1);

/// The bytes that a client takes in this time to have it again for the next answers.
const PROGRESS: usize = 1 << 20;

/// The time after an answer in which the next one belongs to it. A client that sends many requests
/// and reads no answer lets the system take one answer now and then.
const PAUSE: Duration = Duration::from_secs(1);

/// A stream that fails when its client lets the server wait for too long.
///
/// The time is that of a whole answer: it does not begin anew when a part of it was taken.
pub(super) struct Unread<S> {
    stream: S,
    is_full: watch::Receiver<bool>,
    wait: Option<Wait>,
}

/// The time of a client for which bytes wait.
struct Wait {
    end: Pin<Box<dyn Future<Output = ()> + Send>>,
    is_over: bool,
    /// The bytes that were taken since the time began.
    taken: usize,
    /// The time since which nothing waits.
    all_taken: Option<Instant>,
}

impl Wait {
    fn new(is_full: watch::Receiver<bool>) -> Self {
        Self {
            end: Box::pin(async {
                tokio::select! {
                    () = sleep(UNREAD) => {}
                    () = gives_way(is_full) => {}
                }
            }),
            is_over: false,
            taken: 0,
            all_taken: None,
        }
    }

    /// Returns whether the next byte that waits has a time of its own.
    fn has_ended(&self) -> bool {
        self.all_taken.is_some_and(|at| at.elapsed() >= PAUSE)
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.is_over = self.is_over || self.end.as_mut().poll(cx).is_ready();
        if self.is_over {
            return Poll::Ready(());
        }
        Poll::Pending
    }
}

/// Waits until the port is full, and for some time at least.
async fn gives_way(mut is_full: watch::Receiver<bool>) {
    sleep(UNREAD_OF_MANY).await;
    if is_full.wait_for(|is_full| *is_full).await.is_err() {
        pending::<()>().await;
    }
}

impl<S> Unread<S> {
    /// Watches the client of a stream. `is_full` says whether further clients wait for a place.
    pub(super) fn new(stream: S, is_full: watch::Receiver<bool>) -> Self {
        Self {
            stream,
            is_full,
            wait: None,
        }
    }

    /// Fails when the client has let the server wait for too long.
    fn wait<T>(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        let mut wait = self
            .wait
            .take()
            .filter(|wait| !wait.has_ended())
            .unwrap_or_else(|| Wait::new(self.is_full.clone()));
        wait.all_taken = None;
        let polled = self.wait.insert(wait).poll(cx);
        polled.map(|()| {
            Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "the client reads nothing",
            ))
        })
    }

    fn written(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if written.is_pending() {
            return self.wait(cx);
        }
        if let (Poll::Ready(Ok(bytes)), Some(wait)) = (&written, &mut self.wait) {
            wait.taken = wait.taken.saturating_add(*bytes);
        }
        written
    }

    /// Notes that all was taken, or waits for it.
    fn flushed(
        &mut self,
        cx: &mut Context<'_>,
        flushed: Poll<io::Result<()>>,
    ) -> Poll<io::Result<()>> {
        if flushed.is_pending() {
            return self.wait(cx);
        }
        self.wait = self.wait.take().filter(|wait| wait.taken < PROGRESS);
        if let Some(wait) = &mut self.wait {
            wait.all_taken.get_or_insert_with(Instant::now);
        }
        flushed
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Unread<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Unread<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.written(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, parts);
        self.written(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.flushed(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let ended = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.flushed(cx, ended)
    }
}

#[cfg(test)]
mod tests {
    use axum::{Router, routing::get};
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex},
        task::JoinHandle,
    };

    use super::*;
    use crate::server::connection::{Connections, Lifetimes};

    /// A connection through a pipe of 1 kB.
    struct Served {
        client: DuplexStream,
        served: JoinHandle<()>,
        /// Says whether the port is full.
        full: watch::Sender<bool>,
        _end: watch::Sender<bool>,
    }

    fn serve() -> Served {
        let (end, ends) = watch::channel(false);
        let long = Duration::from_secs(3_600);
        let lifetimes = Lifetimes {
            age: long,
            idle: long,
            grace: long,
        };
        let page = Router::new().route("/page", get(|| async { "a".repeat(PAGE) }));
        let connections = Connections::http(page, lifetimes, ends);
        let (client, server) = duplex(1_024);
        let (full, fills) = watch::channel(false);
        Served {
            client,
            served: tokio::spawn(async move { connections.serve(server, fills).await }),
            full,
            _end: end,
        }
    }

    /// The bytes of a large page.
    const PAGE: usize = 3 << 20;

    const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n";

    /// Sends requests until the server reads no more of them.
    async fn fill(client: &mut DuplexStream) {
        let all = REQUEST.repeat(1_000);
        tokio::time::timeout(Duration::from_millis(1), client.write_all(&all))
            .await
            .unwrap_err();
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_never_reads_loses_its_place() {
        let mut connection = serve();
        let began = Instant::now();
        // The responses fill the way back, and then the server reads nothing more.
        while connection.client.write_all(REQUEST).await.is_ok() {}
        assert_eq!(began.elapsed(), UNREAD);
    }

    #[tokio::test(start_paused = true)]
    async fn parts_that_the_system_takes_give_a_client_no_more_time() {
        let mut connection = serve();
        fill(&mut connection.client).await;
        let mut part = [0; 200];
        for _ in 0..2 {
            tokio::time::sleep(UNREAD / 3).await;
            assert!(!connection.served.is_finished());
            connection.client.read_exact(&mut part).await.unwrap();
        }
        let ended = tokio::time::timeout(UNREAD / 2, connection.served).await;
        ended.expect("the server ends it").unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_late_and_then_all_keeps_its_place() {
        let mut connection = serve();
        let mut answer = vec![0; 100_000];
        for round in 0..5 {
            for _ in 0..20 {
                connection.client.write_all(REQUEST).await.unwrap();
            }
            tokio::time::sleep(UNREAD / 2).await;
            assert!(!connection.served.is_finished(), "{round}");
            // All answers of this round.
            let all = async {
                loop {
                    assert!(connection.client.read(&mut answer).await.unwrap() > 0);
                }
            };
            tokio::time::timeout(PAUSE * 2, all).await.unwrap_err();
        }
        assert!(!connection.served.is_finished());
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_large_answers_one_after_the_other_keeps_its_place() {
        let mut connection = serve();
        let request = b"GET /page HTTP/1.1\r\nhost: a\r\n\r\n".repeat(10);
        connection.client.write_all(&request).await.unwrap();
        let (mut read, mut buffer) = (0, vec![0; PAGE / 1_000]);
        while read < 10 * PAGE {
            read += connection.client.read(&mut buffer).await.unwrap();
            // A page takes a good third of the time.
            tokio::time::sleep(Duration::from_millis(4)).await;
            assert!(!connection.served.is_finished(), "{read}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_read_gives_way_when_the_port_is_full() {
        let mut connection = serve();
        let began = Instant::now();
        fill(&mut connection.client).await;
        connection.full.send_replace(true);
        connection.served.await.unwrap();
        assert_eq!(began.elapsed(), UNREAD_OF_MANY);
    }
}
