//! Sends requests to a service that is counted, until it ends. The service is in `probe.rs`.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    sync::Arc,
    thread,
};

use super::{BODY, CONNECTIONS, KEY};
use crate::{keys, load, sections::envoy::Client};

/// Returns the key of a request. A multiplier without a common factor visits all keys, far from
/// their order.
fn key(number: usize) -> usize {
    number * 7_919 % keys::KEYS
}

/// Calls by HTTP on [`CONNECTIONS`] connections.
pub(super) fn http(address: SocketAddr) {
    thread::scope(|threads| {
        for first in 0..CONNECTIONS {
            threads.spawn(move || get(address, first));
        }
    });
}

/// Sends requests on one connection, each after the response to the one before.
fn get(address: SocketAddr, first: usize) {
    let mut stream = TcpStream::connect(address).expect("the service listens");
    stream.set_nodelay(true).expect("a socket of TCP");
    let mut response = [0; 1_024];
    for number in (first..).step_by(CONNECTIONS) {
        let key = keys::key(key(number));
        let request = format!("GET / HTTP/1.1\r\nhost: localhost\r\n{KEY}: {key}\r\n\r\n");
        if stream.write_all(request.as_bytes()).is_err() {
            return;
        }
        let mut length = 0;
        while !response[..length].ends_with(BODY.as_bytes()) {
            match stream.read(&mut response[length..]) {
                Ok(0) | Err(_) => return,
                Ok(read) => length += read,
            }
        }
        assert!(
            response.starts_with(b"HTTP/1.1 200"),
            "a request is refused"
        );
    }
}

/// Calls by gRPC, in [`CONNECTIONS`] streams of one connection.
pub(super) fn grpc(address: SocketAddr) {
    let runtime = load::runtime();
    let client = Arc::new(runtime.block_on(Client::connect(address)));
    let streams: Vec<_> = (0..CONNECTIONS)
        .map(|first| {
            let client = Arc::clone(&client);
            runtime.spawn(async move {
                for number in (first..).step_by(CONNECTIONS) {
                    match client.call(key(number)).await {
                        Ok(is_admitted) => assert!(is_admitted, "a request is refused"),
                        // The service has ended.
                        Err(_) => return,
                    }
                }
            })
        })
        .collect();
    for stream in streams {
        runtime.block_on(stream).expect("all requests are admitted");
    }
}
