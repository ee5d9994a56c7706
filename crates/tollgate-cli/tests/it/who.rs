//! `tollgate who`.

use std::time::Duration;

use tollgate::{Limiter, Policy, Quota, RedisStore};
use tollgate_rules::{Descriptor, RuleLimiter, RuleSet, Rules};
use tollgate_tests::{RedisServer, no_server};

use super::{File, tollgate};

#[tokio::test]
async fn exactly_the_keys_that_a_request_would_be_denied_for_are_listed() {
    if no_server() {
        return;
    }
    let rules = "
domain: shop
descriptors:
- {key: tenant, rate_limit: {name: plan, quota: 5/3650d}}
- {key: tenant, value: gold, rate_limit: {name: plan, quota: 50/3650d}}
- {key: log, rate_limit: {quota: 5/3650d, algorithm: sliding_log}}
- {key: bucket, rate_limit: {quota: 5/3650d burst 3}}
";
    let file = File::new("rules.yaml", rules);
    let server = RedisServer::start();
    let store = RedisStore::connect(server.url()).await.unwrap();
    let rules = Rules::new(RuleSet::load(file.path()).unwrap());
    let limiter = RuleLimiter::builder(rules, store)
        .deadline(Duration::from_secs(60))
        .build();
    let requests = [
        ("tenant", "spent", 5),
        ("tenant", "busy", 4),
        ("tenant", "gold", 40),
        ("log", "a", 5),
        ("log", "b", 4),
        ("bucket", "a", 3),
        ("bucket", "b", 2),
    ];
    let mut expected = Vec::new();
    for (key, value, hits) in requests {
        let request = [Descriptor::from([(key, value)])];
        assert!(
            limiter
                .check("shop", &request, hits)
                .await
                .unwrap()
                .is_allowed()
        );
        if [("tenant", "spent"), ("log", "a"), ("bucket", "a")].contains(&(key, value)) {
            expected.push(format!("shop,({key},{value})"));
        }
    }
    expected.sort();
    let run = tollgate([
        "who",
        "--redis",
        &server.url(),
        "--rules",
        file.path(),
        "--format",
        "json",
    ]);
    let json = run.json();
    let mut subjects: Vec<_> = json["states"]
        .as_array()
        .unwrap()
        .iter()
        .map(|state| state["subject"].as_str().unwrap().to_owned())
        .collect();
    subjects.sort();
    assert_eq!(subjects, expected, "{}", run.stdout);
    assert_eq!(
        (json["limited"].as_u64(), json["without_limit"].as_u64()),
        (Some(3), Some(0))
    );

    // The limit of one policy alone.
    let text = tollgate(["who", "--redis", &server.url(), "--policy", "plan=4/3650d"]).stdout;
    assert!(
        text.ends_with("3 limited, of 7 states, 4 without a known limit\n"),
        "{text}"
    );
}

#[tokio::test]
async fn a_prefix_that_nobody_uses_is_named() {
    if no_server() {
        return;
    }
    let server = RedisServer::start();
    let store = RedisStore::builder(server.url())
        .prefix("shop")
        .connect()
        .await
        .unwrap();
    let policy = Policy::fixed_window("api", Quota::new(1, Duration::from_secs(3650 * 86_400)));
    let limiter = Limiter::builder(store)
        .policies(policy)
        .deadline(Duration::from_secs(60))
        .build();
    assert!(limiter.check("acme").await.unwrap().is_allowed());
    let last_line = |prefix: &str| {
        let run = tollgate([
            "who",
            "--redis",
            &server.url(),
            "--policy",
            "api=1/3650d",
            "--prefix",
            prefix,
        ]);
        run.stdout.lines().last().unwrap_or_default().to_owned()
    };
    assert_eq!(
        last_line("tollgate"),
        "0 limited, of 0 states: no key has the prefix tollgate, which --prefix sets"
    );
    assert_eq!(last_line("shop"), "1 limited, of 1 states");
}

#[test]
fn a_wrong_limit_is_refused_before_the_server_is_asked() {
    for (policy, words) in [
        ("api", "must have the form NAME=QUOTA"),
        ("api=5/mni", "--policy api: quota \"5/mni\""),
    ] {
        let run = tollgate(["who", "--redis", "redis://127.0.0.1:1", "--policy", policy]);
        run.assert_failed(words);
    }
}
