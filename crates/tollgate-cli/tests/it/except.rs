//! Tries `except` on Redis, on a cluster and on PostgreSQL, beside services that apply what it grants.

use std::{fs, time::Duration};

use tollgate::{Limiter, Policy, Quota, RedisStore, Store};
use tollgate_postgres::{Durability, PostgresStore};
use tollgate_rules::{Descriptor, RuleLimiter, Rules};
use tollgate_tests::{PostgresServer, RedisCluster, RedisServer, no_server, wait};

use super::{Run, tollgate, with_published_limits};

const DAILY: Quota = Quota::per_day(5);
const PATIENCE: Duration = Duration::from_secs(60);
const GRANT: [&str; 6] = ["--for", "2h", "--author", "ann", "--reason", "a move"];

/// Returns the limiter of a service.
fn search(store: impl Store) -> Limiter {
    Limiter::builder(store)
        .policies([
            Policy::window_from_first_hit("daily", DAILY),
            Policy::token_bucket("burst", Quota::per_hour(50)),
        ])
        .name("search")
        .deadline(PATIENCE)
        .published()
        .build()
}

async fn until(limiter: &Limiter, key: &str, quota: Quota) {
    wait::until_async(format!("{quota} for {key}"), PATIENCE, async || {
        let peek = limiter.peek(key).await.unwrap();
        peek.state("daily").unwrap().policy().quota() == quota
    })
    .await;
}

fn except(url: &str, arguments: &[&str]) -> Run {
    tollgate([&["except"], arguments, &["--redis", url]].concat())
}

/// Grants, lists, changes and withdraws, and tries what is refused, beside a service at `url`.
async fn from_the_first_to_the_last(url: &str, limiter: &Limiter) {
    let none = except(url, &[]);
    none.assert_printed(0, "there are no exceptions under the prefix tollgate\n");
    let grant = |key: &str, change: [&str; 2]| {
        let arguments = ["search", key, "--of", "daily", change[0], change[1]];
        with_published_limits(|| except(url, &[&arguments[..], &GRANT].concat()))
    };
    let granted = grant("acme", ["--factor", "2.5"]);
    granted.assert_printed(0, "granted, in force within three seconds:\n");
    granted.assert_printed(0, "search   daily   acme  factor 2.5  ");
    until(limiter, "acme", Quota::per_day(13)).await;
    until(limiter, "other", DAILY).await;
    let changed = grant("acme", ["--quota", "7/day"]);
    changed.assert_printed(0, "changed, in force within three seconds:\n");
    until(limiter, "acme", Quota::per_day(7)).await;
    let listed = except(url, &["search", "--format", "json"]).json();
    let row = &listed["exceptions"][0];
    assert_eq!(
        (&row["change"], &row["author"], &row["reason"]),
        (&"quota 7/day".into(), &"ann".into(), &"a move".into())
    );
    assert!(row["left_s"].as_u64().unwrap() <= 7_200, "{row}");
    except(url, &["none"]).assert_printed(0, "there are no exceptions");

    // Bad input is refused by its name, and changes nothing.
    let refused = |arguments: &[&str], message: &str| {
        except(url, &[arguments, &GRANT].concat()).assert_failed(message);
    };
    let factor = ["--of", "daily", "--factor"];
    let of = |limiter, value| [&[limiter, "acme"], &factor[..], &[value]].concat();
    refused(
        &of("none", "2"),
        "no limiter none is published under the prefix tollgate, which has search",
    );
    refused(
        &of("search", "0"),
        "factor of an exception must be above 0 and at most 1000, got 0",
    );
    refused(
        &["search", "acme", "--factor", "2"],
        "has several policies, choose one with --of: daily, burst",
    );
    refused(
        &["search", "acme", "--of", "weekly", "--factor", "2"],
        "policy of an exception must be one of the limiter \"search\"",
    );
    refused(
        &[
            "search",
            "acme",
            "--of",
            "daily",
            "--quota",
            "7/day burst 9",
        ],
        "policy quota burst must equal its amount",
    );
    let with_end = |end: &[&str], author: &str, message: &str| {
        let arguments = [
            &of("search", "2")[..],
            end,
            &["--author", author, "--reason", "r"],
        ];
        except(url, &arguments.concat()).assert_failed(message);
    };
    with_end(
        &["--until", "2020-01-01T00:00:00Z"],
        "ann",
        "--until 2020-01-01T00:00:00Z is in the past",
    );
    with_end(
        &["--for", "500d"],
        "ann",
        "time of an exception must be 1 s to 366 days",
    );
    with_end(&[], "ann", "an exception has an end");
    with_end(
        &["--for", "1h"],
        "",
        "author of an exception must have 1 to 64 characters",
    );
    with_end(
        &["--for", "1h"],
        "<b>",
        "author of an exception must have no angle brackets",
    );

    let withdraw = ["search", "acme", "--of", "daily", "--withdraw"];
    except(url, &withdraw).assert_printed(0, "withdrawn, within three seconds:\n");
    until(limiter, "acme", DAILY).await;
    except(url, &withdraw).assert_failed("there is no exception of daily for acme");
}

