//! Forwards one connection through the proxy: requests in one direction, replies in the other.

use std::{convert::Infallible, io, thread, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpStream,
        tcp::{ReadHalf, WriteHalf},
    },
    sync::{mpsc, watch},
    time::{Instant, sleep_until},
};

use super::{Mode, Orders};

/// So large that a delayed connection never waits for room.
const UNDER_WAY: usize = 4096;

/// The reply in place of one that is lost.
const LOST: &[u8] = b"-ERR lost on the way\r\n";

/// Bytes of replies, and when they came.
type Piece = (Instant, Vec<u8>);

const TIMER_IS_LATE: Duration = Duration::from_millis(2);

/// Names the ways in which a connection ends.
#[derive(Debug)]
enum End {
    Close,
    Reset,
}

/// An error on one side ends both. A closed channel means that the proxy was dropped.
impl From<io::Error> for End {
    fn from(_: io::Error) -> Self {
        Self::Close
    }
}

impl From<watch::error::RecvError> for End {
    fn from(_: watch::error::RecvError) -> Self {
        Self::Close
    }
}

/// Forwards between `client` and the target until either side, or an order, ends it.
pub(super) async fn forward(mut client: TcpStream, orders: watch::Receiver<Orders>) {
    let (resets, forgets) = {
        let orders = orders.borrow();
        (orders.resets, orders.forgets)
    };
    let is_forgotten = |orders: &Orders| orders.forgets != forgets;
    let mut seen = orders.clone();
    let end = tokio::select! {
        // A connection that is refused never reaches the target.
        biased;
        end = ordered(orders.clone(), resets) => Some(end),
        end = between(&mut client, &orders) => Some(end),
        () = async { drop(seen.wait_for(is_forgotten).await) } => None,
    };
    let end = match end {
        Some(end) => end,
        None => tokio::select! {
            end = swallow(&mut client) => end,
            end = ordered(orders.clone(), resets) => end,
        },
    };
    if let Err(End::Reset) = end {
        // Closing with no time to linger is what sends a reset.
        let _ = client.set_zero_linger();
    }
}

async fn between(client: &mut TcpStream, orders: &watch::Receiver<Orders>) -> Result<(), End> {
    let target = orders.borrow().target;
    let mut server = TcpStream::connect(target).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (from_client, to_client) = client.split();
    let (from_server, to_server) = server.split();
    let (sender, receiver) = mpsc::channel(UNDER_WAY);
    tokio::try_join!(
        requests(from_client, to_server, orders.clone(), sender.downgrade()),
        receive(from_server, sender),
        Replies {
            to_client,
            orders: orders.clone(),
            allowance: None,
            counted: (0, 0)
        }
        .deliver(receiver),
    )?;
    Ok(())
}

/// Reads until the client closes, and answers nothing.
async fn swallow(client: &mut TcpStream) -> Result<(), End> {
    let mut buffer = vec![0; 16 * 1024];
    while client.read(&mut buffer).await? > 0 {}
    Ok(())
}

/// Waits for an order that ends the connection.
async fn ordered(mut orders: watch::Receiver<Orders>, resets: u64) -> Result<(), End> {
    loop {
        {
            let orders = orders.borrow_and_update();
            if orders.mode == Mode::Refuse {
                return Err(End::Close);
            }
            if orders.resets != resets {
                return Err(End::Reset);
            }
        }
        orders.changed().await?;
    }
}

async fn requests(
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    mut orders: watch::Receiver<Orders>,
    replies: mpsc::WeakSender<Piece>,
) -> Result<(), End> {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let length = from.read(&mut buffer).await?;
        let mode = orders
            .wait_for(|orders| orders.mode != Mode::Stall)
            .await?
            .mode
            .clone();
        if is_script_call(&buffer[..length]) && is_lost(&mode) {
            let piece = (Instant::now(), LOST.to_vec());
            match replies.upgrade() {
                Some(replies) => _ = replies.send(piece).await,
                None => return Ok(()),
            }
            continue;
        }
        if length == 0 {
            // The client sends no more; it still receives the replies.
            to.shutdown().await?;
            return Ok(());
        }
        to.write_all(&buffer[..length]).await?;
    }
}

/// Reads replies and records their times, from which a delay counts.
async fn receive(mut from: ReadHalf<'_>, pieces: mpsc::Sender<Piece>) -> Result<(), End> {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        // A connection that the server breaks ends like one that it closes: the replies before are
        // delivered.
        let length = from.read(&mut buffer).await.unwrap_or(0);
        let piece = (Instant::now(), buffer[..length].to_vec());
        if length == 0 || pieces.send(piece).await.is_err() {
            return Ok(());
        }
    }
}

