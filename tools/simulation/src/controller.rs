//! Decides how much a simulated process may have under way.

use std::time::Duration;

use crate::window::{Ticket, Window};

/// Names the controllers that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The window of the Redis store: the lines that run in production.
    Window,
    /// Four batches at a time, whatever the distance. The Redis store did so before it had a window.
    FourBatches,
}

/// Holds the state of a controller.
#[derive(Debug)]
pub(crate) enum Controller {
    Window(Window),
    FourBatches,
}

/// Belongs to a batch under way.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Leave {
    Window(Ticket),
    FourBatches,
}

const FOUR: usize = 4;

impl Controller {
    /// Creates a controller for a connection whose first answer took this long.
    pub(crate) fn new(kind: Kind, now: Duration, round_trip: Duration) -> Self {
        match kind {
            Kind::Window => Self::Window(Window::new(now, round_trip)),
            Kind::FourBatches => Self::FourBatches,
        }
    }

    /// Returns whether another batch may leave. The rule for few checks is left out, because it saves wake-ups, and these
    /// cost nothing here.
    pub(crate) fn allows(&mut self, now: Duration, batches: usize, keys: usize) -> bool {
        match self {
            Self::Window(window) => window.allows(batches, keys, false, || now),
            Self::FourBatches => batches < FOUR,
        }
    }

    /// Notes that a batch leaves.
    pub(crate) fn sent(&mut self, now: Duration, keys: usize) -> Leave {
        match self {
            Self::Window(_) => Leave::Window(Window::sent(now, keys)),
            Self::FourBatches => Leave::FourBatches,
        }
    }

    /// Notes an answer. `lag` is the time that the process took to take notice.
    pub(crate) fn answered(&mut self, now: Duration, leave: Leave, lag: Duration) {
        if let (Self::Window(window), Leave::Window(ticket)) = (self, leave) {
            window.answered(now, ticket, lag);
        }
    }
}
