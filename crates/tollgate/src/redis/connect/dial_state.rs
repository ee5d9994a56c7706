//! The state of the shared connection. The lock comes from `redis::sync`, so that a model checker runs the same lines.

use std::{fmt, sync::Arc};

use crate::redis::sync::Lock;

/// Holds the shared connection, or the dial that makes the next one. Callers wait with a `W` for the end of a dial.
///
/// Dials are numbered, and a connection has the number of its dial. A result that comes late is recognised by its
/// number: a dial that was replaced, or a connection that was.
pub(in crate::redis) struct DialState<C, W>(Arc<Lock<Inner<C, W>>>);

struct Inner<C, W> {
    state: State<C, W>,
    /// The number of dials so far.
    dials: u64,
    /// The first dial to the current server. Earlier dials lead to another server.
    first_to_server: u64,
}

enum State<C, W> {
    Down,
    /// The dial with this number is under way.
    Dialing(u64, W),
    Up(C),
}

/// Has the number of the dial that made it.
pub(in crate::redis) trait Numbered {
    fn number(&self) -> u64;
}

/// The way in which a caller gets the connection.
pub(in crate::redis) enum Lookup<C, W> {
    Up(C),
    /// Another caller dials.
    Dialing(W),
    /// The caller has to dial.
    Down(Dial<C, W>),
}

/// The right and the duty to dial. When it is dropped without a connection, the next caller dials.
#[must_use = "the other callers wait until this caller dials"]
pub(in crate::redis) struct Dial<C, W> {
    inner: Arc<Lock<Inner<C, W>>>,
    number: u64,
}

impl<C, W> DialState<C, W> {
    pub(in crate::redis) fn new() -> Self {
        Self(Arc::new(Lock::new(Inner { state: State::Down, dials: 0, first_to_server: 0 })))
    }

    pub(in crate::redis) fn is_up(&self) -> bool {
        matches!(self.0.lock().state, State::Up(_))
    }

    /// Starts over because the server changed. The caller dials. The old connection, and a dial to the old server,
    /// are left to the callers that wait for an answer on them.
    pub(in crate::redis) fn renew(&self, waiter: W) -> Dial<C, W> {
        let mut inner = self.0.lock();
        let dial = self.begin(&mut inner, waiter);
        inner.first_to_server = dial.number;
        dial
    }

    /// Returns the dial that replaces the connection or the dial with this number, unless another began since.
    pub(in crate::redis) fn redial(&self, number: u64, waiter: W) -> Option<Dial<C, W>> {
        let mut inner = self.0.lock();
        (matches!(inner.state, State::Down) && inner.dials == number).then(|| self.begin(&mut inner, waiter))
    }

    /// Returns the dial without holding the lock: what the caller starts may end, and come back here, before it has
    /// begun.
    fn begin(&self, inner: &mut Inner<C, W>, waiter: W) -> Dial<C, W> {
        inner.dials += 1;
        inner.state = State::Dialing(inner.dials, waiter);
        Dial { inner: Arc::clone(&self.0), number: inner.dials }
    }
}

impl<C: Clone, W: Clone> DialState<C, W> {
    /// Returns the connection if it is up.
    pub(in crate::redis) fn connection(&self) -> Option<C> {
        match &self.0.lock().state {
            State::Up(connection) => Some(connection.clone()),
            State::Down | State::Dialing(..) => None,
        }
    }

    /// Returns the connection, or the one dial that makes it. If the caller has to dial, the others wait with
    /// `waiter`.
    pub(in crate::redis) fn connection_or_dial(&self, waiter: &W) -> Lookup<C, W> {
        let mut inner = self.0.lock();
        match &inner.state {
            State::Up(connection) => Lookup::Up(connection.clone()),
            State::Dialing(_, waiter) => Lookup::Dialing(waiter.clone()),
            State::Down => Lookup::Down(self.begin(&mut inner, waiter.clone())),
        }
    }
}

impl<C: Numbered, W> DialState<C, W> {
    /// Drops a connection that broke or leads to the wrong server. The next caller dials, unless another already does.
    /// Returns whether it was the shared connection.
    pub(in crate::redis) fn broken(&self, connection: &C) -> bool {
        self.end(connection.number())
    }

    /// Drops the connection with this number. Returns whether it was the shared one.
    pub(in crate::redis) fn end(&self, number: u64) -> bool {
        let mut inner = self.0.lock();
        let is_shared = matches!(&inner.state, State::Up(current) if current.number() == number);
        if is_shared {
            inner.state = State::Down;
        }
        is_shared
    }

    /// Uses a connection again that was taken for broken and is not. If no other connection is up, it becomes the
    /// shared one, and the result of a dial under way is ignored. Returns whether the connection leads to the current
    /// server.
    pub(in crate::redis) fn restore(&self, connection: C) -> bool {
        let mut inner = self.0.lock();
        let is_current_server = connection.number() >= inner.first_to_server;
        if is_current_server && !matches!(inner.state, State::Up(_)) {
            inner.state = State::Up(connection);
        }
        is_current_server
    }
}

impl<C, W> Dial<C, W> {
    pub(in crate::redis) fn number(&self) -> u64 {
        self.number
    }

    /// Shares the connection that the dial made, unless a later dial began.
    pub(in crate::redis) fn made(self, connection: C) {
        self.end(State::Up(connection));
    }

    fn end(&self, end: State<C, W>) {
        let mut inner = self.inner.lock();
        if matches!(inner.state, State::Dialing(number, _) if number == self.number) {
            inner.state = end;
        }
    }
}

impl<C, W> Drop for Dial<C, W> {
    fn drop(&mut self) {
        self.end(State::Down);
    }
}

impl<C, W> fmt::Debug for DialState<C, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0.lock().state {
            State::Down => "down",
            State::Dialing(..) => "dialing",
            State::Up(_) => "up",
        })
    }
}
