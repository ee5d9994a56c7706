//! `tollgate top`.

use std::time::{SystemTime, UNIX_EPOCH};

use tollgate_rules::{Descriptor, Format, RuleSet};
use tollgate_tests::{RedisServer, no_server};

use super::{File, tollgate};

/// Returns a state of the fixed window of ten years that is now, in which `count` units are spent.
fn window(count: u32) -> Vec<u8> {
    let ten_years = 3650.0 * 86_400e6;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let windows = (now.as_micros() as f64 / ten_years).floor();
    [windows * ten_years, f64::from(count), ten_years]
        .iter()
        .flat_map(|number| number.to_le_bytes())
        .collect()
}

pub(super) fn fill(server: &RedisServer, states: impl IntoIterator<Item = (String, u32)>) {
    let set = |(key, count): (String, u32)| {
        vec![
            b"SET".to_vec(),
            key.into_bytes(),
            window(count),
            b"EX".to_vec(),
            b"900".to_vec(),
        ]
    };
    let commands: Vec<_> = states.into_iter().map(set).collect();
    assert_eq!(server.pipeline(&commands).len(), commands.len());
}

#[test]
fn the_keys_with_the_most_use_come_first() {
    if no_server() {
        return;
    }
    let server = RedisServer::start();
    fill(
        &server,
        (0..5_000).map(|at| (format!("tollgate:{{user-{at}}}:api:f1"), at * 7919 % 5_003)),
    );
    let url = server.url();
    let run = tollgate([
        "top", "--redis", &url, "--number", "3", "--count", "500", "--format", "json",
    ]);
    let json = run.json();
    let spent: Vec<_> = json["states"]
        .as_array()
        .unwrap()
        .iter()
        .map(|state| state["spent"].as_u64().unwrap())
        .collect();
    let mut expected: Vec<_> = (0..5_000_u64).map(|at| at * 7919 % 5_003).collect();
    expected.sort_unstable();
    expected.reverse();
    assert_eq!(spent, expected[..3]);
    assert!(
        json["states"][0]["expires_ms"]
            .as_u64()
            .is_some_and(|left| (1..=900_000).contains(&left))
    );
    // The scan goes on in steps.
    assert!(server.calls("scan") >= 10, "{}", server.calls("scan"));

    // Limits make shares, and shares another order.
    fill(&server, [("tollgate:{busy}:small:f1".to_owned(), 9)]);
    let arguments = [
        "top",
        "--redis",
        &url,
        "-n1",
        "--by",
        "share",
        "--policy",
        "api=1000000/d",
        "--policy",
        "small=10/d",
    ];
    let text = tollgate(arguments).stdout;
    let row: Vec<_> = text.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!((row[0], row[1], row[2]), ("9", "1", "90.0"), "{text}");
    assert!(text.ends_with("5001 states\n"), "{text}");
    let run = tollgate(["top", "--redis", &url, "--by", "share"]);
    assert!(
        run.status == 2
            && run
                .stderr
                .contains("--by share needs the limits, and none are published"),
        "{}",
        run.stderr
    );
}

#[test]
fn all_figures_are_printed_once_as_lines() {
    if no_server() {
        return;
    }
    let server = RedisServer::start();
    fill(&server, [("tollgate:{acme}:api:f1".to_owned(), 5)]);
    let url = server.url();
    let once = [
        "top",
        "--redis",
        &url,
        "--once",
        "--plain",
        "--interval",
        "1s",
    ];
    let run = tollgate(once);
    assert_eq!(run.status, 0, "{}", run.stderr);
    // The second reading alone is printed, because rates need two.
    assert_eq!(
        run.stdout.matches(" prefix tollgate\n").count(),
        1,
        "{}",
        run.stdout
    );
    let policy = run.stdout.lines().find(|line| line.starts_with("api "));
    let words: Vec<_> = policy.unwrap_or_default().split_whitespace().collect();
    assert_eq!(words[1..4], ["fixed_window", "1", "0.0"], "{}", run.stdout);
    let lines = tollgate(once.iter().chain(&["--format", "json"])).stdout;
    assert_eq!(lines.lines().count(), 1, "{lines}");
    let figures: serde_json::Value = serde_json::from_str(&lines).unwrap();
    assert!(figures["policies"].is_array(), "{figures}");
    tollgate(once.iter().chain(&["--refreshes", "2"])).assert_failed("cannot be used with");
}

