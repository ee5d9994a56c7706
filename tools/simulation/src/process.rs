//! Models one process: its callers, its queue, and what it has under way.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::LazyLock,
    time::{Duration, Instant},
};

use crate::{
    line::{Line, Route},
    pacer::{Pacer, Ticket},
    time::Nanos,
};

/// Describes a process.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    pub(crate) callers: usize,
    pub(crate) route: Route,
    /// The time at which its callers begin, and the time at which they end.
    pub(crate) from: Nanos,
    pub(crate) until: Nanos,
}

/// Holds the state of a process.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) client: Client,
    pacer: Pacer,
    pub(crate) to_server: Line,
    pub(crate) back: Line,
    /// The times at which the waiting checks were asked for.
    queue: VecDeque<Nanos>,
    /// The batches under way, by their numbers.
    batches: BTreeMap<u64, Batch>,
    /// The round trip of the last answer.
    round_trip: Nanos,
    /// The checks that were not sent because their answer would come after the deadline. Their
    /// callers still wait.
    given_up: usize,
    /// The time from which the core of the process is free.
    free_at: Nanos,
}

#[derive(Debug)]
struct Batch {
    ticket: Ticket,
    sent: Nanos,
    keys: usize,
    /// The times at which its checks were asked for. A caller that left has no entry.
    asked: Vec<Nanos>,
}

/// Holds what became of an answered batch.
#[derive(Debug)]
pub(crate) struct Answered {
    /// The latencies of the checks whose callers still waited.
    pub(crate) latencies: Vec<Nanos>,
    /// The time from which these callers ask again.
    pub(crate) again: Nanos,
}

/// The most keys in a batch.
const MOST_KEYS: usize = 64;

/// The time of the process for a check. It was measured with 256 callers.
pub(crate) const CHECK: Nanos = 900;

/// The time after which a caller leaves: the default deadline of a limiter.
const DEADLINE: Nanos = 50_000_000;

/// The begin of the simulated time. Only differences to it count.
static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);

fn instant(now: Nanos) -> Instant {
    *BEGAN + Duration::from_nanos(now)
}

impl Process {
    /// Creates a process that connects now. Its first call waits for so long at the server.
    pub(crate) fn new(number: usize, client: Client, now: Nanos, wait: Nanos) -> Self {
        let seed = number as u64 + 1;
        let round_trip = client.route.round_trip(now) + wait;
        let mut pacer = Pacer::new(instant(now));
        pacer.connected(
            1,
            instant(now),
            || Duration::from_nanos(now),
            Duration::from_nanos(round_trip),
        );
        Self {
            pacer,
            to_server: Line::new(&client.route, false, seed),
            back: Line::new(&client.route, true, seed),
            queue: VecDeque::new(),
            batches: BTreeMap::new(),
            round_trip,
            given_up: 0,
            free_at: now,
            client,
        }
    }

    /// Adds checks to the queue.
    pub(crate) fn ask(&mut self, now: Nanos, checks: usize) {
        if now < self.client.until {
            self.queue.extend(std::iter::repeat_n(now, checks));
        }
    }

    /// Cuts a batch if another one may leave. Returns its keys.
    pub(crate) fn send(&mut self, now: Nanos, number: u64) -> Option<usize> {
        // Without this, all callers would be late where the queue is longer than the deadline. With
        // nothing under way no answer would tell that the round trip is shorter again, so a check
        // is sent in any case.
        let is_late =
            |asked: &Nanos| !self.batches.is_empty() && asked + DEADLINE < now + self.round_trip;
        while self.queue.front().is_some_and(is_late) {
            self.queue.pop_front();
            self.given_up += 1;
        }
        let waiting = self.queue.len();
        if waiting == 0 || !self.pacer.may_leave(instant(now), waiting) {
            return None;
        }
        let keys = self.pacer.share(waiting).keys.min(waiting).min(MOST_KEYS);
        let asked = self.queue.drain(..keys).collect();
        // A key has one check here.
        let ticket = self.pacer.sent(instant(now), keys, keys);
        self.batches.insert(
            number,
            Batch {
                ticket,
                sent: now,
                keys,
                asked,
            },
        );
        Some(keys)
    }

    /// Takes the answer to a batch. The core works on one answer after another.
    pub(crate) fn answer(&mut self, now: Nanos, number: u64) -> Answered {
        let Some(batch) = self.batches.remove(&number) else {
            return Answered {
                latencies: Vec::new(),
                again: now,
            };
        };
        let noticed = self.free_at.max(now);
        self.pacer.lagged(Duration::from_nanos(noticed - now));
        self.pacer.answered(instant(noticed), batch.ticket);
        self.round_trip = now - batch.sent;
        self.free_at = noticed + CHECK * batch.keys as Nanos;
        let latencies = batch
            .asked
            .iter()
            .map(|asked| self.free_at - asked)
            .collect();
        Answered {
            latencies,
            again: self.free_at,
        }
    }

    /// Lets the callers leave whose deadline has passed, and returns their number.
    pub(crate) fn expire(&mut self, now: Nanos) -> usize {
        let is_late = |asked: &Nanos| asked + DEADLINE <= now;
        let mut late = std::mem::take(&mut self.given_up);
        while self.queue.front().is_some_and(is_late) {
            self.queue.pop_front();
            late += 1;
        }
        for batch in self
            .batches
            .values_mut()
            .filter(|batch| batch.asked.iter().any(is_late))
        {
            let before = batch.asked.len();
            batch.asked.retain(|asked| !is_late(asked));
            late += before - batch.asked.len();
        }
        late
    }
}
