//! Which line is the one. The lock comes from the module above, so that the same lines run under a
//! model checker.

use std::{fmt, sync::Arc};

use super::sync::{Mutex, MutexGuard};

/// A line that all share, and the dial that makes the next one; `W` is what callers wait with for
/// its end.
///
/// Dials are numbered, and a line has the number of its dial. So what comes late is known for what
/// it is: a dial that was overtaken, a line that was replaced.
pub(super) struct Generations<L, W>(Arc<Mutex<Newest<L, W>>>);

struct Newest<L, W> {
    state: State<L, W>,
    /// How many there were so far.
    dials: u64,
    /// The first one to the server that is asked: what earlier ones made leads elsewhere.
    renewed: u64,
}

enum State<L, W> {
    Down,
    /// The dial of this number is the one that counts.
    Dialing(u64, W),
    Up(L),
}

/// What a dial has made.
pub(super) trait Dialled {
    /// That of the dial.
    fn number(&self) -> u64;
}

/// What there is for who wants the line.
pub(super) enum Found<L, W> {
    Up(L),
    /// Somebody dials.
    Dialing(W),
    /// The caller dials.
    Down(Dial<L, W>),
}

/// Somebody dials. When it is dropped without a line, the next caller does.
#[must_use = "who does not dial leaves the others waiting"]
pub(super) struct Dial<L, W> {
    newest: Arc<Mutex<Newest<L, W>>>,
    number: u64,
}

impl<L, W> Generations<L, W> {
    pub(super) fn new() -> Self {
        Self(Arc::new(Mutex::new(Newest { state: State::Down, dials: 0, renewed: 0 })))
    }

    pub(super) fn is_up(&self) -> bool {
        matches!(lock(&self.0).state, State::Up(_))
    }

    /// The server is another one now: whoever calls this dials, and the line there was, or was
    /// being made, is left to those who wait for an answer on it.
    pub(super) fn renew(&self, waiter: W) -> Dial<L, W> {
        let mut newest = lock(&self.0);
        let dial = self.begin(&mut newest, waiter);
        newest.renewed = dial.number;
        dial
    }

    /// The dial itself is for the caller, without the lock: what it starts may come to its end, and
    /// back here, before it has begun.
    fn begin(&self, newest: &mut Newest<L, W>, waiter: W) -> Dial<L, W> {
        newest.dials += 1;
        newest.state = State::Dialing(newest.dials, waiter);
        Dial { newest: Arc::clone(&self.0), number: newest.dials }
    }
}

impl<L: Clone, W: Clone> Generations<L, W> {
    /// The line if it is up.
    pub(super) fn line(&self) -> Option<L> {
        match &lock(&self.0).state {
            State::Up(line) => Some(line.clone()),
            State::Down | State::Dialing(..) => None,
        }
    }

    /// The line, or the one dial that makes it; the others will wait with `waiter` when that is for
    /// the caller.
    pub(super) fn line_or_dial(&self, waiter: &W) -> Found<L, W> {
        let mut newest = lock(&self.0);
        match &newest.state {
            State::Up(line) => Found::Up(line.clone()),
            State::Dialing(_, waiter) => Found::Dialing(waiter.clone()),
            State::Down => Found::Down(self.begin(&mut newest, waiter.clone())),
        }
    }
}

impl<L: Dialled, W> Generations<L, W> {
    /// This line broke, or leads nowhere useful: the next caller dials, unless somebody has already.
    pub(super) fn broken(&self, line: &L) {
        let mut newest = lock(&self.0);
        if matches!(&newest.state, State::Up(current) if current.number() == line.number()) {
            newest.state = State::Down;
        }
    }

    /// This line was taken for broken and is not: unless there is another by now, it is the one again, and a dial that is
    /// under way is in vain. Says whether it leads to the server that is asked.
    pub(super) fn restore(&self, line: L) -> bool {
        let mut newest = lock(&self.0);
        let is_of_this_server = line.number() >= newest.renewed;
        if is_of_this_server && !matches!(newest.state, State::Up(_)) {
            newest.state = State::Up(line);
        }
        is_of_this_server
    }
}

impl<L, W> Dial<L, W> {
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// It made this line, which is the one, unless the dial was overtaken.
    pub(super) fn made(self, line: L) {
        self.end(State::Up(line));
    }

    fn end(&self, end: State<L, W>) {
        let mut newest = lock(&self.newest);
        if matches!(newest.state, State::Dialing(number, _) if number == self.number) {
            newest.state = end;
        }
    }
}

impl<L, W> Drop for Dial<L, W> {
    fn drop(&mut self) {
        self.end(State::Down);
    }
}

impl<L, W> fmt::Debug for Generations<L, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match lock(&self.0).state {
            State::Down => "down",
            State::Dialing(..) => "dialing",
            State::Up(_) => "up",
        })
    }
}

/// A panic while the lock is held leaves a whole state behind, so the lock is never poisoned.
fn lock<L, W>(newest: &Mutex<Newest<L, W>>) -> MutexGuard<'_, Newest<L, W>> {
    newest.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
