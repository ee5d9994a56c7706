//! The one connection that all checks share, and the keeper that replaces it at its end.
//! Its state, which a model checker runs, is in `dial_state.rs`; how one is opened is in
//! `dialer.rs`.

use std::{
    fmt,
    pin::pin,
    sync::{
        Arc, Weak,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::watch,
    time::{Instant, sleep, timeout},
};

use super::{
    connection::{Connection, Wire},
    dial_state::{ConnectionLookup, Dial, DialState, Numbered},
    dialer::{Address, Dialer, Opened},
    pool::Pool,
    sentinel::Sentinels,
};
use crate::protocol::ReplyBound;
use tollgate_core::{Error, ErrorKind};
use tollgate_remote::credentials::Provider;

/// Makes connections.
#[derive(Clone)]
pub(crate) enum ConnectionSource {
    Client(Arc<Dialer>),
    Pool(Pool),
    Sentinels(Arc<Sentinels>),
}

/// Keeps the one connection that all checks share.
///
/// A task of its own makes the connection. A caller that gives up does not undo that work for later
/// callers. The connection is replaced when it ends, by a [`Keeper`], and never asked for again
/// while it works.
pub(crate) struct SharedConnection {
    source: ConnectionSource,
    bound: ReplyBound,
    connect_timeout: Duration,
    state: DialState<Connection, DialReceiver>,
    /// The number of short-lived connections in a row.
    short_lives: AtomicU32,
    me: Weak<Self>,
}

type DialReceiver = watch::Receiver<Option<DialOutcome>>;
type DialOutcome = Result<Connection, Error>;

/// The time that a server has to answer on a connection that was silent. Then a new connection is
/// dialled as well.
const SILENCE_LIMIT: Duration = Duration::from_millis(10);

/// The number of connections in a row that may end before they are used. Then the server counts as
/// away.
const MOST_DIALS: u32 = 3;

impl SharedConnection {
    pub(crate) fn new(source: ConnectionSource, connect_timeout: Duration) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            source,
            bound: ReplyBound::default(),
            connect_timeout,
            state: DialState::new(),
            short_lives: AtomicU32::new(0),
            me: Weak::clone(me),
        })
    }

    /// Returns the words for the server.
    pub(crate) fn server(&self) -> String {
        self.source.server()
    }

    /// Returns the greatest length of a reply, which grows with what is asked for.
    pub(crate) fn bound(&self) -> &ReplyBound {
        &self.bound
    }

    /// Returns how long connecting may take, and a probe.
    pub(crate) fn connect_timeout(&self) -> Duration {
        self.connect_timeout
    }

    /// Returns a connection for a check, and makes it if there is none.
    ///
    /// A connection that has ended is replaced. A connection that was silent for a while has to
    /// answer first.
    pub(crate) async fn usable(&self) -> Result<Connection, Error> {
        for _ in 0..MOST_DIALS {
            let connection = self.get().await?;
            if connection.is_over() {
                self.broken(&connection);
            } else if connection.wire().is_silent() && connection.is_near() {
                return self.proven(connection).await;
            } else {
                return Ok(connection);
            }
        }
        Err(Error::new(
            ErrorKind::ConnectionLost,
            format!("{} closes each connection at once", self.server()),
        ))
    }

    /// Returns the connection if a call may be written to it now.
    pub(crate) fn ready(&self) -> Option<Connection> {
        self.state
            .connection()
            .filter(|connection| !connection.is_over() && !connection.wire().is_silent())
    }

    /// Returns the connection, and makes it if there is none.
    pub(crate) async fn get(&self) -> Result<Connection, Error> {
        match self.state.connection() {
            Some(connection) if connection.wire().is_over() => self.broken(&connection),
            Some(connection) => return Ok(connection),
            None => {}
        }
        self.dial().await
    }

    /// Returns this connection when the server answers on it, or a new one.
    async fn proven(&self, connection: Connection) -> Result<Connection, Error> {
        {
            let mut ping = pin!(connection.ping());
            match timeout(SILENCE_LIMIT, &mut ping).await {
                Ok(Ok(())) => return Ok(connection.clone()),
                Ok(Err(_)) => self.broken(&connection),
                Err(_) => {
                    tracing::debug!(
                        "redis does not answer on a connection that was silent: a new one is made"
                    );
                    self.broken(&connection);
                    // A pool has few connections. It may be unable to lend another one while this
                    // one is held.
                    if !connection.is_lent() {
                        let mut dial = pin!(self.dial());
                        tokio::select! {
                            biased;
                            made = &mut dial => return made,
                            answer = ping => match answer {
                                Ok(()) if self.restore(connection.clone()) => return Ok(connection.clone()),
                                _ => return dial.await,
                            },
                        }
                    }
                }
            }
        }
        drop(connection);
        self.dial().await
    }

    async fn dial(&self) -> Result<Connection, Error> {
        let receiver = {
            let (sender, receiver) = watch::channel(None);
            match self.state.connection_or_dial(&receiver) {
                ConnectionLookup::Up(connection) => return Ok(connection),
                ConnectionLookup::Dialing(receiver) => receiver,
                ConnectionLookup::Down(dial) => {
                    self.start(dial, sender);
                    receiver
                }
            }
        };
        dialled(receiver).await
    }

    /// Drops a connection that broke or leads to the wrong server. The next call makes a new one.
    pub(crate) fn broken(&self, connection: &Connection) {
        self.discard(connection);
        self.state.broken(connection);
    }

    /// Keeps a connection that a pool lent from going back to it.
    fn discard(&self, connection: &Connection) {
        if let Some(lent) = connection.lent() {
            lent.discard();
            connection.wire().give_up();
        }
    }

    /// Uses a connection again that was taken for broken and is not. Returns whether it leads to
    /// the current server.
    pub(crate) fn restore(&self, connection: Connection) -> bool {
        self.state.restore(connection)
    }

    pub(crate) fn is_up(&self) -> bool {
        self.state.is_up()
    }

    /// Connects to the new server at once. The old connection, and a dial to the old server, are
    /// left to the callers that wait for an answer on them.
    pub(crate) fn renew(&self) {
        let (sender, receiver) = watch::channel(None);
        self.start(self.state.renew(receiver), sender);
    }

    /// Returns the master that the Sentinels named, while the connection to it is up.
    pub(crate) fn master(&self) -> Option<Address> {
        self.state.connection()?.master().cloned()
    }

    /// Returns the Sentinels that name the server, if there are any.
    pub(crate) fn sentinels(&self) -> Option<&Arc<Sentinels>> {
        match &self.source {
            ConnectionSource::Sentinels(sentinels) => Some(sentinels),
            ConnectionSource::Client(_) | ConnectionSource::Pool(_) => None,
        }
    }

    /// Gives the connection with this number up when the server does not answer on it.
    async fn probe(&self, number: u64) {
        let Some(connection) = self
            .state
            .connection()
            .filter(|connection| connection.number() == number)
        else {
            return;
        };
        if !timeout(self.connect_timeout, connection.ping())
            .await
            .is_ok_and(|answer| answer.is_ok())
        {
            self.discard(&connection);
            connection.wire().give_up();
        }
    }

    fn start(
        &self,
        dial: Dial<Connection, DialReceiver>,
        sender: watch::Sender<Option<DialOutcome>>,
    ) {
        let (source, limit, me) = (
            self.source.clone(),
            self.connect_timeout,
            Weak::clone(&self.me),
        );
        let bound = self.bound.clone();
        tokio::spawn(async move {
            let outcome = match timeout(limit, source.connect(dial.number(), &bound)).await {
                Ok(outcome) => outcome,
                Err(_) => {
                    let what = match source.provider().is_some_and(Provider::is_asked) {
                        true => "the provider of credentials",
                        false => "it",
                    };
                    let message = format!(
                        "cannot connect to {}: {what} took longer than {limit:?}",
                        source.server()
                    );
                    Err(Error::new(ErrorKind::Timeout, message))
                }
            };
            let keeper = match &outcome {
                Ok(connection) => {
                    dial.made(connection.clone());
                    Some(Keeper {
                        shared: me,
                        number: connection.number(),
                        wire: Arc::clone(connection.wire()),
                    })
                }
                Err(_) => {
                    drop(dial);
                    None
                }
            };
            sender.send_replace(Some(outcome));
            drop((sender, source));
            if let Some(keeper) = keeper {
                keeper.run().await;
            }
        });
    }
}

