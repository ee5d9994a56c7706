//! One connection: what is known of it, and the stream and the task below it.
//! When a connection is made, shared and replaced is decided in `shared.rs`.

use std::{
    fmt,
    future::poll_fn,
    io,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker, ready},
    time::Duration,
};

use redis::{
    Cmd, Pipeline, RedisResult, Value,
    aio::{ConnectionLike, MultiplexedConnection},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    sync::Notify,
    task::{AbortHandle, JoinSet},
    time::Instant,
};

use super::{
    dial_state::Numbered,
    dialer::{Address, Opened, Stream},
    pool::LentConnection,
};
use crate::protocol::{self, ErrorClass, ReplyBound, ReplyScanner, StreamError};
use tollgate_core::{Error, ErrorKind};

/// A live connection. A connection that a pool lent stays lent as long as this is held.
#[derive(Clone)]
pub(crate) struct Connection {
    multiplexed: MultiplexedConnection,
    number: u64,
    info: Arc<ConnectionInfo>,
}

/// The constant properties of a connection.
struct ConnectionInfo {
    wire: Arc<Wire>,
    /// Ends the connection when the last clone is dropped.
    _driver: Option<Driver>,
    /// Ends with the connection.
    _renewal: JoinSet<()>,
    lent: Option<LentConnection>,
    /// The master that the Sentinels named.
    master: Option<Address>,
    /// The time of the first answer.
    round_trip: Duration,
}

/// The number of bytes of a connection that the system had taken at one moment, if it is
/// known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SentBytes(Option<u64>);

/// The longest time of an answer with which a server counts as near.
const NEAR: Duration = Duration::from_millis(10);

impl Connection {
    /// Accepts a connection after its first answer. Any answer counts, also a refusal of the
    /// command.
    ///
    /// The client makes a connection before the server has accepted it, and a server with too many
    /// clients accepts a connection and then closes it. So a connection is up only after an answer.
    pub(super) async fn accept(
        server: &str,
        number: u64,
        opened: Opened,
        lent: Option<LentConnection>,
        master: Option<Address>,
    ) -> Result<Self, Error> {
        let Opened {
            mut multiplexed,
            wire,
            driver,
            renewal,
            may_want_tls,
        } = opened;
        let began = Instant::now();
        let answer = redis::cmd("PING").query_async(&mut multiplexed).await;
        accepted(answer).map_err(|error| protocol::connecting(server, may_want_tls, &error))?;
        wire.answered();
        let info = ConnectionInfo {
            wire,
            _driver: driver,
            _renewal: renewal,
            lent,
            master,
            round_trip: began.elapsed(),
        };
        Ok(Self {
            multiplexed,
            number,
            info: Arc::new(info),
        })
    }

    /// Returns whether the connection belongs to a pool.
    pub(crate) fn is_lent(&self) -> bool {
        self.info.lent.is_some()
    }

    pub(super) fn lent(&self) -> Option<&LentConnection> {
        self.info.lent.as_ref()
    }

    pub(super) fn master(&self) -> Option<&Address> {
        self.info.master.as_ref()
    }

    pub(super) fn wire(&self) -> &Arc<Wire> {
        &self.info.wire
    }

    /// Returns the time of the first answer.
    pub(crate) fn round_trip(&self) -> Duration {
        self.info.round_trip
    }

    /// Returns whether the server answers so soon that a check has time for a `PING` before it.
    pub(super) fn is_near(&self) -> bool {
        self.info.round_trip <= NEAR
    }

    /// Returns whether the connection is of no use any more. A call that is begun now would not be
    /// answered.
    ///
    /// The end of a connection of another owner shows only when something is sent. After a rest,
    /// that is a `PING` whose answer is not waited for: it leaves together with the call behind it.
    pub(super) fn is_over(&self) -> bool {
        let wire = &self.info.wire;
        if wire.is_at_rest() && self.refuses_a_ping() {
            wire.give_up();
        }
        wire.is_over()
    }

    /// Returns whether the stream has ended. Always `false` for a connection of another owner.
    pub(crate) fn has_ended(&self) -> bool {
        self.info.wire.has_ended()
    }

    /// Switches Nagle's algorithm on or off: small writes wait until the server has acknowledged those
    /// before, or each leaves at once.
    pub(crate) fn set_nagle(&self, is_nagling: bool) {
        self.info.wire.set_nagle(is_nagling);
    }

    fn refuses_a_ping(&self) -> bool {
        let command = redis::cmd("PING");
        let ping = pin!(self.query(&command));
        matches!(
            ping.poll(&mut Context::from_waker(Waker::noop())),
            Poll::Ready(Err(_))
        )
    }

