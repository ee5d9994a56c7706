//! Servers that are away, refuse or are none. No message has a password.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener},
    thread::{self, JoinHandle},
};

use tollgate_tests::{RedisServer, no_server, ports};

use super::{Run, command, tollgate};

const PASSWORD: &str = "hunter2";

/// Checks that the command failed in this way, and that no output has the password.
#[track_caller]
fn fails(run: &Run, words: &str) {
    assert!(
        run.status == 2 && run.stdout.is_empty(),
        "{}{}",
        run.stdout,
        run.stderr
    );
    assert!(run.stderr.contains(words), "{words}: {}", run.stderr);
    assert!(!run.stderr.contains(PASSWORD), "{}", run.stderr);
}

#[test]
fn a_server_that_is_away_is_named_without_the_password() {
    let port = ports::free();
    let url = format!("redis://ann:{PASSWORD}@127.0.0.1:{port}/0");
    for arguments in [
        &["top"][..],
        &["peek", "a"],
        &["reset", "a"],
        &["who", "--policy", "a=1/s"],
    ] {
        let run = tollgate([arguments, &["--redis", &url]].concat());
        fails(
            &run,
            &format!("error: cannot connect to 127.0.0.1:{port}: the connection was refused\n"),
        );
    }
}

#[test]
fn a_name_and_a_database_that_do_not_exist_are_told_as_such() {
    if no_server() {
        return;
    }
    let run = tollgate([
        "top",
        "--redis",
        &format!("redis://ann:{PASSWORD}@host.invalid:6380/0"),
    ]);
    fails(
        &run,
        "error: cannot connect to host.invalid:6380: the name of the host was not found\n",
    );
    let server = RedisServer::start();
    let run = tollgate(["top", "--redis", &format!("redis://{}/99", server.addr())]);
    let words = "the server has no database of this number\n";
    fails(
        &run,
        &format!("error: cannot connect to {}: {words}", server.addr()),
    );
}

#[test]
fn a_server_that_refuses_the_password_is_told_as_such() {
    if no_server() {
        return;
    }
    let server = RedisServer::builder().password("right").start();
    let addr = server.addr();
    fails(
        &tollgate(["top", "--redis", &format!("redis://:{PASSWORD}@{addr}")]),
        "authentication failed",
    );
    let run = tollgate(["top", "--redis", &format!("redis://{addr}")]);
    fails(&run, "NOAUTH");
    assert_eq!(tollgate(["top", "--redis", &server.url()]).status, 0);
    // The variable does as well, and the help does not show it.
    let run = Run::from(
        command()
            .args(["top", "--timeout", "60"])
            .env("TOLLGATE_REDIS_URL", server.url())
            .output()
            .unwrap(),
    );
    assert_eq!(run.status, 0, "{}", run.stderr);
    let url = format!("redis://:{PASSWORD}@{addr}");
    let run = Run::from(
        command()
            .args(["top", "--help"])
            .env("TOLLGATE_REDIS_URL", &url)
            .output()
            .unwrap(),
    );
    assert!(
        run.status == 0 && !run.stdout.contains(PASSWORD),
        "{}",
        run.stdout
    );
}

/// Starts a server that repeats the password in each error: to `AUTH`, or else to the first command
/// after it.
fn repeating_server(accepts: bool) -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let refusal = format!("-ERR unknown command, with args beginning with: '{PASSWORD}'\r\n");
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut buffer = [0; 4_096];
        while let Ok(read @ 1..) = stream.read(&mut buffer) {
            let text = String::from_utf8_lossy(&buffer[..read]).into_owned();
            // Each command begins with the number of its words.
            let commands = text.lines().filter(|line| line.starts_with('*')).count();
            let reply = if accepts && !text.contains("ZRANGE") {
                "+OK\r\n".repeat(commands)
            } else {
                refusal.repeat(commands)
            };
            if stream.write_all(reply.as_bytes()).is_err() {
                break;
            }
        }
    });
    (addr, server)
}

#[test]
fn a_server_that_repeats_the_password_in_its_error_is_not_quoted() {
    for (accepts, words) in [
        (false, "cannot connect to"),
        (true, "the server refused a command at"),
    ] {
        let (addr, server) = repeating_server(accepts);
        let run = tollgate(["top", "--redis", &format!("redis://:{PASSWORD}@{addr}")]);
        fails(&run, &format!("{words} {addr}: "));
        server.join().unwrap();
    }
}

#[test]
fn a_server_that_does_not_answer_is_given_up() {
    if no_server() {
        return;
    }
    let server = RedisServer::start();
    server.pause();
    let run = tollgate(["top", "--timeout", "1", "--redis", &server.url()]);
    fails(&run, &format!("{}: no answer in time", server.addr()));
    server.resume();
}

#[test]
fn a_user_without_the_rights_is_told_the_code() {
    if no_server() {
        return;
    }
    let acl = format!("user weak on >{PASSWORD} ~tollgate:* +ping +get");
    let server = RedisServer::builder().config(acl).start();
    let run = tollgate([
        "top",
        "--redis",
        &format!("redis://weak:{PASSWORD}@{}", server.addr()),
    ]);
    fails(&run, "NOPERM");
}

#[test]
fn a_wrong_url_is_refused_without_its_text() {
    for (scheme, words) in [
        ("http", "the URL of the store is not valid"),
        ("redis+cluster", "each master of a cluster"),
        ("redis+sentinel", "name a master by its own redis:// URL"),
    ] {
        fails(
            &tollgate(["top", "--redis", &format!("{scheme}://ann:{PASSWORD}@h")]),
            words,
        );
    }
    fails(
        &tollgate(["top", "--redis", &format!("ann:{PASSWORD}@h")]),
        "the URL of the store is not valid",
    );
    fails(
        &tollgate([
            "top",
            "--redis",
            &format!("redis://ann:{PASSWORD}@h:port/x"),
        ]),
        "the URL of the store is not valid",
    );
    fails(
        &tollgate(["top", "--redis", "redis://ann:123#x@h"]),
        "the URL of the store is not valid",
    );
    // A URL in a place where none belongs.
    fails(
        &tollgate(["top", &format!("redis://ann:{PASSWORD}@h")]),
        "redis://***@h",
    );
    fails(&tollgate(["top"]), "--redis <URL>");
}

#[cfg(feature = "tls")]
#[test]
fn a_server_is_reached_over_tls_when_its_certificate_is_trusted() {
    use tollgate_tests::Authority;

    let authority = Authority::new("trusted");
    let server = authority.server(&authority.sign(), false);
    let url = format!("rediss://localhost:{}", server.tls_port());
    let top = |trusted: &Authority| {
        let file = super::File::new("ca.pem", trusted.pem());
        let output = command()
            .args(["top", "--timeout", "60", "--redis", &url])
            .env("SSL_CERT_FILE", file.path())
            .output();
        Run::from(output.unwrap())
    };
    let run = top(&authority);
    run.assert_printed(0, "\n0 states: ");
    fails(
        &top(&Authority::new("other")),
        &format!("cannot connect to localhost:{}: ", server.tls_port()),
    );
}