#[test]
fn keys_of_other_programs_are_left_out_and_counted() {
    if no_server() {
        return;
    }
    let server = RedisServer::start();
    fill(
        &server,
        [
            ("tollgate:{acme}:api:f1".to_owned(), 5),
            ("tollgate2:{acme}:api:f1".to_owned(), 6),
            ("tollgate:{acme}:api:t9".to_owned(), 6),
            ("tollgate:{acme}:f1".to_owned(), 6),
            ("tollgate:{}:api:f1".to_owned(), 6),
            ("tollgate:{acme}::f1".to_owned(), 6),
            ("tollgate:{acme}x:api:f1".to_owned(), 6),
            ("tollgate:{acme}>{x}:api:f1".to_owned(), 6),
        ],
    );
    for words in [
        &["SET", "session:1", "x"][..],
        &["SET", "tollgate:{acme}:api:t1", "garbage"],
        &["SET", "tollgate:{acme}:day:f1", ""],
        &["HSET", "tollgate:{acme}:hash:f1", "a", "b"],
        &["RPUSH", "tollgate:{acme}:list:f1", "a"],
        &["SET", "tollgate:{acme}:log:s1", "no list"],
        &["SET", "tollgate:{no state", "x"],
        &["SET", "tollgate:{a\x1b[31m}:api:f1", "x"],
        &[
            "ZADD",
            "tollgate:{replicas}:0123456789abcdef",
            "1",
            "process",
        ],
    ] {
        let _ = server.command(words);
    }
    let _ = server.command(&[&b"SET"[..], b"tollgate:{\xff}:api:f1", b"x"]);
    let run = tollgate(["top", "--redis", &server.url()]);
    assert_eq!(run.status, 0, "{}", run.stderr);
    let lines: Vec<_> = run.stdout.lines().collect();
    assert_eq!(
        lines[1].split_whitespace().next(),
        Some("5"),
        "{}",
        run.stdout
    );
    assert_eq!(lines[2..], ["1 states, 14 keys of other programs left out"]);
    assert!(!run.stdout.contains('\x1b'));
}

#[test]
fn the_units_that_processes_hold_of_a_leased_policy_are_no_key_of_another_program() {
    if no_server() {
        return;
    }
    let server = RedisServer::start();
    fill(
        &server,
        [
            ("tollgate:{acme}:api:f1".to_owned(), 5),
            ("tollgate:{acme}:api:f1l1".to_owned(), 6),
            ("tollgate:{acme}:api:f1l1:o".to_owned(), 7),
            // A leaky bucket cannot be leased.
            ("tollgate:{acme}:api:l1l1".to_owned(), 8),
            ("tollgate:{acme}:api:f1:o".to_owned(), 9),
        ],
    );
    let run = tollgate(["top", "--redis", &server.url()]);
    run.assert_printed(0, "\n2 states, 2 keys of other programs left out\n");
    let url = server.url();
    let key = "tollgate:{acme}:api:f1l1";
    let json = tollgate(["peek", key, "--redis", &url, "--format", "json"]).json();
    assert_eq!(json["states"].as_array().map(Vec::len), Some(1), "{json}");
    let state = &json["states"][0];
    assert_eq!(
        (&state["redis_key"], &state["algorithm"], &state["spent"]),
        (&key.into(), &"fixed_window".into(), &6.into())
    );
    let reset = tollgate(["reset", "acme", "--redis", &url]);
    reset.assert_printed(0, "removed tollgate:{acme}:api:f1l1, 6 spent\n");
    let left = server.command(&["KEYS", "*"]);
    let mut left: Vec<_> = left.items().iter().map(|key| key.text()).collect();
    left.sort();
    assert_eq!(
        left,
        ["tollgate:{acme}:api:f1:o", "tollgate:{acme}:api:l1l1"],
        "the keys of other programs"
    );
}

#[test]
fn a_prefix_is_no_pattern() {
    if no_server() {
        return;
    }
    let server = RedisServer::start();
    fill(
        &server,
        [
            ("a*:{x}:api:f1".to_owned(), 1),
            ("ab:{x}:api:f1".to_owned(), 2),
        ],
    );
    let url = server.url();
    let json = tollgate(["top", "--redis", &url, "--prefix", "a*", "--format", "json"]).json();
    assert_eq!(
        (
            json["states"].as_array().map(Vec::len),
            json["other_keys"].as_u64()
        ),
        (Some(1), Some(0))
    );
    let run = tollgate(["top", "--redis", &url, "--prefix", "a b"]);
    run.assert_failed("prefix must be printable");
}

