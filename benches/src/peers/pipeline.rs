//! Sends pipelined calls on many connections, as redis-benchmark does.
//!
//! redis-benchmark cannot send arbitrary bytes as arguments. This loop can.

use std::{
    io::{Read, Write},
    net::TcpStream,
    time::Instant,
};

use crate::{keys::Random, peers::benchmark::Run, server::Server};

/// Sets the number of connections: as many as redis-benchmark has by default.
const CONNECTIONS: usize = 50;

/// Sets the number of request buffers per connection that are filled before the clock starts.
const PREPARED: usize = 4;

/// Sends calls over 50 connections, with `depth` calls in flight on each.
///
/// `call` returns the words of the call for the subject with that number.
///
/// # Panics
///
/// When the server refuses a call.
pub(crate) fn run(
    server: &Server,
    depth: usize,
    calls: u64,
    subjects: usize,
    call: impl Fn(usize) -> Vec<Vec<u8>>,
) -> Run {
    let mut random = Random::new(calls);
    let mut buffer = |_| {
        let mut bytes = Vec::new();
        (0..depth).for_each(|_| encode(&call(random.below(subjects)), &mut bytes));
        bytes
    };
    let requests: Vec<Vec<u8>> = (0..CONNECTIONS * PREPARED).map(&mut buffer).collect();
    let connect = |_| {
        let stream =
            TcpStream::connect(("127.0.0.1", server.port())).expect("the server of the section");
        stream.set_nodelay(true).expect("a TCP stream");
        stream
    };
    let mut streams: Vec<TcpStream> = (0..CONNECTIONS).map(connect).collect();
    let lines = lines_of_a_reply(&mut streams[0], &call(0)) * depth;

    let rounds = calls.div_ceil((CONNECTIONS * depth) as u64).max(1);
    let (before, started) = (server.usage(), Instant::now());
    for round in 0..rounds as usize {
        for (at, stream) in streams.iter_mut().enumerate() {
            stream
                .write_all(&requests[at * PREPARED + round % PREPARED])
                .expect("the server reads");
        }
        streams
            .iter_mut()
            .for_each(|stream| read_lines(stream, lines));
    }
    let (elapsed, usage) = (started.elapsed(), server.usage().since(&before));
    let made = rounds * (CONNECTIONS * depth) as u64;
    assert_eq!(
        usage.calls("evalsha"),
        made,
        "the server counts another number of calls"
    );
    Run {
        per_second: made as f64 / elapsed.as_secs_f64(),
        calls: made,
        usage,
    }
}

fn encode(words: &[Vec<u8>], bytes: &mut Vec<u8>) {
    bytes.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
}

/// Returns the number of lines in one reply. All replies to a script in one run have the same
/// number of lines.
fn lines_of_a_reply(stream: &mut TcpStream, call: &[Vec<u8>]) -> usize {
    let mut bytes = Vec::new();
    encode(call, &mut bytes);
    stream.write_all(&bytes).expect("the server reads");
    let mut reply = Vec::new();
    loop {
        let mut some = [0; 256];
        let read = stream.read(&mut some).expect("a reply");
        reply.extend_from_slice(&some[..read]);
        let text = String::from_utf8_lossy(&reply);
        assert!(
            read > 0 && !text.starts_with('-'),
            "the server refused: {text}"
        );
        let complete = text
            .rsplit_once("\r\n")
            .map_or("", |(complete, _)| complete);
        let mut lines = complete.split("\r\n");
        if !complete.is_empty() && is_whole(&mut lines) {
            return complete.split("\r\n").count();
        }
    }
}

/// Returns whether the lines begin with a complete value.
fn is_whole(lines: &mut dyn Iterator<Item = &str>) -> bool {
    let Some(line) = lines.next() else {
        return false;
    };
    let length = line
        .get(1..)
        .and_then(|length| length.parse::<i64>().ok())
        .unwrap_or(0);
    match line.as_bytes().first() {
        Some(b'*') => (0..length).all(|_| is_whole(lines)),
        Some(b'$') => length < 0 || lines.next().is_some(),
        _ => true,
    }
}

fn read_lines(stream: &mut TcpStream, mut lines: usize) {
    let mut some = [0; 16 * 1024];
    while lines > 0 {
        let read = stream.read(&mut some).expect("replies");
        assert!(
            read > 0 && !some[..read].contains(&b'-') || !is_refusal(&some[..read]),
            "the server refused"
        );
        lines -= some[..read].iter().filter(|&&byte| byte == b'\n').count();
    }
}

fn is_refusal(bytes: &[u8]) -> bool {
    bytes.windows(4).any(|window| window == b"-ERR")
}
