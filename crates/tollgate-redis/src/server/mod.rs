//! One server: the connection to it, its health, and the calls that are sent to it.
//! Checks are queued and batched in `dispatch/`; proof that a call did not run is in
//! `not_executed.rs`.

mod not_executed;
mod proof;

use std::{
    future::Future,
    ops::Range,
    pin::Pin,
    ptr,
    sync::{Arc, Weak, atomic::AtomicBool},
    task::{Context, Poll, ready},
    time::Duration,
};

use redis::{Cmd, Pipeline, RedisError, RedisResult, Value};
use smallvec::SmallVec;
use tokio::time::timeout;

use crate::{
    connect::{Connection, MasterWatch, Numbered, SharedConnection},
    protocol::{self, ErrorClass, Script},
};
pub(crate) use not_executed::{CallError, NotExecutedReason};
pub(crate) use proof::{field, info, text, version};
use tollgate_core::{
    Error, Key, Policy, PolicySet,
    raw::{PolicyParts, answer_by, runtime},
    reservation::ReservationId,
    store::{Clock, Deadline},
};
use tollgate_remote::health::{Attempt, Health, Probed, Unanswered, silent};
pub(crate) use tollgate_remote::health::{Breaker, DISTANT, far, pause};

/// The space that one key takes in a call. Reserved before a call with many keys is written.
const KEY_BYTES: usize = 64;

/// Represents one server: the shared connection to it, its health, and the settings of every call.
pub(crate) struct Server {
    pub(crate) config: ServerConfig,
    /// The beginning of every key: the prefix, and the brace that opens the hash tag.
    key_head: String,
    pub(crate) shared: Arc<SharedConnection>,
    pub(crate) health: Health,
    /// The server has some of the slots only.
    pub(crate) is_in_cluster: bool,
    /// It was asked why it decides nothing, if it does.
    is_explained: AtomicBool,
    me: Weak<Self>,
}

impl Server {
    pub(crate) fn new(
        shared: Arc<SharedConnection>,
        config: ServerConfig,
        is_in_cluster: bool,
    ) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            key_head: format!("{}:{{", config.prefix),
            config,
            health: Health::new(KIND, shared.server()),
            shared,
            is_in_cluster,
            is_explained: AtomicBool::new(false),
            me: Weak::clone(me),
        })
    }

    /// Returns the time argument of a script. −1 stands for the server's own clock.
    pub(crate) fn now(&self) -> f64 {
        let clock = self.config.clock.as_ref();
        clock.map_or(-1.0, |clock| clock.now_us() as f64)
    }

    /// Returns the error of a call that is not sent: the breaker is open, or the deadline is too
    /// short for the round trip. Without a deadline, a far server is asked, too.
    #[inline]
    pub(crate) fn refusal(&self, deadline: Option<Deadline>) -> Option<Error> {
        self.health.refusal_of(deadline)
    }

    /// Adds the keys of all policies of each subject to a command. A subject is a key with the
    /// policies that limit it.
    pub(crate) fn add_keys<'a>(
        &self,
        subjects: impl IntoIterator<Item = (&'a PolicySet, &'a Key)>,
        command: &mut Cmd,
    ) {
        let mut names = self.names();
        for (policies, key) in subjects {
            for policy in policies.iter() {
                names.add(policy, key, command);
            }
        }
    }

    /// Adds the keys of the states that belong to this key alone.
    pub(crate) fn add_own_keys(&self, policies: &PolicySet, key: &Key, command: &mut Cmd) {
        let mut names = self.names();
        for policy in policies.iter().filter(|policy| policy.is_own(key)) {
            names.add(policy, key, command);
        }
    }

    /// Adds the key of what another crate keeps of a policy, which ends with `suffix`.
    pub(crate) fn add_key_of(&self, policy: &Policy, key: &Key, suffix: &str, command: &mut Cmd) {
        let mut text = self.begin_key();
        protocol::write_metered(policy, key, &mut text);
        protocol::write_policy(policy, &mut text);
        text.push(b':');
        text.extend_from_slice(suffix.as_bytes());
        command.arg(text);
    }

    /// Adds the key of some permits.
    pub(crate) fn add_permit_key(&self, name: &str, key: &Key, command: &mut Cmd) {
        let mut text = self.begin_key();
        protocol::write_permit_key(name, key, &mut text);
        command.arg(text);
    }

    /// Adds the key of the record of a reservation.
    pub(crate) fn add_record_key(
        &self,
        policies: &PolicySet,
        key: &Key,
        id: &ReservationId,
        command: &mut Cmd,
    ) {
        let mut text = self.begin_key();
        protocol::write_record_key(policies, key, id, &mut text);
        command.arg(text);
    }

    /// Returns the head of every key, with space for a key.
    #[inline]
    fn begin_key(&self) -> Vec<u8> {
        let mut text = Vec::with_capacity(self.key_head.len() + 2 * KEY_BYTES);
        text.extend_from_slice(self.key_head.as_bytes());
        text
    }

    fn names<'a>(&self) -> KeyNames<'a> {
        KeyNames {
            text: self.begin_key(),
            head: self.key_head.len(),
            policy: None,
            end: 0..0,
            tail: Vec::new(),
        }
    }

    /// Returns the shared connection, and makes it if there is none.
    pub(crate) async fn connection(&self) -> Result<Connection, Error> {
        if let Some(sentinels) = self.shared.sentinels() {
            sentinels.follow(|watch| follow_master(self.weak(), watch));
        }
        self.shared
            .usable()
            .await
            .inspect_err(|error| self.failed(error))
    }

    /// Applies an answer to the connection and to the breaker.
    fn finish(
        &self,
        connection: &Connection,
        reply: RedisResult<Value>,
    ) -> Result<Value, CallError> {
        let reply = match reply {
            Ok(value) => {
                self.health.heard();
                return Ok(value);
            }
            Err(reply) => protocol::unwrapped(reply),
        };
        let error = protocol::error(&reply);
        match ErrorClass::of(&reply) {
            ErrorClass::BrokenConnection => self.shared.broken(connection),
            ErrorClass::WrongServer => {
                self.shared.broken(connection);
                self.failed(&error);
                self.ask_why(&error);
            }
            ErrorClass::Refused => {
                self.health.heard();
                self.ask_why(&error);
            }
            ErrorClass::UnknownScript => self.health.heard(),
        }
        Err(CallError::new(&reply, error))
    }

    /// Connects to the new master at once.
    fn master_changed(&self) {
        tracing::info!("the sentinels have chosen another redis master");
        self.shared.renew();
        self.health.master_changed();
    }
}

