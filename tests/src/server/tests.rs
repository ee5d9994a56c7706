use super::*;

fn exists(pid: u32) -> bool {
    let pid = i32::try_from(pid)
        .ok()
        .and_then(Pid::from_raw)
        .expect("it is a process number");
    rustix::process::test_kill_process(pid).is_ok()
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
#[should_panic(expected = "the server did not come up")]
fn a_server_that_cannot_start_panics_with_its_log() {
    let _ = RedisServer::builder().arg("--no-such-option", "1").start();
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