#[test]
fn progress_is_told_when_it_is_asked_for() {
    if no_server() {
        return;
    }
    let server = RedisServer::start();
    fill(&server, [("tollgate:{acme}:api:f1".to_owned(), 5)]);
    let url = server.url();
    assert_eq!(tollgate(["top", "--redis", &url]).stderr, "");
    let run = tollgate(["top", "--redis", &url, "--progress", "always"]);
    assert_eq!(run.stderr, "scanned 1 of about 1 keys\n");
}

#[test]
fn the_limit_of_a_state_is_that_of_the_rule_for_its_subject() {
    if no_server() {
        return;
    }
    let rules = "
domain: shop
descriptors:
- {key: tenant, rate_limit: {name: one, quota: 5/min}}
- {key: tenant, value: 'g,o(l d*', rate_limit: {name: one, quota: 7/min}}
- {key: tenant, value: trial-*, share_threshold: true, rate_limit: {name: one, quota: 9/min}}
- {key: ip, prefix_v6: 64, rate_limit: {name: one, quota: 11/min}}
- {key: a, descriptors: [{key: b, rate_limit: {name: one, quota: 13/min}}]}
";
    let set = RuleSet::parse(rules, Format::Yaml).unwrap();
    let known = [
        (vec![("tenant", "acme")], 5),
        (vec![("tenant", "ä %{}")], 5),
        (vec![("tenant", "")], 5),
        (vec![("tenant", "g,o(l d)")], 7),
        (vec![("tenant", "trial-7")], 9),
        (vec![("ip", "2001:db8::1")], 11),
        (vec![("a", "x"), ("b", "y")], 13),
    ];
    let mut limits = Vec::new();
    for (entries, limit) in known {
        let descriptor: Descriptor<'_> = entries.into_iter().collect();
        let found = set.find("shop", &descriptor).unwrap();
        limits.push((found.key().encoded().to_owned(), Some(limit)));
    }
    for unknown in [
        "shop,!0123",
        "shop",
        "shop,(tenant",
        "shop,tenant",
        "shop,(tenant,%f)",
        "x,(tenant,a)",
        "acme>ann>x:y",
    ] {
        limits.push((unknown.to_owned(), None));
    }
    let server = RedisServer::start();
    let key = |subject: &str| {
        let (outermost, inner) = subject.split_at(subject.find('>').unwrap_or(subject.len()));
        format!("tollgate:{{{outermost}}}{inner}:one:f1")
    };
    fill(&server, limits.iter().map(|(subject, _)| (key(subject), 1)));
    let (file, url) = (File::new("rules.yaml", rules), server.url());
    let run = tollgate([
        "top",
        "--redis",
        &url,
        "--rules",
        file.path(),
        "--format",
        "json",
    ]);
    let states = run.json()["states"].take();
    let mut found: Vec<_> = states
        .as_array()
        .unwrap()
        .iter()
        .map(|state| {
            let subject = state["subject"].as_str().unwrap();
            assert_eq!(state["redis_key"], key(subject));
            (subject.to_owned(), state["limit"].as_u64())
        })
        .collect();
    found.sort();
    limits.sort();
    assert_eq!(found, limits);
}

#[test]
fn digests_of_keys_differ_in_each_run() {
    if no_server() {
        return;
    }
    let server = RedisServer::start();
    fill(&server, [("tollgate:{acme}:api:f1".to_owned(), 5)]);
    let url = server.url();
    let subject = || {
        let run = tollgate(["top", "--redis", &url, "--digest", "--format", "json"]);
        run.json()["states"][0]["subject"].take()
    };
    let (one, other) = (subject(), subject());
    assert_eq!(one.as_str().map(str::len), Some(32));
    assert_ne!(one, other);
    assert!(other.is_string());
}

#[test]
fn each_field_of_the_json_stands_once() {
    if no_server() {
        return;
    }
    let server = RedisServer::start();
    fill(&server, [("tollgate:{acme}:api:f1".to_owned(), 3)]);
    let url = server.url();
    for arguments in [&["top", "--once"][..], &["who", "--policy", "api=1/d"]] {
        let run = tollgate([arguments, &["--redis", &url, "--format", "json"]].concat());
        let json = run.json();
        assert_eq!(json["states"].as_array().map(Vec::len), Some(1), "{json}");
        assert_eq!(json["scanned"], 1, "{json}");
        for field in json.as_object().unwrap().keys() {
            let name = format!("\"{field}\":");
            assert_eq!(
                run.stdout.matches(&name).count(),
                1,
                "{name} {}",
                run.stdout
            );
        }
    }
}
