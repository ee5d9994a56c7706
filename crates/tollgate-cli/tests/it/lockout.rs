//! `tollgate who`, `peek` and `reset` for keys that are locked out.

use std::time::Duration;

use tollgate::{Limiter, Outage, RedisStore};
use tollgate_rules::{Descriptor, RuleLimiter, RuleSet, Rules};
use tollgate_tests::{RedisServer, no_server};

use super::{File, tollgate};

/// Ten years, so that no window and no lockout ends in a test.
const RULES: &str = "
domain: shop
descriptors:
- {key: account, rate_limit: {name: login, quota: 3/3650d, algorithm: 'lockout(3650d, 3650d)'}}
- {key: address, rate_limit: {name: guesses, quota: 10/3650d, algorithm: 'lockout(3650d, 3650d)'}}
";

/// A server on which an account and an address failed, and others failed less.
struct Filled {
    server: RedisServer,
    limiter: RuleLimiter,
    file: File,
}

impl Filled {
    async fn new() -> Self {
        let (server, file) = (RedisServer::start(), File::new("rules.yaml", RULES));
        let store = RedisStore::connect(server.url()).await.unwrap();
        let rules = Rules::new(RuleSet::load(file.path()).unwrap());
        // A busy machine must not decide without the server.
        let limiter = RuleLimiter::builder(rules, store)
            .on_outage(Outage::Closed)
            .deadline(Duration::from_secs(60));
        let filled = Self {
            server,
            limiter: limiter.build(),
            file,
        };
        for (key, value, failures) in [
            ("account", "ann", 3),
            ("account", "bob", 2),
            ("address", "192.0.2.7", 10),
            ("address", "192.0.2.8", 9),
        ] {
            for _ in 0..failures {
                assert!(!filled.is_denied(key, value).await, "{value}");
            }
        }
        filled
    }

    async fn is_denied(&self, key: &str, value: &str) -> bool {
        self.limiter
            .check("shop", &[Descriptor::from([(key, value)])], 1)
            .await
            .unwrap()
            .is_denied()
    }

    fn json(&self, arguments: &[&str]) -> serde_json::Value {
        let common = [
            "--redis",
            &self.server.url(),
            "--rules",
            self.file.path(),
            "--format",
            "json",
        ];
        tollgate([arguments, &common].concat()).json()
    }

    /// Returns the keys that `who` lists.
    fn who(&self) -> Vec<String> {
        let json = self.json(&["who"]);
        let states = json["states"].as_array().unwrap().iter();
        let mut subjects: Vec<_> = states
            .map(|state| state["subject"].as_str().unwrap().to_owned())
            .collect();
        subjects.sort();
        subjects
    }
}

#[tokio::test]
async fn exactly_the_locked_keys_are_listed_until_a_reset() {
    if no_server() {
        return;
    }
    let filled = Filled::new().await;
    assert_eq!(
        filled.who(),
        ["shop,(account,ann)", "shop,(address,192.0.2.7)"]
    );
    assert!(filled.is_denied("account", "ann").await);

    let reset = filled.json(&["reset", "account=ann"]);
    assert_eq!(reset["states"].as_array().map(Vec::len), Some(1), "{reset}");
    assert_eq!(filled.who(), ["shop,(address,192.0.2.7)"]);
    // Another process: this one remembers the denial for up to a second.
    let other = RedisStore::connect(filled.server.url()).await.unwrap();
    let rules = RuleSet::load(filled.file.path()).unwrap();
    let other = RuleLimiter::builder(Rules::new(rules), other).on_outage(Outage::Closed);
    let other = other.deadline(Duration::from_secs(60)).build();
    let ann = [Descriptor::from([("account", "ann")])];
    assert!(other.check("shop", &ann, 1).await.unwrap().is_allowed());
}

#[tokio::test]
async fn a_peek_shows_the_failures_and_when_the_lockout_ends() {
    if no_server() {
        return;
    }
    let filled = Filled::new().await;
    for (entry, failures, limit) in [
        ("account=ann", 3, 3),
        ("account=bob", 2, 3),
        ("address=192.0.2.8", 9, 10),
    ] {
        let json = filled.json(&["peek", entry, "--cost", "1"]);
        let [state] = json["states"].as_array().unwrap().as_slice() else {
            panic!("one state: {json}")
        };
        assert_eq!(
            (state["spent"].as_u64(), state["limit"].as_u64()),
            (Some(failures), Some(limit)),
            "{entry}"
        );
        assert_eq!(state["algorithm"], "lockout");
        let fits_after = Duration::from_micros(state["fits_after_us"].as_u64().unwrap());
        let ten_years = Duration::from_secs(3650 * 86_400);
        if failures == limit {
            // The server counts from the last failure, a moment ago.
            assert!(
                fits_after <= ten_years && fits_after > ten_years - Duration::from_secs(600),
                "{fits_after:?}"
            );
        } else {
            assert_eq!(fits_after, Duration::ZERO, "{entry}");
        }
    }
}

#[tokio::test]
async fn a_lockout_of_a_limiter_in_code_is_listed_by_its_quota() {
    if no_server() {
        return;
    }
    let server = RedisServer::start();
    let store = RedisStore::connect(server.url()).await.unwrap();
    let long = Duration::from_secs(3650 * 86_400);
    let policy = tollgate::Policy::lockout("login", tollgate::Quota::new(2, long), long, long);
    let limiter = Limiter::builder(store)
        .policies(policy)
        .deadline(Duration::from_secs(60))
        .build();
    for key in ["ann", "bob", "ann"] {
        assert!(limiter.check(key).await.unwrap().is_allowed());
    }
    let run = tollgate([
        "who",
        "--redis",
        &server.url(),
        "--policy",
        "login=2/3650d",
        "--format",
        "json",
    ]);
    let json = run.json();
    assert_eq!(
        (json["limited"].as_u64(), json["without_limit"].as_u64()),
        (Some(1), Some(0)),
        "{}",
        run.stdout
    );
    assert_eq!(json["states"][0]["subject"], "ann");
}
