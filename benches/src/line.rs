//! Puts a distance between a client and a server: a delay line.
//!
//! The line reads all bytes at once, and writes them when their time has come. It holds any number
//! of bytes, so it does not limit the throughput as long as one thread can copy them. The fault
//! proxy of the tests has modes and counters, and takes more time for each piece; the section
//! `distance` measures both against a direct connection.

use std::{
    collections::VecDeque,
    io::{self, ErrorKind, Read, Write},
    net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::machine;

/// Listens on a free port, and connects to a server at a distance.
///
/// Dropping the line ends its connections within [`LOOK`].
#[derive(Debug)]
pub(crate) struct Line {
    addr: SocketAddr,
    is_over: Arc<AtomicBool>,
    listening: Option<JoinHandle<()>>,
}

/// Sets how often a connection without traffic looks whether the line was dropped.
const LOOK: Duration = Duration::from_millis(50);

/// Sets the most bytes of a piece.
const PIECE: usize = 64 * 1024;

impl Line {
    /// Starts a line that adds `round_trip` to each round trip, half of it in each direction.
    pub(crate) fn start(port: u16, round_trip: Duration) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("some port is free");
        let addr = listener.local_addr().expect("the listener is bound");
        let is_over = Arc::new(AtomicBool::new(false));
        let serving = {
            let is_over = Arc::clone(&is_over);
            move || accept(&listener, port, round_trip / 2, &is_over)
        };
        Self {
            addr,
            is_over,
            listening: Some(thread::spawn(serving)),
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}/", self.addr)
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        // A connection wakes the thread that accepts.
        let _ = TcpStream::connect(self.addr);
        if let Some(listening) = self.listening.take() {
            let _ = listening.join();
        }
    }
}

fn accept(listener: &TcpListener, port: u16, delay: Duration, is_over: &Arc<AtomicBool>) {
    machine::roam();
    while let Ok((client, _)) = listener.accept() {
        if is_over.load(Ordering::Acquire) {
            return;
        }
        let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) else {
            continue;
        };
        let is_over = Arc::clone(is_over);
        // An error ends the connection, as it does on a real line.
        thread::spawn(move || forward(&client, &server, delay, &is_over));
    }
}

/// Forwards in both directions until both sides have closed.
fn forward(
    client: &TcpStream,
    server: &TcpStream,
    delay: Duration,
    is_over: &AtomicBool,
) -> io::Result<()> {
    for stream in [client, server] {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
    }
    let mut buffer = vec![0; PIECE];
    let mut ways = [Way::new(client, server), Way::new(server, client)];
    while !is_over.load(Ordering::Acquire) {
        let now = Instant::now();
        for way in &mut ways {
            way.receive(&mut buffer, now + delay)?;
        }
        for way in &mut ways {
            way.deliver(Instant::now())?;
        }
        for way in &mut ways {
            way.close()?;
        }
        if ways.iter().all(|way| way.is_done) {
            return Ok(());
        }
        wait(&ways)?;
    }
    Ok(())
}

/// Waits until bytes arrive, a piece is due, or a full buffer has room.
fn wait(ways: &[Way<'_>; 2]) -> io::Result<()> {
    let now = Instant::now();
    let mut longest = LOOK;
    let mut events = [PollFlags::empty(); 2];
    for (at, way) in ways.iter().enumerate() {
        if !way.is_closed {
            events[at] |= PollFlags::IN;
        }
        match way.pieces.front() {
            // The way writes to the side that the other way reads from.
            Some(piece) if piece.due <= now => events[1 - at] |= PollFlags::OUT,
            Some(piece) => longest = longest.min(piece.due - now),
            None => {}
        }
    }
    let [client, server] = [ways[0].from, ways[1].from];
    let mut sides = [
        PollFd::new(client, events[0]),
        PollFd::new(server, events[1]),
    ];
    let timeout = Timespec {
        tv_sec: 0,
        tv_nsec: longest.as_nanos() as _,
    };
    poll(&mut sides, Some(&timeout))?;
    Ok(())
}

/// Holds the bytes on their way in one direction.
struct Way<'a> {
    from: &'a TcpStream,
    to: &'a TcpStream,
    pieces: VecDeque<Piece>,
    /// Tells whether `from` sends no more.
    is_closed: bool,
    /// Tells whether `to` knows it.
    is_done: bool,
}

struct Piece {
    due: Instant,
    bytes: Vec<u8>,
    written: usize,
}

impl<'a> Way<'a> {
    fn new(from: &'a TcpStream, to: &'a TcpStream) -> Self {
        Self {
            from,
            to,
            pieces: VecDeque::new(),
            is_closed: false,
            is_done: false,
        }
    }

    /// Reads what has arrived.
    fn receive(&mut self, buffer: &mut [u8], due: Instant) -> io::Result<()> {
        while !self.is_closed {
            match self.from.read(buffer) {
                Ok(0) => self.is_closed = true,
                Ok(length) => {
                    self.pieces.push_back(Piece {
                        due,
                        bytes: buffer[..length].to_vec(),
                        written: 0,
                    });
                    if length < buffer.len() {
                        return Ok(());
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Passes the end on, after the last piece.
    fn close(&mut self) -> io::Result<()> {
        if self.is_closed && !self.is_done && self.pieces.is_empty() {
            self.to.shutdown(Shutdown::Write)?;
            self.is_done = true;
        }
        Ok(())
    }

    /// Writes the pieces that are due.
    fn deliver(&mut self, now: Instant) -> io::Result<()> {
        while let Some(piece) = self.pieces.front_mut().filter(|piece| piece.due <= now) {
            match self.to.write(&piece.bytes[piece.written..]) {
                Ok(length) => piece.written += length,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            if piece.written == piece.bytes.len() {
                self.pieces.pop_front();
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Starts a server that sends back what it receives.
    fn echo() -> u16 {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("some port is free");
        let port = listener.local_addr().expect("the listener is bound").port();
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("the line connects");
            let mut writer = stream.try_clone().expect("a stream");
            io::copy(&mut stream, &mut writer).expect("the line reads");
        });
        port
    }

    #[test]
    fn bytes_return_in_order_and_not_before_the_round_trip() {
        let round_trip = Duration::from_millis(20);
        let line = Line::start(echo(), round_trip);
        let mut stream = TcpStream::connect(line.addr).expect("the line listens");
        // More than the buffers of the sockets hold, so that writing has to wait.
        let sent: Vec<u8> = (0..8_000_000_u32).map(|at| (at % 251) as u8).collect();
        let began = Instant::now();
        let writing = {
            let (mut stream, sent) = (stream.try_clone().expect("a stream"), sent.clone());
            thread::spawn(move || stream.write_all(&sent).expect("the line reads"))
        };
        let mut received = vec![0; sent.len()];
        stream
            .read_exact(&mut received[..1])
            .expect("the first byte");
        assert!(began.elapsed() >= round_trip, "{:?}", began.elapsed());
        stream
            .read_exact(&mut received[1..])
            .expect("the other bytes");
        writing.join().expect("all bytes are written");
        assert!(received == sent, "the bytes differ");
    }

    #[test]
    fn the_end_arrives_after_the_last_byte() {
        let line = Line::start(echo(), Duration::from_millis(2));
        let mut stream = TcpStream::connect(line.addr).expect("the line listens");
        stream.write_all(b"last").expect("the line reads");
        stream.shutdown(Shutdown::Write).expect("a stream");
        let mut received = Vec::new();
        stream.read_to_end(&mut received).expect("the line closes");
        assert_eq!(received, b"last");
    }
}
