//! The example of WebSockets: instances whose clients share one limit of messages.

use std::{
    net::{SocketAddr, TcpStream},
    time::Instant,
};

use tokio_tungstenite::tungstenite::{self, Message, WebSocket, stream::MaybeTlsStream};
use tollgate_tests::{Process, RedisServer, machine, ports};

use crate::STANDSTILL;

struct Instance {
    process: Process,
    address: SocketAddr,
}

impl Instance {
    /// Starts the example, with its counts at a Redis server or in the process.
    fn start(redis: Option<&RedisServer>) -> Self {
        let address = SocketAddr::from(([127, 0, 0, 1], ports::free()));
        let mut command = Process::example("websocket");
        command.env("LISTEN", address.to_string()).env(
            "REDIS_URL",
            redis.map_or_else(String::new, RedisServer::url),
        );
        Self {
            process: Process::start(command, "Try"),
            address,
        }
    }

    fn connect(&self, path: &str) -> WebSocket<MaybeTlsStream<TcpStream>> {
        tungstenite::connect(format!("ws://{}{path}", self.address))
            .expect("a socket")
            .0
    }

    /// Sends texts until the socket closes. Returns how many came back, and the close frame.
    fn flood(&self) -> (u64, Option<(u16, String)>) {
        let mut socket = self.connect("/chat");
        let mut echoes = 0;
        loop {
            socket
                .send(Message::text("hello"))
                .expect("the server reads");
            match socket.read().expect("an answer") {
                Message::Text(text) => assert_eq!(text.as_str(), "hello"),
                Message::Close(frame) => {
                    return (
                        echoes,
                        frame.map(|it| (it.code.into(), it.reason.to_string())),
                    );
                }
                other => panic!("{other:?}"),
            }
            echoes += 1;
        }
    }
}

/// Returns the most messages that pass until now.
fn most(began: Instant) -> u64 {
    // One unit accrues in a second.
    10 + began.elapsed().as_secs() + 1
}

#[test]
fn messages_of_two_instances_are_counted_together_and_the_next_one_closes() {
    machine::undisturbed(STANDSTILL, messages_of_two_instances);
}

fn messages_of_two_instances() {
    let redis = RedisServer::start();
    let instances = [(); 2].map(|()| Instance::start(Some(&redis)));
    let began = Instant::now();
    let mut echoes = 0;
    for instance in &instances {
        let (passed, close) = instance.flood();
        echoes += passed;
        let (code, reason) = close.expect("a close frame");
        assert_eq!(code, 1008);
        assert!(
            reason.starts_with("rate limit exceeded: messages, retry after "),
            "{reason}"
        );
    }
    assert!((10..=most(began)).contains(&echoes), "{echoes} messages");
    for mut instance in instances {
        assert!(instance.process.interrupt().success());
    }
}

#[test]
fn a_socket_on_which_messages_wait_or_are_dropped_stays_open() {
    let mut instance = Instance::start(None);
    let began = Instant::now();
    let mut readings = instance.connect("/readings");
    for number in 0..40 {
        readings
            .send(Message::text(number.to_string()))
            .expect("the server reads");
    }
    // A ping is not charged, and its answer comes behind all that was passed on.
    readings
        .send(Message::Ping("end".into()))
        .expect("the server reads");
    let mut echoes = 0;
    while let Message::Text(_) = readings.read().expect("an answer") {
        echoes += 1;
    }
    assert!((10..=most(began)).contains(&echoes), "{echoes} readings");

    let mut calm = instance.connect("/calm");
    calm.send(Message::text("late")).expect("the server reads");
    assert_eq!(calm.read().expect("an answer"), Message::text("late"));
    calm.close(None).expect("the server reads");
    assert!(calm.read().expect("an answer").is_close());
    drop((readings, calm));
    assert!(instance.process.interrupt().success());
}
