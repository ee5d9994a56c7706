//! When a probe leaves. The clock stands still as long as there is something to do, so that what happens in one moment has
//! one time.

use std::{
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    time::Instant,
};
use tollgate::{Limiter, Outage, Policy, Quota, RedisStore};
use tollgate_tests::wait;

/// In real time, for what takes no time here.
const PATIENT: Duration = Duration::from_secs(20);

const HOURLY: Policy = Policy::token_bucket("hourly", Quota::per_hour(5));

/// A server in this runtime that welcomes who connects, answers PING and no check, and tells when each PING came.
async fn server() -> (SocketAddr, mpsc::UnboundedReceiver<Instant>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("some port is free");
    let addr = listener.local_addr().expect("it is bound");
    let (came, pings) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            tokio::spawn(serve(client, came.clone()));
        }
    });
    (addr, pings)
}

async fn serve(mut client: TcpStream, came: mpsc::UnboundedSender<Instant>) {
    let mut piece = [0; 16 * 1_024];
    while let Ok(length @ 1..) = client.read(&mut piece).await {
        let text = String::from_utf8_lossy(&piece[..length]);
        // What it is told about a connection, and whether it is there.
        for word in text.split("\r\n") {
            let answer = match word {
                "CLIENT" => "+OK\r\n",
                "PING" => {
                    let _ = came.send(Instant::now());
                    "+PONG\r\n"
                }
                _ => continue,
            };
            client.write_all(answer.as_bytes()).await.expect("the client is there");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_is_up_is_asked_in_the_moment_in_which_the_breaker_opens() {
    let (addr, mut pings) = server().await;
    let store = RedisStore::open(format!("redis://{addr}")).expect("a store");
    let limiter = Limiter::builder(store.clone())
        .policies(HOURLY)
        .deadline(Duration::from_millis(30))
        .on_outage(Outage::Open)
        .build();
    for miss in 1..=3 {
        assert!(store.is_asked(), "before miss {miss}");
        assert_eq!(limiter.check("acme").await.expect("open").degraded_reason(), Some("timeout"));
    }
    let opened = Instant::now();
    assert!(!store.is_asked());
    assert!(pings.recv().await.expect("the server is there") < opened, "the one that a connection begins with");
    assert_eq!(pings.recv().await.expect("the server is there"), opened, "no pause before the first probe");
    wait::until_async("the answer to close it", PATIENT, async || store.is_asked()).await;
}
