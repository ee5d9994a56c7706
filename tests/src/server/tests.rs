use super::*;
use std::{net::TcpStream, thread};

fn exists(pid: u32) -> bool {
    let pid = i32::try_from(pid)
        .ok()
        .and_then(Pid::from_raw)
        .expect("it is a process number");
    rustix::process::test_kill_process(pid).is_ok()
}

#[test]
fn a_server_starts_and_answers() {
    let server = RedisServer::start();
    assert_eq!(server.command(&["PING"]).text(), "PONG");
    assert!(server.is_running());
    assert_eq!(
        server.url(),
        format!("redis://127.0.0.1:{}/?connect_timeout=1m", server.port())
    );
    assert!(
        server.log().contains("Ready to accept connections"),
        "{}",
        server.log()
    );
}

#[test]
fn two_servers_share_nothing() {
    let (one, other) = (RedisServer::start(), RedisServer::start());
    assert_ne!(one.port(), other.port());
    assert!(!one.command(&["SET", "key", "one"]).is_error());
    assert!(other.command(&["GET", "key"]).is_nil());
}

#[test]
fn many_servers_started_at_once_find_ports_of_their_own() {
    let pids = thread::scope(|scope| {
        let starting: Vec<_> = (0..6).map(|_| scope.spawn(RedisServer::start)).collect();
        let servers: Vec<_> = starting
            .into_iter()
            .map(|it| it.join().expect("it starts"))
            .collect();
        servers
            .iter()
            .map(|server| (server.pid(), server.info("server")["process_id"].clone()))
            .collect::<Vec<_>>()
    });
    assert!(
        pids.iter()
            .all(|(ours, theirs)| ours.to_string() == *theirs),
        "{pids:?}"
    );
}

#[test]
fn drop_leaves_neither_process_nor_directory() {
    let server = RedisServer::start();
    let (pid, directory) = (server.pid(), server.directory().to_owned());
    assert!(exists(pid) && directory.exists());
    drop(server);
    assert!(!exists(pid) && !directory.exists());
}

#[test]
fn drop_ends_a_paused_server_too() {
    let server = RedisServer::start();
    let pid = server.pid();
    server.pause();
    drop(server);
    assert!(!exists(pid));
}

#[test]
fn a_restarted_server_is_empty_on_the_same_port() {
    let server = RedisServer::start();
    let (port, pid) = (server.port(), server.pid());
    assert!(!server.command(&["SET", "key", "value"]).is_error());
    server.restart();
    assert_eq!(server.port(), port);
    assert_ne!(server.pid(), pid);
    assert!(server.command(&["GET", "key"]).is_nil());
}

#[test]
fn a_killed_server_refuses_connections_until_it_is_restarted() {
    let server = RedisServer::start();
    server.kill();
    assert!(!server.is_running());
    assert!(TcpStream::connect(server.addr()).is_err());
    server.kill();
    server.restart();
    assert_eq!(server.command(&["PING"]).text(), "PONG");
}

#[test]
fn a_stopped_server_ends_in_good_order() {
    let server = RedisServer::start();
    server.pause();
    assert!(server.stop().success());
    assert!(!server.is_running());
    assert!(server.log().contains("bye bye"), "{}", server.log());
}

#[test]
fn a_paused_server_takes_bytes_and_answers_only_once_resumed() {
    let server = RedisServer::start();
    let mut client = server.client();
    server.pause();
    client
        .patience(Duration::from_millis(50))
        .expect("it is not zero");
    let silence = client
        .command(&["INCR", "key"])
        .expect_err("nobody answers");
    assert!(matches!(
        silence.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
    ));
    server.resume();
    client
        .patience(Duration::from_secs(30))
        .expect("it is not zero");
    assert_eq!(client.read().expect("the answer comes late").int(), 1);
}

#[test]
fn a_password_is_asked_of_those_who_do_not_give_it() {
    let server = RedisServer::builder().password("open sesame").start();
    assert_eq!(server.command(&["PING"]).text(), "PONG");
    assert!(server.url().contains(":open%20sesame@"));
    let mut stranger = Client::connect(server.addr()).expect("it listens");
    assert!(
        stranger
            .command(&["PING"])
            .expect("it answers")
            .text()
            .starts_with("NOAUTH")
    );
    assert!(!format!("{server:?}").contains("sesame"));
    server.restart();
    assert_eq!(server.command(&["PING"]).text(), "PONG");
}

#[test]
fn options_reach_the_server_from_the_command_line_and_the_file() {
    let server = RedisServer::builder()
        .arg("--maxmemory", "1")
        .config("maxmemory-policy noeviction\nproto-max-bulk-len 1048576")
        .start();
    assert!(
        server
            .command(&["SET", "key", "value"])
            .text()
            .starts_with("OOM")
    );
    let setting = server.command(&["CONFIG", "GET", "proto-max-bulk-len"]);
    assert_eq!(setting.items()[1].text(), "1048576");
}

#[test]
#[should_panic(expected = "the server did not come up")]
fn a_server_that_cannot_start_panics_with_its_log() {
    let _ = RedisServer::builder().arg("--no-such-option", "1").start();
}

#[test]
fn a_pipeline_larger_than_any_buffer_is_answered_in_order() {
    let server = RedisServer::start();
    let value = vec![b'x'; 64 * 1024];
    let mut commands = vec![vec![b"SET".to_vec(), b"key".to_vec(), value.clone()]];
    commands.extend((0..300).map(|_| vec![b"GET".to_vec(), b"key".to_vec()]));
    commands.extend((0..300).map(|i: u32| {
        vec![
            b"ECHO".to_vec(),
            [&value[..], i.to_string().as_bytes()].concat(),
        ]
    }));
    let replies = server.pipeline(&commands);
    assert_eq!(replies.len(), 601);
    assert!(
        replies[1..301]
            .iter()
            .all(|reply| *reply == Reply::Bulk(value.clone()))
    );
    assert!(replies[600].text().ends_with("x299"));
}

#[test]
fn calls_and_keys_are_counted_by_the_server() {
    let server = RedisServer::start();
    assert_eq!(
        (server.calls("set"), server.keys_and_expires()),
        (0, (0, 0))
    );
    let _ = server.command(&["SET", "leaked", "1"]);
    let _ = server.command(&["SET", "kept", "1", "EX", "60"]);
    assert_eq!(
        (server.calls("set"), server.keys_and_expires()),
        (2, (2, 1))
    );
}

#[test]
fn another_server_on_the_port_is_recognised() {
    let taken = RedisServer::start();
    let settings = Builder {
        binary: Some(find_binary()),
        ..Builder::new()
    };
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    assert!(launch::launch(&settings, directory.path(), taken.port(), None).is_err());
}

#[cfg(target_os = "linux")]
#[test]
fn two_servers_share_a_port_at_two_addresses() {
    let one = RedisServer::start();
    let other = RedisServer::builder()
        .address([127, 0, 0, 2].into())
        .port(one.port())
        .start();
    assert_eq!(
        other.url_at(other.addr()),
        format!("redis://127.0.0.2:{}/", one.port())
    );
    assert!(!one.command(&["SET", "key", "one"]).is_error());
    assert!(other.command(&["GET", "key"]).is_nil());
    other.restart();
    assert_ne!(
        other.info("server")["process_id"],
        one.info("server")["process_id"]
    );
}