/// The word for servers of this kind.
pub(crate) const KIND: &str = "redis";

/// A connection that is up and does not answer, with the `PING` that waits on it.
pub(crate) struct SilentConnection(Pin<Box<dyn Future<Output = Ping> + Send>>);

/// A connection, and how long the server took to answer on it.
type Ping = (Connection, Result<Duration, Error>);

/// A probe is a `PING`, on the connection there is or on a new one. It waits in no queue.
impl Probed for Server {
    type Silent = SilentConnection;

    fn health(&self) -> &Health {
        &self.health
    }

    fn weak(&self) -> Weak<Self> {
        Weak::clone(&self.me)
    }

    fn is_connected(&self) -> bool {
        self.shared.is_up()
    }

    /// A connection that stays silent for the time for connecting is returned with its `PING`,
    /// because a stall may end later. The next probe uses another connection.
    async fn ping(&self) -> Result<Duration, Unanswered<SilentConnection>> {
        let shared = &self.shared;
        let connection = shared.get().await.map_err(|error| (error, None))?;
        let pinged = connection.clone();
        let mut ping = Box::pin(async move {
            let sent = tokio::time::Instant::now();
            let answer = pinged.ping().await;
            (pinged, answer.map(|()| sent.elapsed()))
        });
        match timeout(shared.connect_timeout(), &mut ping).await {
            Ok((_, Ok(round_trip))) => Ok(round_trip),
            Ok((_, Err(error))) => {
                shared.broken(&connection);
                Err((error, None))
            }
            Err(_) => {
                shared.broken(&connection);
                // A pool has few connections. A connection that is kept is one that the pool cannot
                // make.
                let is_kept = !connection.is_lent();
                Err((silent(KIND), is_kept.then_some(SilentConnection(ping))))
            }
        }
    }

    async fn listen(&self, silent: &mut SilentConnection) -> Option<Duration> {
        let (connection, answer) = silent.0.as_mut().await;
        let round_trip = answer.ok()?;
        self.shared.restore(connection).then_some(round_trip)
    }
}