    /// Waits until the server answers on this connection. Any answer counts, also a refusal of the
    /// command.
    pub(crate) async fn ping(&self) -> Result<(), Error> {
        let answer = self.query(&redis::cmd("PING")).await;
        accepted(answer).map_err(|error| protocol::error(&error))
    }

    /// Returns what was sent by now, for [`has_sent_nothing_since`](Self::has_sent_nothing_since).
    pub(crate) fn sent_bytes(&self) -> SentBytes {
        SentBytes(self.info.wire.written())
    }

    /// Returns whether no byte has left since then, and none will. Then no call that was begun later
    /// was sent.
    pub(crate) fn has_sent_nothing_since(&self, sent_bytes: SentBytes) -> bool {
        let wire = &self.info.wire;
        wire.has_ended() && sent_bytes.0.is_some() && wire.written() == sent_bytes.0
    }

    /// Sends one command.
    pub(crate) async fn query(&self, command: &Cmd) -> RedisResult<Value> {
        self.info.wire.asks(1);
        let mut multiplexed = self.multiplexed.clone();
        let answer = async {
            let answer = multiplexed.req_packed_command(command).await?;
            answer.extract_error()
        };
        // Pinned here, because each function that takes a future by its value holds it twice.
        self.answer(pin!(answer)).await
    }

    /// Writes all commands at once. Each has its own answer.
    pub(crate) async fn query_all(&self, commands: &Pipeline) -> RedisResult<Vec<Value>> {
        self.info.wire.asks(commands.len() as u64);
        // A call on the heap: by itself it takes some 4 kB in the future of every caller, also of
        // those that send one command.
        self.answer(
            self.multiplexed
                .clone()
                .req_packed_commands(commands, 0, commands.len()),
        )
        .await
    }

    /// Waits for an answer, for as long as the connection is driven.
    async fn answer<T>(&self, answer: impl Future<Output = RedisResult<T>>) -> RedisResult<T> {
        match self.info.wire.answer(answer).await {
            Some(answer) => self.note(answer),
            None => Err(io::Error::from(io::ErrorKind::BrokenPipe).into()),
        }
    }

    /// Notes whether the server answered. A refusal is an answer.
    fn note<T>(&self, answer: RedisResult<T>) -> RedisResult<T> {
        let is_broken = |error| ErrorClass::of(error) == ErrorClass::BrokenConnection;
        if !answer.as_ref().is_err_and(is_broken) {
            self.info.wire.answered();
        }
        answer
    }
}

/// Accepts any answer of a server that accepts the connection.
fn accepted(answer: RedisResult<Value>) -> RedisResult<()> {
    match answer {
        Ok(_) => Ok(()),
        Err(error) => match ErrorClass::of(&error) {
            ErrorClass::Refused | ErrorClass::UnknownScript
                if !protocol::rejects_connection(&error) =>
            {
                Ok(())
            }
            _ => Err(error),
        },
    }
}

impl Numbered for Connection {
    fn number(&self) -> u64 {
        self.number
    }
}

/// Records the bytes, the answers and the end of one connection.
///
/// The stream of a connection that the store dialled itself writes to it. So its end is noticed
/// when it comes, and it is known whether the system took any byte of a call. A connection of
/// another owner has no such stream.
#[derive(Debug)]
pub(super) struct Wire {
    /// The number of bytes that the system has taken. `None` when the stream belongs to another
    /// owner.
    written: Option<AtomicU64>,
    /// The number of commands that the store has asked to send.
    asked: AtomicU64,
    /// The number of calls that were answered.
    answers: AtomicU64,
    /// The time of the last answer in microseconds after `began`. Kept only when the stream belongs
    /// to another owner.
    answered_us: AtomicU64,
    began: Instant,
    is_silent: AtomicBool,
    /// Is true while small writes gather until the server has noticed those before.
    is_nagling: AtomicBool,
    /// The stream has ended: nothing more leaves on it.
    has_ended: AtomicBool,
    /// The connection is of no use any more: its stream has ended, or the server stays silent on
    /// it.
    is_over: AtomicBool,
    over: Notify,
    /// The task that drives the connection has ended, and everything that it held is dropped.
    is_abandoned: AtomicBool,
    abandoned: Notify,
}

/// The time without an answer after which a connection counts as at rest.
const AT_REST: Duration = Duration::from_micros(500);

impl Wire {
    /// Creates the record of a connection whose stream is [`Watched`].
    pub(super) fn watched() -> Arc<Self> {
        Self::new(Some(AtomicU64::new(0)))
    }

    /// Creates the record of a connection whose stream belongs to another owner.
    pub(super) fn unwatched() -> Arc<Self> {
        Self::new(None)
    }

