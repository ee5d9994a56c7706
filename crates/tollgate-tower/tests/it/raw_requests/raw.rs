//! HTTP/1.1 as bytes, because HTTP clients refuse to send invalid requests.

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Returns a request as it is written to the connection.
pub(super) fn request(method: &str, target: &str, headers: &[(&str, &[u8])]) -> Vec<u8> {
    let mut bytes =
        format!("{method} {target} HTTP/1.1\r\nhost: example.com\r\nconnection: close\r\n")
            .into_bytes();
    for (name, value) in headers {
        bytes.extend_from_slice(name.as_bytes());
        bytes.extend_from_slice(b": ");
        bytes.extend_from_slice(value);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(b"\r\n");
    bytes
}

pub(super) fn get(target: &str, headers: &[(&str, &str)]) -> Vec<u8> {
    let headers: Vec<_> = headers
        .iter()
        .map(|(name, value)| (*name, value.as_bytes()))
        .collect();
    request("GET", target, &headers)
}

/// Returns all bytes that the server sends until it closes the connection.
pub(super) async fn send(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    request: &[u8],
) -> Vec<u8> {
    // A server that rejects the request early does not read the rest.
    let _ = stream.write_all(request).await;
    let mut response = Vec::new();
    let mut buffer = [0; 4096];
    while let Ok(length @ 1..) = stream.read(&mut buffer).await {
        response.extend_from_slice(&buffer[..length]);
    }
    response
}

/// Returns the status of a response, or 0 without one.
pub(super) fn status(response: &[u8]) -> u16 {
    let digits = response
        .strip_prefix(b"HTTP/1.1 ")
        .and_then(|rest| rest.get(..3));
    digits
        .and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok())
        .unwrap_or(0)
}
