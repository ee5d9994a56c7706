//! The stream to a server, whose messages have a bound. How it is dialled and who signs in
//! stand in `dial.rs`.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicI32, Ordering},
    },
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, TlsStream};

use crate::{
    error::Known,
    replies::{MessageScanner, ReplyBound},
};

/// The bytes that are read at a time.
const READ: usize = 8 * 1024;

/// A stream that passes messages within the bound. What it refuses, it replaces by the error that a
/// server would send in its place, and the end of the stream: so the client library answers those
/// that wait for the reply, and no others, with the reason.
pub(crate) struct Bounded<S> {
    stream: S,
    scanner: MessageScanner,
    /// The bytes that were read and not passed yet. The first `passes` of them may be.
    read: Vec<u8>,
    passes: usize,
    has_ended: bool,
    /// The end is not shown with the error before it: the client library would see it first.
    pauses: bool,
    process: Process,
}

/// The number of the process of the server that a connection names. 0 as long as it has named none.
#[derive(Clone, Default)]
pub(crate) struct Process(Arc<AtomicI32>);

impl Process {
    pub(crate) fn number(&self) -> i32 {
        self.0.load(Ordering::Relaxed)
    }
}

impl<S> Bounded<S> {
    pub(crate) fn new(stream: S, bound: &ReplyBound, process: &Process) -> Self {
        Self {
            stream,
            scanner: MessageScanner::new(bound.clone()),
            read: Vec::new(),
            passes: 0,
            has_ended: false,
            pauses: false,
            process: process.clone(),
        }
    }

    fn scan(&mut self) {
        let (passes, outcome) = self.scanner.scan(&self.read);
        self.passes = passes;
        if let Err(refusal) = outcome {
            self.read.truncate(passes);
            self.read.extend(message(refusal));
            (self.passes, self.has_ended, self.pauses) = (self.read.len(), true, true);
        }
        if let Some(number) = self.scanner.process {
            self.process.0.store(number, Ordering::Relaxed);
        }
    }
}

/// Returns the error message that stands for a refusal.
fn message(refusal: Known) -> Vec<u8> {
    let fields = format!("SFATAL\0VFATAL\0C{}\0M{}\0\0", Known::CODE, refusal.words);
    let length = (fields.len() as u32 + 4).to_be_bytes();
    [b"E", &length[..], fields.as_bytes()].concat()
}

impl<S: AsyncRead + Unpin> AsyncRead for Bounded<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        while this.passes == 0 && !this.has_ended {
            let kept = this.read.len();
            this.read.resize(kept + READ, 0);
            let mut part = ReadBuf::new(&mut this.read[kept..]);
            let polled = Pin::new(&mut this.stream).poll_read(cx, &mut part);
            let count = part.filled().len();
            this.read.truncate(kept + count);
            ready!(polled)?;
            match count {
                // A message that is not whole is of no use.
                0 => this.has_ended = true,
                _ => this.scan(),
            }
        }
        if this.passes == 0 && std::mem::take(&mut this.pauses) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let count = this.passes.min(buf.remaining());
        buf.put_slice(&this.read[..count]);
        this.read.drain(..count);
        this.passes -= count;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Bounded<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl<S: TlsStream + Unpin> TlsStream for Bounded<S> {
    fn channel_binding(&self) -> ChannelBinding {
        self.stream.channel_binding()
    }
}