/// Follows the master as the Sentinels name it, as long as the server is in use.
async fn follow_master(server: Weak<Server>, mut watch: MasterWatch) {
    loop {
        let current = || server.upgrade()?.shared.master();
        let changed = watch.changed(current).await.is_some();
        let Some(server) = server.upgrade() else {
            return;
        };
        if changed {
            server.master_changed();
        }
    }
}

/// Writes the keys of a call. Most keys of a batch have the policy of the one before, so the end that
/// they have in common is made once.
struct KeyNames<'a> {
    /// Begins with the head of every key. Its rest is written again.
    text: Vec<u8>,
    head: usize,
    /// The policy of the last key, and the place of the end that the policy has given it.
    policy: Option<&'a Policy>,
    end: Range<usize>,
    /// The same end, from the second key on: the key of most checks is the only one.
    tail: Vec<u8>,
}

impl<'a> KeyNames<'a> {
    #[inline]
    fn add(&mut self, policy: &'a Policy, key: &Key, command: &mut Cmd) {
        let is_same = self.policy.is_some_and(|last| ptr::eq(last, policy));
        if !is_same {
            self.tail.clear();
            self.policy = Some(policy);
        } else if self.tail.is_empty() {
            self.tail.extend_from_slice(&self.text[self.end.clone()]);
        }
        self.text.truncate(self.head);
        protocol::write_metered(policy, key, &mut self.text);
        if is_same {
            self.text.extend_from_slice(&self.tail);
        } else {
            let start = self.text.len();
            protocol::write_policy(policy, &mut self.text);
            self.end = start..self.text.len();
        }
        command.arg(self.text.as_slice());
        if policy.is_leased() {
            self.text.extend_from_slice(protocol::OUTSTANDING);
            command.arg(self.text.as_slice());
        }
    }
}

tollgate_core::debug_fields! {
    Server: prefix = .config.prefix, connection = .shared, breaker = .health.breaker, ..
}

/// Holds the settings that all servers of a store share.
#[derive(Clone)]
pub(crate) struct ServerConfig {
    /// The first part of every key.
    pub(crate) prefix: String,
    /// The clock that decides instead of the server's.
    pub(crate) clock: Option<Clock>,
}

/// The outcome of one call.
pub(crate) type CallResult = Result<Value, CallError>;

/// A call as it is written to a connection.
#[derive(Clone)]
pub(crate) struct Call {
    command: Cmd,
    /// The command has the text of its script, so that the server need not know it.
    by_body: bool,
    /// The server has the slot only for calls that say `ASKING`, because the slot is being moved to
    /// it.
    is_asking: bool,
}

impl Call {
    /// Calls a script over so many keys. `fill` adds the keys and the arguments.
    pub(crate) fn of(
        script: &Script,
        by_body: bool,
        keys: usize,
        fill: impl FnOnce(&mut Cmd),
    ) -> Self {
        let (name, script) = if by_body {
            ("EVAL", &script.text)
        } else {
            ("EVALSHA", &script.sha)
        };
        let mut command = Cmd::with_capacity(keys + 8, script.len() + keys * KEY_BYTES + 256);
        command.arg(name).arg(script).arg(keys);
        fill(&mut command);
        Self {
            command,
            by_body,
            is_asking: false,
        }
    }

    /// Returns the same call, to a server that may be asked only so.
    pub(crate) fn asking(self, is_asking: bool) -> Self {
        Self { is_asking, ..self }
    }
}

impl From<Cmd> for Call {
    fn from(command: Cmd) -> Self {
        Self {
            command,
            by_body: false,
            is_asking: false,
        }
    }
}

type Reply = RedisResult<Value>;

/// Calls that are written at once.
pub(crate) type Calls = SmallVec<[Call; 1]>;

/// The outcome of a call, or the proof that the server did not execute it.
#[derive(Debug)]
pub(crate) enum Sent {
    Answered(CallResult),
    /// The server does not know the script of the call, so it executed nothing.
    UnknownScript,
    /// The connection ended before any byte of the call left. The error is that of the connection.
    Unsent(Error),
}

/// The number of connections in a row that may end before a call is sent. Then the server counts as
/// away.
const MOST_UNSENT: u32 = 3;

