//! A server inside the runtime of a test whose clock is paused. Tokio's clock advances only while
//! all tasks wait, so that the events of one moment have one time, and a minute passes at once.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
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
    pings: mpsc::UnboundedReceiver<Instant>,
}

#[derive(Debug)]
struct Orders {
    round_trip_ms: AtomicU64,
    holds_checks: AtomicBool,
    /// The end of the current stall.
    stalls_until: Mutex<Option<Instant>>,
}

impl PausedServer {
    pub(crate) fn start() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let listener = UnixListener::bind(directory.path().join("socket")).expect("a socket");
        let orders = Arc::new(Orders {
            round_trip_ms: AtomicU64::new(0),
            holds_checks: AtomicBool::new(false),
            stalls_until: Mutex::default(),
        });
        let (report, pings) = mpsc::unbounded_channel();
        let serving = Arc::clone(&orders);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(serve(client, Arc::clone(&serving), report.clone()));
            }
        });
        Self {
            directory,
            orders,
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

    /// Returns when each PING came since the last call.
    pub(crate) fn pings(&mut self) -> Vec<Instant> {
        std::iter::from_fn(|| self.pings.try_recv().ok()).collect()
    }
}

async fn serve(client: UnixStream, orders: Arc<Orders>, report: mpsc::UnboundedSender<Instant>) {
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
        let mut reply = String::new();
        for word in String::from_utf8_lossy(&piece[..length]).split("\r\n") {
            match word {
                "CLIENT" => reply.push_str("+OK\r\n"),
                "EVAL" | "EVALSHA" if orders.holds_checks.load(Ordering::Relaxed) => held += 1,
                "EVAL" | "EVALSHA" => reply.push_str(ALLOWED),
                "DEL" => reply.push_str(":1\r\n"),
                "PING" => {
                    let _ = report.send(Instant::now());
                    reply.push_str(&ALLOWED.repeat(std::mem::take(&mut held)));
                    reply.push_str("+PONG\r\n");
                }
                _ => {}
            }
        }
        let round_trip = Duration::from_millis(orders.round_trip_ms.load(Ordering::Relaxed));
        let now = Instant::now();
        let stalls_until = orders
            .stalls_until
            .lock()
            .expect("no test panics there")
            .unwrap_or(now);
        if !reply.is_empty()
            && replies
                .send((now.max(stalls_until) + round_trip, reply))
                .is_err()
        {
            return;
        }
    }
}
