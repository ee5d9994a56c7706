use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::connection::Wire;
use crate::{
    ErrorKind,
    redis::protocol::{ReplyBound, ReplyScanner, Told},
};

/// The most answers of a connection that no call of the store asked for. The client library asks a few times when it signs
/// in, and a server may push messages.
const MOST_UNASKED: u64 = 64;

/// A stream of replies that ends with the first one that is too long, and when answers come that nobody asked for.
#[derive(Debug)]
pub(super) struct Bounded<S> {
    stream: S,
    scanner: ReplyScanner,
    wire: Arc<Wire>,
    /// The number of replies that have come.
    replies: u64,
}

impl<S> Bounded<S> {
    pub(super) fn new(stream: S, bound: &ReplyBound, wire: &Arc<Wire>) -> Self {
        Self { stream, scanner: ReplyScanner::new(bound.clone()), wire: Arc::clone(wire), replies: 0 }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Bounded<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        self.replies += self.scanner.scan(&buffer.filled()[before..])?;
        if self.replies > self.wire.asked() + MOST_UNASKED {
            return Poll::Ready(Err(Told::error(ErrorKind::Protocol, "redis sent answers that nobody asked for")));
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Bounded<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn answers_that_nobody_asked_for_end_the_stream() {
        let (near, mut far) = tokio::io::duplex(4_096);
        let wire = Wire::watched();
        let mut stream = Bounded::new(near, &ReplyBound::default(), &wire);
        let mut buffer = [0; 4_096];
        let answers = |count: usize| b"+OK\r\n".repeat(count);
        wire.asks(100);
        far.write_all(&answers(100 + MOST_UNASKED as usize)).await.expect("there is room");
        assert!(stream.read(&mut buffer).await.is_ok());
        far.write_all(&answers(1)).await.expect("there is room");
        let error = stream.read(&mut buffer).await.expect_err("one too many");
        assert_eq!(error.to_string(), "redis sent answers that nobody asked for");
    }
}
