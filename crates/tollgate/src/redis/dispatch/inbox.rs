use std::sync::Arc;

use tokio::sync::Notify;

use super::{known_scripts::KnownScripts, load::Load, queue::Queue, request::QueuedCheck, traffic::Traffic};

/// The queue before a server, and the signal that a check was added or the queue was closed.
#[derive(Debug)]
pub(super) struct Inbox {
    pub(super) queue: Queue<QueuedCheck>,
    pub(super) wake: Notify,
    pub(super) load: Load,
    pub(super) traffic: Traffic,
    pub(super) scripts: KnownScripts,
}

impl Inbox {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            queue: Queue::new(),
            wake: Notify::new(),
            load: Load::new(),
            traffic: Traffic::new(),
            scripts: KnownScripts::default(),
        })
    }
}
