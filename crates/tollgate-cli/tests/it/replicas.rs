//! Replicas of a service, what they report that they enforce, and roll-outs that wait for them.
//! A thousand roll-outs are drawn in `src/rollout/tests.rs`.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::Value;
use tempfile::TempDir;
use tollgate::{Limiter, Policy, Quota, RedisStore, redis::RedisSource, store::ReplicaReport};
use tollgate_postgres::PostgresStore;
use tollgate_rules::RuleSet;
use tollgate_tests::{
    PostgresServer, Process, RedisCluster, RedisServer, WallClock, no_server, ports, wait,
};

use super::{Run, command, tollgate};

const PATIENCE: Duration = Duration::from_secs(60);

/// Returns a file of rules with this quota.
fn rules(quota: &str) -> String {
    format!("domain: shop\ndescriptors:\n- key: tenant\n  rate_limit: {{quota: {quota}}}\n")
}

/// Replaces a file by a rename.
fn write(path: &Path, quota: &str) {
    let next = path.with_extension("next");
    fs::write(&next, rules(quota)).unwrap();
    fs::rename(next, path).unwrap();
}

/// A replica with a file of its own.
struct Replica {
    process: Process,
    rules: PathBuf,
    _directory: TempDir,
}

impl Replica {
    fn start(url: &str, name: &str, clock: Option<&WallClock>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("rules.yaml");
        write(&path, "5/h");
        let mut command = Process::example("rules");
        command
            .env("LISTEN", format!("127.0.0.1:{}", ports::free()))
            .env("REDIS_URL", url)
            .env("RULES", &path)
            .env("HOSTNAME", name);
        if let Some(clock) = clock {
            command.envs(clock.variables());
        }
        Self {
            process: Process::start(command, "Try"),
            rules: path,
            _directory: directory,
        }
    }

    /// Returns the digest of its file.
    fn digest(&self) -> String {
        RuleSet::load(&self.rules).unwrap().digest().to_string()
    }
}

fn run(url: &str, arguments: &[&str]) -> Run {
    tollgate([arguments, &["--redis", url]].concat())
}

/// Waits for a roll-out for as long as a test may take.
fn rollout(url: &str, rules: &str, options: &[&str]) -> Run {
    run(
        url,
        &[&["rollout", rules, "--within", "600"], options].concat(),
    )
}

/// Returns the replicas that `status` lists.
fn status(url: &str) -> Vec<Value> {
    let status = run(url, &["status", "--format", "json"]).json();
    status["replicas"].as_array().unwrap().clone()
}

/// Starts a roll-out that waits.
fn waiting(url: &str, digest: &str, waits_for: &str) -> Process {
    let mut rollout = command();
    rollout.args(["rollout", digest, "--within", "600", "--gone", "600"]);
    rollout.args(["--timeout", "60", "--redis", url]);
    Process::start(rollout, waits_for)
}

/// Rolls rules out over two replicas of which the second is late, paused and killed. `lose` makes the
/// server lose what it has.
fn roll_out(url: &str, lose: impl Fn()) {
    let clock = WallClock::new();
    clock.forward(Duration::from_secs(3_600));
    let first = Replica::start(url, "first", None);
    let mut second = Replica::start(url, "second", Some(&clock));
    let old = first.digest();
    rollout(url, &old, &["--replicas", "2"])
        .assert_printed(0, &format!("all 2 replicas enforce {old}\n"));
    for replica in status(url) {
        assert_eq!(replica["rules"][0]["digest"], *old, "{replica}");
        // The wrong clock of a replica is in no time that it reports.
        assert!(
            replica["rules"][0]["age_ms"].as_u64().unwrap() < 600_000,
            "{replica}"
        );
    }

    // The second one is late, and refuses a file with a mistake.
    write(&first.rules, "50/h");
    write(&second.rules, "50/hours and more");
    let new = first.digest();
    let late = waiting(
        url,
        &new,
        "1 of 2 replicas enforce the rules, waits for second",
    );
    wait::until("the refusal", PATIENCE, || {
        let text = run(url, &["status"]).stdout;
        text.lines()
            .any(|line| line.contains("second") && line.contains("refuses newer rules for"))
    });
    assert!(!late.output().contains("all 2"), "{}", late.output());
    let path = first.rules.to_str().unwrap();
    let short = run(url, &["rollout", path, "--within", "10"]);
    let pid = second.process.pid();
    short.assert_printed(1, &format!("second (pid {pid}): enforces {old} of "));
    assert!(
        short.stdout.contains(", and refuses newer ones\n"),
        "{}",
        short.stdout
    );

    // It stands still with the old rules, and the server forgets it.
    second.process.pause();
    write(&second.rules, "50/h");
    wait::until("the silence", PATIENCE, || {
        let text = run(url, &["status"]).stdout;
        text.lines()
            .any(|line| line.contains("second") && line.contains("silent for"))
    });
    lose();
    wait::until("the first one to come back", PATIENCE, || {
        status(url).iter().any(|replica| replica["host"] == "first")
    });
    assert!(!late.output().contains("all 2"), "{}", late.output());
    second.process.resume();
    wait::until("the roll-out", 10 * PATIENCE, || {
        late.output()
            .contains(&format!("all 2 replicas enforce {new}"))
    });

    // One that was killed is waited for, and then gone.
    second.process.kill();
    let mut rest = command();
    rest.args([
        "rollout", &new, "--within", "600", "--gone", "20", "--format", "json",
    ]);
    rest.args(["--timeout", "60", "--redis", url]);
    let rest = Run::from(rest.output().unwrap());
    assert_eq!(
        (rest.status, &rest.json()["enforcing"]),
        (0, &Value::from(1)),
        "{}",
        rest.stderr
    );
    let too_few = run(
        url,
        &[
            "rollout",
            &new,
            "--replicas",
            "2",
            "--within",
            "10",
            "--gone",
            "10",
        ],
    );
    too_few.assert_printed(1, "not all replicas enforce");
}

