//! `tollgate top --plain`: what it reads of Redis and of running services.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    process::Command,
    time::Duration,
};

use serde_json::Value;
use tollgate::{Cost, Key, KeySecret, Limiter, Policy, Quota, RedisStore, limiter::DeniedKeys};
use tollgate_tests::{Process, RedisServer, no_server, ports, wait};

use super::{command, tollgate};

pub(super) const PASSWORD: &str = "hunter2";
const SECRET: &str = "a secret of the configuration";

/// Returns `top` for this server, with further arguments.
pub(super) fn top(url: &str, arguments: &[&str]) -> Command {
    let mut top = command();
    top.args(["top", "--timeout", "60", "--redis", url, "--interval", "1"])
        .args(arguments);
    top
}

/// Starts `top` that prints a line of JSON each second.
fn lines(url: &str, arguments: &[&str]) -> Process {
    Process::start(
        top(url, &[&["--plain", "--format", "json"], arguments].concat()),
        "\"prefix\"",
    )
}

/// Waits until the last line fulfils a condition, and returns it.
fn until(process: &Process, what: &str, is_met: impl Fn(&Value) -> bool) -> Value {
    wait::until_some(what, Duration::from_secs(60), || {
        let output = process.output();
        let last = output.lines().rfind(|line| line.starts_with('{'))?;
        Some(serde_json::from_str(last).unwrap()).filter(&is_met)
    })
}

