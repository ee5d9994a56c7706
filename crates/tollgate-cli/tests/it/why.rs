//! Explains denials from event logs that limiters have raised, and from the state now.

use std::{
    fs,
    sync::{Arc, Mutex},
    time::{Duration, SystemTime},
};

use serde_json::{Value, json};
use tempfile::TempDir;
use tollgate::{
    Cost, Costs, Enforcement, Key, KeySecret, Limiter, MemoryStore, Policy, Priority, Quota,
    RedisStore, Store,
    limiter::events::LogLine,
    store::{Exception, ExceptionChange},
};
use tollgate_postgres::{Durability, PostgresStore};
use tollgate_tests::{PostgresServer, RedisServer, no_server, wait};

use super::{File, Run, tollgate, with_published_limits};

const PATIENCE: Duration = Duration::from_secs(60);
const DAY: Policy = Policy::fixed_window("day", Quota::new(5, Duration::from_secs(3_650 * 86_400)));

/// Collects the lines of a limiter.
#[derive(Clone, Default)]
struct Audit(Arc<Mutex<String>>);

impl Audit {
    /// Returns the limiter `search`, enforced for none.
    fn limiter(&self, store: impl Store, secret: Option<KeySecret>) -> Limiter {
        let lines = Arc::clone(&self.0);
        Limiter::builder(store)
            .policies(DAY)
            .name("search")
            .published_with(Enforcement::share(0))
            .deadline(PATIENCE)
            .observe(move |event| {
                let mut line = LogLine::new(event, SystemTime::now());
                if let Some(secret) = &secret {
                    line = line.with_digest(secret);
                }
                *lines.lock().unwrap() += &format!("{line}\n");
            })
            .build()
    }

    fn file(&self) -> File {
        File::new("audit.log", self.0.lock().unwrap().as_bytes())
    }
}

fn why(arguments: &[&str]) -> Run {
    tollgate([&["why"], arguments].concat())
}

