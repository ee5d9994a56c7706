use std::{
    io,
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use redis::{Cmd, Pipeline, RedisResult, Value, aio::MultiplexedConnection};
use tokio::time::Instant;

use super::{
    dial_state::Numbered,
    dialer::{Address, Opened},
    pool::LentConnection,
    wire::{Driver, Wire},
};
use crate::{
    Error,
    redis::protocol::{self, ErrorClass},
};

/// A live connection. A connection that a pool lent stays lent as long as this is held.
#[derive(Clone)]
pub(in crate::redis) struct Connection {
    multiplexed: MultiplexedConnection,
    number: u64,
    about: Arc<About>,
}

/// Holds the constant properties of a connection.
struct About {
    wire: Arc<Wire>,
    /// Ends the connection when the last clone is dropped.
    _driver: Option<Driver>,
    lent: Option<LentConnection>,
    /// The master that the Sentinels named.
    master: Option<Address>,
    /// The time of the first answer.
    round_trip: Duration,
}

/// Holds the number of bytes of a connection that the system had taken at one moment, if it is known.
#[derive(Clone, Copy, Debug)]
pub(in crate::redis) struct Mark(Option<u64>);

/// The longest time of an answer with which a server counts as near.
const NEAR: Duration = Duration::from_millis(10);

impl Connection {
    /// Accepts a connection after its first answer. Any answer counts, also a refusal of the command.
    ///
    /// The client makes a connection before the server has accepted it, and a server with too many clients accepts a connection and
    /// then closes it. So a connection is up only after an answer.
    pub(super) async fn accept(
        number: u64,
        opened: Opened,
        lent: Option<LentConnection>,
        master: Option<Address>,
    ) -> Result<Self, Error> {
        let Opened { mut multiplexed, wire, driver } = opened;
        let began = Instant::now();
        accepted(redis::cmd("PING").query_async(&mut multiplexed).await)?;
        wire.answered();
        let about = About { wire, _driver: driver, lent, master, round_trip: began.elapsed() };
        Ok(Self { multiplexed, number, about: Arc::new(about) })
    }

    /// Returns whether the connection belongs to a pool.
    pub(in crate::redis) fn is_lent(&self) -> bool {
        self.about.lent.is_some()
    }

    pub(super) fn lent(&self) -> Option<&LentConnection> {
        self.about.lent.as_ref()
    }

    pub(super) fn master(&self) -> Option<&Address> {
        self.about.master.as_ref()
    }

    pub(super) fn wire(&self) -> &Arc<Wire> {
        &self.about.wire
    }

    /// Returns the time of the first answer.
    pub(in crate::redis) fn round_trip(&self) -> Duration {
        self.about.round_trip
    }

    /// Returns whether the server answers so soon that a check has time for a `PING` before it.
    pub(super) fn is_near(&self) -> bool {
        self.about.round_trip <= NEAR
    }

    /// Returns whether the connection is of no use any more. A call that is begun now would not be answered.
    ///
    /// The end of a connection of another owner shows only when something is sent. After a rest, that is a `PING` whose
    /// answer is not waited for: it leaves together with the call behind it.
    pub(super) fn is_over(&self) -> bool {
        let wire = &self.about.wire;
        if wire.is_at_rest() && self.refuses_a_ping() {
            wire.give_up();
        }
        wire.is_over()
    }

    /// Returns whether the stream has ended. Always `false` for a connection of another owner.
    pub(in crate::redis) fn has_ended(&self) -> bool {
        self.about.wire.has_ended()
    }

    fn refuses_a_ping(&self) -> bool {
        let command = redis::cmd("PING");
        let ping = pin!(self.query(&command));
        matches!(ping.poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(Err(_)))
    }

    /// Waits until the server answers on this connection. Any answer counts, also a refusal of the command.
    pub(in crate::redis) async fn ping(&self) -> Result<(), Error> {
        let answer = self.query(&redis::cmd("PING")).await;
        accepted(answer)
    }

    /// Returns a mark for [`has_sent_nothing_since`](Self::has_sent_nothing_since).
    pub(in crate::redis) fn mark(&self) -> Mark {
        Mark(self.about.wire.written())
    }

    /// Returns whether no byte has left since the mark, and none will. Then no call that was begun after the mark was sent.
    pub(in crate::redis) fn has_sent_nothing_since(&self, mark: Mark) -> bool {
        let wire = &self.about.wire;
        wire.has_ended() && mark.0.is_some() && wire.written() == mark.0
    }

    /// Sends one command.
    pub(in crate::redis) async fn query(&self, command: &Cmd) -> RedisResult<Value> {
        self.answer(command.query_async(&mut self.multiplexed.clone())).await
    }

    /// Writes all commands at once. Each has its own answer.
    pub(in crate::redis) async fn query_all(&self, commands: &Pipeline) -> RedisResult<Vec<Value>> {
        self.answer(self.multiplexed.clone().send_packed_commands(commands, 0, commands.len())).await
    }

    /// Waits for an answer, for as long as the connection is driven.
    async fn answer<T>(&self, answer: impl Future<Output = RedisResult<T>>) -> RedisResult<T> {
        match self.about.wire.answer(answer).await {
            Some(answer) => self.note(answer),
            None => Err(io::Error::from(io::ErrorKind::BrokenPipe).into()),
        }
    }

    /// Notes whether the server answered. A refusal is an answer.
    fn note<T>(&self, answer: RedisResult<T>) -> RedisResult<T> {
        let is_broken = |error| ErrorClass::of(error) == ErrorClass::BrokenConnection;
        if !answer.as_ref().is_err_and(is_broken) {
            self.about.wire.answered();
        }
        answer
    }
}

/// Accepts any answer of a server that accepts the connection.
fn accepted(answer: RedisResult<Value>) -> Result<(), Error> {
    match answer {
        Ok(_) => Ok(()),
        Err(error) => match ErrorClass::of(&error) {
            ErrorClass::Refused | ErrorClass::UnknownScript if !protocol::rejects_connection(&error) => Ok(()),
            _ => Err(protocol::error(&error)),
        },
    }
}

impl Numbered for Connection {
    fn number(&self) -> u64 {
        self.number
    }
}
