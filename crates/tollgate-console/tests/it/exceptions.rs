//! Exceptions on the console: granted, changed, listed and withdrawn, in the process and in a store.

use std::time::Duration;

use axum::{Router, body::Body};
use http::Request;
use serde_json::{Value, json};
use tollgate::{
    ErrorKind, Limiter, MemoryStore, Policy, Quota, RedisStore, Store,
    limiter::DeniedKeys,
    store::{Exception, ExceptionChange, ExceptionList},
};
use tollgate_console::{Console, LocalLimiters, Visitor};
use tollgate_operator::Operator;
use tollgate_postgres::{Durability, PostgresStore};
use tollgate_rules::{Format, RuleSet, Rules};
use tollgate_tests::{PostgresServer, RedisServer, no_server, wait};

use super::{HOSTILE, ann, answer, assert_refused, exception, get, post, withdrawal};

const PATIENCE: Duration = Duration::from_secs(60);
const DAILY: Quota = Quota::new(5, Duration::from_secs(3_650 * 86_400));

/// Returns a limiter of two policies, one of which meters the outer level.
fn limiter(store: impl Store) -> Limiter {
    Limiter::builder(store)
        .policies([
            Policy::fixed_window("daily", DAILY),
            Policy::token_bucket("plan", Quota::per_hour(50)).at_level(1),
        ])
        .name("search")
        .deadline(PATIENCE)
        .published()
        .build()
}

fn grant(of: &str, key: &str, change: &str, ends: &str) -> Request<Body> {
    let mut body = exception("search", key, change, ends);
    body["policy"] = json!(of);
    post("/api/exception", &body)
}

async fn listed(router: &Router) -> Vec<Value> {
    let status = answer(router, get("/api/status")).await;
    status["exceptions"].as_array().unwrap().clone()
}

async fn quota(limiter: &Limiter, key: &str) -> Quota {
    let peek = limiter.peek(key).await.unwrap();
    peek.state("daily").unwrap().policy().quota()
}

/// Refuses what no exception can be, each by its name, and grants nothing.
async fn what_is_wrong_is_refused_by_its_name(router: &Router, unknown: &str) {
    let change = |change| grant("daily", "acme", change, "2h");
    let ends = |ends| grant("daily", "acme", "factor 2", ends);
    let with = |field: &str, value: Value| {
        let mut body = exception("search", "acme", "factor 2", "2h");
        body["policy"] = json!("daily");
        body[field] = value;
        post("/api/exception", &body)
    };
    for (request, words) in [
        (
            with("policy", json!("weekly")),
            "policy of an exception must be one of",
        ),
        (
            with("policy", json!(null)),
            "several policies, choose one with policy: daily, plan",
        ),
        (
            with("key", json!("")),
            "key must have 1 to 4096 bytes, got 0",
        ),
        (with("key", json!("a".repeat(4_097))), "got 4097"),
        (
            with("reason", json!("")),
            "reason of an exception must have 1 to 200 characters, got 0",
        ),
        (
            with("reason", json!("<script>alert(1)</script>")),
            "reason of an exception must have no angle brackets",
        ),
        (
            with("reason", json!("a\nb")),
            "reason of an exception must have no control characters",
        ),
        (with("unknown", json!(1)), "unknown field `unknown`"),
        (with("ends", json!(null)), "invalid type"),
        (
            change("quota 7/day burst 9"),
            "policy quota burst must equal its amount",
        ),
        (change("quota many"), "quota"),
        (
            change("factor 0"),
            "factor of an exception must be above 0 and at most 1000",
        ),
        (
            change("factor NaN"),
            "factor of an exception must be above 0",
        ),
        (change("<b>"), "change of an exception must be a quota"),
        (
            ends("2020-01-01T00:00:00Z"),
            "ends 2020-01-01T00:00:00Z is in the past",
        ),
        (ends("500d"), "time of an exception must be 1 s to 366 days"),
        (
            ends("soon"),
            "ends must be a span such as 2h, or a time such as",
        ),
        (
            grant("plan", "acme>ann", "factor 2", "2h"),
            "key of an exception must have the 1 levels",
        ),
    ] {
        assert_refused(router, request, 400, words).await;
    }
    for (request, words) in [
        (with("limiter", json!("other")), unknown),
        (with("limiter", json!("<img src=x>")), "<img src=x>"),
        (
            post("/api/withdraw", &withdrawal("search", "acme")),
            "is no exception for ",
        ),
        (
            post("/api/withdraw", &withdrawal("search", "other")),
            "is no exception for ",
        ),
    ] {
        assert_refused(router, request, 404, words).await;
    }
    assert_eq!(listed(router).await, Vec::<Value>::new());
}

