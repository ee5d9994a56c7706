//! Instances that share one Redis, and an outage of it.

use std::net::{SocketAddr, TcpStream};

use serde_json::{Value, json};
use tollgate_tests::{RedisServer, machine, wait};

use super::{PATIENCE, Playground};
use crate::STANDSTILL;

#[test]
fn two_playgrounds_with_one_redis_share_the_limit_and_the_permits() {
    machine::undisturbed(STANDSTILL, two_playgrounds);
}

fn two_playgrounds() {
    let redis = RedisServer::start();
    let (mut one, mut other) = (
        Playground::start(&[], Some(&redis)),
        Playground::start(&[], Some(&redis)),
    );
    let mut events = other.events();
    for playground in [&one, &other] {
        playground.limit(6, "local");
    }
    let mut all = Vec::new();
    for _ in 0..4 {
        all.extend(one.statuses(1));
        all.extend(other.statuses(1));
    }
    assert_eq!(all, [200, 200, 200, 200, 200, 200, 429, 429]);

    // The page of one instance sees what the requests of the other one left.
    one.done("PUT", "/api/key", &json!({ "key": "ann" }));
    other.done("PUT", "/api/key", &json!({ "key": "ann" }));
    assert_eq!(one.statuses(4), [200; 4]);
    let remaining = |tick: &Value| tick["panes"][0]["level"]["policies"][0]["remaining"].as_u64();
    events.until("the level that the other instance left", "tick", |tick| {
        remaining(tick) == Some(2)
    });

    one.done("POST", "/api/work", &json!({ "seconds": 60 }));
    one.done("POST", "/api/work", &json!({ "seconds": 60 }));
    let is_granted = |tick: &Value| tick["work"]["answer"]["status"] == 200;
    let is_last = |tick: &Value| {
        tick["work"]["answer"]["headers"]
            .to_string()
            .contains("r=0")
    };
    one.events().until("the last permit", "tick", |tick| {
        is_granted(tick) && is_last(tick)
    });
    other.done("POST", "/api/work", &json!({ "seconds": 60 }));
    events.until("a denied permit", "tick", |tick| {
        tick["work"]["answer"]["status"] == 429
    });
    one.done("DELETE", "/api/work", &json!({}));
    events.until("a free permit", "tick", |tick| {
        other.done("POST", "/api/work", &json!({ "seconds": 60 }));
        is_granted(tick)
    });
    assert!(one.process.terminate().success() && other.process.terminate().success());
}

#[test]
fn an_outage_of_the_own_redis_is_answered_as_the_pane_says() {
    machine::undisturbed(STANDSTILL, an_outage_of_the_own_redis);
}

fn an_outage_of_the_own_redis() {
    let mut playground = Playground::start(&["--redis-server"], None);
    let state = |playground: &Playground| -> Value {
        serde_json::from_str(&playground.get("/api/state").2).expect("JSON")
    };
    let store = &state(&playground)["settings"]["store"];
    let url = store["url"]
        .as_str()
        .expect("the URL of the server")
        .to_owned();
    let redis: SocketAddr = url
        .trim_start_matches("redis://")
        .parse()
        .expect("an address");
    playground.limit(3, "closed");
    wait::until("a decision of the server", PATIENCE, || {
        playground.statuses(1) == [200]
    });

    playground.done("PUT", "/api/redis", &json!({ "running": false }));
    assert!(TcpStream::connect(redis).is_err(), "the server is gone");
    assert_eq!(state(&playground)["settings"]["store"]["running"], false);
    let (status, head, _) = playground.get("/limited/left");
    assert!(
        status == 503 && head.contains("tollgate-degraded: "),
        "{head}"
    );
    playground.limit(3, "open");
    assert_eq!(playground.statuses(10), [200; 10]);
    playground.limit(3, "local");
    let statuses = playground.statuses(10);
    assert_eq!(
        statuses.iter().filter(|status| **status == 200).count(),
        3,
        "{statuses:?}"
    );

    playground.done("PUT", "/api/redis", &json!({ "running": true }));
    wait::until("decisions of the server", PATIENCE, || {
        !playground
            .get("/limited/left")
            .1
            .contains("tollgate-degraded: ")
    });

    // The server never outlives the program, even if that is killed.
    playground.process.kill();
    wait::until("the end of the server", PATIENCE, || {
        TcpStream::connect(redis).is_err()
    });
}
