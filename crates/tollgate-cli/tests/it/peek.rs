//! `tollgate peek` and `tollgate reset`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tollgate::{Cost, Key, Lease, Limiter, Policy, Quota, RedisStore, testing::ALGORITHMS};
use tollgate_rules::{Descriptor, RuleLimiter, RuleSet, Rules};
use tollgate_tests::{RedisServer, no_server, wait};

use super::{File, Run, SHOP, tollgate};

/// Ten years, so that no unit returns and no window ends in a test.
const LONG: Duration = Duration::from_secs(3650 * 86_400);

/// A server, and the limiters that fill it.
struct Filled {
    server: RedisServer,
    store: RedisStore,
}

impl Filled {
    async fn new() -> Self {
        let server = RedisServer::start();
        let store = RedisStore::connect(server.url()).await.unwrap();
        Self { server, store }
    }

    fn limiter(&self, policy: Policy) -> Limiter {
        // A busy machine must not decide without the server.
        Limiter::builder(self.store.clone())
            .policies(policy)
            .deadline(Duration::from_secs(60))
            .build()
    }

    fn run(&self, arguments: &[&str]) -> Run {
        tollgate([arguments, &["--redis", &self.server.url()]].concat())
    }

    fn keys(&self) -> u64 {
        // The sets of the processes are keys too.
        self.server.keys_and_expires().0
            - self
                .server
                .command(&["KEYS", "tollgate:{replicas}:*"])
                .items()
                .len() as u64
    }
}

#[tokio::test]
async fn a_peek_shows_what_the_limiter_shows_for_every_algorithm() {
    if no_server() {
        return;
    }
    let filled = Filled::new().await;
    for algorithm in ALGORITHMS {
        // An amount that does not divide the period.
        let policy = Policy::try_new("api", algorithm, Quota::new(7, LONG)).unwrap();
        let limiter = filled.limiter(policy);
        let key = Key::new(algorithm.to_string());
        for spent in 1..=3 {
            let _ = limiter.check(&key).cost(Cost::new(spent)).await.unwrap();
            let state = limiter.peek(&key).await.unwrap();
            let expected = 7 - state.state("api").unwrap().remaining();
            for quota in [&[][..], &["--policy", "api=7/3650d"]] {
                let text = algorithm.to_string();
                let run = filled.run(&[&["peek", &text, "--format", "json"], quota].concat());
                let json = run.json();
                assert_eq!(
                    json["states"].as_array().map(Vec::len),
                    Some(1),
                    "{algorithm}: {}",
                    run.stderr
                );
                let state = &json["states"][0];
                assert_eq!(state["spent"].as_u64(), Some(expected), "{algorithm}");
                assert!(
                    algorithm
                        .to_string()
                        .starts_with(state["algorithm"].as_str().unwrap())
                );
                assert_eq!(state["limit"].as_u64(), (!quota.is_empty()).then_some(7));
                assert_eq!(state["subject"], key.encoded());
            }
        }
    }
}

#[tokio::test]
async fn a_peek_shows_a_debt_as_units_that_are_spent_for_every_algorithm() {
    if no_server() {
        return;
    }
    let filled = Filled::new().await;
    for algorithm in ALGORITHMS {
        let policy = Policy::try_new("api", algorithm, Quota::new(100, LONG)).unwrap();
        let limiter = filled.limiter(policy);
        let key = Key::new(algorithm.to_string());
        let reservation = limiter
            .reserve(&key, Cost::new(20))
            .await
            .unwrap()
            .into_result()
            .unwrap();
        let _ = reservation.commit(Cost::new(500)).await.unwrap();
        for quota in [&[][..], &["--policy", "api=100/3650d"]] {
            let run = filled
                .run(&[&["peek", &algorithm.to_string(), "--format", "json"], quota].concat());
            let state = &run.json()["states"][0];
            assert_eq!(
                state["spent"].as_u64(),
                Some(500),
                "{algorithm}: {}",
                run.stdout
            );
            assert_eq!(
                state["debt"].as_u64(),
                (!quota.is_empty()).then_some(400),
                "{algorithm}: {}",
                run.stdout
            );
        }
        let text = filled
            .run(&["peek", &algorithm.to_string(), "--policy", "api=100/3650d"])
            .stdout;
        assert!(
            text.lines()
                .nth(1)
                .unwrap()
                .trim_start()
                .starts_with("500  debt 400 "),
            "{text}"
        );
    }
}