/// Grants, changes and withdraws exceptions of a limiter, on a page that shows digests.
async fn from_the_first_to_the_last(router: &Router, limiter: &Limiter) {
    for _ in 0..5 {
        assert!(limiter.check("acme").await.unwrap().is_allowed());
    }
    let granted = answer(router, grant("daily", "acme", "factor 2.5", "2h")).await;
    assert_eq!(granted["done"], "granted", "{granted}");
    assert_eq!(granted["exception"]["quota"], "13/3650d", "{granted}");
    wait::until_async("the exception", PATIENCE, async || {
        quota(limiter, "acme").await.amount() == 13
    })
    .await;
    // What was spent stays spent, and others are as before.
    let check = limiter.check("acme").await.unwrap();
    assert_eq!(check.state("daily").unwrap().remaining(), 7);
    assert_eq!(quota(limiter, "other").await, DAILY);

    // The page names the key as it names it elsewhere, and an author may go on with that name.
    let all = listed(router).await;
    let [row] = &all[..] else { panic!("{all:?}") };
    let name = row["key"].as_str().unwrap().to_owned();
    assert_eq!(
        name,
        DeniedKeys::digest_of("acme", &DeniedKeys::process_secret())
    );
    assert_eq!(
        (
            &row["change"],
            &row["author"],
            &row["reason"],
            &row["policy"]
        ),
        (
            &json!("factor 2.5"),
            &json!("ann"),
            &json!("a move"),
            &json!("daily")
        )
    );
    assert!(
        (7_100..=7_200).contains(&row["left_s"].as_u64().unwrap()),
        "{row}"
    );
    let changed = answer(router, grant("daily", &name, "quota 7/3650d", "3h")).await;
    assert_eq!(changed["done"], "changed", "{changed}");
    wait::until_async("the change", PATIENCE, async || {
        quota(limiter, "acme").await.amount() == 7
    })
    .await;
    let peeked = answer(router, post("/api/peek", &json!({"key": "acme"}))).await;
    let daily = peeked["states"]
        .as_array()
        .unwrap()
        .iter()
        .find(|state| state["policy"] == "daily");
    assert_eq!(
        daily.unwrap()["limit"],
        7,
        "the quota is the one in force: {peeked}"
    );
    assert_eq!(
        peeked["exceptions"][0]["change"], "quota 7/3650d",
        "{peeked}"
    );

    // A key that looks like markup is a text.
    answer(router, grant("daily", HOSTILE, "quota 1/3650d", "1h")).await;
    wait::until_async("the exception of a hostile key", PATIENCE, async || {
        quota(limiter, HOSTILE).await.amount() == 1
    })
    .await;
    let outer = answer(router, grant("plan", "acme", "factor 2", "1h")).await;
    assert_eq!(outer["exception"]["quota"], "100/hour", "{outer}");
    let several = post("/api/withdraw", &withdrawal("search", "acme"));
    assert_refused(router, several, 400, "choose a policy: ").await;

    // A fresh start needs no end, and stands beside the exception.
    let body = json!({"limiter": "search", "policy": "daily", "key": &name, "change": "fresh start", "reason": "charged twice"});
    let fresh = answer(router, post("/api/exception", &body)).await;
    assert_eq!(fresh["exception"]["change"], "fresh start", "{fresh}");
    assert_eq!(fresh["exception"]["quota"], json!(null), "{fresh}");
    let peeked = answer(router, post("/api/peek", &json!({"key": "acme"}))).await;
    let spent = peeked["states"]
        .as_array()
        .unwrap()
        .iter()
        .map(|state| &state["policy"]);
    assert_eq!(spent.collect::<Vec<_>>(), ["plan"], "{peeked}");
    assert_eq!(
        peeked["exceptions"].as_array().unwrap().len(),
        3,
        "{peeked}"
    );

    let mut body = withdrawal("search", &name);
    body["policy"] = json!("daily");
    let withdrawn = answer(router, post("/api/withdraw", &body)).await;
    assert_eq!(withdrawn["exception"]["change"], "quota 7/3650d");
    wait::until_async("the quota of all", PATIENCE, async || {
        quota(limiter, "acme").await == DAILY
    })
    .await;
    answer(
        router,
        post("/api/withdraw", &withdrawal("search", HOSTILE)),
    )
    .await;
    answer(router, post("/api/withdraw", &withdrawal("search", "acme"))).await;
    let rest = listed(router).await;
    assert!(
        rest.len() == 1 && rest[0]["change"] == "fresh start",
        "{rest:?}"
    );

    let status = answer(router, get("/api/status")).await;
    let text = status.to_string();
    assert!(!text.contains("acme") && !text.contains("alert"), "{text}");
    let actions = status["actions"].as_array().unwrap();
    assert_eq!(actions.len(), 8, "{text}");
    assert!(actions.iter().all(|action| action["author"] == "ann"));
    assert_eq!(actions[7]["on"], format!("search daily {name}"));
    assert_eq!(actions[7]["outcome"], "factor 2.5 granted: a move");
    assert_eq!(actions[0]["outcome"], "withdrawn");
}

