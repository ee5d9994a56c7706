//! A small Redis client for tests: one blocking connection.

use std::{
    io::{self, BufReader, Write},
    net::{TcpStream, ToSocketAddrs},
    thread,
    time::Duration,
};

use crate::reply::Reply;

/// The longest time to an answer; no command of a test takes longer.
const PATIENCE: Duration = Duration::from_secs(30);

/// The bytes that the buffers of the sockets hold while nobody reads.
const AT_ONCE: usize = 32 * 1024;

/// One blocking connection to a Redis server.
///
/// For tests that must not use the client of the project.
#[derive(Debug)]
pub struct Client {
    stream: BufReader<TcpStream>,
}

impl Client {
    /// Connects.
    ///
    /// # Errors
    ///
    /// When nothing listens there.
    pub fn connect(to: impl ToSocketAddrs) -> io::Result<Self> {
        let stream = TcpStream::connect(to)?;
        stream.set_nodelay(true)?;
        let client = Self {
            stream: BufReader::new(stream),
        };
        client.patience(PATIENCE)?;
        Ok(client)
    }

    /// Sets the longest time to an answer. 30 seconds by default.
    ///
    /// # Errors
    ///
    /// When `limit` is zero.
    pub fn patience(&self, limit: Duration) -> io::Result<()> {
        self.stream.get_ref().set_read_timeout(Some(limit))?;
        self.stream.get_ref().set_write_timeout(Some(limit))
    }

    /// Sends one command and waits for its reply. An error of the server is a reply too.
    ///
    /// # Errors
    ///
    /// When the connection breaks, the answer is late or the answer is no reply. The connection
    /// cannot be used after that.
    pub fn command<A: AsRef<[u8]>>(&mut self, words: &[A]) -> io::Result<Reply> {
        let mut bytes = Vec::new();
        encode(words, &mut bytes);
        self.stream.get_mut().write_all(&bytes)?;
        self.read()
    }

    /// Sends many commands without waiting in between, then returns their replies in order.
    ///
    /// Any number of commands is possible: one thread writes while another reads.
    ///
    /// # Errors
    ///
    /// As [`Client::command`].
    // Inlined, so that the crate of the streams, which is optimised, has its own copy: millions of
    // commands pass.
    #[inline]
    pub fn pipeline(&mut self, commands: &[Vec<Vec<u8>>]) -> io::Result<Vec<Reply>> {
        let mut bytes = Vec::new();
        commands.iter().for_each(|words| encode(words, &mut bytes));
        let replies = |client: &mut Self| commands.iter().map(|_| client.read()).collect();
        if bytes.len() <= AT_ONCE {
            self.stream.get_mut().write_all(&bytes)?;
            return replies(self);
        }
        let mut writer = self.stream.get_ref().try_clone()?;
        thread::scope(|scope| {
            let writing = scope.spawn(move || writer.write_all(&bytes));
            let replies = replies(self);
            let written = writing
                .join()
                .unwrap_or_else(|_| Err(io::ErrorKind::Other.into()));
            // The error of the reader comes first: it contains the reason why the server closed the
            // connection.
            replies.and_then(|replies| written.map(|()| replies))
        })
    }

    /// Reads a message that the server sends by itself, as after `MONITOR` or `SUBSCRIBE`.
    ///
    /// # Errors
    ///
    /// As [`Client::command`].
    #[inline]
    pub fn read(&mut self) -> io::Result<Reply> {
        Reply::read(&mut self.stream)
    }
}

fn encode<A: AsRef<[u8]>>(words: &[A], into: &mut Vec<u8>) {
    into.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words.iter().map(AsRef::as_ref) {
        into.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        into.extend_from_slice(word);
        into.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_sent_with_their_lengths() {
        let mut bytes = Vec::new();
        encode(&[&b"GET"[..], b"a\r\nb"], &mut bytes);
        assert_eq!(bytes, b"*2\r\n$3\r\nGET\r\n$4\r\na\r\nb\r\n");
    }
}
