//! A TCP proxy that misbehaves on request.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use tokio::sync::watch;

use crate::wait;

mod connection;

/// The longest time in which connections end.
const ENDING: Duration = Duration::from_secs(60);

/// Selects the treatment of the bytes on all connections of a proxy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mode {
    /// Forwards everything.
    #[default]
    Pass,
    /// Accepts connections and bytes and forwards none, like a stopped server. The next mode
    /// forwards what was held back.
    Stall,
    /// Forwards requests and holds the replies back: the server executes commands whose replies
    /// never arrive.
    Mute,
    /// Closes every connection, also those that are open.
    Refuse,
    /// Forwards this many more bytes of replies on each connection, then closes it.
    CutAfter(usize),
    /// As `CutAfter`, but with a TCP reset. Bytes forwarded shortly before may be lost.
    ResetAfter(usize),
    /// Delivers every reply this much later. Many replies may be delayed at once.
    Delay(Duration),
    /// Delivers every n-th reply of each connection this much later, and the replies behind it
    /// after it.
    DelayEach(usize, Duration),
    /// Delivers every reply this much later, and loses so many of a hundred calls of a script, and of
    /// a hundred answers in strings. An error takes the place of each answer that is lost, because the
    /// replies behind a gap would be taken for others.
    Lose(Duration, u8),
    /// Delivers these bytes instead of each piece of a reply.
    Garbage(Vec<u8>),
    /// Delivers the first bytes instead of a reply, and then the others again and again, as fast as
    /// they are taken.
    Endless(Vec<u8>, Vec<u8>),
}

/// A TCP proxy on a free port of 127.0.0.1. It runs in a thread of its own, so that blocking tests
/// can use it and a paused tokio clock does not stop it.
///
/// Dropping it closes all connections.
#[derive(Debug)]
pub struct Proxy {
    addr: SocketAddr,
    counts: Arc<Counts>,
    orders: Option<watch::Sender<Orders>>,
    thread: Option<JoinHandle<()>>,
}

/// The orders that every connection reads before it forwards a byte.
#[derive(Clone, Debug)]
struct Orders {
    mode: Mode,
    target: SocketAddr,
    /// Counts the changes of the mode; an allowance such as that of `CutAfter` starts again with
    /// each.
    epoch: u64,
    /// Counts the calls of `reset_all`: a connection older than the last one ends.
    resets: u64,
    /// Counts the calls of `forget_all`: a connection older than the last one forwards nothing
    /// more.
    forgets: u64,
}

#[derive(Debug, Default)]
struct Counts {
    accepted: AtomicUsize,
    open: AtomicUsize,
}

impl Proxy {
    /// Starts a proxy in front of `target` that forwards everything.
    ///
    /// # Panics
    ///
    /// When no port is free or no thread can be started.
    #[must_use]
    pub fn start(target: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("some port is free");
        let addr = listener.local_addr().expect("it is bound");
        let counts = Arc::new(Counts::default());
        let orders = Orders {
            mode: Mode::Pass,
            target,
            epoch: 0,
            resets: 0,
            forgets: 0,
        };
        let (orders, seen) = watch::channel(orders);
        let serving = {
            let counts = Arc::clone(&counts);
            move || serve(listener, &seen, &counts).expect("the proxy can listen")
        };
        let thread = thread::Builder::new()
            .name(format!("proxy {}", addr.port()))
            .spawn(serving)
            .expect("a thread can be started");
        Self {
            addr,
            counts,
            orders: Some(orders),
            thread: Some(thread),
        }
    }

    /// Returns its address.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Returns its port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.addr.port()
    }

    /// Returns a Redis URL with its address.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://{}/", self.addr)
    }

    /// Sets the mode, from the next byte on, also for open connections.
    pub fn set(&self, mode: Mode) {
        self.change(|orders| {
            orders.mode = mode;
            orders.epoch += 1;
        });
    }

    /// Sets the target of new connections, as a change of a host name does.
    pub fn set_target(&self, target: SocketAddr) {
        self.change(|orders| orders.target = target);
    }

    /// Resets all open connections. New ones are accepted.
    pub fn reset_all(&self) {
        self.change(|orders| orders.resets += 1);
    }

    /// Resets all open connections and waits until they are closed, then forwards everything.
    /// Replies that were held back are lost.
    ///
    /// # Panics
    ///
    /// When the connections do not end.
    pub fn lose_replies(&self) {
        let before = self.accepted();
        self.reset_all();
        wait::until("the connections to end", ENDING, || {
            self.accepted() >= self.open() + before
        });
        self.set(Mode::Pass);
    }

    /// Swallows everything on the connections that are open, as a NAT that has forgotten them does.
    /// New ones are accepted.
    pub fn forget_all(&self) {
        self.change(|orders| orders.forgets += 1);
    }

    /// Counts the connections accepted since the start.
    #[must_use]
    pub fn accepted(&self) -> usize {
        self.counts.accepted.load(Ordering::SeqCst)
    }

    /// Counts the open connections.
    #[must_use]
    pub fn open(&self) -> usize {
        self.counts.open.load(Ordering::SeqCst)
    }

    fn change(&self, change: impl FnOnce(&mut Orders)) {
        if let Some(orders) = &self.orders {
            orders.send_modify(change);
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // The thread ends when the proxy is dropped.
        drop(self.orders.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve(
    listener: TcpListener,
    orders: &watch::Receiver<Orders>,
    counts: &Arc<Counts>,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    listener.set_nonblocking(true)?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let mut ended = orders.clone();
        let accepting = async {
            loop {
                // An error concerns one connection only.
                if let Ok((client, _)) = listener.accept().await {
                    let open = Open::new(counts);
                    counts.accepted.fetch_add(1, Ordering::SeqCst);
                    let orders = orders.clone();
                    tokio::spawn(async move {
                        connection::forward(client, orders).await;
                        drop(open);
                    });
                }
            }
        };
        tokio::select! {
            () = accepting => {}
            () = async { while ended.changed().await.is_ok() {} } => {}
        }
        Ok(())
    })
    // Dropping the runtime closes every connection.
}

/// Counts a connection as open until it is dropped.
struct Open(Arc<Counts>);

impl Open {
    fn new(counts: &Arc<Counts>) -> Self {
        counts.open.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(counts))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests;
