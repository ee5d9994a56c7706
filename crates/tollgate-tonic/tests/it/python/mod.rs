//! Denials as seen by the standard Python client: `grpcio`, with `grpcio-status` for the details.
//!
//! `cargo xtask test` and `cargo xtask foreign` install the client from PyPI into the target
//! directory. Without it, the tests print a line that says so, and pass. More rows of this client
//! are in `tools/foreign`.

use std::{
    env,
    ffi::OsString,
    io::Write,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::LazyLock,
};

use serde_json::Value;
use tollgate::{Limiter, MemoryStore, Policy, Quota};
use tollgate_tonic::{
    GrpcStatus,
    key::Metadata,
    messages::{MessageCharge, MessageLayer},
};
use tonic::transport::Server;

use crate::{support::*, tls::Authority};

/// The scripts of `tools/foreign`. One of them decodes denials.
const SCRIPTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tools/foreign/python");

/// The Python in whose environment the client is installed, or the reason why there is none.
static PYTHON: LazyLock<Result<PathBuf, String>> = LazyLock::new(|| {
    // The directory for temporary files is `tmp` in the target directory.
    find(
        env::var_os("FOREIGN_PYTHON"),
        &Path::new(env!("CARGO_TARGET_TMPDIR")).join("../foreign"),
    )
});

/// Returns the Python that is named, else that of the environment, if it imports the client.
fn find(named: Option<OsString>, environment: &Path) -> Result<PathBuf, String> {
    let python = named.map_or_else(|| environment.join("bin/python"), PathBuf::from);
    succeeds(Command::new(&python).args(["-c", "import grpc_status.rpc_status"]))?;
    Ok(python)
}

/// Returns the Python of the environment. Without one, writes a line to `log` that says that the
/// test was skipped.
fn or_skipped<'a>(python: &'a Result<PathBuf, String>, log: &mut impl Write) -> Option<&'a Path> {
    match python {
        Ok(python) => Some(python),
        Err(reason) => {
            let line = format!(
                "\nSKIPPED: a test with the Python gRPC client, which `cargo xtask test` installs: {}\n",
                reason.trim_end()
            );
            let _ = log.write_all(line.as_bytes());
            None
        }
    }
}

fn succeeds(command: &mut Command) -> Result<(), String> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("{command:?}: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!(
            "{command:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        )),
    }
}

/// Runs the client. Returns the line that it prints for each call; `None` without a client.
async fn run(
    scenario: &'static str,
    server: SocketAddr,
    more: Option<&Path>,
) -> Option<Vec<Value>> {
    let more = more.map(Path::to_owned);
    tokio::task::spawn_blocking(move || {
        // `stderr` directly, because the test harness captures `eprintln!`.
        let python = or_skipped(&PYTHON, &mut std::io::stderr())?;
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/python/client.py");
        let output = Command::new(python)
            .arg("-B")
            .arg(script)
            .env("PYTHONPATH", SCRIPTS)
            .args([&server.to_string(), scenario])
            .args(more)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let (stdout, stderr) = (
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
        );
        assert!(output.status.success(), "{stdout}{stderr}");
        Some(
            stdout
                .lines()
                .map(|line| serde_json::from_str(line).unwrap())
                .collect(),
        )
    })
    .await
    .unwrap()
}

/// Asserts that a call was allowed and that the handler did its work.
fn assert_served(call: &Value) {
    let messages = if ["server", "bidi"].contains(&call["kind"].as_str().unwrap()) {
        3
    } else {
        1
    };
    assert_eq!(
        (&call["code"], &call["messages"]),
        (&"OK".into(), &messages.into()),
        "{call}"
    );
}

/// Asserts that one call of each kind is allowed, and that one of each kind is denied with all
/// details.
fn assert_four_served_and_four_denied(calls: &[Value]) {
    assert_eq!(calls.len(), 8);
    calls[..4].iter().for_each(assert_served);
    for call in &calls[4..] {
        assert_eq!(call["code"], "RESOURCE_EXHAUSTED", "{call}");
        assert_eq!(call["message"], "rate limit exceeded");
        assert_eq!(call["same_code"], true);
        assert_eq!(call["details"], 3);
        assert_eq!(call["retry_ms"], 15_000);
        assert_eq!(
            call["violations"],
            serde_json::json!([["policy:four", "four: 4 per 60s"]])
        );
        assert_eq!(call["reason"], "RATE_LIMIT_EXCEEDED");
        assert_eq!(call["domain"], "tollgate");
        assert_eq!(call["policy"], "four");
        assert_eq!(call["pushback"], Value::Null);
    }
}