    fn new(written: Option<AtomicU64>) -> Arc<Self> {
        Arc::new(Self {
            written,
            asked: AtomicU64::new(0),
            answers: AtomicU64::new(0),
            answered_us: AtomicU64::new(0),
            began: Instant::now(),
            is_silent: AtomicBool::new(false),
            is_nagling: AtomicBool::new(false),
            has_ended: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            over: Notify::new(),
            is_abandoned: AtomicBool::new(false),
            abandoned: Notify::new(),
        })
    }

    /// Returns the number of bytes that the system has taken so far, if it is known.
    pub(super) fn written(&self) -> Option<u64> {
        self.written
            .as_ref()
            .map(|written| written.load(Ordering::Acquire))
    }

    /// Notes that so many commands are about to be sent. Each has one answer at most.
    pub(super) fn asks(&self, commands: u64) {
        self.asked.fetch_add(commands, Ordering::Relaxed);
    }

    pub(super) fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }

    /// Notes an answer of the server.
    pub(super) fn answered(&self) {
        self.answers.fetch_add(1, Ordering::Relaxed);
        if self.written.is_none() {
            self.answered_us
                .store(self.began.elapsed().as_micros() as u64, Ordering::Relaxed);
        }
        if self.is_silent() {
            self.is_silent.store(false, Ordering::Relaxed);
        }
    }

    pub(super) fn answers(&self) -> u64 {
        self.answers.load(Ordering::Relaxed)
    }

    /// Returns whether a connection of another owner was not used for a while, so that it may have
    /// been closed meanwhile.
    pub(super) fn is_at_rest(&self) -> bool {
        let answered = Duration::from_micros(self.answered_us.load(Ordering::Relaxed));
        self.written.is_none() && self.began.elapsed().saturating_sub(answered) > AT_REST
    }

    /// Notes that the server has not answered for a while.
    pub(super) fn fell_silent(&self) {
        self.is_silent.store(true, Ordering::Relaxed);
    }

    /// Returns whether the server has not answered for a while.
    pub(super) fn is_silent(&self) -> bool {
        self.is_silent.load(Ordering::Relaxed)
    }

    /// Switches Nagle's algorithm on or off, from the next write on.
    pub(super) fn set_nagle(&self, is_nagling: bool) {
        if self.is_nagling.load(Ordering::Relaxed) != is_nagling {
            self.is_nagling.store(is_nagling, Ordering::Relaxed);
        }
    }

    /// Notes that the stream has ended.
    fn end(&self) {
        self.has_ended.store(true, Ordering::Release);
        self.give_up();
    }

    pub(super) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }

    /// Notes that the connection is of no use any more.
    pub(super) fn give_up(&self) {
        if !self.is_over.swap(true, Ordering::AcqRel) {
            self.over.notify_one();
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Waits until the connection is of no use any more. One task may wait.
    pub(super) async fn until_over(&self) {
        while !self.is_over() {
            self.over.notified().await;
        }
    }

    /// Waits for the answer to a call. Returns `None` when the task that drives the connection has
    /// ended without it.
    ///
    /// The task takes calls from a channel. A call that is put there at the moment at which the
    /// task ends stays in the channel, and would wait for as long as the connection is held.
    pub(super) async fn answer<T>(&self, answer: impl Future<Output = T>) -> Option<T> {
        let (mut answer, mut abandoned) = (pin!(answer), pin!(self.abandoned.notified()));
        poll_fn(|cx| {
            if let Poll::Ready(answer) = answer.as_mut().poll(cx) {
                return Poll::Ready(Some(answer));
            }
            if abandoned.as_mut().poll(cx).is_pending()
                && !self.is_abandoned.load(Ordering::Acquire)
            {
                return Poll::Pending;
            }
            // The answer may have come meanwhile.
            match answer.as_mut().poll(cx) {
                Poll::Ready(answer) => Poll::Ready(Some(answer)),
                Poll::Pending => Poll::Ready(None),
            }
        })
        .await
    }
}

/// A stream that records its bytes and its end on a [`Wire`].
#[derive(Debug)]
pub(super) struct Watched<S> {
    stream: S,
    wire: Arc<Wire>,
    /// The time of the last read, until something is written.
    read: Option<Instant>,
    /// Is true while the stream gathers small writes.
    is_nagling: bool,
}

impl<S> Watched<S> {
    pub(super) fn new(stream: S, wire: &Arc<Wire>) -> Self {
        Self {
            stream,
            wire: Arc::clone(wire),
            read: None,
            is_nagling: false,
        }
    }
}

impl<S: Socket> Watched<S> {
    /// Returns whether the server has closed a connection at rest. The task that reads may not have
    /// run since.
    fn is_closed_at_rest(&mut self) -> bool {
        self.read
            .take()
            .is_some_and(|read| read.elapsed() > AT_REST)
            && self.stream.is_closed_by_peer()
    }
}

impl<S> Drop for Watched<S> {
    /// The task of the connection has ended, or its runtime was shut down.
    fn drop(&mut self) {
        self.wire.end();
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = ready!(Pin::new(&mut self.stream).poll_read(cx, buffer));
        self.read = Some(Instant::now());
        if read.is_err() || (buffer.filled().len() == before && buffer.remaining() > 0) {
            self.wire.end();
        }
        Poll::Ready(read)
    }
}

impl<S: AsyncWrite + Socket + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.is_closed_at_rest() {
            self.wire.end();
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        let is_nagling = self.wire.is_nagling.load(Ordering::Relaxed);
        if self.is_nagling != is_nagling {
            self.is_nagling = is_nagling;
            self.stream.set_nagle(is_nagling);
        }
        let taken = ready!(Pin::new(&mut self.stream).poll_write(cx, bytes));
        match (&taken, &self.wire.written) {
            (Ok(taken), Some(written)) => {
                written.fetch_add(*taken as u64, Ordering::Release);
            }
            (Ok(_), None) => {}
            (Err(_), _) => self.wire.end(),
        }
        Poll::Ready(taken)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// A socket of the system.
pub(super) trait Socket {
    /// Returns whether the peer has closed the socket, also while bytes that it sent before are not
    /// read yet.
    fn is_closed_by_peer(&self) -> bool;

    /// Switches Nagle's algorithm on or off: `TCP_NODELAY` is its opposite.
    fn set_nagle(&self, _gathers: bool) {}
}

impl Socket for TcpStream {
    fn is_closed_by_peer(&self) -> bool {
        has_hung_up(self)
    }

    /// Only the speed depends on it, so an error is left aside.
    fn set_nagle(&self, is_nagling: bool) {
        let _ = self.set_nodelay(!is_nagling);
    }
}

#[cfg(unix)]
impl Socket for tokio::net::UnixStream {
    fn is_closed_by_peer(&self) -> bool {
        has_hung_up(self)
    }
}

/// A stream of the application. A read finds out when it ends.
impl Socket for Box<dyn Stream> {
    fn is_closed_by_peer(&self) -> bool {
        false
    }
}

#[cfg(test)]
impl Socket for tokio::io::DuplexStream {
    fn is_closed_by_peer(&self) -> bool {
        false
    }
}

#[cfg(target_os = "linux")]
fn has_hung_up(socket: &impl std::os::fd::AsFd) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    let mut sockets = [PollFd::new(socket, PollFlags::RDHUP)];
    let at_once = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut sockets, Some(&at_once)).is_ok()
        && sockets[0]
            .revents()
            .intersects(PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR)
}

