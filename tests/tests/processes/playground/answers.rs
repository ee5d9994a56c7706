//! Compares the answers of the limited services with the events of the page.

use serde_json::{Value, json};

use super::Playground;

#[test]
fn the_playground_limits_as_its_settings_say_and_its_page_loads_nothing_else() {
    let mut playground = Playground::start(&[], None);
    let (status, head, page) = playground.get("/");
    assert!(
        status == 200 && page.contains("<title>Tollgate playground</title>"),
        "{head}"
    );
    assert!(
        head.contains("content-security-policy: default-src 'none'; script-src 'self'"),
        "{head}"
    );
    for file in ["/app.js", "/style.css", "/icon.svg"] {
        assert_eq!(playground.get(file).0, 200, "{file}");
    }

    playground.limit(3, "local");
    assert_eq!(playground.statuses(5), [200, 200, 200, 429, 429]);
    let (_, head, body) = playground.get("/limited/left");
    for field in [
        "retry-after: ",
        r#"ratelimit-policy: "demo";q=3;w=60"#,
        r#"ratelimit: "demo";r=0;t="#,
    ] {
        assert!(head.contains(field), "{field} in {head}");
    }
    assert!(body.contains(r#""violated-policies":["demo"]"#), "{body}");

    // A raised limit is in force with the next request. The units that were spent stay spent.
    playground.limit(5, "local");
    assert_eq!(playground.statuses(3), [200, 200, 429]);
    // Another key has units of its own.
    assert_eq!(
        playground
            .answer("GET /limited/left HTTP/1.0\r\nX-Key: ann\r\nX-Cost: 5", b"")
            .0,
        200
    );
    assert_eq!(
        playground
            .answer("GET /limited/left HTTP/1.0\r\nX-Key: ann", b"")
            .0,
        429
    );
    // A set is charged as a whole, or not at all.
    let policy = |name: &str, amount: u64| json!({ "name": name, "algorithm": "fixed_window", "amount": amount, "period_ms": 86_400_000 });
    playground.done(
        "PUT",
        "/api/panes/left",
        &json!({ "policies": [policy("a", 2), policy("b", 9)] }),
    );
    assert_eq!(playground.statuses(3), [200, 200, 429]);
    let (_, head, _) = playground.get("/limited/left");
    assert!(
        head.contains(r#"ratelimit: "a";r=0;t="#) && head.contains(r#""b";r=7;t="#),
        "{head}"
    );
    assert!(playground.process.terminate().success());
}

#[test]
fn events_tell_the_counts_the_level_the_response_and_the_latency() {
    let mut playground = Playground::start(&[], None);
    let mut events = playground.events();
    let (name, hello) = events.next().expect("an event");
    assert_eq!(name, "hello");
    assert_eq!(
        hello["settings"]["panes"][0]["settings"]["policies"][0]["algorithm"],
        "token_bucket"
    );

    playground.limit(12, "local");
    let settings = events.until("the new settings", "settings", |_| true);
    assert_eq!(
        settings["panes"][0]["settings"]["policies"][0]["amount"],
        12
    );

    playground.done(
        "POST",
        "/api/send",
        &json!({ "requests": 20, "cost": 1, "panes": ["left", "right"] }),
    );
    let (mut admitted, mut denied, mut right) = (0, 0, 0);
    let tick = events.until("the counts of the burst", "tick", |tick| {
        let count = |pane: usize, name: &str| {
            tick["panes"][pane]["counts"][name]
                .as_u64()
                .expect("a count")
        };
        admitted += count(0, "admitted");
        denied += count(0, "denied");
        right += count(1, "admitted") + count(1, "denied");
        admitted + denied == 20 && right == 20
    });
    assert_eq!((admitted, denied), (12, 8));
    let left = &tick["panes"][0];
    assert_eq!(left["level"]["policies"][0]["remaining"], 0);
    assert_eq!(left["latency"]["decisions"], 20);
    assert!(left["latency"]["median_us"].as_f64().expect("a number") > 0.0);
    let headers = left["answer"]["headers"].to_string();
    assert!(headers.contains("RateLimit-Policy"), "{headers}");

    // A burst to one pane leaves the other one alone.
    playground.done(
        "POST",
        "/api/send",
        &json!({ "requests": 3, "cost": 0, "panes": ["right"] }),
    );
    let (mut left, mut right) = (0, 0);
    events.until("the burst to one pane", "tick", |tick| {
        let count = |pane: usize, name: &str| {
            tick["panes"][pane]["counts"][name]
                .as_u64()
                .expect("a count")
        };
        left += count(0, "admitted") + count(0, "denied");
        right += count(1, "admitted") + count(1, "denied");
        right == 3
    });
    assert_eq!(left, 0);

    // A page that is opened later starts with the last minute.
    let (_, later) = playground.events().next().expect("an event");
    let history = later["history"].as_array().expect("a list");
    let sum: u64 = history
        .iter()
        .filter_map(|tick| tick["panes"][0]["counts"]["admitted"].as_u64())
        .sum();
    assert_eq!(sum, 12);

    // An open page does not keep the program from ending.
    assert!(playground.process.terminate().success());
    while events.next().is_some() {}
}

#[test]
fn a_reservation_charges_its_estimate_and_is_settled_at_its_real_cost() {
    let mut playground = Playground::start(&[], None);
    playground.limit(10, "local");
    let mut events = playground.events();
    let remaining = |tick: &Value| tick["panes"][0]["level"]["policies"][0]["remaining"].as_u64();

    playground.done(
        "POST",
        "/api/reservations",
        &json!({ "pane": "left", "estimate": 8 }),
    );
    let tick = events.until("the reservation", "tick", |tick| {
        tick["reservations"][0]["estimate"] == 8
    });
    assert_eq!(remaining(&tick), Some(2));
    let (status, _, value, message) = playground.refused(
        "POST",
        "/api/reservations",
        &json!({ "pane": "left", "estimate": 5 }),
    );
    assert_eq!((status, value.as_str()), (429, "5"), "{message}");

    let id = tick["reservations"][0]["id"].as_str().expect("an id");
    let (status, settled) = playground.json(
        "POST",
        &format!("/api/reservations/{id}"),
        &json!({ "cost": 3 }),
    );
    assert_eq!((status, &settled["settlement"]), (200, &json!("settled")));
    events.until("the refund", "tick", |tick| remaining(tick) == Some(7));
    assert_eq!(
        playground
            .refused(
                "POST",
                &format!("/api/reservations/{id}"),
                &json!({ "cost": 3 })
            )
            .0,
        404
    );
    assert!(playground.process.terminate().success());
}