#[tokio::test]
async fn a_peek_tells_when_a_cost_fits_and_spends_nothing() {
    if no_server() {
        return;
    }
    let filled = Filled::new().await;
    for algorithm in ALGORITHMS {
        let policy = Policy::try_new("api", algorithm, Quota::new(7, LONG)).unwrap();
        let limiter = filled.limiter(policy);
        let key = Key::new(algorithm.to_string());
        let _ = limiter.check(&key).cost(Cost::new(4)).await.unwrap();
        for cost in [0, 3, 5, 7, 8] {
            let text = algorithm.to_string();
            let arguments = [
                "peek",
                &text,
                "--policy",
                "api=7/3650d",
                "--cost",
                &cost.to_string(),
                "--format",
                "json",
            ];
            let json = filled.run(&arguments).json();
            let found = json["states"][0]["fits_after_us"].as_u64();
            match cost {
                8 => assert_eq!(found, None, "{algorithm}: {json}"),
                _ => {
                    let wait = limiter
                        .peek(&key)
                        .cost(Cost::new(cost))
                        .await
                        .unwrap()
                        .retry_after()
                        .unwrap_or_default();
                    // The command looked a moment earlier.
                    let later = found.unwrap().checked_sub(wait.as_micros() as u64);
                    assert!(
                        later.is_some_and(|later| (later > 0) == (cost > 3)),
                        "{algorithm} {cost}: {found:?} {wait:?}"
                    );
                }
            }
        }
        assert_eq!(
            limiter
                .peek(&key)
                .await
                .unwrap()
                .state("api")
                .unwrap()
                .remaining(),
            3
        );
    }
    let run = filled.run(&[
        "peek",
        "token_bucket",
        "--policy",
        "api=7/3650d",
        "--cost",
        "3",
    ]);
    assert!(
        run.stdout.ends_with("3 units of api fit now\n"),
        "{}",
        run.stdout
    );
    let run = filled.run(&[
        "peek",
        "fixed_window",
        "--policy",
        "api=7/3650d",
        "--cost",
        "8",
    ]);
    assert!(
        run.stdout.ends_with("8 units of api fit never\n"),
        "{}",
        run.stdout
    );
    let run = filled.run(&["peek", "token_bucket", "--cost", "3"]);
    run.assert_failed("--cost needs the limits");
}

#[tokio::test]
async fn a_reset_tells_for_how_long_a_process_may_go_on_to_deny() {
    if no_server() {
        return;
    }
    let filled = Filled::new().await;
    let store = RedisStore::builder(filled.server.url()).deny_cache_cap(Duration::from_secs(60));
    // The deadline is out of reach of the clock that is moved below.
    let limiter = Limiter::builder(store.build().unwrap())
        .policies(Policy::fixed_window("api", Quota::new(1, LONG)));
    let limiter = limiter.deadline(LONG).build();
    for is_allowed in [true, false, false] {
        assert_eq!(
            limiter.check("acme").await.unwrap().is_allowed(),
            is_allowed
        );
    }
    let run = filled.run(&["reset", "acme", "--deny-cache-cap", "1m"]);
    let expected =
        "processes that remember a denial of the key may deny it for up to 60.000 s more\n";
    assert!(
        run.stdout.ends_with(expected),
        "{}{}",
        run.stdout,
        run.stderr
    );
    assert!(
        limiter.check("acme").await.unwrap().is_denied(),
        "the denial is remembered"
    );
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(60)).await;
    tokio::time::resume();
    assert!(limiter.check("acme").await.unwrap().is_allowed());

    let json = filled.run(&["reset", "acme", "--format", "json"]).json();
    assert_eq!(json["denied_ms"].as_u64(), Some(1_000), "{json}");
    assert_eq!(filled.run(&["reset", "acme"]).stdout, "nothing is spent\n");
}