const FOUR: Policy = Policy::token_bucket("four", Quota::per_minute(4));

#[tokio::test]
async fn a_python_client_decodes_a_denial_of_each_kind_of_call() {
    let layer = tollgate_tonic::layer(limiter(FOUR), Metadata::new("x-api-key"));
    let server = serve(
        Server::builder()
            .layer(layer)
            .add_service(EchoServer::new(Echoing)),
    )
    .await;
    let Some(calls) = run("plain", server, None).await else {
        return;
    };
    assert_four_served_and_four_denied(&calls);
}

#[tokio::test]
async fn a_python_client_decodes_a_denial_over_tls() {
    let authority = Authority::new();
    let server = authority
        .server(limiter(FOUR), Metadata::new("x-api-key"))
        .await;
    let roots = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(roots.path(), &authority.pem).unwrap();
    let Some(calls) = run("tls", server, Some(roots.path())).await else {
        return;
    };
    assert_four_served_and_four_denied(&calls);
}

#[tokio::test]
async fn a_python_client_with_a_retry_policy_waits_as_long_as_the_pushback() {
    // The back-off of the client is 20 s ± 20 %. The pushback is at most 2 s.
    let limiter = Limiter::new(
        MemoryStore::new(),
        Policy::token_bucket("slow", Quota::per_minute(30).with_burst(1)),
    );
    let layer = tollgate_tonic::builder(limiter, Metadata::new("x-api-key"))
        .respond_with(GrpcStatus::new().pushback(true))
        .build();
    let server = serve(
        Server::builder()
            .layer(layer)
            .add_service(EchoServer::new(Echoing)),
    )
    .await;
    let Some(calls) = run("retry", server, None).await else {
        return;
    };
    calls.iter().for_each(assert_served);
    let took = calls[1]["took_ms"].as_u64().unwrap();
    assert!(
        (1000..15_000).contains(&took),
        "the second call took {took} ms"
    );
}

#[tokio::test]
async fn a_python_client_decodes_the_denial_of_a_message() {
    let layer = MessageLayer::new(
        tollgate_tonic::builder(limiter(FOUR), Metadata::new("x-api-key")),
        MessageCharge::both(),
    );
    let server = serve(
        Server::builder()
            .layer(layer)
            .add_service(EchoServer::new(Echoing)),
    )
    .await;
    let Some(calls) = run("messages", server, None).await else {
        return;
    };
    assert_eq!(calls.len(), 3);
    for call in calls {
        assert_eq!(call["code"], "RESOURCE_EXHAUSTED", "{call}");
        assert_eq!(call["same_code"], true, "{call}");
        assert_eq!(call["details"], 3);
        assert_eq!(
            call["violations"],
            serde_json::json!([["policy:four", "four: 4 per 60s"]])
        );
        if call["kind"] == "server" {
            assert_eq!(call["messages"], 4);
        }
    }
}

#[test]
fn without_a_python_client_the_tests_print_that_they_are_skipped() {
    let scratch = tempfile::tempdir().unwrap();
    let no_environment = find(None, &scratch.path().join("none"));
    assert!(
        no_environment
            .as_ref()
            .is_err_and(|reason| reason.contains("none/bin/python")),
        "{no_environment:?}"
    );
    // A Python that does not import the client.
    let no_client = find(Some("false".into()), scratch.path());
    assert!(no_client.is_err(), "{no_client:?}");

    for python in [no_environment, no_client] {
        let mut log = Vec::new();
        assert_eq!(or_skipped(&python, &mut log), None);
        let log = String::from_utf8(log).unwrap();
        assert!(log.starts_with(
            "\nSKIPPED: a test with the Python gRPC client, which `cargo xtask test` installs: "
        ));
        assert!(
            log.ends_with(&format!("{}\n", python.unwrap_err().trim_end())),
            "{log}"
        );
    }
    let python = Ok(PathBuf::from("python"));
    let mut log = Vec::new();
    assert_eq!(
        (or_skipped(&python, &mut log), log.as_slice()),
        (Some(Path::new("python")), &b""[..])
    );
}
