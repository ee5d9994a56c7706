//! When a probe is sent. Tokio's clock is paused: it advances only while all tasks wait, so that the events of one moment
//! have one time.

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
use tollgate::{ErrorKind, Limiter, Outage, Policy, Quota, RedisStore};
use tollgate_test_support::PATIENCE;
use tollgate_tests::wait;

const HOURLY: Policy = Policy::token_bucket("hourly", Quota::per_hour(5));

/// Starts a server in this runtime that accepts connections, answers PING and no check, and reports the time of each PING.
async fn server() -> (SocketAddr, mpsc::UnboundedReceiver<Instant>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("some port is free");
    let addr = listener.local_addr().expect("it is bound");
    let (report, pings) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            tokio::spawn(serve(client, report.clone()));
        }
    });
    (addr, pings)
}

async fn serve(mut client: TcpStream, report: mpsc::UnboundedSender<Instant>) {
    let mut piece = [0; 16 * 1_024];
    while let Ok(length @ 1..) = client.read(&mut piece).await {
        let text = String::from_utf8_lossy(&piece[..length]);
        // The commands of a new connection, and the probe.
        for word in text.split("\r\n") {
            let answer = match word {
                "CLIENT" => "+OK\r\n",
                "PING" => {
                    let _ = report.send(Instant::now());
                    "+PONG\r\n"
                }
                _ => continue,
            };
            client.write_all(answer.as_bytes()).await.expect("the client is there");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_open_connection_is_probed_at_the_moment_when_the_breaker_opens() {
    let (addr, mut pings) = server().await;
    let store = RedisStore::open(format!("redis://{addr}")).expect("a store");
    let limiter = Limiter::builder(store.clone())
        .policies(HOURLY)
        .deadline(Duration::from_millis(30))
        .on_outage(Outage::Open)
        .build();
    for timeout in 1..=3 {
        assert!(store.is_available(), "before timeout {timeout}");
        assert_eq!(limiter.check("acme").await.expect("open").degraded(), Some(ErrorKind::Timeout));
    }
    let opened = Instant::now();
    assert!(!store.is_available());
    assert!(pings.recv().await.expect("the server runs") < opened, "the PING with which a connection begins");
    assert_eq!(pings.recv().await.expect("the server runs"), opened, "no pause before the first probe");
    wait::until_async("the answer to close it", PATIENCE, async || store.is_available()).await;
}
