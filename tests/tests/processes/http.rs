//! Asks a program over HTTP.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
};

/// Sends a request with these fields, on a connection of its own. Returns the status and the whole answer.
pub(crate) fn send(address: SocketAddr, method: &str, path: &str, fields: &[(&str, &str)]) -> (u16, String) {
    send_body(address, method, path, fields, "")
}

/// Sends a request with a body, as [`send`] does. The fields say its length.
pub(crate) fn send_body(
    address: SocketAddr,
    method: &str,
    path: &str,
    fields: &[(&str, &str)],
    body: &str,
) -> (u16, String) {
    let mut stream = TcpStream::connect(address).expect("the program listens");
    let fields: String = fields.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let request = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{fields}\r\n{body}");
    stream.write_all(request.as_bytes()).expect("a request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    (status, answer)
}