/// Watches one connection, and replaces it at its end.
///
/// So the next check finds a connection that works, also after a rest. The server, a load balancer
/// or a NAT closes connections at rest, some of them without a word.
struct Keeper {
    /// The store may be dropped meanwhile.
    shared: Weak<SharedConnection>,
    number: u64,
    wire: Arc<Wire>,
}

/// The time without an answer after which a connection is no longer trusted. Twice as long at most.
const TICK: Duration = Duration::from_secs(1);

/// The number of ticks without an answer between two `PING`s.
const TICKS_BETWEEN_PINGS: u32 = 5;

/// A connection that ends sooner counts as short-lived.
const SHORT_LIFE: Duration = Duration::from_secs(1);

/// The bounds of the pause before a dial that follows a failed one, or the second of two
/// short-lived connections. Each next pause is twice as long.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

impl Keeper {
    async fn run(self) {
        let began = Instant::now();
        if !self.until_ended().await {
            return;
        }
        let Some(shared) = self.shared.upgrade() else {
            return;
        };
        if !shared.state.end(self.number) {
            // Another connection has taken its place.
            return;
        }
        let mut pauses = match began.elapsed() < SHORT_LIFE {
            true => shared.short_lives.fetch_add(1, Ordering::Relaxed),
            false => {
                shared.short_lives.store(0, Ordering::Relaxed);
                0
            }
        };
        drop(shared);
        let mut number = self.number;
        loop {
            if pauses > 0 {
                sleep(pause(pauses)).await;
            }
            let Some(shared) = self.shared.upgrade() else {
                return;
            };
            let (sender, receiver) = watch::channel(None);
            // Otherwise another caller dials.
            let Some(dial) = shared.state.redial(number, receiver.clone()) else {
                return;
            };
            number = dial.number();
            shared.start(dial, sender);
            if dialled(receiver).await.is_ok() {
                return;
            }
            drop(shared);
            pauses += 1;
        }
    }