#[tokio::test]
async fn a_key_is_found_by_its_text_its_address_and_its_redis_key() {
    if no_server() {
        return;
    }
    let filled = Filled::new().await;
    let limiter = filled.limiter(Policy::fixed_window("api", Quota::new(7, LONG)));
    for key in [
        Key::new("tenant 42"),
        Key::new("192.0.2.7".parse::<std::net::IpAddr>().unwrap()),
    ] {
        let _ = limiter.check(key).await.unwrap();
    }
    for text in [
        "tenant 42",
        "tenant%2042",
        "192.0.2.7",
        "*192.0.2.7",
        "tollgate:{tenant%2042}:api:f1",
    ] {
        let run = filled.run(&["peek", text, "--format", "json"]);
        assert_eq!(
            run.json()["states"].as_array().map(Vec::len),
            Some(1),
            "{text}: {}",
            run.stderr
        );
    }
    let text = filled
        .run(&["peek", "tenant 42", "--policy", "api=7/3650d"])
        .stdout;
    let row: Vec<_> = text.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(row[..3], ["1", "6", "14.3"], "{text}");
    assert_eq!(filled.run(&["peek", "tenant"]).stdout, "nothing is spent\n");
    assert!(
        filled
            .run(&["peek", "a", "b"])
            .stderr
            .contains("only entries of rules may be")
    );
    let other = filled.run(&["peek", "tenant 42", "--prefix", "other"]);
    assert_eq!(other.stdout, "nothing is spent\n");
}

#[tokio::test]
async fn a_key_is_found_by_its_entries_and_the_rules() {
    if no_server() {
        return;
    }
    let filled = Filled::new().await;
    let file = File::new("rules.yaml", SHOP);
    let rules = Rules::new(RuleSet::load(file.path()).unwrap());
    let limiter = RuleLimiter::builder(rules, filled.store.clone())
        .deadline(Duration::from_secs(60))
        .build();
    let request = [Descriptor::from([("tenant", "gold"), ("route", "/export")])];
    let _ = limiter.check("shop", &request, 3).await.unwrap();

    let arguments = [
        "tenant=gold",
        "route=/export",
        "--rules",
        file.path(),
        "--format",
        "json",
    ];
    let run = filled.run(&[&["peek"], &arguments[..]].concat());
    let json = run.json();
    assert_eq!(
        (
            json["states"][0]["spent"].as_u64(),
            json["states"][0]["limit"].as_u64()
        ),
        (Some(3), Some(20))
    );
    // The states are read by their keys, without a scan.
    assert_eq!(filled.server.calls("scan"), 0);

    let run = filled.run(&["peek", "tenant=acme", "route=/", "--rules", file.path()]);
    run.assert_failed("no limit");
    let run = filled.run(&["peek", "acme", "--rules", file.path()]);
    run.assert_failed("must have the form KEY=VALUE");

    let run = filled.run(&[&["reset"], &arguments[..]].concat());
    assert_eq!((run.status, filled.keys()), (0, 0), "{}", run.stderr);
}

#[tokio::test]
async fn a_leased_state_is_shown_and_reset_for_every_algorithm() {
    if no_server() {
        return;
    }
    let filled = Filled::new().await;
    for algorithm in ALGORITHMS {
        if !algorithm.is_leasable() {
            continue;
        }
        let policy = Policy::try_new("api", algorithm, Quota::new(800, LONG)).unwrap();
        let limiter = filled.limiter(policy.try_leased(Lease::new()).unwrap());
        let text = algorithm.to_string();
        let _ = limiter.check(&*text).cost(Cost::new(3)).await.unwrap();
        // Nothing is held, so nothing is spent beside what the server knows.
        filled.store.release_leases().await.unwrap();
        for quota in [&[][..], &["--policy", "api=800/3650d"]] {
            let arguments = [&["peek", &text, "--format", "json"], quota].concat();
            let json = filled.run(&arguments).json();
            assert_eq!(json["states"].as_array().map(Vec::len), Some(1), "{text}");
            let state = &json["states"][0];
            assert_eq!(state["spent"].as_u64(), Some(3), "{json}");
            assert_eq!(state["limit"].as_u64(), (!quota.is_empty()).then_some(800));
            assert!(text.starts_with(state["algorithm"].as_str().unwrap()));
        }
        let reset = filled.run(&["reset", &text]);
        reset.assert_printed(0, "l1, 3 spent\n");
        assert_eq!(filled.keys(), 0, "{text}");
    }
}

