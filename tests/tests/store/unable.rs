//! Servers that answer and can decide nothing, whatever is done about the connection: a replica, a
//! Sentinel, a version that is too old, a user without rights. Connecting to one fails. What
//! `open` logs about them is in the program `telemetry`.

use std::{
    io::{BufReader, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    thread,
};

use tollgate::{ErrorKind, Policy, Quota, RedisStore};
use tollgate_test_support::{PATIENCE, decided, patient_limiter};
use tollgate_tests::{RedisServer, RefusingState, Reply, refusing_state};

const HOURLY: Policy = Policy::token_bucket("hourly", Quota::per_hour(5));

async fn refusal(url: &str) -> (ErrorKind, String) {
    let connected = RedisStore::builder(url).connect_timeout(PATIENCE).connect();
    let error = connected.await.expect_err(url);
    let by_url = tollgate::connect(format!("{url}?connect_timeout=1m")).await;
    let by_url = by_url.err().expect("the same error");
    assert_eq!(by_url.to_string(), error.to_string());
    (error.kind(), error.to_string())
}

fn at(addr: SocketAddr) -> String {
    format!("redis://{addr}/")
}

#[tokio::test]
async fn connecting_to_a_replica_fails_and_to_its_master_does_not() {
    let master = RedisServer::start();
    let replica = RedisServer::start();
    let port = master.port().to_string();
    replica.command(&["REPLICAOF", "127.0.0.1", &port]);
    let addr = replica.addr();
    let expected = format!(
        "redis at {addr} is a replica and decides nothing: name its master, or the Sentinels that know it"
    );
    assert_eq!(refusal(&at(addr)).await, (ErrorKind::ReadOnly, expected));

    // The master has written nothing that stays.
    let store = RedisStore::connect(master.url()).await.expect("a store");
    assert_eq!(master.keys_and_expires(), (0, 0));
    assert!(
        decided(&patient_limiter(store, HOURLY), "acme")
            .await
            .is_allowed()
    );
}

#[tokio::test]
async fn connecting_to_a_sentinel_as_to_a_server_fails_and_says_how_to_name_it() {
    let server = RedisServer::start();
    let sentinel = RedisServer::builder()
        .sentinel(format!("sentinel monitor m 127.0.0.1 {} 1", server.port()))
        .start();
    let addr = sentinel.addr();
    let expected = format!(
        "redis at {addr} is a Sentinel and decides nothing: write redis+sentinel://, its host and port, and /NAME of the master"
    );
    assert_eq!(refusal(&at(addr)).await, (ErrorKind::Config, expected));
    let named = format!("redis+sentinel://{addr}/m?connect_timeout=1m");
    assert!(tollgate::connect(named).await.is_ok());
}

#[tokio::test]
async fn connecting_to_a_server_by_a_sentinel_url_says_that_it_is_none() {
    let server = RedisServer::start();
    let (kind, message) = refusal(&format!("redis+sentinel://{}/m", server.addr())).await;
    assert_eq!(kind, ErrorKind::Protocol);
    assert_eq!(
        message,
        format!(
            "redis at {} is no Sentinel: name the Sentinels, or this server alone by a URL that begins with redis://",
            server.addr()
        )
    );
}

/// A server of this version that refuses what is newer, as one of its time did.
fn old_server(version: &'static str) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("some port is free");
    let addr = listener.local_addr().expect("it is bound");
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            thread::spawn(move || answer(client, version));
        }
    });
    addr
}

fn answer(client: TcpStream, version: &str) {
    let mut requests = BufReader::new(client.try_clone().expect("a socket"));
    let mut replies = client;
    while let Ok(Reply::Array(words)) = Reply::read(&mut requests) {
        let reply = match words[0].text().as_str() {
            "PING" => "+PONG\r\n".to_owned(),
            "ROLE" => "*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n".to_owned(),
            "INFO" => {
                let about = format!("# Server\r\nredis_version:{version}\r\n");
                format!("${}\r\n{about}\r\n", about.len())
            }
            "EVAL" | "EVALSHA" => {
                "-ERR Error running script (call to f_1): @user_script:1: @user_script: 1: -ERR syntax error\r\n"
                    .to_owned()
            }
            _ => "-ERR unknown command\r\n".to_owned(),
        };
        if replies.write_all(reply.as_bytes()).is_err() {
            return;
        }
    }
}

#[tokio::test]
async fn connecting_to_a_server_that_is_too_old_names_its_version() {
    for (version, shown) in [
        ("6.0.16", "6.0.16"),
        ("5.0.0", "5.0.0"),
        // What a server sends goes to the log.
        ("5.0.\x1b[31m", "of an unknown version"),
    ] {
        let expected = format!("the server is Redis {shown}, the scripts need 6.2 or newer");
        let refused = refusal(&at(old_server(version))).await;
        assert_eq!(refused, (ErrorKind::Protocol, expected));
    }
    // The version alone is no reason, and nothing is said of it where it is new enough.
    let (kind, message) = refusal(&at(old_server("7.0.15"))).await;
    assert_eq!(kind, ErrorKind::Protocol);
    assert!(!message.contains("7.0.15"), "{message}");
}

#[tokio::test]
async fn connecting_fails_while_the_server_accepts_no_write_and_succeeds_after() {
    for state in [refusing_state::OUT_OF_MEMORY, refusing_state::SAVING_FAILS] {
        let server = RefusingState::server();
        state.enter(&server);
        let (kind, _) = refusal(&at(server.addr())).await;
        assert_eq!(kind.as_str(), state.reason);
        state.leave(&server);
        assert!(RedisStore::connect(server.url()).await.is_ok());
    }
}

#[tokio::test]
async fn connecting_fails_for_a_user_who_may_run_no_script_and_needs_no_right_to_ask_for_the_role()
{
    let server = RedisServer::start();
    let user = |name: &str, rights: &[&str]| {
        let head = ["ACL", "SETUSER", name, "on", ">secret", "~tollgate:*"];
        let reply = server.command(&[&head, rights].concat());
        assert!(!reply.is_error(), "{}", reply.text());
        format!("redis://{name}:secret@{}/", server.addr())
    };
    let (kind, _) = refusal(&user("reader", &["+ping", "+get", "+info"])).await;
    assert_eq!(kind, ErrorKind::PermissionDenied);
    let least = [
        "+ping",
        "+evalsha",
        "+eval",
        "+time",
        "+get",
        "+set",
        "+setrange",
    ];
    let store = RedisStore::builder(user("least", &least)).connect_timeout(PATIENCE);
    assert!(store.connect().await.is_ok());
}
