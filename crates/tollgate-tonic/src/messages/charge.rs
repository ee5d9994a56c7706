//! The choice of a user: which messages are charged, and to which limiter.
//! The charging itself is in `body.rs`, set up by `service.rs`.

use tollgate::Limiter;
#[cfg(doc)]
use tollgate::Policy;

/// Selects the messages of a call that are charged, and the limiter that they are charged to.
///
/// The charge for the call includes the first message in each direction, so a unary call costs the
/// same with and without this option. Each further message costs one unit, for the key of the call,
/// and has the [priority](tollgate_tower::RateLimitBuilder::priority) of the call. Messages of an
/// exempt call are free. A message is charged when its first byte arrives, before any of it is
/// passed on. The layer copies no message, and it reads no further while it waits for the store.
///
/// # What happens to a denied message
///
/// A denied message ends the call with the status of a denied call. The status stands in the
/// trailers of the response, or in the headers when the headers are not sent yet.
///
/// - The client receives what the handler has already sent, then this status in place of the
///   handler's.
/// - When the denied message came from the client, the handler receives the status as an error of
///   its request stream.
/// - The future and the response stream of the handler are dropped, as when the client cancels the
///   call.
///
/// # An even stream
///
/// With a [leaky bucket](Policy::leaky_bucket) as the limiter of messages, a message waits for its
/// turn before it is passed on, so the stream flows at the rate of the quota. A message is denied
/// only when the queue of the bucket, which is as long as the burst, is full. Other algorithms pass
/// messages at once.
///
/// ```
/// use tollgate::{Limiter, MemoryStore, Policy, Quota};
/// use tollgate_tonic::messages::MessageCharge;
///
/// let limiter = Limiter::new(MemoryStore::new(), Policy::token_bucket("messages", Quota::per_second(100)));
/// // Charges the messages in both directions, to a quota of their own.
/// let charge = MessageCharge::both().limiter(limiter);
/// # let _ = charge;
/// ```
#[derive(Clone, Debug)]
#[must_use = "a message charge has no effect until it is given to a `MessageLayer`"]
pub struct MessageCharge {
    direction: Charged,
    limiter: Option<Limiter>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Charged {
    Received,
    Sent,
    Both,
}

impl MessageCharge {
    /// Charges the messages that the server receives: the requests of client and bidirectional
    /// streams.
    pub fn received() -> Self {
        Self {
            direction: Charged::Received,
            limiter: None,
        }
    }

    /// Charges the messages that the server sends: the responses of server and bidirectional
    /// streams.
    pub fn sent() -> Self {
        Self {
            direction: Charged::Sent,
            limiter: None,
        }
    }

    /// Charges the messages in both directions.
    pub fn both() -> Self {
        Self {
            direction: Charged::Both,
            limiter: None,
        }
    }

    /// Sets the limiter that messages are charged to, so that they have a quota of their own.
    ///
    /// By default, messages are charged to the limiter of the call.
    pub fn limiter(mut self, limiter: Limiter) -> Self {
        self.limiter = Some(limiter);
        self
    }

    pub(super) fn own_limiter(&self) -> Option<Limiter> {
        self.limiter.clone()
    }

    pub(super) fn is_received(&self) -> bool {
        self.direction != Charged::Sent
    }

    pub(super) fn is_sent(&self) -> bool {
        self.direction != Charged::Received
    }
}