/// Starts a policy fresh for a key that has spent all, and has an exception.
async fn a_fresh_start(url: &str, limiter: &Limiter, key: &str) {
    let of = ["search", key, "--of", "daily"];
    let except =
        |arguments: &[&str]| with_published_limits(|| except(url, &[&of, arguments].concat()));
    except(&[&["--quota", "7/day"], &GRANT[..]].concat()).assert_printed(0, "granted");
    until(limiter, key, Quota::per_day(7)).await;
    for _ in 0..7 {
        assert!(limiter.check(key).await.unwrap().is_allowed());
    }
    assert!(limiter.check(key).await.unwrap().is_denied());
    let fresh = except(&["--fresh", "--author", "ann", "--reason", "charged twice"]);
    fresh.assert_printed(0, "fresh, although processes that remember a denial");
    fresh.assert_printed(0, "fresh start  23 h 59 min  ann     charged twice\n");
    wait::until_async("the fresh start", PATIENCE, async || {
        limiter.check(key).await.unwrap().is_allowed()
    })
    .await;
    let peek = limiter.peek(key).await.unwrap();
    assert_eq!(peek.state("daily").unwrap().remaining(), 6);
    assert_eq!(
        peek.state("burst").unwrap().remaining(),
        42,
        "the other policy goes on"
    );
    let json = tollgate(["except", "search", key, "--format", "json", "--redis", url]).json();
    let changes = json["exceptions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["change"].as_str());
    let changes: Vec<_> = changes.flatten().collect();
    assert_eq!(changes, ["quota 7/day", "fresh start"], "{json}");
    except(&["--fresh", "--quota", "7/day"]).assert_failed("cannot be used with");
    except(&["--fresh"]).assert_failed("author of an exception must have 1 to 64 characters");
    except(&["--withdraw"]).assert_printed(0, "withdrawn, within three seconds:\n");
    except(&["--withdraw"]).assert_failed("there is no exception of daily for");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exception_in_redis_is_granted_listed_changed_and_withdrawn() {
    if no_server() {
        return;
    }
    let server = RedisServer::start();
    let limiter = search(RedisStore::open(server.url()).unwrap());
    from_the_first_to_the_last(&server.url(), &limiter).await;
    a_fresh_start(&server.url(), &limiter, "globex").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exception_in_a_cluster_is_granted_at_any_master() {
    if no_server() {
        return;
    }
    let cluster = RedisCluster::start();
    let urls = cluster.urls();
    let store = RedisStore::open(urls[0].replacen("redis", "redis+cluster", 1));
    let limiter = search(store.unwrap());
    for url in &urls {
        from_the_first_to_the_last(url, &limiter).await;
    }
    // At the master that has the key, and at the others.
    for (url, key) in urls.iter().zip(["globex", "hooli", "initech"]) {
        a_fresh_start(url, &limiter, key).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exception_in_postgres_is_granted_listed_changed_and_withdrawn() {
    let server = PostgresServer::start();
    let store = PostgresStore::builder(server.url()).create(Durability::Unlogged);
    let limiter = search(store.connect().await.unwrap());
    from_the_first_to_the_last(&server.url(), &limiter).await;
    a_fresh_start(&server.url(), &limiter, "globex").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_value_of_a_rule_has_an_exception() {
    if no_server() {
        return;
    }
    let server = RedisServer::start();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rules.yaml");
    let text = "domain: shop\ndescriptors: [{key: tenant, rate_limit: {unit: day, requests_per_unit: 5}}]\n";
    fs::write(&path, text).unwrap();
    let rules = Rules::load(&path).unwrap();
    let limiter = RuleLimiter::new(rules, RedisStore::open(server.url()).unwrap());
    let admits = async |tenant: &str| {
        let descriptor = [Descriptor::from([("tenant", tenant)])];
        let decision = limiter.check("shop", &descriptor, 1).await.unwrap();
        decision.is_allowed()
    };
    for tenant in ["gold", "other"] {
        for _ in 0..5 {
            assert!(admits(tenant).await);
        }
        assert!(!admits(tenant).await);
    }
    let path = path.to_str().unwrap();
    let rule = ["rules", "tenant=gold", "--rules", path];
    let url = server.url();
    let granted = except(&url, &[&rule[..], &["--factor", "3"], &GRANT].concat());
    granted.assert_printed(0, "granted, in force within three seconds:\n");
    wait::until_async("the exception", PATIENCE, async || admits("gold").await).await;
    assert!(!admits("other").await);
    let unknown = ["rules", "user=ann", "--rules", path, "--factor", "3"];
    except(&url, &[&unknown[..], &GRANT].concat()).assert_failed("no rule limits user=ann");
    // Another name is that of no limiter of rules, and would be in force nowhere.
    for change in [&["--factor", "3"][..], &["--withdraw"]] {
        let typing_error = ["rulse", "tenant=gold", "--rules", path];
        except(&url, &[&typing_error[..], change, &GRANT].concat())
            .assert_failed("the limiter of the rules is rules, got rulse");
    }
    let named = ["shop", "tenant=gold", "--rules", path, "--rules-limiter"];
    let of = |name: &'static str| [&named[..], &[name, "--factor", "2"], &GRANT].concat();
    except(&url, &of("other")).assert_failed("the limiter of the rules is other, got shop");
    except(&url, &of("shop")).assert_printed(0, "granted, in force within three seconds:\n");
    let listed = except(&url, &["--format", "json"]).json();
    assert_eq!(
        listed["exceptions"].as_array().unwrap().len(),
        2,
        "{listed}"
    );
    except(&url, &[&rule[..], &["--withdraw"]].concat()).assert_printed(0, "withdrawn");
    wait::until_async("the end", PATIENCE, async || !admits("gold").await).await;
}
