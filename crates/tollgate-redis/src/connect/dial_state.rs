//! The state of the shared connection. The lock and the pointer come from `redis::sync`, so that a
//! model checker runs the same lines.
//! The dial itself, and the watch over the connection, are in `shared.rs`.

use std::{fmt, sync::Arc};

use crate::sync::{ArcSwapOption, Lock};

/// Keeps the shared connection, or the dial that makes the next one. Callers wait with a `W` for
/// the end of a dial.
///
/// Dials are numbered, and a connection has the number of its dial. A result that comes late is
/// recognised by its number: a dial that was replaced, or a connection that was.
pub(crate) struct DialState<C, W>(Arc<DialShared<C, W>>);

struct DialShared<C, W> {
    /// The connection that is up, for a look without the lock. It changes under the lock.
    up: ArcSwapOption<C>,
    inner: Lock<Dials<W>>,
}

struct Dials<W> {
    /// The number of the dial that is under way, and with what callers wait for it.
    dialing: Option<(u64, W)>,
    /// The number of dials so far.
    dials: u64,
    /// The first dial to the current server. Earlier dials lead to another server.
    first_to_server: u64,
}

/// Has the number of the dial that made it.
pub(crate) trait Numbered {
    fn number(&self) -> u64;
}

/// The way in which a caller gets the connection.
pub(crate) enum ConnectionLookup<C, W> {
    Up(C),
    /// Another caller dials.
    Dialing(W),
    /// The caller has to dial.
    Down(Dial<C, W>),
}

/// The right and the duty to dial. When it is dropped without a connection, the next caller dials.
#[must_use = "the other callers wait until this caller dials"]
pub(crate) struct Dial<C, W> {
    shared: Arc<DialShared<C, W>>,
    number: u64,
}

impl<C, W> DialState<C, W> {
    pub(crate) fn new() -> Self {
        let inner = Lock::new(Dials {
            dialing: None,
            dials: 0,
            first_to_server: 0,
        });
        Self(Arc::new(DialShared {
            up: ArcSwapOption::empty(),
            inner,
        }))
    }

    pub(crate) fn is_up(&self) -> bool {
        self.0.up.load().is_some()
    }

    /// Starts over because the server changed. The caller dials. The old connection, and a dial to
    /// the old server, are left to the callers that wait for an answer on them.
    pub(crate) fn renew(&self, waiter: W) -> Dial<C, W> {
        let mut inner = self.0.inner.lock();
        let dial = self.begin(&mut inner, waiter);
        inner.first_to_server = dial.number;
        dial
    }

    /// Returns the dial that replaces the connection or the dial with this number, unless another
    /// began since.
    pub(crate) fn redial(&self, number: u64, waiter: W) -> Option<Dial<C, W>> {
        let mut inner = self.0.inner.lock();
        (!self.is_up() && inner.dialing.is_none() && inner.dials == number)
            .then(|| self.begin(&mut inner, waiter))
    }

    /// Returns the dial without holding the lock: what the caller starts may end, and come back
    /// here, before it has begun.
    fn begin(&self, inner: &mut Dials<W>, waiter: W) -> Dial<C, W> {
        inner.dials += 1;
        inner.dialing = Some((inner.dials, waiter));
        self.0.up.store(None);
        Dial {
            shared: Arc::clone(&self.0),
            number: inner.dials,
        }
    }
}

impl<C: Clone, W: Clone> DialState<C, W> {
    /// Returns the connection if it is up.
    pub(crate) fn connection(&self) -> Option<C> {
        self.0.up.load().as_deref().cloned()
    }

    /// Returns the connection, or the one dial that makes it. If the caller has to dial, the others
    /// wait with `waiter`.
    pub(crate) fn connection_or_dial(&self, waiter: &W) -> ConnectionLookup<C, W> {
        let mut inner = self.0.inner.lock();
        match (self.connection(), &inner.dialing) {
            (Some(connection), _) => ConnectionLookup::Up(connection),
            (None, Some((_, waiter))) => ConnectionLookup::Dialing(waiter.clone()),
            (None, None) => ConnectionLookup::Down(self.begin(&mut inner, waiter.clone())),
        }
    }
}

impl<C: Numbered, W> DialState<C, W> {
    /// Drops a connection that broke or leads to the wrong server. The next caller dials, unless
    /// another already does. Returns whether it was the shared connection.
    pub(crate) fn broken(&self, connection: &C) -> bool {
        self.end(connection.number())
    }

    /// Drops the connection with this number. Returns whether it was the shared one.
    pub(crate) fn end(&self, number: u64) -> bool {
        let mut inner = self.0.inner.lock();
        let is_shared = self
            .0
            .up
            .load()
            .as_deref()
            .is_some_and(|current| current.number() == number);
        if is_shared {
            self.0.end(&mut inner, None);
        }
        is_shared
    }

    /// Uses a connection again that was taken for broken and is not. If no other connection is up,
    /// it becomes the shared one, and the result of a dial under way is ignored. Returns whether
    /// the connection leads to the current server.
    pub(crate) fn restore(&self, connection: C) -> bool {
        let mut inner = self.0.inner.lock();
        let is_current_server = connection.number() >= inner.first_to_server;
        if is_current_server && !self.is_up() {
            self.0.end(&mut inner, Some(connection));
        }
        is_current_server
    }
}

impl<C, W> DialShared<C, W> {
    /// Ends a dial or a connection, with this connection or with none.
    fn end(&self, inner: &mut Dials<W>, connection: Option<C>) {
        inner.dialing = None;
        self.up.store(connection.map(Arc::new));
    }
}

impl<C, W> Dial<C, W> {
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Shares the connection that the dial made, unless a later dial began.
    pub(crate) fn made(self, connection: C) {
        self.end(Some(connection));
    }

    fn end(&self, connection: Option<C>) {
        let mut inner = self.shared.inner.lock();
        if inner
            .dialing
            .as_ref()
            .is_some_and(|(number, _)| *number == self.number)
        {
            self.shared.end(&mut inner, connection);
        }
    }
}

impl<C, W> Drop for Dial<C, W> {
    fn drop(&mut self) {
        self.end(None);
    }
}

impl<C, W> fmt::Debug for DialState<C, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.is_up() {
            true => "up",
            false if self.0.inner.lock().dialing.is_some() => "dialing",
            false => "down",
        })
    }
}
