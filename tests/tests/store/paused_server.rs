//! A server inside the runtime of a test whose clock is paused. Tokio's clock advances only while
//! all tasks wait, so that the events of one moment have one time, and a minute passes at once.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{UnixListener, UnixStream},
    sync::mpsc,
    time::{Instant, sleep_until},
};
use tollgate::{Policy, Quota};

/// The policy whose checks the server allows.
pub(crate) const HOURLY: Policy = Policy::token_bucket("hourly", Quota::per_hour(5));

/// The reply that allows one check of [`HOURLY`]: a fresh bucket is full again after an hour's
/// fifth.
const ALLOWED: &str = ":720000000\r\n";

/// A server that answers PING and allows every check. It listens on a socket of the file system:
/// what is written there can be read at once, while the system may deliver bytes of a TCP
/// connection later.
#[derive(Debug)]
pub(crate) struct PausedServer {
    directory: TempDir,
    orders: Arc<Orders>,
    counts: Arc<Counts>,
    pings: mpsc::UnboundedReceiver<Instant>,
}

#[derive(Debug, Default)]
struct Orders {
    round_trip_ms: AtomicU64,
    holds_checks: AtomicBool,
    /// The end of the current stall.
    stalls_until: Mutex<Option<Instant>>,
    /// The number of connections, of those accepted first, that are forgotten.
    forgotten: AtomicUsize,
}

#[derive(Debug, Default)]
struct Counts {
    accepted: AtomicUsize,
    answered: AtomicUsize,
    swallowed: AtomicUsize,
}

/// The checks that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Checks {
    /// On connections that the server knows.
    pub(crate) answered: usize,
    /// On those that it has forgotten.
    pub(crate) swallowed: usize,
}

impl PausedServer {
    pub(crate) fn start() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let listener = UnixListener::bind(directory.path().join("socket")).expect("a socket");
        let (orders, counts) = (Arc::<Orders>::default(), Arc::<Counts>::default());
        let (report, pings) = mpsc::unbounded_channel();
        let (seen, counting) = (Arc::clone(&orders), Arc::clone(&counts));
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let connection = Served {
                    number: counting.accepted.fetch_add(1, Ordering::Relaxed),
                    orders: Arc::clone(&seen),
                    counts: Arc::clone(&counting),
                    report: report.clone(),
                };
                tokio::spawn(connection.serve(client));
            }
        });
        Self {
            directory,
            orders,
            counts,
            pings,
        }
    }

    pub(crate) fn url(&self) -> String {
        format!(
            "redis+unix://{}",
            self.directory.path().join("socket").display()
        )
    }

    /// Sets the time from a command to its reply.
    pub(crate) fn set_round_trip(&self, round_trip: Duration) {
        self.orders
            .round_trip_ms
            .store(round_trip.as_millis() as u64, Ordering::Relaxed);
    }

    /// Holds back the replies to checks. They come before that to the next PING.
    pub(crate) fn hold_checks(&self, holds: bool) {
        self.orders.holds_checks.store(holds, Ordering::Relaxed);
    }

    /// Stands still for so long. What comes meanwhile is answered at the end.
    pub(crate) fn stall(&self, time: Duration) {
        *self
            .orders
            .stalls_until
            .lock()
            .expect("no test panics there") = Some(Instant::now() + time);
    }

    /// Reads on from the connections that are open and answers nothing on them, as a NAT that has
    /// forgotten them. New ones are answered.
    pub(crate) fn forget_all(&self) {
        self.orders
            .forgotten
            .store(self.accepted(), Ordering::Relaxed);
    }

    /// Counts the connections since the start.
    pub(crate) fn accepted(&self) -> usize {
        self.counts.accepted.load(Ordering::Relaxed)
    }

    /// Counts the checks since the start.
    pub(crate) fn checks(&self) -> Checks {
        Checks {
            answered: self.counts.answered.load(Ordering::Relaxed),
            swallowed: self.counts.swallowed.load(Ordering::Relaxed),
        }
    }

    /// Returns when each PING came since the last call.
    pub(crate) fn pings(&mut self) -> Vec<Instant> {
        std::iter::from_fn(|| self.pings.try_recv().ok()).collect()
    }
}

/// A connection of the server.
struct Served {
    /// How many were accepted before it.
    number: usize,
    orders: Arc<Orders>,
    counts: Arc<Counts>,
    report: mpsc::UnboundedSender<Instant>,
}

impl Served {
    async fn serve(self, client: UnixStream) {
        let (mut from, mut to) = client.into_split();
        let (replies, mut due) = mpsc::unbounded_channel::<(Instant, String)>();
        tokio::spawn(async move {
            while let Some((at, reply)) = due.recv().await {
                sleep_until(at).await;
                if to.write_all(reply.as_bytes()).await.is_err() {
                    return;
                }
            }
        });
        let (mut piece, mut held) = ([0; 16 * 1_024], 0);
        while let Ok(length @ 1..) = from.read(&mut piece).await {
            let is_forgotten = self.number < self.orders.forgotten.load(Ordering::Relaxed);
            let mut reply = String::new();
            for word in String::from_utf8_lossy(&piece[..length]).split("\r\n") {
                self.answer(word, is_forgotten, &mut held, &mut reply);
            }
            let round_trip =
                Duration::from_millis(self.orders.round_trip_ms.load(Ordering::Relaxed));
            let now = Instant::now();
            let stalls_until = self
                .orders
                .stalls_until
                .lock()
                .expect("no test panics there")
                .unwrap_or(now);
            if !reply.is_empty()
                && !is_forgotten
                && replies
                    .send((now.max(stalls_until) + round_trip, reply))
                    .is_err()
            {
                return;
            }
        }
    }

    /// Adds the reply to a command, of which this is a word.
    fn answer(&self, word: &str, is_forgotten: bool, held: &mut usize, reply: &mut String) {
        match word {
            "CLIENT" => reply.push_str("+OK\r\n"),
            "EVAL" | "EVALSHA" => {
                let count = match is_forgotten {
                    true => &self.counts.swallowed,
                    false => &self.counts.answered,
                };
                count.fetch_add(1, Ordering::Relaxed);
                match self.orders.holds_checks.load(Ordering::Relaxed) {
                    true => *held += 1,
                    false => reply.push_str(ALLOWED),
                }
            }
            "DEL" => reply.push_str(":1\r\n"),
            "PING" => {
                let _ = self.report.send(Instant::now());
                reply.push_str(&ALLOWED.repeat(std::mem::take(held)));
                reply.push_str("+PONG\r\n");
            }
            _ => {}
        }
    }
}