#[tokio::test]
async fn a_reset_frees_the_units_that_processes_hold() {
    if no_server() {
        return;
    }
    let filled = Filled::new().await;
    // They come back by themselves after half a minute.
    let lease = Lease::new().generation(Duration::from_secs(60));
    let policy = Policy::token_bucket("api", Quota::new(10_000, LONG)).leased(lease);
    let limiter = filled.limiter(policy.clone());
    let held = ["EXISTS", "tollgate:{acme}:api:t1l1:o"];
    wait::until_async("held units", Duration::from_secs(60), async || {
        assert!(limiter.check("acme").await.unwrap().is_allowed());
        filled.server.command(&held).int() == 1
    })
    .await;
    let reset = filled.run(&["reset", "acme"]);
    reset.assert_printed(0, "removed tollgate:{acme}:api:t1l1, ");
    let other = Filled {
        store: RedisStore::connect(filled.server.url()).await.unwrap(),
        ..filled
    };
    let fresh = other.limiter(policy).peek("acme").await.unwrap();
    assert_eq!(fresh.state("api").unwrap().remaining(), 10_000);
}

#[tokio::test]
async fn a_peek_shows_a_window_of_the_calendar_and_the_limit_of_its_rule() {
    if no_server() {
        return;
    }
    let filled = Filled::new().await;
    for (tenant, rule) in [
        (
            "acme",
            "{unit: year, requests_per_unit: 20, time_zone: Europe/Berlin}",
        ),
        // Every 30 days from the day of signing.
        (
            "initech",
            "{window: 30d, requests_per_unit: 20, time_zone: UTC, begins: 2026-01-17T09:30}",
        ),
    ] {
        let file = File::new(
            "rules.yaml",
            format!("domain: shop\ndescriptors: [{{key: tenant, rate_limit: {rule}}}]\n"),
        );
        let rules = Rules::new(RuleSet::load(file.path()).unwrap());
        let limiter = RuleLimiter::builder(rules, filled.store.clone())
            .deadline(Duration::from_secs(60))
            .build();
        let _ = limiter
            .check("shop", &[Descriptor::from([("tenant", tenant)])], 3)
            .await
            .unwrap();
        let key = format!("tenant={tenant}");
        let json = filled
            .run(&["peek", &key, "--rules", file.path(), "--format", "json"])
            .json();
        let state = &json["states"][0];
        assert_eq!(
            (state["spent"].as_u64(), state["limit"].as_u64()),
            (Some(3), Some(20)),
            "{json}"
        );
        assert_eq!(state["algorithm"], "calendar_window");
        if tenant == "initech" {
            // The state lives until the end of the customer's period.
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
            let left = Duration::from_millis(state["expires_ms"].as_u64().unwrap());
            let since_anchor = (now + left).as_secs() - 1_768_642_200;
            let off = (since_anchor + 60) % (30 * 86_400);
            assert!(off < 120, "{off}: {json}");
        }
    }
}

#[tokio::test]
async fn a_reset_removes_the_states_of_the_key_alone() {
    if no_server() {
        return;
    }
    let filled = Filled::new().await;
    let window = |name: &'static str| Policy::fixed_window(name, Quota::new(7, LONG));
    let policies = [window("tenant").at_level(1), window("user"), window("more")];
    let limiter = Limiter::builder(filled.store.clone())
        .policies(policies)
        .deadline(Duration::from_secs(60))
        .build();
    for key in [
        Key::new("acme").child("ann"),
        Key::new("acme").child("bob"),
        Key::new("acmes").child("ann"),
    ] {
        let _ = limiter.check(key).await.unwrap();
    }
    assert_eq!(filled.keys(), 2 + 2 + 1 + 2 + 1);

    let run = filled.run(&["reset", "acme>ann", "--dry-run"]);
    let expected = "would remove tollgate:{acme}>ann:more:f1, 1 spent\nwould remove tollgate:{acme}>ann:user:f1, 1 spent\n";
    assert_eq!((run.stdout.as_str(), filled.keys()), (expected, 8));
    let run = filled.run(&["reset", "acme>ann"]);
    let more = "processes that remember a denial of the key may deny it for up to 1.000 s more\n";
    assert_eq!(
        (run.stdout, filled.keys()),
        (expected.replace("would remove", "removed") + more, 6)
    );
    assert_eq!(
        filled.run(&["reset", "acme>ann"]).stdout,
        "nothing is spent\n"
    );
    let expected = format!("removed tollgate:{{acme}}:tenant:f1, 2 spent\n{more}");
    assert_eq!(filled.run(&["reset", "acme"]).stdout, expected);
    assert_eq!(filled.keys(), 5);
}