impl Server {
    /// Writes one call on this connection, and returns its outcome.
    pub(crate) async fn send(&self, connection: &Connection, call: &Call) -> Sent {
        let (sent_bytes, by_body) = (connection.sent_bytes(), call.by_body);
        let reply = match call.is_asking {
            false => connection.query(&call.command).await,
            // On the heap, because few calls ask, and every caller would hold the space.
            true => Box::pin(write_all(connection, [call.clone()]))
                .await
                .pop()
                .unwrap_or_else(|| Err(missing_reply())),
        };
        let is_unsent = is_broken(&reply) && connection.has_sent_nothing_since(sent_bytes);
        self.outcome(connection, by_body, reply, is_unsent)
    }

    /// Writes calls at once on this connection, in order, and returns the outcome of each.
    pub(crate) async fn send_all(&self, connection: &Connection, mut calls: Calls) -> Vec<Sent> {
        if calls.len() == 1
            && let Some(call) = calls.pop()
        {
            return vec![self.send(connection, &call).await];
        }
        let (sent_bytes, by_body): (_, SmallVec<[bool; 1]>) = (
            connection.sent_bytes(),
            calls.iter().map(|call| call.by_body).collect(),
        );
        let replies = write_all(connection, calls).await;
        let is_unsent =
            replies.iter().all(is_broken) && connection.has_sent_nothing_since(sent_bytes);
        by_body
            .into_iter()
            .zip(replies)
            .map(|(by_body, reply)| self.outcome(connection, by_body, reply, is_unsent))
            .collect()
    }

    /// Returns the outcome of a call. `is_unsent` says that no byte of it left.
    fn outcome(
        &self,
        connection: &Connection,
        by_body: bool,
        reply: Reply,
        is_unsent: bool,
    ) -> Sent {
        match &reply {
            Err(error) if is_unsent => {
                self.shared.broken(connection);
                Sent::Unsent(protocol::error(error))
            }
            Err(error) if !by_body && ErrorClass::of(error) == ErrorClass::UnknownScript => {
                self.health.heard();
                Sent::UnknownScript
            }
            _ => Sent::Answered(self.finish(connection, reply)),
        }
    }

    /// Makes one call for a caller that waits until the deadline. It counts for the breaker as a
    /// check does, and ends when the breaker opens.
    ///
    /// `write` writes the call, by the body of its script or not, here and below.
    pub(crate) async fn call(
        &self,
        write: impl Fn(bool) -> Call,
        deadline: Option<Deadline>,
    ) -> CallResult {
        let epoch = self.health.breaker.epoch();
        if let Some(refusal) = self.refusal(None) {
            return Err(CallError::Failed(refusal));
        }
        let attempt = Attempt::new(self, deadline);
        let outcome = tokio::select! {
            biased;
            outcome = self.send_one(write, false, deadline) => outcome,
            () = self.health.until_opened_after(epoch) => Err(CallError::Failed(self.health.overtaken())),
        };
        attempt.end(outcome.is_ok());
        outcome
    }

    /// Sends one command without a deadline of its own. The server has the time for connecting.
    pub(crate) async fn query_in_time(&self, command: &Cmd) -> Result<Value, Error> {
        self.connection().await?;
        let deadline = Deadline::after(self.shared.connect_timeout());
        let write = |_| command.clone().into();
        answer_by(Some(deadline), async {
            Ok(self.send_one(write, false, None).await?)
        })
        .await
    }

    /// Reports that connections end again and again before a call is sent.
    pub(crate) fn cannot_send(&self, error: Error) -> CallError {
        self.failed(&error);
        CallError::unreachable(error)
    }

    /// Sends one call, until it is answered or it is not known whether it was executed.
    ///
    /// A call with a deadline is dropped by its caller when it is over.
    pub(crate) async fn send_one(
        &self,
        write: impl Fn(bool) -> Call,
        mut by_body: bool,
        deadline: Option<Deadline>,
    ) -> CallResult {
        let mut unsent = UnsentCount::default();
        loop {
            let connection = self.connection().await.map_err(CallError::unreachable)?;
            let sent = match deadline {
                Some(_) => {
                    self.send_awaited(&connection, write(by_body), deadline)
                        .await
                }
                None => self.send(&connection, &write(by_body)).await,
            };
            match sent {
                Sent::Answered(outcome) => return outcome,
                Sent::UnknownScript => by_body = true,
                Sent::Unsent(error) if unsent.is_last(connection.number()) => {
                    return Err(self.cannot_send(error));
                }
                Sent::Unsent(_) => {}
            }
        }
    }

