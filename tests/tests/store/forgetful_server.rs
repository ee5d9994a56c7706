//! A server that forgets its scripts for single calls: it forwards all commands to a real server,
//! and answers some calls of a script itself.

use std::{
    io::{BufReader, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
};

use tollgate_test_support::PATIENCE;
use tollgate_tests::{Client, RedisServer, Reply, wait};

/// The calls by SHA-1 that are refused when no call carries a script.
const UNTIL_LOADED: usize = usize::MAX;

/// A forwarder on a free port of 127.0.0.1.
pub(crate) struct ForgetfulServer {
    addr: SocketAddr,
    /// The number of calls by SHA-1 that are answered with `NOSCRIPT`.
    refusals: Arc<AtomicUsize>,
    /// Tells whether the replies to these calls wait.
    is_held: Arc<AtomicBool>,
}

impl ForgetfulServer {
    pub(crate) fn start(server: &RedisServer) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("some port is free");
        let addr = listener.local_addr().expect("it is bound");
        let (refusals, is_held) = (
            Arc::new(AtomicUsize::new(0)),
            Arc::new(AtomicBool::new(false)),
        );
        let (target, seen) = (server.addr(), (Arc::clone(&refusals), Arc::clone(&is_held)));
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let (refusals, is_held) = seen.clone();
                thread::spawn(move || forward(client, target, &refusals, &is_held));
            }
        });
        Self {
            addr,
            refusals,
            is_held,
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}", self.addr)
    }

    /// Makes the server forget the scripts of the next calls by SHA-1, so many of them. Another
    /// client has loaded the scripts again before the calls behind them arrive.
    pub(crate) fn forget(&self, calls: usize) {
        self.refusals.store(calls, Ordering::SeqCst);
    }

    /// Makes the server forget all scripts, until a call carries one.
    pub(crate) fn forget_until_loaded(&self) {
        self.forget(UNTIL_LOADED);
    }

    /// Holds the replies to these calls back, or sends them.
    pub(crate) fn hold(&self, is_held: bool) {
        self.is_held.store(is_held, Ordering::SeqCst);
    }

    pub(crate) fn has_refused(&self) -> bool {
        self.refusals.load(Ordering::SeqCst) == 0
    }
}

/// Forwards commands one by one, until the client closes.
fn forward(client: TcpStream, target: SocketAddr, refusals: &AtomicUsize, is_held: &AtomicBool) {
    let mut server = Client::connect(target).expect("the server runs");
    let mut requests = BufReader::new(client.try_clone().expect("a socket"));
    let mut replies = client;
    // A request has the form of a list of strings.
    while let Ok(Reply::Array(words)) = Reply::read(&mut requests) {
        let words: Vec<&[u8]> = words.iter().map(Reply::bytes).collect();
        let refuse = |left: usize| match left {
            UNTIL_LOADED => Some(UNTIL_LOADED),
            left => left.checked_sub(1),
        };
        if words[0] == b"EVAL" {
            let _ = refusals.compare_exchange(UNTIL_LOADED, 0, Ordering::SeqCst, Ordering::SeqCst);
        }
        let is_refused = words[0] == b"EVALSHA"
            && refusals
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, refuse)
                .is_ok();
        let reply = match is_refused {
            true => {
                wait::until("the test to go on", PATIENCE, || {
                    !is_held.load(Ordering::SeqCst)
                });
                Reply::Error("NOSCRIPT No matching script.".to_owned())
            }
            false => server.command(&words).expect("the server runs"),
        };
        if replies.write_all(&encoded(&reply)).is_err() {
            return;
        }
    }
}

fn encoded(reply: &Reply) -> Vec<u8> {
    match reply {
        Reply::Simple(text) => format!("+{text}\r\n").into_bytes(),
        Reply::Error(text) => format!("-{text}\r\n").into_bytes(),
        Reply::Int(number) => format!(":{number}\r\n").into_bytes(),
        Reply::Bulk(bytes) => [format!("${}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat(),
        Reply::Array(items) => {
            let items: Vec<u8> = items.iter().flat_map(encoded).collect();
            [format!("*{}\r\n", reply.items().len()).as_bytes(), &items].concat()
        }
        Reply::Nil => b"$-1\r\n".to_vec(),
    }
}
