//! Tries the command without flags: it knows limits that services publish, and the shares that
//! operators set.

use std::time::Duration;

use tollgate::{Cost, Enforcement, Lease, Limiter, Policy, Quota, RedisStore};
use tollgate_tests::{Process, RedisCluster, RedisServer, no_server, wait};

use super::{Run, tollgate, watch::top, with_published_limits};

const LIMITS: &str = "tollgate:{replicas}:limits";
const DAY: Policy = Policy::fixed_window("day", Quota::new(5, Duration::from_secs(3_650 * 86_400)));
const PATIENCE: Duration = Duration::from_secs(60);

/// Returns the limiter `search` with a share that operators set.
async fn search(url: &str, enforcement: &Enforcement) -> Limiter {
    let store = RedisStore::open(url).unwrap();
    store.ping().await.unwrap();
    Limiter::builder(store)
        .policies([DAY, Policy::sliding_log("log", Quota::per_hour(3))])
        .name("search")
        .published_with(enforcement.clone())
        .deadline(PATIENCE)
        .build()
}

fn run(server: &RedisServer, arguments: &[&str]) -> Run {
    tollgate([arguments, &["--redis", &server.url()]].concat())
}

fn published(server: &RedisServer, arguments: &[&str]) -> Run {
    with_published_limits(|| run(server, arguments))
}

