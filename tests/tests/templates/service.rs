//! The service of the template, built and started.

use std::{
    env, fs,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    path::PathBuf,
    process::{Command, Stdio},
    time::Duration,
};

use tollgate_tests::{Process, RedisServer, Reply, forget_package, wait};

use super::generated::{NAME, Project, root};

/// Sends a request. Returns the status and the body.
fn get(address: SocketAddr, path: &str, api_key: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).expect("the service listens");
    let head = format!("GET {path} HTTP/1.0\r\nHost: localhost\r\nX-Api-Key: {api_key}\r\n\r\n");
    stream.write_all(head.as_bytes()).expect("a request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let status = answer
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok())
        .expect("a status");
    (
        status,
        answer.split_once("\r\n\r\n").expect("a body").1.to_owned(),
    )
}

/// Returns the target directory of the workspace, whose dependencies are compiled already.
fn target() -> PathBuf {
    let program = env::current_exe().expect("this program has a path");
    program
        .ancestors()
        .nth(3)
        .expect("cargo builds into a directory")
        .to_owned()
}

/// Builds the project against this workspace, and returns its program.
fn build(project: &Project) -> PathBuf {
    // The versions of the workspace, so that nothing is downloaded.
    fs::copy(root().join("Cargo.lock"), project.path().join("Cargo.lock")).expect("the versions");
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    forget_package(&mut build);
    // With the profiles of the workspace, so that its dependencies need not be compiled again.
    let status = build
        .args(["build", "--quiet", "--offline", "--config"])
        .arg(root().join("Cargo.toml"))
        .current_dir(project.path())
        .env("CARGO_TARGET_DIR", target())
        .stdin(Stdio::null())
        .status()
        .expect("cargo can be started");
    assert!(status.success(), "the template does not build");
    target().join("debug").join(NAME)
}

/// Returns the address in a line such as `Listening on http://127.0.0.1:4711`.
fn address(line: &str) -> SocketAddr {
    let rest = line.split_once("http://").expect("a URL").1;
    rest.split('/')
        .next()
        .and_then(|address| address.parse().ok())
        .expect("an address")
}

#[test]
fn the_template_of_a_service_builds_limits_by_plan_and_tells_its_metrics() {
    let project = Project::generate(root().to_str().expect("a path"));
    let program = build(&project);
    let redis = RedisServer::start();
    let mut command = Command::new(program);
    command
        .env("LISTEN", "127.0.0.1:0")
        .env("METRICS_LISTEN", "127.0.0.1:0")
        .env("REDIS_URL", redis.url());
    let mut process = Process::start(command, "Listening on");
    let (service, metrics) = (
        address(process.ready_line()),
        address(&process.wait_for_line("Metrics on")),
    );

    let statuses = |api_key: &str, count: usize| -> Vec<u16> {
        (0..count).map(|_| get(service, "/", api_key).0).collect()
    };
    assert_eq!(statuses("staff-1", 30), [200; 30]);
    assert_eq!(statuses("free-1", 5), [200; 5]);
    assert!(
        statuses("free-1", 10).contains(&429),
        "the plan has five a minute"
    );
    assert_eq!(
        statuses("free-2", 5),
        [200; 5],
        "another account has a limit of its own"
    );
    assert_eq!(statuses("pro-1", 10), [200; 10]);
    assert_eq!(statuses("invented", 2), [200; 2]);
    assert!(
        statuses("invented-too", 10).contains(&429),
        "an unknown API key has no limit of its own"
    );
    assert_eq!(get(service, "/healthz", ""), (200, "healthy\n".to_owned()));
    assert!(redis.keys_and_expires().0 >= 4, "the counts are in Redis");

    let page = wait::until_some("the state of the store", Duration::from_secs(60), || {
        let (_, page) = get(metrics, "/metrics", "");
        page.contains("\ntollgate_store_connected{store=\"tollgate\"} 1\n")
            .then_some(page)
    });
    for series in [
        "tollgate_decisions_total{policy=\"requests\",outcome=\"denied\"} ",
        "tollgate_denials_total{limiter=\"free\",policy=\"requests\"} ",
        "tollgate_denials_total{limiter=\"anonymous\",policy=\"anonymous\"} ",
    ] {
        let value = page
            .lines()
            .find_map(|line| line.strip_prefix(series))
            .unwrap_or_else(|| panic!("{series}: {page}"));
        assert!(
            value.parse::<f64>().expect("a number") >= 1.0,
            "{series}{value}"
        );
    }
    assert!(
        page.contains("tollgate_check_duration_seconds_bucket{"),
        "{page}"
    );
    let (_, denied) = get(metrics, "/denied", "");
    assert!(
        denied.lines().count() >= 3 && !denied.contains("free-1"),
        "{denied}"
    );

    // The command knows the limiters without flags. An account that changes its plan keeps what it
    // has spent.
    let published = wait::until_some("the limiters in Redis", Duration::from_secs(60), || {
        let texts = redis.command(&["ZRANGE", "tollgate:{replicas}:limits", "0", "-1"]);
        let texts: Vec<_> = texts.items().iter().map(Reply::text).collect();
        (texts.len() == 3).then_some(texts)
    });
    assert_eq!(
        published,
        [
            "anonymous=2/min, token_bucket; limiter anonymous",
            "requests=10/s, token_bucket; daily=50000/day, fixed_window; limiter pro",
            "requests=5/min, token_bucket; limiter free",
        ]
    );

    redis.kill();
    assert!(
        [200, 429].contains(&get(service, "/", "free-3").0),
        "each replica enforces its share"
    );
    process.wait_for_line("WARN");
    assert!(process.terminate().success());
}