/// Denies a check of `acme`, and explains it with the state of the server.
async fn explain(store: impl Store, url: &str) {
    let audit = Audit::default();
    let limiter = audit.limiter(store, None);
    for _ in 0..5 {
        assert!(limiter.check("acme").await.unwrap().is_allowed());
    }
    let low = Costs::new(Cost::new(2)).with_priority(Priority::BACKGROUND);
    assert!(limiter.check("acme").cost(low).await.unwrap().is_denied());
    assert!(limiter.check("other").await.unwrap().is_allowed());
    let file = audit.file();
    let run = with_published_limits(|| why(&["acme", "--log", file.path(), "--redis", url]));
    for words in [
        "acme was denied at 20",
        " by the policy day of the limiter search\n",
        "  quota in force: 5/3650d, fixed_window\n",
        "  units: the check asked for 2, and 0 were left to it\n",
        "  rank: its priority leaves 2 units to higher ones\n",
        "  decided by: the store\n",
        "  the same check was admitted from 20",
        "denials within 60 s of that: 1 by day of search\n",
        "\nnow:\n",
        "2 units of day fit in ",
        "the limit is enforced for 0% of the keys, and not for this one: a layer lets it pass\n",
    ] {
        run.assert_printed(0, words);
    }
    assert!(
        !run.stdout.contains("lease") && run.stderr.is_empty(),
        "{}{}",
        run.stdout,
        run.stderr
    );
    let json = [
        "acme",
        "--log",
        file.path(),
        "--redis",
        url,
        "--format",
        "json",
    ];
    let json = with_published_limits(|| why(&json)).json();
    assert_eq!(json["denial"]["kept"], 2, "{json}");
    assert_eq!(json["now"]["states"][0]["spent"], 5, "{json}");
    assert_eq!(json["now"]["exceptions"], json!([]), "{json}");

    // The exception is named, and the quota in force is the one with it.
    let seven = ExceptionChange::Quota(Quota::new(7, DAY.quota().period()));
    let exception = Exception::new("day", "acme", seven, Duration::from_secs(7_200));
    let exception = exception.by("ann").because("imports its archive");
    limiter.grant_exception(exception).await.unwrap();
    wait::until_async("a check by the exception", PATIENCE, async || {
        limiter.check("acme").await.unwrap().is_allowed()
    })
    .await;
    assert!(limiter.check("acme").await.unwrap().is_allowed());
    assert!(limiter.check("acme").await.unwrap().is_denied());
    let file = audit.file();
    let run = with_published_limits(|| why(&["acme", "--log", file.path(), "--redis", url]));
    for words in [
        "  quota in force: 7/3650d, fixed_window, by an exception for the key\n",
        " 100.0  ",
        "\nexception from day of search: quota 7/3650d, which makes 7/3650d of its quota, from 20",
        ", by ann: imports its archive\n",
    ] {
        run.assert_printed(0, words);
    }
    // A key below is one of the policy that meters all levels, and has no exception.
    let json = [
        "acme>ann",
        "--log",
        file.path(),
        "--redis",
        url,
        "--format",
        "json",
    ];
    let json = with_published_limits(|| why(&json)).json();
    assert_eq!(json["now"]["exceptions"], json!([]), "{json}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_denial_is_explained_by_the_log_and_by_the_state_on_redis() {
    if no_server() {
        return;
    }
    let server = RedisServer::start();
    let store = RedisStore::connect(server.url()).await.unwrap();
    explain(store, &server.url()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_denial_is_explained_by_the_log_and_by_the_state_on_postgres() {
    let server = PostgresServer::start();
    let store = PostgresStore::builder(server.url()).create(Durability::Unlogged);
    explain(store.connect().await.unwrap(), &server.url()).await;
}

#[tokio::test]
async fn a_log_without_names_answers_whoever_has_its_secret() {
    let (audit, secret) = (Audit::default(), "0123456789abcdef0123456789abcdef");
    let limiter = audit.limiter(MemoryStore::new(), Some(KeySecret::new(secret)));
    let _ = limiter.check("acme").cost(5).await.unwrap();
    let _ = limiter.check("acme").await.unwrap();
    let file = audit.file();
    assert!(!fs::read_to_string(file.path()).unwrap().contains("acme"));
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("secret");
    fs::write(&path, format!("{secret}\n")).unwrap();
    let path = path.to_str().unwrap();
    let digest = tollgate::limiter::DeniedKeys::digest(&Key::new("acme"), &KeySecret::new(secret));
    let run = why(&["acme", "--log", file.path(), "--digest-secret", path]);
    run.assert_printed(0, &format!("{digest} was denied at "));
    why(&["acme", "--log", file.path()]).assert_printed(1, "the log has no denial of the key\n");
}

const LINES: &str = r#"{"time":"2026-11-29T11:59:00.000Z","event":"rules_reloaded","rules":12}
{"time":"2026-11-29T12:02:58.000Z","event":"outage_began","limiter":"search","reason":"timeout"}
{"time":"2026-11-29T12:03:11.000Z","event":"denied","limiter":"search","key":"acme","policy":"day","quota":"5/day","algorithm":"fixed_window","cost":1,"remaining":0,"kept":0,"retry_after_ms":2500,"leased":true,"degraded":"timeout"}
mail: a line of something else
{"time":"2026-11-29T12:03:40.000Z","event":"outage_ended","limiter":"search","lasted_ms":42000}
{"time":"2026-11-29T13:00:00.000Z","event":"denied","limiter":"search","key":"\u001b[2J","policy":"day","retry_after_ms":null}
"#;

#[test]
fn an_outage_a_lease_and_rules_are_named_and_nothing_moves_the_cursor() {
    let file = File::new("audit.log", LINES);
    let run = why(&["acme", "--log", file.path(), "--at", "12:03"]);
    let expected = "\
acme was denied at 2026-11-29T12:03:11Z by the policy day of the limiter search
  quota in force: 5/day, fixed_window
  units: the check asked for 1, and 0 were left to it
  decided by: the outage rule of one replica, because of timeout; the quota is its share
  outage: a replica of search was without its store since 2026-11-29T12:02:58Z, because of timeout
  lease: replicas hold units of this policy, so another one may still have had some
  the same check was admitted from 2026-11-29T12:03:13.5Z on, 2.5 s later, if nobody else spent
  rules: 12 were loaded at 2026-11-29T11:59:00Z
denials within 60 s of that: 1 by day of search
";
    assert_eq!((run.status, &*run.stdout), (0, expected), "{}", run.stderr);
    let none = why(&["acme", "--log", file.path(), "--at", "12:10:00"]);
    let text = "the log has no denial of the key within 60 s of that time\nthe nearest one before: 2026-11-29T12:03:11Z by day\n";
    none.assert_printed(1, text);
    let hostile = why(&["\u{1b}[2J", "--log", file.path()]);
    hostile.assert_printed(0, "the same check was never admitted: the quota blocks\n");
    assert!(!hostile.stdout.contains('\u{1b}'), "{}", hostile.stdout);
    let json = why(&["acme", "--log", file.path(), "--format", "json"]).json();
    assert_eq!(
        (&json["now"], &json["outage"]["reason"]),
        (&Value::Null, &"timeout".into()),
        "{json}"
    );
}

#[test]
fn wrong_input_is_refused_by_name() {
    let (file, text) = (
        File::new("audit.log", LINES),
        File::new("access.log", "GET / 200\n"),
    );
    let directory = file.directory().to_str().unwrap();
    for (arguments, words) in [
        (&["acme"][..], "--log <FILE>"),
        (
            &["acme", "--log", "/nowhere.log"],
            "--log /nowhere.log: No such file",
        ),
        (
            &["acme", "--log", directory],
            "expected a file, got a directory",
        ),
        (
            &["acme", "--log", text.path()],
            "access.log: it has no line of an event",
        ),
        (
            &["acme", "--log", file.path(), "--at", "25:00"],
            "expected a time such as 12:03",
        ),
        (
            &["acme", "--log", file.path(), "--within", "100000"],
            "is not in 0..=86400",
        ),
        (
            &["acme", "--log", file.path(), "--digest-secret", "/nowhere"],
            "--digest-secret /nowhere",
        ),
    ] {
        why(arguments).assert_failed(words);
    }
}
