//! Decides how much a simulated process may have under way.

use std::{
    sync::LazyLock,
    time::{Duration, Instant},
};

use crate::{
    pacer::{Pacer, Ticket},
    time::Nanos,
};

/// Names the controllers that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The pacer of the Redis store: the lines that run in production.
    Pacer,
    /// Four batches at a time, whatever the distance. The Redis store did so before it had a pacer.
    FourBatches,
}

/// Holds the state of a controller.
#[derive(Debug)]
pub(crate) enum Controller {
    Pacer(Box<Pacer>),
    FourBatches { batches: usize, keys: usize },
}

/// Belongs to a batch under way.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Leave {
    Pacer(Ticket),
    FourBatches { keys: usize },
}

const FOUR: usize = 4;

/// The begin of the simulated time. Only differences to it count.
static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);

fn instant(now: Nanos) -> Instant {
    *BEGAN + Duration::from_nanos(now)
}

impl Controller {
    /// Creates a controller for a connection whose first answer took this long.
    pub(crate) fn new(kind: Kind, now: Nanos, round_trip: Nanos) -> Self {
        match kind {
            Kind::Pacer => {
                let mut pacer = Pacer::new(instant(now));
                let since_epoch = || Duration::from_nanos(now);
                pacer.connected(1, instant(now), since_epoch, Duration::from_nanos(round_trip));
                Self::Pacer(pacer.into())
            }
            Kind::FourBatches => Self::FourBatches { batches: 0, keys: 0 },
        }
    }

    /// Returns how many keys the next batch may take, if one may leave while so many checks wait.
    pub(crate) fn share(&mut self, now: Nanos, waiting: usize) -> Option<usize> {
        match self {
            Self::Pacer(pacer) => pacer.may_leave(instant(now), waiting).then(|| pacer.share(waiting).keys),
            Self::FourBatches { batches, keys } => (*batches < FOUR).then(|| (waiting + *keys).div_ceil(FOUR)),
        }
    }

    /// Notes that a batch leaves. A key has one check here.
    pub(crate) fn sent(&mut self, now: Nanos, taken: usize) -> Leave {
        match self {
            Self::Pacer(pacer) => Leave::Pacer(pacer.sent(instant(now), taken, taken)),
            Self::FourBatches { batches, keys } => {
                *batches += 1;
                *keys += taken;
                Leave::FourBatches { keys: taken }
            }
        }
    }

    /// Notes an answer. `lag` is the time that the process took to take notice.
    pub(crate) fn answered(&mut self, now: Nanos, leave: Leave, lag: Nanos) {
        match (self, leave) {
            (Self::Pacer(pacer), Leave::Pacer(ticket)) => {
                pacer.lagged(Duration::from_nanos(lag));
                pacer.answered(instant(now), ticket);
            }
            (Self::FourBatches { batches, keys }, Leave::FourBatches { keys: taken }) => {
                *batches -= 1;
                *keys -= taken;
            }
            (Self::Pacer(_), Leave::FourBatches { .. }) | (Self::FourBatches { .. }, Leave::Pacer(_)) => {}
        }
    }
}
