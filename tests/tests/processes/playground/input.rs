//! Input that is refused.

use serde_json::{Value, json};

use super::Playground;

#[test]
fn requests_to_other_hosts_are_refused_whatever_they_ask_for() {
    let mut playground = Playground::start(&[], None);
    let page = |host: &str| playground.answer(&format!("GET / HTTP/1.0\r\nHost: {host}"), b"");
    for host in [
        "localhost:3000",
        "127.0.0.1:3000",
        "[::1]:3000",
        "192.0.2.7",
    ] {
        assert_eq!(page(host).0, 200, "{host}");
    }
    // A name of another site, which its owner may point to 127.0.0.1, stays in the field.
    for host in [
        "evil.example",
        "127.0.0.1.evil.example:3000",
        "localhost.evil.example",
        "localhost\r\nHost: evil.example",
    ] {
        let (status, head, body) = page(host);
        assert!(
            status == 421 && head.contains("content-type: application/problem+json"),
            "{host}: {head}{body}"
        );
        assert!(
            head.contains("content-security-policy: ") && body.contains("evil.example"),
            "{head}{body}"
        );
    }
    let json = "Host: evil.example\r\nContent-Type: application/json";
    for (request, body) in [
        ("GET /api/state", ""),
        ("GET /api/events", ""),
        ("GET /limited/left", ""),
        ("GET /work?seconds=1", ""),
        ("GET http://evil.example/api/state", ""),
        ("PUT /api/redis", r#"{"running": false}"#),
        ("PUT /api/key", r#"{"key": "evil"}"#),
        ("DELETE /api/work", ""),
    ] {
        let (status, _, answer) =
            playground.answer(&format!("{request} HTTP/1.0\r\n{json}"), body.as_bytes());
        assert_eq!(status, 421, "{request}: {answer}");
    }
    let absolute = "GET http://evil.example/api/state HTTP/1.0\r\nHost: localhost";
    assert_eq!(playground.answer(absolute, b"").0, 421);
    assert!(playground.get("/api/state").2.contains(r#""key":"demo""#));
    assert!(playground.process.terminate().success());
}

#[test]
fn hostile_input_is_refused_and_names_the_field_and_the_value() {
    let mut playground = Playground::start(&[], None);
    let policy = |field: &str, value: Value| {
        let mut policy =
            json!({ "name": "p", "algorithm": "token_bucket", "amount": 5, "period_ms": 1000 });
        policy[field] = value;
        json!({ "policies": [policy] })
    };
    for (field, value) in [
        ("amount", json!(-1)),
        ("amount", json!("ten")),
        ("amount", json!(10_001)),
        ("burst", json!(4_294_967_296_u64)),
        ("period_ms", json!(0)),
        ("name", json!("two\r\nlines")),
        ("algorithm", json!("magic")),
    ] {
        let (status, named, shown, message) =
            playground.refused("PUT", "/api/panes/left", &policy(field, value.clone()));
        assert_eq!(
            (status, named),
            (422, format!("policies[0].{field}")),
            "{message}"
        );
        let value = value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned);
        assert!(shown.contains(&value), "{shown} is not {value}: {message}");
    }
    let many: Vec<_> = (0..100)
        .map(|at| json!({ "name": format!("p{at}"), "algorithm": "fixed_window", "amount": 1, "period_ms": 1000 }))
        .collect();
    let (status, field, value, message) =
        playground.refused("PUT", "/api/panes/left", &json!({ "policies": many }));
    assert_eq!(
        (status, field.as_str(), value.as_str()),
        (422, "policies", "100"),
        "{message}"
    );

    for (path, body, field, value) in [
        (
            "/api/send",
            json!({ "requests": 1, "cost": 4_294_967_296_u64, "panes": ["left"] }),
            "cost",
            "4294967296",
        ),
        (
            "/api/send",
            json!({ "requests": 501, "cost": 1, "panes": ["left"] }),
            "requests",
            "501",
        ),
        (
            "/api/send",
            json!({ "requests": 1, "cost": 1, "panes": ["top"] }),
            "pane",
            "top",
        ),
        (
            "/api/send",
            json!({ "requests": 1, "cost": 1, "panes": vec!["left"; 100] }),
            "panes",
            "100",
        ),
        ("/api/work", json!({ "seconds": 61 }), "seconds", "61"),
        (
            "/api/reservations",
            json!({ "pane": "left", "estimate": 11 }),
            "estimate",
            "11",
        ),
        (
            "/api/reservations",
            json!({ "pane": "left", "estimate": 0 }),
            "estimate",
            "0",
        ),
        ("/api/reservations/none", json!({ "cost": 1 }), "id", "none"),
    ] {
        let refused = playground.refused("POST", path, &body);
        assert_eq!(
            (refused.1.as_str(), refused.2.as_str()),
            (field, value),
            "{path} {}",
            refused.3
        );
    }
    assert_eq!(
        playground
            .refused("PUT", "/api/redis", &json!({ "running": false }))
            .0,
        409
    );

    let (status, _, body) =
        playground.answer("GET /limited/left HTTP/1.0\r\nX-Cost: 4294967296", b"");
    assert!(
        status == 422 && body.contains("cost must be a number of 0 to 10000, got 4294967296"),
        "{body}"
    );
    let head = "PUT /api/key HTTP/1.0\r\nContent-Type: application/json";
    let (status, _, body) = playground.answer(head, &vec![b' '; 10_000_000]);
    assert!(
        status == 413 && body.contains("body must have at most 16384 bytes, got 10000000"),
        "{body}"
    );
    assert_eq!(
        playground
            .answer("PUT /api/key HTTP/1.0", br#"{"key": "a"}"#)
            .0,
        415
    );

    // Keys are bounded. Those in use still work.
    let (mut known, mut refused) = (0, 0);
    for at in 0..400 {
        let (status, _, body) =
            playground.answer(&format!("GET /limited/right HTTP/1.0\r\nX-Key: k{at}"), b"");
        match status {
            200 => known += 1,
            422 if body.contains("one of the 100 keys in use") => refused += 1,
            _ => panic!("{status} {body}"),
        }
    }
    assert_eq!((known, refused), (99, 301));
    assert_eq!(playground.get("/limited/left").0, 200);
    assert!(playground.process.terminate().success());
}
