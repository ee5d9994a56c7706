//! The console of the program: off by default, on loopback alone, about the store of its replicas.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tollgate_tests::{RedisServer, no_server, wait};

use crate::{
    program::{Files, RULES, channel, command, decide, place, start},
    support::LIMIT,
};

/// Sends a request to this host, and returns the status and the whole answer.
async fn get(console: &str, host: &str, path: &str) -> (u16, String) {
    let mut stream = tokio::net::TcpStream::connect(console).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    (status, answer)
}

/// Returns what the program says when it refuses its settings.
fn refused(arguments: &[&str]) -> String {
    let files = Files::new();
    let mut command = command();
    command.arg("--rules").arg(files.write("rules.yaml", RULES));
    let output = command.args(arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn an_address_that_others_reach_is_refused_unless_it_is_allowed() {
    let store = "--store=redis://:secret@127.0.0.1:1";
    for host in ["0.0.0.0", "192.0.2.7", "::", "tools.example"] {
        let host = format!("--console-host={host}");
        let said = refused(&["--console-port=0", &host, store]);
        assert!(said.contains("is no loopback address"), "{said}");
        assert!(said.contains("set --console-remote"), "{said}");
    }
    for (arguments, words) in [
        (
            &["--console-port=0"][..],
            "the console needs a store at a server",
        ),
        (
            &["--console-port=0", "--store=memory:"],
            "the console needs a store at a server",
        ),
        (
            &[
                "--console-port=0",
                "--store=redis+cluster://:secret@127.0.0.1:1",
            ],
            "an operator reads one server",
        ),
        (
            &["--console-port=0", store, "--console-author-header=a b"],
            "--console-author-header",
        ),
    ] {
        let said = refused(arguments);
        assert!(said.contains(words), "{words}: {said}");
        assert!(!said.contains("secret"), "{said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_console_shows_the_rules_in_force_and_what_a_tenant_has_spent() {
    if no_server() {
        return;
    }
    let (server, files) = (RedisServer::start(), Files::new());
    let mut command = command();
    command.arg("--rules").arg(files.write("rules.yaml", RULES));
    command.args(["--console-port=0", &format!("--store={}", server.url())]);
    let process = start(command);
    let console = place(&process, "console");
    for _ in 0..3 {
        decide(&channel(&process).await).await.unwrap();
    }
    let (status, page) = get(&console, &console, "/").await;
    assert!(status == 200 && page.contains("Tollgate console"), "{page}");
    wait::until_async("the replica with its rules", LIMIT, async || {
        let (status, text) = get(&console, "localhost", "/api/status").await;
        assert_eq!(status, 200, "{text}");
        text.contains("rules.yaml") && text.contains("\"denials\":1")
    })
    .await;
    let (_, keys) = get(&console, "localhost", "/api/keys").await;
    assert!(keys.contains("\"spent\":2"), "{keys}");
    assert!(
        keys.contains("\"limit\":2"),
        "the limit is that of the rules: {keys}"
    );
    assert!(!keys.contains("acme"), "{keys}");
    // A foreign name that leads to this address.
    let (status, said) = get(&console, "evil.example", "/api/keys").await;
    assert!(
        status == 421 && said.contains("application/problem+json"),
        "{said}"
    );
}