fn send(address: SocketAddr, method: &str, path: &str, tenant: &str) -> u16 {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(
        stream,
        "{method} {path} HTTP/1.0\r\nX-Tenant: {tenant}\r\nContent-Length: 0\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.split(' ').nth(1).unwrap().parse().unwrap()
}

/// Returns a limiter that counts at this server.
async fn limiter(server: &RedisServer, policy: Policy) -> Limiter {
    let store = RedisStore::connect(server.url()).await.unwrap();
    Limiter::builder(store)
        .policies(policy)
        .deadline(Duration::from_secs(60))
        .build()
}

#[tokio::test]
async fn redis_alone_tells_what_each_policy_spends() {
    if no_server() {
        return;
    }
    let server = RedisServer::start();
    // Ten years, in which no unit comes back while the test runs.
    let quota = |units| Quota::new(units, Duration::from_secs(3_650 * 86_400));
    let bucket = limiter(&server, Policy::token_bucket("bucket", quota(1_000))).await;
    let day = limiter(&server, Policy::fixed_window("day", quota(100_000))).await;
    let _ = (
        bucket.check("acme").await.unwrap(),
        day.check("acme").await.unwrap(),
    );
    let process = lines(&server.url(), &["--policy", "day=100000/3650d"]);
    // The first line is there, so the units are spent between two scans.
    for _ in 0..50 {
        let _ = bucket.check("acme").cost(Cost::new(3)).await.unwrap();
        let _ = day.check("acme").cost(Cost::new(2)).await.unwrap();
    }
    let spent = || {
        let output = process.output();
        let snapshots: Vec<Value> = output
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let units = |snapshot: &Value, policy| {
            rate_of(snapshot, policy)
                * snapshot["scan"]["seconds_since_last"]
                    .as_f64()
                    .unwrap_or(0.0)
        };
        ["bucket", "day"].map(|policy| {
            snapshots
                .iter()
                .map(|one| units(one, policy))
                .sum::<f64>()
                .round()
        })
    };
    wait::until("all units", Duration::from_secs(60), || {
        spent() == [150.0, 100.0]
    });
    let last = until(&process, "a line without checks", |snapshot| {
        rate_of(snapshot, "day") == 0.0
    });
    let of = |policy: &str| {
        last["policies"]
            .as_array()
            .unwrap()
            .iter()
            .find(|of| of["policy"] == policy)
            .unwrap()
    };
    assert_eq!(
        (&of("day")["keys"], &of("day")["limited_keys"]),
        (&1.into(), &0.into())
    );
    assert_eq!(
        of("bucket")["limited_keys"],
        Value::Null,
        "its limit is not known"
    );
    assert_eq!(last["scan"]["states"], 2);
    assert_eq!(spent(), [150.0, 100.0]);
}

fn rate_of(snapshot: &Value, policy: &str) -> f64 {
    let policies = snapshot["policies"].as_array().unwrap();
    let found = policies.iter().find(|of| of["policy"] == policy);
    found
        .and_then(|of| of["units_per_second"].as_f64())
        .unwrap_or(0.0)
}

#[test]
fn metrics_of_a_service_tell_decisions_denied_keys_and_outages() {
    if no_server() {
        return;
    }
    let redis = RedisServer::start();
    let address = SocketAddr::from(([127, 0, 0, 1], ports::free()));
    let mut example = Process::example("prometheus");
    example
        .env("LISTEN", address.to_string())
        .env("REDIS_URL", redis.url())
        .env("SECRET", SECRET);
    let _service = Process::start(example, "Try");
    assert_eq!(send(address, "POST", "/login", "acme"), 200);

    let secret = super::File::new("secret", SECRET);
    let metrics = format!("http://{address}/metrics");
    let denied = format!("http://{address}/denied");
    let arguments = [
        "--metrics",
        &metrics,
        "--denied",
        &denied,
        "--digest-secret",
        secret.path(),
    ];
    let process = lines(&redis.url(), &arguments);
    for _ in 0..12 {
        let _ = send(address, "GET", "/", "acme");
    }
    let _ = until(
        &process,
        "denials of a policy and of its limiter",
        |snapshot| {
            // The rates are those of the last second.
            let _ = send(address, "POST", "/login", "acme");
            [("policies", "policy"), ("limiters", "limiter")]
                .iter()
                .all(|(list, field)| {
                    find(&snapshot[list], field, "login")["denied_per_second"].as_f64() > Some(0.0)
                })
        },
    );
    let _ = until(&process, "the rule", |snapshot| {
        find(&snapshot["rules"], "rule", "shop.tenant")["over_per_second"]
            .as_f64()
            .is_some()
    });
    let _ = until(&process, "the state of the store", |snapshot| {
        find(&snapshot["stores"], "store", "tollgate")["connected"] == 1
    });
    // The digests of the page and those of the keys in Redis are the same.
    let digest = DeniedKeys::digest(
        &Key::new("shop").join(("tenant", "acme")),
        &KeySecret::new(SECRET),
    );
    let snapshot = until(&process, "the digest of the tenant", |snapshot| {
        // The state of the tenant is gone within seconds of its last request.
        let _ = send(address, "GET", "/", "acme");
        find(&snapshot["denied_keys"], "name", &digest)["denials"].as_u64() > Some(0)
            && find(&snapshot["states"], "subject", &digest)["spent"].as_u64() > Some(0)
    });
    let is_digest = |state: &Value| {
        state["subject"]
            .as_str()
            .is_some_and(|subject| subject.len() == 32)
    };
    assert!(
        snapshot["states"].as_array().unwrap().iter().all(is_digest),
        "{snapshot}"
    );
    assert!(
        !process.output().contains("acme") && !process.output().contains("{127.0.0.1}"),
        "{snapshot}"
    );

    // The pages alone are enough, and what only Redis tells is named. A busy machine has outages.
    let run = wait::until_some("no outage", Duration::from_secs(60), || {
        let run = tollgate([
            "top",
            "--plain",
            "--refreshes",
            "2",
            "--interval",
            "1",
            "--metrics",
            &metrics,
            "--denied",
            &denied,
        ]);
        run.stdout.contains("outage  none").then_some(run)
    });
    let has = |words: &str| {
        assert!(
            run.status == 0 && run.stdout.contains(words),
            "{words}: {}{}",
            run.stdout,
            run.stderr
        );
    };
    [
        "redis  not read: --redis adds units",
        "denied/s",
        "login",
        &digest,
    ]
    .into_iter()
    .for_each(has);
    assert!(
        !run.stdout.contains("prefix") && !run.stdout.contains("away for"),
        "{}",
        run.stdout
    );

    // Once, with rates: they need a second reading, which alone is printed.
    let run = tollgate([
        "top",
        "--once",
        "--interval",
        "1s",
        "--metrics",
        &metrics,
        "--format",
        "json",
    ]);
    assert_eq!(
        (run.status, run.stdout.lines().count()),
        (0, 1),
        "{}{}",
        run.stdout,
        run.stderr
    );
    let once: Value = serde_json::from_str(&run.stdout).unwrap();
    assert!(
        find(&once["limiters"], "limiter", "login")["denied_per_second"].is_number(),
        "{once}"
    );

    redis.kill();
    let _ = until(&process, "the outage of a limiter", |snapshot| {
        let _ = send(address, "POST", "/login", "acme");
        find(&snapshot["limiters"], "limiter", "login")["processes_in_outage"] == 1
            && snapshot["scan"].is_null()
    });
}

/// Returns the item of a list with this field, or null.
fn find<'v>(list: &'v Value, field: &str, value: &str) -> &'v Value {
    list.as_array()
        .unwrap()
        .iter()
        .find(|item| item[field] == value)
        .unwrap_or(&Value::Null)
}