struct Replies<'a> {
    to_client: WriteHalf<'a>,
    orders: watch::Receiver<Orders>,
    /// The epoch of the allowance, and the bytes left of it.
    allowance: Option<(u64, usize)>,
    /// The epoch in which replies are counted, and their number.
    counted: (u64, usize),
}

impl Replies<'_> {
    /// Delivers replies until the server closes, and then ends the connection.
    async fn deliver(mut self, mut pieces: mpsc::Receiver<Piece>) -> Result<Infallible, End> {
        while let Some((came, bytes)) = pieces.recv().await {
            self.piece(came, &bytes).await?;
        }
        self.orders
            .wait_for(|orders| !holds_replies(&orders.mode))
            .await?;
        Err(End::Close)
    }

    /// Delivers one piece according to the mode, and starts over whenever the mode changes.
    async fn piece(&mut self, came: Instant, mut bytes: &[u8]) -> Result<(), End> {
        let number = self.count();
        if bytes.starts_with(b"$") && is_lost(&self.orders.borrow().mode) {
            bytes = LOST;
        }
        while !bytes.is_empty() {
            let Orders { mode, epoch, .. } = self.orders.borrow_and_update().clone();
            match mode {
                Mode::Pass => return Ok(self.to_client.write_all(bytes).await?),
                Mode::Garbage(instead) => return Ok(self.to_client.write_all(&instead).await?),
                Mode::Endless(begin, again) => {
                    self.to_client.write_all(&begin).await?;
                    loop {
                        tokio::select! {
                            written = self.to_client.write_all(&again) => written?,
                            changed = self.orders.changed() => return Ok(changed?),
                        }
                    }
                }
                Mode::Stall | Mode::Mute => self.orders.changed().await?,
                Mode::Refuse => return Err(End::Close),
                Mode::CutAfter(allowed) => {
                    bytes = self.spend(bytes, epoch, allowed, End::Close).await?;
                }
                Mode::ResetAfter(allowed) => {
                    bytes = self.spend(bytes, epoch, allowed, End::Reset).await?;
                }
                Mode::DelayEach(nth, _) if !number.is_multiple_of(nth) => {
                    return Ok(self.to_client.write_all(bytes).await?);
                }
                Mode::Delay(delay) | Mode::DelayEach(_, delay) | Mode::Lose(delay, _) => {
                    tokio::select! {
                        () = sleep_precisely(came + delay) => {
                            return Ok(self.to_client.write_all(bytes).await?);
                        }
                        changed = self.orders.changed() => changed?,
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns the number of this piece in the current mode, from 1 on.
    fn count(&mut self) -> usize {
        let epoch = self.orders.borrow().epoch;
        let before = if self.counted.0 == epoch {
            self.counted.1
        } else {
            0
        };
        self.counted = (epoch, before + 1);
        before + 1
    }

    /// Delivers as many bytes as the allowance covers, and returns the rest.
    async fn spend<'b>(
        &mut self,
        bytes: &'b [u8],
        epoch: u64,
        allowed: usize,
        end: End,
    ) -> Result<&'b [u8], End> {
        let left = match self.allowance {
            Some((granted, left)) if granted == epoch => left,
            _ => allowed,
        };
        let (now, rest) = bytes.split_at(left.min(bytes.len()));
        self.to_client.write_all(now).await?;
        let left = left - now.len();
        self.allowance = Some((epoch, left));
        if left == 0 { Err(end) } else { Ok(rest) }
    }
}

/// Returns whether these bytes are one call of a script.
fn is_script_call(bytes: &[u8]) -> bool {
    let name = bytes.split(|byte| *byte == b'\n').nth(2);
    bytes.starts_with(b"*") && name.is_some_and(|name| matches!(name, b"EVALSHA\r" | b"EVAL\r"))
}

/// Returns whether one more piece gets lost.
fn is_lost(mode: &Mode) -> bool {
    matches!(mode, &Mode::Lose(_, of_hundred) if fastrand::u8(0..100) < of_hundred)
}

/// Sleeps until a time. A timer of tokio ends up to two milliseconds later, so a thread sleeps for
/// the last of them.
async fn sleep_precisely(until: Instant) {
    sleep_until(until - TIMER_IS_LATE).await;
    let rest = until.saturating_duration_since(Instant::now());
    if !rest.is_zero() {
        // It fails only while the runtime ends, and with it the connection.
        let _ = tokio::task::spawn_blocking(move || thread::sleep(rest)).await;
    }
}

fn holds_replies(mode: &Mode) -> bool {
    matches!(mode, Mode::Stall | Mode::Mute)
}
