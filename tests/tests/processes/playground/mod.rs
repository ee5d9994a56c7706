//! The playground example, driven as its page drives it: settings, bad input, events, instances
//! that share a limit, an outage, permits and reservations.

mod answers;
mod input;
mod redis;

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use serde_json::{Value, json};
use tollgate_tests::{Process, RedisServer, ports, server};

pub(super) const PATIENCE: Duration = Duration::from_secs(30);

pub(super) struct Playground {
    pub(super) process: Process,
    address: SocketAddr,
}

impl Playground {
    pub(super) fn start(arguments: &[&str], redis: Option<&RedisServer>) -> Self {
        let address = SocketAddr::from(([127, 0, 0, 1], ports::free()));
        let mut command = Process::example("playground");
        command.env("LISTEN", address.to_string()).args(arguments);
        command.env("REDIS_SERVER", server::find_binary());
        if let Some(redis) = redis {
            command.env("REDIS_URL", redis.url());
        }
        Self {
            process: Process::start(command, "Open http://"),
            address,
        }
    }

    fn send(&self, head: &str, body: &[u8]) -> BufReader<TcpStream> {
        let mut stream = TcpStream::connect(self.address).expect("the example listens");
        stream
            .set_read_timeout(Some(PATIENCE))
            .expect("a time above zero");
        // HTTP/1.0 has no chunks between the lines of a stream.
        let host = if head.contains("\r\nHost:") {
            ""
        } else {
            "\r\nHost: localhost"
        };
        write!(
            stream,
            "{head}{host}\r\nContent-Length: {}\r\n\r\n",
            body.len()
        )
        .expect("a request");
        // The server may answer, and close, before it has read a huge body.
        let _ = stream.write_all(body);
        BufReader::new(stream)
    }

    /// Returns the status, the head and the body.
    pub(super) fn answer(&self, head: &str, body: &[u8]) -> (u16, String, String) {
        let mut answer = String::new();
        let _ = self.send(head, body).read_to_string(&mut answer);
        let (head, body) = answer
            .split_once("\r\n\r\n")
            .unwrap_or_else(|| panic!("a response: {answer}"));
        let status = head
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok())
            .expect("a status");
        (status, head.to_ascii_lowercase(), body.to_owned())
    }

    pub(super) fn get(&self, path: &str) -> (u16, String, String) {
        self.answer(&format!("GET {path} HTTP/1.0"), b"")
    }

    pub(super) fn json(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let head = format!("{method} {path} HTTP/1.0\r\nContent-Type: application/json");
        let (status, _, body) = self.answer(&head, body.to_string().as_bytes());
        (status, serde_json::from_str(&body).unwrap_or_default())
    }

    /// Requires that a request is done.
    #[track_caller]
    pub(super) fn done(&self, method: &str, path: &str, body: &Value) {
        let (status, answer) = self.json(method, path, body);
        assert!((200..300).contains(&status), "{status} {answer}");
    }

    /// Requires that a request is refused. Returns the status, the first field, its value and the
    /// message.
    #[track_caller]
    pub(super) fn refused(
        &self,
        method: &str,
        path: &str,
        body: &Value,
    ) -> (u16, String, String, String) {
        let (status, answer) = self.json(method, path, body);
        let error = |name: &str| {
            answer["errors"][0][name]
                .as_str()
                .unwrap_or_else(|| panic!("{status} {answer}"))
        };
        assert!(status >= 400);
        (
            status,
            error("field").to_owned(),
            error("value").to_owned(),
            error("message").to_owned(),
        )
    }

    /// Opens the stream of events, as a page does.
    pub(super) fn events(&self) -> Events {
        Events(self.send("GET /api/events HTTP/1.0", b""))
    }

    /// Sets one policy in the left pane: a sliding log of `amount` a minute.
    pub(super) fn limit(&self, amount: u64, outage: &str) {
        let policy = json!({ "name": "demo", "algorithm": "sliding_log", "amount": amount, "period_ms": 60_000 });
        self.done(
            "PUT",
            "/api/panes/left",
            &json!({ "policies": [policy], "outage": outage }),
        );
    }

    /// Sends requests one after the other. Returns their statuses.
    pub(super) fn statuses(&self, count: usize) -> Vec<u16> {
        (0..count).map(|_| self.get("/limited/left").0).collect()
    }
}

pub(super) struct Events(BufReader<TcpStream>);

impl Events {
    /// Returns the name and the data of the next event.
    pub(super) fn next(&mut self) -> Option<(String, Value)> {
        let (mut name, mut line) = (String::new(), String::new());
        loop {
            line.clear();
            if self
                .0
                .read_line(&mut line)
                .expect("the stream goes on, or ends")
                == 0
            {
                return None;
            }
            match line.trim_end().split_once(": ") {
                Some(("event", event)) => name = event.to_owned(),
                Some(("data", data)) => {
                    return Some((name, serde_json::from_str(data).expect("JSON")));
                }
                _ => {}
            }
        }
    }

    /// Reads events until `condition` holds for the data of one named `name`, for half a minute.
    /// Work of a minute then has not ended by itself.
    pub(super) fn until(
        &mut self,
        what: &str,
        name: &str,
        mut condition: impl FnMut(&Value) -> bool,
    ) -> Value {
        for _ in 0..120 {
            let (event, data) = self.next().expect("the stream goes on");
            if event == name && condition(&data) {
                return data;
            }
        }
        panic!("120 events without {what}");
    }
}
