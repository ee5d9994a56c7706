//! A console about the store of all replicas: Redis and PostgreSQL.

use std::time::Duration;

use axum::Router;
use serde_json::{Value, json};
use tollgate::{
    Enforcement, Limiter, Policy, Quota, RedisStore, Store,
    store::{RulesDigest, RulesInForce},
};
use tollgate_console::Console;
use tollgate_operator::Operator;
use tollgate_postgres::{Durability, PostgresStore};
use tollgate_tests::{PostgresServer, RedisServer, no_server, wait};

use super::{HOSTILE, ann, answer, assert_refused, get, post};

const PATIENCE: Duration = Duration::from_secs(60);
const DAY: Policy = Policy::fixed_window("day", Quota::new(5, Duration::from_secs(3_650 * 86_400)));

fn console(url: &str, shows_keys: bool) -> Router {
    let operator = Operator::builder(url)
        .shows_keys(shows_keys)
        .timeout(PATIENCE)
        .build()
        .unwrap();
    Console::builder(operator).build(ann).router()
}

/// Walks through what a person on call does, on a store with a limiter that publishes itself.
async fn an_operator_works(url: &str, store: impl Store) {
    let share = Enforcement::share(100);
    let limiter = Limiter::builder(store)
        .policies(DAY)
        .name("search")
        .published_with(share.clone())
        .deadline(PATIENCE)
        .build();
    for _ in 0..6 {
        let _ = limiter.check("acme").await.unwrap();
    }
    let _ = limiter.check(HOSTILE).await.unwrap();
    let rules = RulesInForce::new("rules.yaml");
    rules.enforce(RulesDigest::new([7; 8]));
    limiter.publish_rules(&rules);

    // Limiters and replicas are published within seconds.
    let (plain, digests) = (console(url, true), console(url, false));
    let status = wait::until_some_async("the limiter and its replica", PATIENCE, async || {
        let status = answer(&plain, get("/api/status")).await;
        let replicas = status["replicas"]["replicas"].as_array().unwrap();
        let has_all = |replica: &Value| {
            replica["rules"][0]["source"] == "rules.yaml"
                && replica["limiters"][0]["limiter"] == "search"
        };
        replicas.iter().any(has_all).then_some(status)
    })
    .await;
    assert_eq!(status["source"]["kind"], "store");
    assert_eq!(status["limiters"]["limiters"][0]["limiter"], "search");
    assert_eq!(status["limiters"]["limiters"][0]["enforced"], json!([100]));
    assert_eq!(status["replicas"]["replicas"][0]["is_silent"], false);

    let keys = answer(&plain, get("/api/keys?by=share&number=1")).await;
    assert_eq!(keys["states"][0]["subject"], "acme");
    assert_eq!((&keys["scanned"], &keys["limited"]), (&json!(2), &json!(1)));
    let hidden = answer(&digests, get("/api/keys")).await;
    assert_eq!(hidden["states"].as_array().unwrap().len(), 2);
    assert!(!hidden.to_string().contains("acme"), "{hidden}");

    let peeked = answer(
        &plain,
        post("/api/peek", &json!({"key": "acme", "cost": 1})),
    )
    .await;
    assert_eq!(peeked["states"][0]["spent"], 5);
    assert_eq!(peeked["states"][0]["limit"], 5);
    assert!(peeked["states"][0]["fits_after_us"].as_u64().unwrap() > 0);
    // The key as it was given to the limiter, although the store has it encoded.
    let hostile = answer(&plain, post("/api/peek", &json!({"key": HOSTILE}))).await;
    assert_eq!(hostile["states"][0]["spent"], 1, "{hostile}");

    let removed = answer(&digests, post("/api/reset", &json!({"key": "acme"}))).await;
    assert_eq!(removed["states"].as_array().unwrap().len(), 1);
    let peeked = answer(&plain, post("/api/peek", &json!({"key": "acme"}))).await;
    assert_eq!(peeked["states"], json!([]));
    let status = answer(&digests, get("/api/status")).await;
    assert_eq!(status["actions"][0]["author"], "ann");
    assert!(!status["actions"].to_string().contains("acme"), "{status}");
    let name = keys_name(&hidden, &status);
    assert!(
        name,
        "the action has the digest under which the key is listed"
    );

    let set = |limiter: &str, share: Value| {
        post("/api/share", &json!({"limiter": limiter, "share": share}))
    };
    assert_refused(
        &plain,
        set("other", json!("5%")),
        404,
        "no limiter other is published",
    )
    .await;
    assert_refused(&plain, set("search", json!("<b>")), 400, "share").await;
    let limiters = answer(&plain, set("search", json!("25%"))).await;
    assert_eq!(limiters["limiters"][0]["operator"], "25%");
    wait::until_async("the share in the service", PATIENCE, async || {
        share.percent() == 25
    })
    .await;
    answer(&plain, set("search", json!(null))).await;
    wait::until_async("the share of the code", PATIENCE, async || {
        share.percent() == 100
    })
    .await;
}

fn keys_name(keys: &Value, status: &Value) -> bool {
    let states = keys["states"].as_array().unwrap();
    states
        .iter()
        .any(|state| state["subject"] == status["actions"][0]["on"])
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_works_on_redis() {
    if no_server() {
        return;
    }
    let server = RedisServer::start();
    let store = RedisStore::connect(server.url()).await.unwrap();
    an_operator_works(&server.url(), store).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_works_on_postgres() {
    if no_server() {
        return;
    }
    let server = PostgresServer::start();
    let store = PostgresStore::builder(server.url()).create(Durability::Unlogged);
    an_operator_works(&server.url(), store.connect().await.unwrap()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_is_away_is_named_and_comes_back() {
    if no_server() {
        return;
    }
    let server = RedisServer::start();
    let router = console(&server.url().replace("redis://", "redis://:secret@"), false);
    // The server has no password, and refuses this one: the answer does not show it.
    let status = router_text(&router, "/api/status").await;
    assert!(
        status.0 == 502 && !status.1.contains("secret"),
        "{status:?}"
    );

    let router = console(&server.url(), false);
    answer(&router, get("/api/status")).await;
    server.kill();
    for path in ["/api/status", "/api/keys"] {
        assert_refused(&router, get(path), 502, "127.0.0.1").await;
    }
    assert_refused(
        &router,
        post("/api/reset", &json!({"key": "a"})),
        502,
        "127.0.0.1",
    )
    .await;
    server.restart();
    let status = answer(&router, get("/api/status")).await;
    assert_eq!(status["actions"], json!([]), "what failed was not done");
}

async fn router_text(router: &Router, path: &str) -> (u16, String) {
    let response = super::send(router, get(path)).await;
    (response.status().as_u16(), super::text(response).await)
}

#[test]
fn a_url_that_cannot_be_used_is_refused_without_its_password() {
    for url in [
        "redis+cluster://:secret@h:1",
        "http://:secret@h",
        "redis://h#:secret@",
    ] {
        let error = Operator::builder(url).build().unwrap_err();
        assert!(
            error.is_refused() && !error.to_string().contains("secret"),
            "{error}"
        );
    }
}