#[test]
fn sources_that_go_away_are_a_state_and_come_back() {
    if no_server() {
        return;
    }
    let redis = RedisServer::start();
    let nobody = format!("http://127.0.0.1:{}/metrics", ports::free());
    let url = format!("redis://ann:{PASSWORD}@{}", redis.addr());
    let acl = [
        "ACL",
        "SETUSER",
        "ann",
        "on",
        &format!(">{PASSWORD}"),
        "~*",
        "+@all",
    ];
    assert!(!redis.command(&acl).is_error());
    let mut process = lines(&url, &["--metrics", &nobody]);
    let snapshot = until(&process, "the server", |snapshot| {
        snapshot["scan"]["states"] == 0
    });
    assert_eq!(snapshot["endpoints"][0]["failure"], "cannot connect");
    redis.kill();
    let _ = until(&process, "the loss of the server", |snapshot| {
        snapshot["redis"]["failure"].is_string()
    });
    redis.restart();
    assert!(!redis.command(&acl).is_error());
    let _ = until(&process, "the return of the server", |snapshot| {
        snapshot["redis"]["failure"].is_null()
    });
    assert!(process.terminate().success());
    assert!(!process.output().contains(PASSWORD));
}

#[test]
fn a_run_that_could_read_nothing_fails_after_its_last_refresh() {
    let nobody = format!("127.0.0.1:{}", ports::free());
    for source in [
        ["--redis", &format!("redis://{nobody}")],
        [
            "--metrics",
            &format!("http://{nobody}/metrics?token={PASSWORD}"),
        ],
    ] {
        let run = tollgate(
            ["top", "--plain", "--interval", "1", "--refreshes", "2"]
                .into_iter()
                .chain(source),
        );
        assert!(!run.stdout.contains(PASSWORD), "{}", run.stdout);
        assert_eq!(run.stdout.matches("away for").count(), 2, "{}", run.stdout);
        assert_eq!(
            (run.status, &*run.stderr),
            (
                2,
                "error: nothing could be read: every source was away at every refresh\n"
            )
        );
    }
}

#[test]
fn pages_alone_are_no_source_for_what_redis_tells() {
    let page = "http://127.0.0.1:1/metrics";
    for (arguments, words) in [
        (
            &["--plain"][..],
            "nothing to read: name a server with --redis <URL>, or running services with --metrics <URL>",
        ),
        (&["--once"], "nothing to read"),
        (
            &["--once", "--refreshes", "3", "--metrics", page],
            "cannot be used with",
        ),
        (
            &["--plain", "--metrics", page, "--policy", "api=1/s"],
            "--rules and --policy are compared",
        ),
        (
            &["--plain", "--metrics", page, "--by", "share"],
            "--by share needs the limits",
        ),
    ] {
        let run = tollgate(["top"].iter().chain(arguments));
        assert!(
            run.status == 2 && run.stdout.is_empty(),
            "{}{}",
            run.stdout,
            run.stderr
        );
        assert!(run.stderr.contains(words), "{words}: {}", run.stderr);
    }
}

#[test]
fn an_interval_is_a_number_of_seconds_or_has_its_unit() {
    let with = |text: &str| tollgate(["top", "--plain", &format!("--interval={text}")]);
    for text in ["1", "1s", "10s", "2m", "1h", "3600"] {
        with(text).assert_failed("nothing to read");
    }
    for text in [
        "",
        "s",
        "0",
        "0s",
        "3601",
        "2h",
        "-1",
        "1.5",
        "1 s",
        "1ms",
        "1S",
        "99999999999999999999h",
    ] {
        with(text).assert_failed("expected 1s to 1h, such as 2, 2s or 1m");
    }
}

#[test]
fn a_wrong_url_of_a_page_is_refused_without_its_text() {
    for url in [
        "https://ann:hunter2@h/",
        "http://ann:hunter2@h/",
        "hunter2 x",
        "/hunter2",
    ] {
        let run = tollgate(["top", "--plain", "--metrics", url]);
        run.assert_failed("the URL in --metrics ");
        assert!(!run.stderr.contains(PASSWORD), "{}", run.stderr);
    }
}

#[test]
fn a_service_without_metrics_of_tollgate_is_told() {
    if no_server() {
        return;
    }
    let redis = RedisServer::start();
    // The server of Redis answers no HTTP.
    let page = format!("http://{}/", redis.addr());
    let run = tollgate([
        "top",
        "--redis",
        &redis.url(),
        "--plain",
        "--refreshes",
        "1",
        "--metrics",
        &page,
    ]);
    run.assert_printed(0, " s: the answer is not HTTP");
    let run = tollgate(["top", "--redis", &redis.url(), "--metrics", &page]);
    run.assert_failed("need a terminal, --plain or --once");
}