    /// Sends a call, and listens for its answer also after the deadline.
    fn send_awaited(
        &self,
        connection: &Connection,
        call: Call,
        deadline: Option<Deadline>,
    ) -> Awaited<Sent> {
        let (server, connection) = (self.weak(), connection.clone());
        let answer = Box::pin(async move {
            match server.upgrade() {
                Some(server) => server.send(&connection, &call).await,
                None => Sent::Answered(Err(protocol::error(&missing_reply()).into())),
            }
        });
        Awaited::new(self, deadline, answer)
    }
}

/// Counts the connections in a row that ended before a call was sent.
#[derive(Debug, Default)]
pub(crate) struct UnsentCount {
    count: u32,
    /// The number of the last such connection.
    last: u64,
}

impl UnsentCount {
    /// Counts a connection once. Returns whether no further attempt is made.
    pub(crate) fn is_last(&mut self, connection: u64) -> bool {
        if self.last != connection {
            *self = Self {
                count: self.count + 1,
                last: connection,
            };
        }
        self.count >= MOST_UNSENT
    }
}

fn is_broken(reply: &Reply) -> bool {
    reply
        .as_ref()
        .is_err_and(|error| ErrorClass::of(error) == ErrorClass::BrokenConnection)
}

/// Writes the calls at once, and returns one reply for each.
///
/// `ASKING` holds for the next command only, so the two stand side by side in one write.
async fn write_all(connection: &Connection, calls: impl IntoIterator<Item = Call>) -> Vec<Reply> {
    let calls = calls.into_iter();
    let mut pipeline = Pipeline::with_capacity(calls.size_hint().0);
    let mut is_asking: SmallVec<[bool; 1]> = SmallVec::new();
    for call in calls {
        if call.is_asking {
            pipeline.cmd("ASKING");
        }
        pipeline.add_command(call.command);
        is_asking.push(call.is_asking);
    }
    let mut values = match connection.query_all(&pipeline).await {
        Ok(values) => values.into_iter(),
        Err(error) => return vec![Err(error); is_asking.len()],
    };
    let reply = |is_asking| match values.nth(usize::from(is_asking)) {
        Some(Value::ServerError(error)) => Err(RedisError::from(error)),
        Some(value) => Ok(value),
        None => Err(missing_reply()),
    };
    is_asking.into_iter().map(reply).collect()
}

fn missing_reply() -> RedisError {
    (redis::ErrorKind::Parse, "a reply is missing").into()
}

/// An answer that is not there yet.
type PendingAnswer<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Waits for the answer to a call that was sent.
///
/// After the deadline, a task of its own waits for the answer: a server that answers late is not
/// away. The task ends when the breaker opens, because it keeps the connection.
pub(crate) struct Awaited<T: 'static> {
    server: Weak<Server>,
    /// The epoch of the breaker when the call was sent.
    breaker_epoch: u64,
    deadline: Option<Deadline>,
    answer: Option<PendingAnswer<T>>,
}

impl<T: 'static> Awaited<T> {
    /// Creates the wait. The answer comes boxed, so that it is copied once.
    pub(crate) fn new(
        server: &Server,
        deadline: Option<Deadline>,
        answer: PendingAnswer<T>,
    ) -> Self {
        let breaker_epoch = server.health.breaker.epoch();
        Self {
            server: server.weak(),
            breaker_epoch,
            deadline,
            answer: Some(answer),
        }
    }
}

impl<T> Future for Awaited<T> {
    type Output = T;

    /// Stays pending after the answer.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let Some(answer) = &mut self.answer else {
            return Poll::Pending;
        };
        let answer = ready!(answer.as_mut().poll(cx));
        self.answer = None;
        Poll::Ready(answer)
    }
}

impl<T> Drop for Awaited<T> {
    fn drop(&mut self) {
        if let Some(answer) = self.answer.take()
            && self.deadline.is_some_and(Deadline::is_over)
            && let (Ok(current), Some(server)) = (runtime::current(), self.server.upgrade())
        {
            let epoch = self.breaker_epoch;
            current.spawn(async move {
                tokio::select! {
                    _ = answer => {}
                    () = server.health.until_opened_after(epoch) => {}
                }
            });
        }
    }
}
