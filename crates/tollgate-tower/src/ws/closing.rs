//! The end of a socket that its limit closes.
//! When a socket is closed is decided in `mod.rs`, and its code in `refusal.rs`.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::{
    Error,
    extract::ws::{CloseFrame, Message},
};
use futures_core::Stream;
use futures_sink::Sink;
use tokio::time::{Sleep, sleep};

/// The time that the client has to receive the close frame and to answer it.
const MAX_TIME: Duration = Duration::from_secs(2);

/// Sends a close frame, and reads until the client has answered it.
///
/// Discards what it receives meanwhile. A socket that is dropped with unread messages resets the
/// connection, and the close frame may be lost.
pub(super) struct Closing {
    sending: Sending,
    time_left: Pin<Box<Sleep>>,
}

enum Sending {
    Frame(Message),
    Flush,
    Done,
}

impl Closing {
    pub(super) fn new(frame: CloseFrame) -> Self {
        Self {
            sending: Sending::Frame(Message::Close(Some(frame))),
            time_left: Box::pin(sleep(MAX_TIME)),
        }
    }

    pub(super) fn poll<S>(&mut self, socket: &mut S, cx: &mut Context<'_>) -> Poll<()>
    where
        S: Stream<Item = Result<Message, Error>> + Sink<Message, Error = Error> + Unpin,
    {
        if let Poll::Ready(Err(_)) = self.poll_send(socket, cx) {
            return Poll::Ready(());
        }
        // Reads also while the frame waits: a client whose own messages are not read may read
        // nothing either.
        while let Poll::Ready(received) = Pin::new(&mut *socket).poll_next(cx) {
            if !matches!(received, Some(Ok(_))) {
                return Poll::Ready(());
            }
        }
        self.time_left.as_mut().poll(cx)
    }

    fn poll_send<S>(&mut self, socket: &mut S, cx: &mut Context<'_>) -> Poll<Result<(), Error>>
    where
        S: Sink<Message, Error = Error> + Unpin,
    {
        if let Sending::Frame(frame) = &self.sending {
            ready!(Pin::new(&mut *socket).poll_ready(cx))?;
            Pin::new(&mut *socket).start_send(frame.clone())?;
            self.sending = Sending::Flush;
        }
        if let Sending::Flush = self.sending {
            ready!(Pin::new(&mut *socket).poll_flush(cx))?;
            self.sending = Sending::Done;
        }
        Poll::Ready(Ok(()))
    }
}
