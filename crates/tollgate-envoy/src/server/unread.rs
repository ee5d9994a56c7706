//! Ends connections whose clients do not read.
//! Clients that send nothing are ended in `connection.rs`.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Sleep, sleep},
};

/// The longest time in which a client takes no byte that waits for it.
const UNREAD: Duration = Duration::from_secs(30);

/// A stream that fails when its client takes nothing of what is written for too long.
pub(super) struct Unread<S> {
    stream: S,
    /// The end of the time of a client that takes nothing now.
    end: Option<Pin<Box<Sleep>>>,
}

impl<S: AsyncWrite + Unpin> Unread<S> {
    pub(super) fn new(stream: S) -> Self {
        Self { stream, end: None }
    }

    fn poll<T>(
        &mut self,
        cx: &mut Context<'_>,
        write: impl FnOnce(Pin<&mut S>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let written = write(Pin::new(&mut self.stream), cx);
        if written.is_ready() {
            self.end = None;
            return written;
        }
        let end = self.end.get_or_insert_with(|| Box::pin(sleep(UNREAD)));
        end.as_mut().poll(cx).map(|()| {
            Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "the client reads nothing",
            ))
        })
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
        self.poll(cx, |stream, cx| stream.poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll(cx, |stream, cx| stream.poll_write_vectored(cx, parts))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll(cx, |stream, cx| stream.poll_flush(cx))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll(cx, |stream, cx| stream.poll_shutdown(cx))
    }
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use tokio::{
        io::{AsyncWriteExt, duplex},
        sync::watch,
        time::Instant,
    };

    use super::*;
    use crate::server::connection::{Connections, Lifetimes};

    #[tokio::test(start_paused = true)]
    async fn a_client_that_never_reads_loses_its_place() {
        let (_end, ends) = watch::channel(false);
        let long = Duration::from_secs(3_600);
        let served = Connections::http(
            Router::new(),
            Lifetimes {
                age: long,
                idle: long,
                grace: long,
            },
            ends,
        );
        let (mut client, server) = duplex(1_024);
        let began = Instant::now();
        let (_full, fills) = watch::channel(false);
        tokio::spawn(async move { served.serve(server, fills).await });
        // The responses fill the way back, and then the server reads nothing more.
        while client
            .write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
            .await
            .is_ok()
        {}
        assert_eq!(began.elapsed(), UNREAD);
    }
}