#[test]
fn a_roll_out_over_replicas_on_redis_waits_for_the_late_and_the_paused_one() {
    if no_server() {
        return;
    }
    let server = RedisServer::start();
    roll_out(&server.url(), || drop(server.command(&["FLUSHALL"])));
}

#[test]
fn a_roll_out_over_replicas_on_postgres_waits_for_the_late_and_the_paused_one() {
    let server = PostgresServer::start();
    let url = server.url();
    let separator = if url.contains('?') { '&' } else { '?' };
    roll_out(&format!("{url}{separator}create=unlogged"), || {
        tokio::runtime::Runtime::new()
            .unwrap()
            .block_on(forget(&url));
    });
}

/// Removes all reports.
async fn forget(url: &str) {
    let store = PostgresStore::connect(url).await.unwrap();
    let (_, rows) = store.rows(b"{replicas}:enforced:", b"", 100).await.unwrap();
    for row in rows {
        store.replace(&row.key, None).await.unwrap();
    }
}

fn published(store: &RedisStore, quota: Quota) -> Limiter {
    Limiter::builder(store.clone())
        .policies(Policy::fixed_window("day", quota))
        .name("search")
        .published()
        .deadline(PATIENCE)
        .build()
}

#[tokio::test(flavor = "multi_thread")]
async fn status_lists_limits_of_replicas_so_that_the_odd_one_is_seen_also_in_a_cluster() {
    if no_server() {
        return;
    }
    let cluster = RedisCluster::start();
    let store = async || {
        RedisStore::connect(RedisSource::cluster(cluster.urls()))
            .await
            .unwrap()
    };
    let (first, second) = (store().await, store().await);
    let _limiters = [
        published(&first, Quota::per_day(5)),
        published(&second, Quota::per_day(9)),
    ];
    // Any master knows who has them.
    for master in cluster.masters() {
        let url = master.url();
        run(&url, &["status"]);
        wait::until("both replicas", PATIENCE, || {
            let text = run(&url, &["status"]).stdout;
            [
                "search   day=5/day, fixed_window  ",
                "search   day=9/day, fixed_window  ",
            ]
            .iter()
            .all(|limits| text.contains(limits))
        });
        // A replica without rules is not waited for, and completes nothing.
        let none = run(&url, &["rollout", "0011223344556677", "--within", "10"]);
        none.assert_printed(
            1,
            "not all replicas enforce 0011223344556677 after 10 s: 0 do\n1 replicas must\n",
        );
    }
}

#[test]
fn damaged_and_hostile_reports_are_named_and_an_older_version_is_waited_for() {
    if no_server() {
        return;
    }
    let server = RedisServer::start();
    let url = server.url();
    run(&url, &["status"]).assert_printed(0, "no replica reports under the prefix tollgate\n");
    let mut report = ReplicaReport::new("a\u{1b}[2Jb", 7);
    "00ff".clone_into(&mut report.process);
    let text =
        report.to_string() + "rules 0011223344556677 0 - /etc/\u{1b}[2J\ngroups 00112233445566aa\n";
    let time = server.command(&["TIME"]).items()[0].text().to_owned() + "000000";
    for text in [&*text, "rules x"] {
        server.command(&["ZADD", "tollgate:{replicas}:enforced", &time, text]);
    }
    for process in ["00ff", "an older version"] {
        server.command(&[
            "ZADD",
            "tollgate:{replicas}:00112233445566aa",
            &time,
            process,
        ]);
    }
    let status = run(&url, &["status"]);
    status.assert_printed(0, "a\\u{1b}[2Jb (pid 7)");
    assert!(
        status.stdout.contains("process an older  "),
        "{}",
        status.stdout
    );
    assert!(
        !status.stdout.contains('\u{1b}') && status.stderr.contains("rules x"),
        "{}",
        status.stderr
    );
    for (arguments, words) in [
        (
            &["rollout", "0011"][..],
            "there are no rules 0011, and a digest of rules must have 16 to 64",
        ),
        (
            &["rollout", "0011223344556677", "--gone", "9"],
            "9 is not in 10..=600",
        ),
        (
            &["rollout", "0011223344556677", "--replicas", "0"],
            "0 is not in 1..=5000",
        ),
        (
            &["rollout", "0011223344556677", "--within", "1"],
            "1 is not in 10..=86400",
        ),
    ] {
        run(&url, arguments).assert_failed(words);
    }
}
