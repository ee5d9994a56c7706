//! Asks a program over HTTP.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
};

/// An answer of which the head was read. Hangs up when it is dropped.
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// The head, with the empty line at its end.
    pub(crate) head: String,
    pub(crate) rest: BufReader<TcpStream>,
}

impl Answer {
    /// Reads the body to its end.
    pub(crate) fn text(mut self) -> String {
        let mut text = String::new();
        self.rest.read_to_string(&mut text).expect("a body");
        text
    }
}

/// Sends a request with these fields, on a connection of its own. Reads the head of the answer.
pub(crate) fn open(
    address: SocketAddr,
    method: &str,
    path: &str,
    fields: &[(&str, &str)],
    body: &str,
) -> Answer {
    let mut stream = TcpStream::connect(address).expect("the program listens");
    let fields: String = fields
        .iter()
        .map(|(name, value)| format!("{name}: {value}\r\n"))
        .collect();
    let length = body.len();
    let head =
        format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{fields}");
    write!(stream, "{head}Content-Length: {length}\r\n\r\n{body}").expect("a request");
    let (mut rest, mut head) = (BufReader::new(stream), String::new());
    while !head.ends_with("\r\n\r\n") {
        assert!(rest.read_line(&mut head).expect("a head") > 0, "{head}");
    }
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok())
        .expect("a status");
    Answer { status, head, rest }
}

/// Sends a request without a body. Returns the status and the whole answer.
pub(crate) fn send(
    address: SocketAddr,
    method: &str,
    path: &str,
    fields: &[(&str, &str)],
) -> (u16, String) {
    let answer = open(address, method, path, fields, "");
    (answer.status, answer.head.clone() + &answer.text())
}
