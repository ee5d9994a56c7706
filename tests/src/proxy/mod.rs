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

mod connection;

/// What the proxy does with what passes through it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mode {
    /// Forwards everything.
    #[default]
    Pass,
    /// Accepts connections and bytes, forwards nothing in either direction: a server that is stopped. What was held
    /// back goes on its way in the next mode.
    Stall,
    /// Forwards requests and holds the replies back: the server has done it and nobody learns of it.
    Mute,
    /// Closes every connection, those already open too.
    Refuse,
    /// Forwards this many more bytes of replies on each connection, then closes it in good order.
    CutAfter(usize),
    /// As `CutAfter`, but by a TCP reset; what was forwarded shortly before may be lost.
    ResetAfter(usize),
    /// Delivers every reply this much later; many may be under way at once.
    Delay(Duration),
    /// Delivers replies one byte at a time, with this much time in between.
    Trickle(Duration),
    /// Delivers these bytes instead of each piece of a reply.
    Garbage(Vec<u8>),
}

/// A TCP proxy on a free port of 127.0.0.1, in a thread of its own, so that blocking tests can use it and a test with
/// tokio's clock paused does not pause the proxy.
///
/// It closes everything when dropped.
#[derive(Debug)]
pub struct Proxy {
    addr: SocketAddr,
    counts: Arc<Counts>,
    orders: Option<watch::Sender<Orders>>,
    thread: Option<JoinHandle<()>>,
}

/// What all connections look at before they move a byte.
#[derive(Clone, Debug)]
struct Orders {
    mode: Mode,
    target: SocketAddr,
    /// Counts the changes of mode: allowances such as that of `CutAfter` begin anew with each.
    epoch: u64,
    /// Counts the calls of `reset_all`: a connection older than the last one ends.
    resets: u64,
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
    /// When there is no port or no thread to be had.
    #[must_use]
    pub fn start(target: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("some port is free");
        let addr = listener.local_addr().expect("it is bound");
        let counts = Arc::new(Counts::default());
        let orders = Orders { mode: Mode::Pass, target, epoch: 0, resets: 0 };
        let (orders, seen) = watch::channel(orders);
        let serving = {
            let counts = Arc::clone(&counts);
            move || serve(listener, &seen, &counts).expect("the proxy can listen")
        };
        let thread = thread::Builder::new()
            .name(format!("proxy {}", addr.port()))
            .spawn(serving)
            .expect("a thread can be started");
        Self { addr, counts, orders: Some(orders), thread: Some(thread) }
    }

    /// Where it listens.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The port it listens on.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.addr.port()
    }

    /// A Redis URL that leads through it.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://{}/", self.addr)
    }

    /// Changes what it does, from the next byte on, also on connections that are open.
    pub fn set(&self, mode: Mode) {
        self.change(|orders| {
            orders.mode = mode;
            orders.epoch += 1;
        });
    }

    /// Sends connections made from now on elsewhere, as a name that moves does.
    pub fn set_target(&self, target: SocketAddr) {
        self.change(|orders| orders.target = target);
    }

    /// Resets the connections that are open now. New ones are welcome.
    pub fn reset_all(&self) {
        self.change(|orders| orders.resets += 1);
    }

    /// How many connections it has accepted since it started.
    #[must_use]
    pub fn accepted(&self) -> usize {
        self.counts.accepted.load(Ordering::SeqCst)
    }

    /// How many connections are open now.
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
        // The thread ends when nobody can give it orders any more.
        drop(self.orders.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve(listener: TcpListener, orders: &watch::Receiver<Orders>, counts: &Arc<Counts>) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    listener.set_nonblocking(true)?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let mut ended = orders.clone();
        let accepting = async {
            loop {
                // An error concerns one connection that came to nothing.
                if let Ok((client, _)) = listener.accept().await {
                    counts.accepted.fetch_add(1, Ordering::SeqCst);
                    let open = Open::new(counts);
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

/// A connection that is open, for as long as the value is there.
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