#[tokio::test(flavor = "multi_thread")]
async fn no_flags_are_needed_for_limits_that_a_service_publishes() {
    if no_server() {
        return;
    }
    let server = RedisServer::start();
    let none = run(&server, &["who"]);
    let message = "who needs the limits, and none are published under the prefix tollgate: set the prefix of the services with \
         --prefix, name the limits with --rules or --policy, or build the limiters of the services with .published()";
    none.assert_failed(message);
    for arguments in [
        &["peek", "acme", "--cost", "1"][..],
        &["top", "--once", "--by", "share"],
    ] {
        let none = run(&server, arguments);
        none.assert_failed("none are published");
    }

    let limiter = search(&server.url(), &Enforcement::share(0)).await;
    for _ in 0..5 {
        let _ = limiter.check("acme").await.unwrap();
    }
    let _ = limiter.check("other").await.unwrap();
    let who = published(&server, &["who"]);
    assert!(
        who.stdout.contains("acme  log     sliding_log  3/hour"),
        "{}",
        who.stdout
    );
    assert!(
        who.stdout.ends_with("1 limited, of 4 states\n") && who.stderr.is_empty(),
        "{}{}",
        who.stdout,
        who.stderr
    );
    let peek = published(&server, &["peek", "acme", "--cost", "2"]);
    assert!(
        peek.stdout.contains("2 units of day fit now\n"),
        "{}",
        peek.stdout
    );
    let top = published(&server, &["top", "--once", "-n1", "--by", "share"]);
    assert!(top.stdout.contains("100.0"), "{}", top.stdout);
    // Flags are taken alone.
    let flags = run(&server, &["who", "--policy", "day=1/3650d"]);
    assert!(
        flags
            .stdout
            .ends_with("2 limited, of 4 states, 2 without a known limit\n"),
        "{}",
        flags.stdout
    );
    let reset = run(&server, &["reset", "acme"]);
    assert!(
        reset
            .stdout
            .contains("removed tollgate:{acme}:log:s1, 3 spent"),
        "{}",
        reset.stdout
    );
    assert!(published(&server, &["who"]).stdout.starts_with("0 limited"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_published_limit_of_a_leased_policy_is_that_of_its_states() {
    if no_server() {
        return;
    }
    let server = RedisServer::start();
    let quota = Quota::new(80, Duration::from_secs(3_650 * 86_400));
    let limiter = Limiter::builder(RedisStore::connect(server.url()).await.unwrap())
        .policies(Policy::fixed_window("day", quota).leased(Lease::new()))
        .name("leased")
        .published()
        .deadline(PATIENCE)
        .build();
    let all = limiter.check("acme").cost(Cost::new(80)).await.unwrap();
    assert!(all.is_allowed());
    let who = published(&server, &["who"]);
    who.assert_printed(0, "acme  day     fixed_window  80/3650d\n");
    who.assert_printed(0, "\n1 limited, of 1 states\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_share_of_a_limiter_is_set_listed_and_withdrawn() {
    if no_server() {
        return;
    }
    let server = RedisServer::start();
    let (first, second) = (Enforcement::share(0), Enforcement::share(0));
    let url = server.url();
    let limiters = [search(&url, &first).await, search(&url, &second).await];
    let fixed = Limiter::builder(RedisStore::connect(&*url).await.unwrap())
        .policies(DAY)
        .name("fixed")
        .published()
        .build();
    let list = wait::until_some("both limiters", PATIENCE, || {
        let list = run(&server, &["enforce"]).stdout;
        ["fixed", "search"]
            .iter()
            .all(|name| list.contains(name))
            .then_some(list)
    });
    let rows: Vec<_> = list
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    let policies = "day=5/3650d, fixed_window; log=3/hour, sliding_log";
    assert_eq!(
        rows,
        [
            "limiter enforced operator policies",
            "fixed day=5/3650d, fixed_window",
            &format!("search 0% {policies}")
        ]
    );

    let set = published(&server, &["enforce", "search", "25%"]);
    assert_eq!(
        set.stdout, "search is enforced for 25% of the keys within three seconds, it was for 0%\n",
        "{}",
        set.stderr
    );
    for enforcement in [&first, &second] {
        wait::until_async("25 %", PATIENCE, async || enforcement.percent() == 25).await;
    }
    let listed =
        || run(&server, &["enforce", "search", "--format", "json"]).json()["limiters"][0].clone();
    wait::until("the share to be listed", PATIENCE, || {
        listed()["enforced"] == serde_json::json!([25])
    });
    assert_eq!(
        (
            &listed()["operator"],
            listed()["policies"].as_array().unwrap().len()
        ),
        (&"25%".into(), 1)
    );
    let watch = Process::start(top(&url, &["--plain"]), "published limiter");
    wait::until("a row of top", PATIENCE, || {
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        watch
            .output()
            .lines()
            .any(|line| words(line) == format!("search 25% 25% {policies}"))
    });
    drop(watch);

    // The service is restarted, and gone: the share is still there, and may be cleared.
    drop((limiters, fixed));
    wait::until("the limits to be gone", PATIENCE, || {
        server.command(&["EXISTS", LIMITS]).int() == 0
    });
    assert!(run(&server, &["enforce"]).stdout.contains("not published"));
    assert_eq!(run(&server, &["enforce", "search", "--clear"]).status, 0);
    assert_eq!(
        run(&server, &["enforce"]).stdout,
        "no limiters are published under the prefix tollgate\n"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_share_that_makes_no_sense_is_refused() {
    if no_server() {
        return;
    }
    let server = RedisServer::start();
    for share in ["101%", "-1%", "2.5%", "a%", "+5%", "%"] {
        let run = tollgate(["enforce", "search", "--redis", &server.url(), "--", share]);
        let words = "the share of enforced keys must be 0% to 100%, in whole percent";
        assert!(
            run.status == 2 && run.stderr.contains(words) && run.stderr.contains(share),
            "{}",
            run.stderr
        );
    }
    let none = run(&server, &["enforce", "search", "5%"]);
    let words = "no limiter search is published under the prefix tollgate, none are";
    none.assert_failed(words);
    server.command(&["ZADD", LIMITS, "1", "day=5/d, fixed_window; limiter fixed"]);
    let other = run(&server, &["enforce", "serch", "5%"]);
    other.assert_failed("expected fixed");
    let fixed = run(&server, &["enforce", "fixed", "5%"]);
    fixed.assert_failed("limiter fixed takes no share");
    assert_eq!(
        server
            .command(&["EXISTS", "tollgate:{replicas}:shares"])
            .int(),
        0
    );
}

#[test]
fn texts_that_cannot_be_read_are_named_and_left_out_and_move_no_cursor() {
    if no_server() {
        return;
    }
    let server = RedisServer::start();
    let hostile = "day=5/d, fixed_window; enforced 7%; limiter \u{1b}[2Jwipe\n\u{202e}";
    for (score, text) in [
        ("1", "day=5/d, fixed_window; limiter old"),
        ("2", "day=9/d, fixed_window; limiter new"),
        ("3", "day=1/d, from_the_future; limiter later\u{1b}c"),
        ("4", "garbage\u{1b}[31m"),
        ("5", hostile),
        ("6", &"x".repeat(5_000)),
    ] {
        server.command(&["ZADD", LIMITS, score, text]);
    }
    server.command(&[
        "HSET",
        "tollgate:{replicas}:shares",
        "\u{1b}]0;x\u{7}",
        "\u{1b}[5m",
        "old",
        "7%",
    ]);
    server.command(&["ZADD", LIMITS, "7", "day=8/d, fixed_window; limiter newest"]);
    for run in [
        run(&server, &["enforce"]),
        run(&server, &["who"]),
        run(&server, &["top", "--plain", "--refreshes", "1"]),
    ] {
        assert_eq!(run.status, 0, "{}", run.stderr);
        let all = run.stdout + &run.stderr;
        assert!(!all.contains(['\u{1b}', '\u{202e}', '\u{7}']), "{all:?}");
    }
    let enforce = run(&server, &["enforce"]);
    assert!(
        enforce.stdout.contains(r"\u{1b}[2Jwipe\u{a}\u{202e}  7%"),
        "{}",
        enforce.stdout
    );
    for warning in [
        r#"warning: the published limits of later\u{1b}c are left out: unknown algorithm "from_the_future""#,
        r"warning: the published limits of garbage\u{1b}[31m are left out: published limits must end with the limiter",
        "are left out: the text is too long",
    ] {
        assert!(enforce.stderr.contains(warning), "{}", enforce.stderr);
    }
    let top = run(&server, &["top", "--plain", "--refreshes", "1"]);
    assert!(
        top.stdout
            .contains("limits  the published limits of garbage"),
        "{}",
        top.stdout
    );
    // Of replicas that differ, the newest text counts.
    let who = run(&server, &["who"]);
    let newest =
        "warning: policy day is published with 5/day and 8/day, of which the newest is taken";
    assert!(who.stderr.contains(newest), "{}", who.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn any_master_of_a_cluster_may_be_asked() {
    if no_server() {
        return;
    }
    let cluster = RedisCluster::start();
    let urls = cluster
        .urls()
        .iter()
        .map(|url| {
            url.trim_start_matches("redis://")
                .trim_end_matches('/')
                .to_owned()
        })
        .collect::<Vec<_>>()
        .join(",");
    let enforcement = Enforcement::share(0);
    let _limiter = search(&format!("redis+cluster://{urls}"), &enforcement).await;
    for (percent, master) in [10, 20, 30].into_iter().zip(cluster.masters()) {
        let set = published(master, &["enforce", "search", &percent.to_string()]);
        assert_eq!(set.status, 0, "{}", set.stderr);
        wait::until_async("the share", PATIENCE, async || {
            enforcement.percent() == percent
        })
        .await;
    }
}