/// Refuses one exception more than a store keeps.
async fn has_no_room(router: &Router) {
    let one_more = grant("daily", "one-more", "factor 2", "2h");
    let words = "exceptions of a store must be at most 4096, and no further one is granted";
    assert_refused(router, one_more, 409, words).await;
}

async fn an_operator_grants(url: &str, store: impl Store) {
    let limiter = limiter(store);
    let operator = Operator::builder(url).timeout(PATIENCE).build().unwrap();
    let router = Console::builder(operator).build(ann).router();
    wait::until_async("the published limiter", PATIENCE, async || {
        let status = answer(&router, get("/api/status")).await;
        !status["limiters"]["limiters"]
            .as_array()
            .unwrap()
            .is_empty()
    })
    .await;
    what_is_wrong_is_refused_by_its_name(
        &router,
        "no limiter other is published under the prefix tollgate, which has search",
    )
    .await;
    from_the_first_to_the_last(&router, &limiter).await;
}

#[tokio::test]
async fn exceptions_of_limiters_of_this_process_are_granted() {
    let limiter = limiter(MemoryStore::new());
    let closed = Limiter::in_memory(Policy::fixed_window("closed", DAILY));
    let limiters = LocalLimiters::new().with(&limiter).with(&closed);
    let router = Console::builder(limiters).build(ann).router();
    what_is_wrong_is_refused_by_its_name(
        &router,
        "there is no limiter \"other\", expected search, closed",
    )
    .await;
    let refused = post(
        "/api/exception",
        &exception("closed", "acme", "factor 2", "2h"),
    );
    assert_refused(&router, refused, 400, "limiter closed takes no exceptions").await;
    from_the_first_to_the_last(&router, &limiter).await;

    let change = ExceptionChange::Factor(2.0);
    for at in 0.. {
        let more = Exception::new(
            "daily",
            format!("c{at}"),
            change,
            Duration::from_secs(7_200),
        );
        let more = more.by("ann").because("a move");
        let granted = limiter.grant_exception(more).await;
        let Err(error) = granted else { continue };
        assert_eq!(
            (error.kind(), at),
            (ErrorKind::Full, ExceptionList::MAX - 1)
        );
        break;
    }
    has_no_room(&router).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn exceptions_in_redis_are_granted() {
    if no_server() {
        return;
    }
    let server = RedisServer::start();
    let store = RedisStore::connect(server.url()).await.unwrap();
    an_operator_grants(&server.url(), store).await;

    // No room, said by name.
    let key = "tollgate:{replicas}:exceptions";
    for at in 0..ExceptionList::MAX {
        let line =
            format!("search\tdaily\tc{at}\t8999999999000000\t9000000000000000\tfactor 2\tann\tr");
        server.command(&["HSET", key, &format!("search\tdaily\tc{at}"), &line]);
    }
    let operator = Operator::builder(server.url())
        .timeout(PATIENCE)
        .build()
        .unwrap();
    let console = Console::builder(operator);
    let router = console.build(ann).router();
    has_no_room(&router).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn exceptions_in_postgres_are_granted() {
    if no_server() {
        return;
    }
    let server = PostgresServer::start();
    let store = PostgresStore::builder(server.url()).create(Durability::Unlogged);
    let store = store.connect().await.unwrap();
    an_operator_grants(&server.url(), store.clone()).await;

    let line = |at: usize| {
        format!("search\tdaily\tc{at}\t8999999999000000\t9000000000000000\tfactor 2\tann\tr\n")
    };
    let lines: String = (0..ExceptionList::MAX).map(line).collect();
    let name = "{replicas}:exceptions".as_bytes();
    store.replace(name, Some(lines.as_bytes())).await.unwrap();
    let operator = Operator::builder(server.url()).timeout(PATIENCE);
    let console = Console::builder(operator.build().unwrap());
    has_no_room(&console.build(ann).router()).await;
}

/// The limiter of rules is not published, and has the name that the operator knows.
#[tokio::test(flavor = "multi_thread")]
async fn the_value_of_a_rule_gets_an_exception() {
    if no_server() {
        return;
    }
    let server = RedisServer::start();
    let text = "domain: shop\ndescriptors: [{key: tenant, rate_limit: {unit: day, requests_per_unit: 5}}]\n";
    let rules = Rules::new(RuleSet::parse(text, Format::Yaml).unwrap());
    let operator = Operator::builder(server.url())
        .timeout(PATIENCE)
        .shows_keys(true)
        .rules(move || rules.current());
    let router = Console::builder(operator.build().unwrap())
        .build(ann)
        .router();
    let gold = exception("rules", "tenant=gold", "factor 3", "2h");
    let granted = answer(&router, post("/api/exception", &gold)).await;
    let row = &granted["exception"];
    assert_eq!(
        (&row["key"], &row["quota"]),
        (&json!("shop,(tenant,gold)"), &json!("15/day")),
        "{row}"
    );
    let again = exception("rules", "shop,(tenant,gold)", "factor 2", "2h");
    assert_eq!(
        answer(&router, post("/api/exception", &again)).await["done"],
        "changed"
    );
    for (limiter, key, words) in [
        ("rules", "user=ann", "no rule limits user=ann"),
        ("rules", "gold", "no rule limits gold"),
        ("search", "tenant=gold", "no limiter search is published"),
    ] {
        let body = exception(limiter, key, "factor 2", "2h");
        assert_refused(&router, post("/api/exception", &body), 404, words).await;
    }
    let body = withdrawal("rules", "tenant=gold");
    assert_eq!(
        answer(&router, post("/api/withdraw", &body)).await["done"],
        "withdrawn"
    );
}

/// An author whom the application names may have a name that no exception can have.
#[tokio::test]
async fn the_name_of_an_author_is_refused_by_name() {
    let limiter = limiter(MemoryStore::new());
    for (name, words) in [
        (
            "<b>ann</b>",
            "author of an exception must have no angle brackets",
        ),
        (
            &*"a".repeat(65),
            "author of an exception must have 1 to 64 characters, got 65",
        ),
    ] {
        let name = name.to_owned();
        let limiters = LocalLimiters::new().with(&limiter);
        let console = Console::builder(limiters);
        let router = console
            .build(move |_| Some(Visitor::author(&*name)))
            .router();
        assert_refused(
            &router,
            grant("daily", "acme", "factor 2", "2h"),
            400,
            words,
        )
        .await;
    }
}