    /// Waits until the connection has ended. Returns `false` when the store is gone.
    async fn until_ended(&self) -> bool {
        let (mut answers, mut silent_ticks) = (self.wire.answers(), 0);
        loop {
            if timeout(TICK, self.wire.until_over()).await.is_ok() {
                return true;
            }
            let answers_now = self.wire.answers();
            if answers_now != answers {
                (answers, silent_ticks) = (answers_now, 0);
                continue;
            }
            self.wire.fell_silent();
            silent_ticks += 1;
            if Arc::strong_count(&self.wire) == 1 {
                return true;
            }
            let Some(shared) = self.shared.upgrade() else {
                return false;
            };
            if silent_ticks % TICKS_BETWEEN_PINGS == 0 {
                shared.probe(self.number).await;
            }
        }
    }
}

impl Drop for Keeper {
    /// Gives the connection up. When the runtime was shut down, the task of the client library that
    /// drives the connection is gone too, without a notice.
    fn drop(&mut self) {
        self.wire.give_up();
    }
}

/// Returns a random pause. Its longest value doubles with each step.
fn pause(step: u32) -> Duration {
    (PAUSES.0 * 2_u32.pow(step.min(6) - 1))
        .min(PAUSES.1)
        .mul_f64(0.5 + 0.5 * fastrand::f64())
}

/// Waits for the end of a dial.
async fn dialled(mut receiver: DialReceiver) -> Result<Connection, Error> {
    match receiver.wait_for(Option::is_some).await {
        Ok(outcome) => outcome.clone().unwrap_or_else(|| Err(abandoned())),
        Err(_) => Err(abandoned()),
    }
}

impl ConnectionSource {
    /// Returns the words for the server.
    fn server(&self) -> String {
        match self {
            Self::Client(dialer) => dialer.server().to_owned(),
            Self::Pool(_) => Pool::SERVER.to_owned(),
            Self::Sentinels(sentinels) => sentinels.server(),
        }
    }

    fn provider(&self) -> Option<&Provider> {
        match self {
            Self::Client(dialer) => dialer.provider(),
            Self::Pool(_) => None,
            Self::Sentinels(sentinels) => sentinels.provider(),
        }
    }

    async fn connect(&self, number: u64, bound: &ReplyBound) -> Result<Connection, Error> {
        match self {
            Self::Client(dialer) => {
                let opened = dialer.open(bound).await?;
                Connection::accept(dialer.server(), number, opened, None, None).await
            }
            Self::Pool(pool) => {
                let (multiplexed, lent) = pool.lend().await?;
                let opened = Opened::driven_elsewhere(multiplexed);
                Connection::accept(Pool::SERVER, number, opened, Some(lent), None).await
            }
            Self::Sentinels(sentinels) => sentinels.connect(number, bound).await,
        }
    }
}

/// Reports that the runtime that dialled was shut down.
fn abandoned() -> Error {
    Error::new(
        ErrorKind::Unavailable,
        "connecting to redis was abandoned: its runtime was shut down",
    )
}

impl fmt::Debug for SharedConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.state.fmt(f)
    }
}
