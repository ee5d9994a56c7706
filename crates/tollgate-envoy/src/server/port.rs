//! Accepts the connections of one port, up to a bound.
//! What happens on a connection is in `connection.rs`.

use std::{future::pending, io, sync::Arc, time::Duration};

use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, sleep_until},
};

use super::{
    connection::Connections,
    listen::{Listener, Stream},
    tls::ReloadedTls,
};
use crate::{Metrics, metrics::Counted};

/// The time after the first connection that the system does not accept, and the longest one after
/// many.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// The most spare connections of a port. Each one ends within two seconds.
const MOST_SPARE: usize = 4;

/// The least time between two log lines of one kind.
const QUIET: Duration = Duration::from_secs(60);

/// An open port.
pub(super) struct Port {
    pub(super) what: &'static str,
    pub(super) listener: Listener,
    pub(super) tls: Option<ReloadedTls>,
    pub(super) max_connections: usize,
    /// Serves some more connections while the port is full.
    pub(super) spare: Option<Connections>,
}

impl Port {
    /// Serves until `end`, and then until all calls have ended.
    ///
    /// A port with its most connections accepts the next one when another one ends, or serves it as
    /// a spare one. The other ports go on.
    pub(super) async fn serve(
        self,
        served: Connections,
        metrics: Metrics,
        mut end: watch::Receiver<bool>,
    ) {
        let Self {
            what,
            listener,
            tls,
            max_connections,
            spare,
        } = self;
        let (served, spare) = (Arc::new(served), spare.map(Arc::new));
        let most_spare = (max_connections / 8).clamp(1, MOST_SPARE);
        let mut acceptor = Acceptor {
            what,
            listener,
            metrics: metrics.clone(),
            pause: PAUSES.0,
            until: None,
            said: None,
        };
        let (mut connections, mut spares) = (JoinSet::new(), JoinSet::new());
        // Clients without a call give way while the port is full.
        let (full, is_full) = watch::channel(false);
        let mut said = None;
        {
            let mut certificates = std::pin::pin!(async {
                match &tls {
                    Some(tls) => tls.watch().await,
                    None => pending().await,
                }
            });
            // An error means that the server was dropped.
            let mut over = std::pin::pin!(async { drop(end.wait_for(|is_over| *is_over).await) });
            loop {
                let has_room = connections.len() < max_connections;
                full.send_if_modified(|full| std::mem::replace(full, !has_room) == has_room);
                let spare = spare
                    .as_ref()
                    .filter(|_| !has_room && spares.len() < most_spare);
                let stream = tokio::select! {
                    () = &mut over => break,
                    () = &mut certificates => continue,
                    Some(_) = connections.join_next() => continue,
                    Some(_) = spares.join_next() => continue,
                    stream = acceptor.accept(), if has_room || spare.is_some() => stream,
                };
                let (served, is_full) = (Arc::clone(spare.unwrap_or(&served)), is_full.clone());
                let connections = match spare {
                    Some(_) => &mut spares,
                    None => &mut connections,
                };
                match (stream, &tls) {
                    (Stream::Tcp(stream), None) => {
                        connections.spawn(async move { served.serve(stream, is_full).await })
                    }
                    (Stream::Unix(stream), _) => {
                        connections.spawn(async move { served.serve(stream, is_full).await })
                    }
                    (Stream::Tcp(stream), Some(tls)) => {
                        let handshake = tls.accept(stream);
                        connections.spawn(async move {
                            if let Some(stream) = handshake.await {
                                served.serve(stream, is_full).await;
                            }
                        })
                    }
                };
                if spare.is_none() && connections.len() == max_connections {
                    metrics.count(Counted::FullPorts, 1);
                    if is_due(&mut said) {
                        tracing::warn!(
                            port = what,
                            max_connections,
                            "further connections wait until one ends"
                        );
                    }
                }
            }
        }
        drop(acceptor);
        while connections.join_next().await.is_some() {}
        while spares.join_next().await.is_some() {}
    }
}

/// Accepts connections, and waits longer after each one that the system did not accept.
struct Acceptor {
    what: &'static str,
    listener: Listener,
    metrics: Metrics,
    pause: Duration,
    /// The end of the pause that has begun. The future may be dropped in it.
    until: Option<Instant>,
    said: Option<Instant>,
}

impl Acceptor {
    async fn accept(&mut self) -> Stream {
        loop {
            if let Some(until) = self.until {
                sleep_until(until).await;
                self.until = None;
            }
            match self.listener.accept().await {
                Ok(stream) => {
                    self.pause = PAUSES.0;
                    return stream;
                }
                Err(error) if is_of_client(&error) => {}
                Err(error) => {
                    // The process may have no descriptor left. It has again when connections end.
                    self.metrics.count(Counted::AcceptErrors, 1);
                    if is_due(&mut self.said) {
                        tracing::error!(port = self.what, %error, "connections cannot be accepted");
                    }
                    self.until = Some(Instant::now() + self.pause);
                    self.pause = (self.pause * 2).min(PAUSES.1);
                }
            }
        }
    }
}

/// Returns whether the client has ended the connection before it was accepted.
fn is_of_client(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};

    matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset
    )
}

/// Returns whether a line may be logged again, and notes that it is.
fn is_due(said: &mut Option<Instant>) -> bool {
    let now = Instant::now();
    let is_due = said.is_none_or(|said| now.duration_since(said) >= QUIET);
    if is_due {
        *said = Some(now);
    }
    is_due
}
