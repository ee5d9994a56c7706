//! Sends what was counted since the last time to a statsd server.
//! The counters are in `registry.rs`. Nothing here delays a request.

use std::{collections::HashMap, io, pin::pin, time::Duration};

use tokio::{
    io::AsyncWriteExt,
    net::{TcpStream, UdpSocket, lookup_host},
    time::{MissedTickBehavior, interval, timeout},
};
use tollgate_rules::Rules;

use super::{
    Metrics,
    histogram::{BOUNDS_US, HistogramCounts},
    registry::METHOD,
};

/// Sends the metrics to a statsd server.
///
/// Counters are sent as differences. Response times are sent as one line for each bucket, with its
/// count as a sample rate. So the statsd server counts one time for each call, rounded up to the
/// bound of its bucket.
#[derive(Clone, Debug)]
pub struct Statsd {
    host: String,
    port: u16,
    protocol: StatsdProtocol,
    interval: Duration,
    tags: Vec<(String, String)>,
}

/// Selects how metrics are sent to a statsd server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StatsdProtocol {
    /// On one connection, as Envoy's service sends them by default. A connection that has ended is
    /// replaced with the next send.
    #[default]
    Tcp,
    /// In datagrams.
    Udp,
}

/// The most bytes of a datagram, which no network of Ethernet frames divides.
const DATAGRAM: usize = 1_432;

/// The longest time in which the metrics of one interval are sent.
const SENDING: Duration = Duration::from_secs(5);

impl Statsd {
    /// Creates an exporter that sends every ten seconds.
    #[must_use]
    pub fn new(host: impl Into<String>, port: u16, protocol: StatsdProtocol) -> Self {
        Self {
            host: host.into(),
            port,
            protocol,
            interval: Duration::from_secs(10),
            tags: Vec::new(),
        }
    }

    /// Sets the time between two sends, at least 1 ms.
    #[must_use]
    pub fn interval(mut self, interval: Duration) -> Self {
        self.interval = interval.max(Duration::from_millis(1));
        self
    }

    /// Adds tags to each name, in the form of Envoy's service: `name.__zone=a`.
    #[must_use]
    pub fn tags(mut self, mut tags: Vec<(String, String)>) -> Self {
        tags.retain(|(name, value)| !name.is_empty() && !value.is_empty());
        tags.sort();
        self.tags = tags;
        self
    }

    /// Sends the metrics until `end` is ready, and then once more what was counted since the last
    /// send.
    ///
    /// When the statsd server cannot be reached, the counts are part of the next send. A failure of
    /// the last send is only logged.
    pub async fn run(self, metrics: Metrics, rules: Rules, end: impl Future<Output = ()>) {
        let mut ticks = interval(self.interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut end = pin!(end);
        let mut sent = Sent::default();
        let mut connection = None;
        let mut was_sent = true;
        let mut is_over = false;
        while !is_over {
            tokio::select! {
                _ = ticks.tick() => {}
                () = &mut end => is_over = true,
            }
            let counters = metrics.counters(rules.loads());
            let times = metrics.response_times();
            let lines = self.lines(&sent, &counters, &times);
            if lines.is_empty() {
                continue;
            }
            let sending = timeout(SENDING, self.send(&lines, &mut connection));
            let result = sending
                .await
                .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
            if result.is_err() {
                connection = None;
            }
            match result {
                // The counts of an interval that was not sent are part of the next one.
                Ok(()) => {
                    sent = Sent {
                        counters: counters.into_iter().collect(),
                        times,
                    }
                }
                Err(ref error) if was_sent => {
                    tracing::warn!(host = self.host, port = self.port, %error, "metrics were not sent to statsd");
                }
                Err(_) => {}
            }
            was_sent = result.is_ok();
        }
    }

    /// Returns the lines for what was counted since the last send.
    fn lines(
        &self,
        sent: &Sent,
        counters: &[(String, u64)],
        times: &HistogramCounts,
    ) -> Vec<String> {
        let tags: String = self
            .tags
            .iter()
            .map(|(name, value)| format!(".__{name}={value}"))
            .collect();
        let mut lines = Vec::new();
        for (name, value) in counters {
            let new = value - sent.counters.get(name).copied().unwrap_or(0);
            if new > 0 {
                lines.push(format!("{name}{tags}:{new}|c\n"));
            }
        }
        for (at, (count, before)) in times.buckets.iter().zip(&sent.times.buckets).enumerate() {
            let ms = BOUNDS_US
                .get(at)
                .or(BOUNDS_US.last())
                .map_or(0.0, |us| *us as f64 / 1e3);
            let name = format!("ratelimit_server.{METHOD}.response_time{tags}");
            match count - before {
                0 => {}
                1 => lines.push(format!("{name}:{ms}|ms\n")),
                new => lines.push(format!("{name}:{ms}|ms|@{}\n", 1.0 / new as f64)),
            }
        }
        lines
    }

    async fn send(&self, lines: &[String], connection: &mut Option<TcpStream>) -> io::Result<()> {
        let address = (self.host.as_str(), self.port);
        if self.protocol == StatsdProtocol::Tcp {
            let stream = match connection.take().filter(is_open) {
                Some(stream) => stream,
                None => TcpStream::connect(address).await?,
            };
            return connection
                .insert(stream)
                .write_all(lines.concat().as_bytes())
                .await;
        }
        let address = lookup_host(address)
            .await?
            .next()
            .ok_or(io::ErrorKind::NotFound)?;
        let socket = UdpSocket::bind(if address.is_ipv4() {
            "0.0.0.0:0"
        } else {
            "[::]:0"
        })
        .await?;
        socket.connect(address).await?;
        let mut datagram = String::with_capacity(DATAGRAM);
        for line in lines {
            if datagram.len() + line.len() > DATAGRAM && !datagram.is_empty() {
                socket.send(datagram.as_bytes()).await?;
                datagram.clear();
            }
            datagram.push_str(line);
        }
        socket.send(datagram.as_bytes()).await.map(drop)
    }
}

/// Returns whether the server has not closed a connection. It sends nothing.
fn is_open(stream: &TcpStream) -> bool {
    stream
        .try_read(&mut [0])
        .is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
}

/// The counts that the server has.
#[derive(Default)]
struct Sent {
    counters: HashMap<String, u64>,
    times: HistogramCounts,
}
