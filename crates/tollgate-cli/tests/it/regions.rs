//! `tollgate peek` of a limit that several regions share: the purse and the home.

use std::time::Duration;

use tollgate::{Key, Lease, Limiter, Policy, Quota};
use tollgate_regions::{Durability, RegionalStore};
use tollgate_tests::{RedisServer, no_server, wait};

use super::tollgate;

const PATIENCE: Duration = Duration::from_secs(60);

/// Ten years, so that no unit returns in a test.
const LONG: Duration = Duration::from_secs(3650 * 86_400);

fn store(local: &RedisServer, home: &RedisServer) -> RegionalStore {
    let builder = RegionalStore::builder(local.url(), home.url())
        .region("eu")
        .durability(Durability::Trust)
        .round_trip(Duration::from_millis(1));
    builder.build().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peek_shows_what_the_region_holds_and_what_is_used_at_the_home() {
    if no_server() {
        return;
    }
    let (local, home) = (RedisServer::start(), RedisServer::start());
    let store = store(&local, &home);
    let policy = Policy::token_bucket("all", Quota::new(2_000, LONG))
        .leased(Lease::new().share(2).generation(PATIENCE));
    let limiter = Limiter::builder(store.clone())
        .policies(policy)
        .deadline(PATIENCE)
        .build();
    let key = Key::new("acme").child("ann");
    let mut admitted = 0;
    wait::until_async("units that the region holds", PATIENCE, async || {
        admitted += u64::from(limiter.check(&key).await.unwrap().is_allowed());
        let figures = store.figures();
        admitted > 100 && figures.held > 0 && figures.answered == figures.calls
    })
    .await;
    let (at, there) = (local.url(), home.url());
    let peek = |more: &[&str]| {
        let words = ["peek", key.encoded(), "--redis", &at];
        tollgate([&words[..], more].concat())
    };
    // A deposit may be under way still.
    let json = wait::until_some("a purse that is settled", PATIENCE, || {
        let json = peek(&[
            "--home",
            &there,
            "--policy",
            "all=2000/3650d",
            "--format",
            "json",
        ])
        .json();
        (json["purses"][0]["awaits_units"] == false).then_some(json)
    });
    let (purse, at_home) = (&json["purses"][0], &json["homes"][0]);
    for entry in [purse, at_home] {
        assert_eq!(entry["subject"], key.encoded());
        assert_eq!(entry["policy"], "all");
        assert!(entry["expires_ms"].as_u64() > Some(0));
    }
    assert!(
        purse["redis_key"]
            .as_str()
            .unwrap()
            .ends_with(":all:t1l1:purse2"),
        "{purse}"
    );
    assert!(
        at_home["redis_key"]
            .as_str()
            .unwrap()
            .ends_with(":all:t1l1:home1"),
        "{at_home}"
    );
    let number = |value: &serde_json::Value| value.as_u64().unwrap();
    let (free, unreported) = (number(&purse["free"]), number(&purse["unreported"]));
    let state = limiter.peek(&key).await.unwrap();
    assert_eq!(free, state.state("all").unwrap().remaining());
    assert!(purse["demand"].as_f64() > Some(0.0), "{purse}");
    // Each unit is in one place. What came too late for its claim is in none, until it lapses.
    let (leased, lost) = (number(&purse["leased"]), store.figures().lost);
    assert_eq!(
        number(&at_home["outstanding"]),
        free + leased + unreported + lost
    );
    let in_process = leased - store.figures().leased;
    assert_eq!(
        number(&at_home["spent"]) + unreported + in_process,
        admitted
    );
    assert_eq!(
        (number(&at_home["limit"]), number(&at_home["regions"])),
        (2_000, 1)
    );
    assert_eq!(json["states"].as_array().map(Vec::len), Some(0));

    let text = peek(&["--home", &there]).stdout;
    let lines: Vec<_> = text.lines().map(str::trim).collect();
    assert!(
        lines.contains(&"in this region") && lines.contains(&"at the home"),
        "{text}"
    );
    assert!(
        lines
            .iter()
            .any(|line| line.starts_with(&format!("{free}  "))),
        "{text}"
    );
    // The limit is not published, and the purse alone is here.
    let json = peek(&["--format", "json"]).json();
    assert!(
        json["homes"].is_null() && json["purses"][0]["free"] == free,
        "{json}"
    );
    let own = tollgate([
        "peek",
        key.encoded(),
        "--redis",
        &there,
        "--home",
        &there,
        "--format",
        "json",
    ]);
    assert_eq!(own.json()["homes"].as_array().map(Vec::len), Some(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peek_of_a_published_limit_and_one_by_rules_know_the_quota_at_the_home() {
    if no_server() {
        return;
    }
    let (local, home) = (RedisServer::start(), RedisServer::start());
    let policy = Policy::fixed_window("all", Quota::new(2_000, LONG)).leased(Lease::new().share(2));
    let limiter = Limiter::builder(store(&local, &home))
        .policies(policy)
        .deadline(PATIENCE)
        .published()
        .build();
    let (at, there) = (local.url(), home.url());
    // A first check waits for units, but not for long where the home is so near.
    wait::until_async("an admitted check", PATIENCE, async || {
        limiter.check("acme").await.unwrap().is_allowed()
    })
    .await;
    let run = wait::until_some("a published limit", PATIENCE, || {
        let run = tollgate([
            "peek", "acme", "--redis", &at, "--home", &there, "--format", "json",
        ]);
        let json = run.json();
        (json["homes"][0]["limit"] == 2_000).then_some(json)
    });
    assert_eq!(run["homes"][0]["quota"], "2000/3650d");
}

#[test]
fn a_home_that_does_not_answer_is_named_and_shows_no_password() {
    if no_server() {
        return;
    }
    let local = RedisServer::start();
    let home = "redis://:hunter2@127.0.0.1:1/";
    let run = tollgate(["peek", "acme", "--redis", &local.url(), "--home", home]);
    assert!(
        run.stderr.contains("cannot connect to 127.0.0.1:1"),
        "{}",
        run.stderr
    );
    assert!(!run.stderr.contains("hunter2"));
}
