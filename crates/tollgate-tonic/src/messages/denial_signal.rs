//! Signals the response of a call that a message of its request was denied. The call ends outside the handler, because a handler may
//! ignore an error in its request stream.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use tokio::sync::oneshot;
use tonic::Status;

/// Creates the two ends of a signal.
pub(super) fn denial_channel() -> (DenialSender, DenialReceiver) {
    let (sender, receiver) = oneshot::channel();
    (DenialSender(Some(sender)), DenialReceiver(Some(receiver)))
}

pub(super) struct DenialSender(Option<oneshot::Sender<Status>>);

impl DenialSender {
    /// Sends the status. Only the first call has an effect.
    pub(super) fn send(&mut self, status: &Status) {
        if let Some(sender) = self.0.take() {
            // The receiver is gone when the response is complete: then there is nothing to end.
            let _ = sender.send(status.clone());
        }
    }
}

/// Receives the status at most once. The default receives nothing.
#[derive(Default)]
pub(super) struct DenialReceiver(Option<oneshot::Receiver<Status>>);

impl DenialReceiver {
    /// Returns the status when a message was denied; otherwise registers the task to be woken.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Option<Status> {
        let receiver = self.0.as_mut()?;
        let Poll::Ready(status) = Pin::new(receiver).poll(cx) else { return None };
        self.0 = None;
        status.ok()
    }

    /// Returns whether a status can still arrive.
    pub(super) fn is_open(&self) -> bool {
        self.0.is_some()
    }
}