/// Returns `false`: other systems have no such call. A read finds out there.
#[cfg(not(target_os = "linux"))]
fn has_hung_up<S>(_: &S) -> bool {
    false
}

/// The most answers of a connection that no call of the store asked for. The client library asks a
/// few times when it signs in, and a server may push messages.
const MOST_UNASKED: u64 = 64;

/// A stream of replies that ends with the first one that is too long, and when answers come that
/// nobody asked for.
#[derive(Debug)]
pub(super) struct Bounded<S> {
    stream: S,
    scanner: ReplyScanner,
    wire: Arc<Wire>,
    /// The number of replies that have come.
    replies: u64,
}

impl<S> Bounded<S> {
    pub(super) fn new(stream: S, bound: &ReplyBound, wire: &Arc<Wire>) -> Self {
        Self {
            stream,
            scanner: ReplyScanner::new(bound.clone()),
            wire: Arc::clone(wire),
            replies: 0,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Bounded<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        self.replies += self.scanner.scan(&buffer.filled()[before..])?;
        if self.replies > self.wire.asked() + MOST_UNASKED {
            return Poll::Ready(Err(StreamError::error(
                ErrorKind::Protocol,
                "redis sent answers that nobody asked for",
            )));
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Bounded<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// The task that drives a connection. Dropping this ends the task, and with it the connection.
pub(super) struct Driver(AbortHandle);

impl Driver {
    pub(super) fn start(
        driver: impl Future<Output = ()> + Send + 'static,
        wire: &Arc<Wire>,
    ) -> Self {
        let abandons = Abandons(Arc::clone(wire));
        let task = async move {
            // Dropped last: by then nothing holds a call any more.
            let _abandons = abandons;
            driver.await;
        };
        Self(tokio::spawn(task).abort_handle())
    }
}

/// Wakes the callers of a connection when its task has ended.
struct Abandons(Arc<Wire>);

impl Drop for Abandons {
    fn drop(&mut self) {
        self.0.is_abandoned.store(true, Ordering::Release);
        self.0.abandoned.notify_waiters();
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Driver")
    }
}

#[cfg(test)]
mod tests;
