//! `tollgate simulate`.

use std::{fs, io::Write as _, process::Stdio};

use serde_json::Value;

use super::{File, Run, command, tollgate};

/// 60 a minute for each tenant, and a rule that no request reaches.
pub(super) const RULES: &str = "\
domain: shop
rate_limits:
- actions: [{request_headers: {header_name: x-tenant, descriptor_key: tenant}}]
descriptors:
- {key: tenant, rate_limit: {unit: minute, requests_per_unit: 60}}
- {key: tenant, value: unused, rate_limit: {unit: minute, requests_per_unit: 1}}
";

pub(super) const BY_IP: &str = "\
domain: shop
rate_limits:
- actions: [{remote_address: {}}]
descriptors:
- {key: remote_address, rate_limit: {unit: minute, requests_per_unit: 10}}
";

/// Writes `count` requests of an address in one minute, in the combined log format.
pub(super) fn combined(ip: &str, count: u32) -> String {
    let line = |at: u32| {
        let second = at * 59 / count.max(1);
        format!(
            "{ip} - - [10/Oct/2000:13:55:{second:02} +0000] \"GET /a?b=c HTTP/1.1\" 200 17 \"-\" \"curl \\\"8\\\"\"\n"
        )
    };
    (0..count).map(line).collect()
}

pub(super) fn simulate(rules: &File, trace: &File, arguments: &[&str]) -> Run {
    let all = [
        &["simulate", rules.path(), "--trace", trace.path()],
        arguments,
    ]
    .concat();
    tollgate(all)
}

#[test]
fn requests_of_a_combined_log_are_denied_as_the_rules_say() {
    let rules = File::new("rules.yaml", BY_IP);
    let trace = File::new(
        "access.log",
        combined("192.0.2.1", 25) + &combined("192.0.2.2", 10),
    );
    let run = simulate(&rules, &trace, &["--format", "json"]);
    assert_eq!(run.status, 0, "{}", run.stderr);
    let json = run.json();
    assert_eq!(
        (json["requests"].as_u64(), json["denied"].as_u64()),
        (Some(35), Some(15))
    );
    assert_eq!(
        (json["from"].as_str(), json["skipped_lines"].as_u64()),
        (Some("2000-10-10T13:55:00Z"), Some(0))
    );
    let rule = &json["rules"][0];
    assert_eq!(
        (rule["rule"].as_str(), rule["limit"].as_str()),
        (Some("shop.remote_address"), Some("10/min"))
    );
    assert_eq!(
        (rule["denied"].as_u64(), rule["denied_keys"].as_u64()),
        (Some(15), Some(1))
    );

    let text = simulate(&rules, &trace, &[]).stdout;
    assert!(
        text.starts_with("35 requests from 2000-10-10T13:55:00Z to 2000-10-10T13:55:5"),
        "{text}"
    );
    let row = text
        .lines()
        .nth(3)
        .unwrap()
        .split_whitespace()
        .collect::<Vec<_>>();
    let place = format!("{}:5", rules.path());
    assert_eq!(
        row,
        [
            "shop.remote_address",
            "10/min",
            "35",
            "15",
            "42.86",
            "1",
            &place
        ]
    );
}

#[test]
fn every_format_gives_the_same_result() {
    let rules = File::new("rules.yaml", RULES);
    let time = |at: u32| 1_700_000_040 + at / 3;
    let json: String = (0..100)
        .map(|at| format!("{{\"ts\":{},\"http_x_tenant\":\"acme\"}}\n", time(at)))
        .collect();
    let csv: String = (0..100)
        .map(|at| format!("{},\"acme\"\n", time(at)))
        .collect();
    let nested = |start: &str, end: &str| -> String {
        let line = |at| format!("{{\"ts\":{},{start}[\"acme\"]{end}}}\n", time(at));
        (0..100).map(line).collect()
    };
    for (name, trace) in [
        ("a.jsonl", json),
        ("a.csv", format!("time,x-tenant\n{csv}")),
        ("b.jsonl", nested("\"headers\":{\"X-Tenant\":", "}")),
        (
            "c.jsonl",
            nested("\"request\":{\"headers\":{\"X-Tenant\":", "}}"),
        ),
    ] {
        let run = simulate(&rules, &File::new(name, trace), &["--format", "json"]);
        let json = run.json();
        assert_eq!(
            (json["requests"].as_u64(), json["denied"].as_u64()),
            (Some(100), Some(40)),
            "{name}"
        );
        // A rule without requests is told too.
        assert_eq!(json["rules"][1]["requests"].as_u64(), Some(0));
    }
}

#[test]
fn descriptors_are_made_by_templates_for_rules_without_actions() {
    let text = "domain: d\ndescriptors: [{key: path, value: /a, descriptors: [{key: who, value: ip 192.0.2.1!, rate_limit: {quota: 5/min}}]}]";
    let (rules, trace) = (
        File::new("rules.yaml", text),
        File::new("access.log", combined("192.0.2.1", 25)),
    );
    let run = simulate(&rules, &trace, &[]);
    run.assert_failed("the domain d has no rate_limits");
    let run = simulate(
        &rules,
        &trace,
        &[
            "--descriptor",
            "path={path},who=ip {ip}!",
            "--format",
            "json",
        ],
    );
    assert_eq!(run.json()["denied"].as_u64(), Some(20), "{}", run.stderr);
    // A request without the field has no descriptor.
    let run = simulate(
        &rules,
        &trace,
        &["--descriptor", "path={path},who={user}", "--format", "json"],
    );
    assert_eq!(run.json()["without_descriptor"].as_u64(), Some(25));
    for wrong in ["", "tenant", "={a}", "a={b", "a=b,"] {
        simulate(&rules, &trace, &["--descriptor", wrong])
            .assert_failed("expected the form key={field},key=text");
    }
}

/// Asserts how many requests a limit of one a minute denies for the descriptor `who=TEMPLATE` with
/// this value. Returns the report.
#[track_caller]
fn assert_denied(trace: &File, template: &str, value: &str, denied: u64, more: &[&str]) -> Value {
    let rules = format!(
        "domain: d\ndescriptors: [{{key: who, value: '{value}', rate_limit: {{quota: 1/min}}}}]\n"
    );
    let rules = File::new("rules.yaml", rules);
    let descriptor = format!("who={template}");
    let arguments = [&["--descriptor", &descriptor, "--format", "json"][..], more].concat();
    let json = simulate(&rules, trace, &arguments).json();
    assert_eq!(json["denied"].as_u64(), Some(denied), "{value}: {json}");
    json
}

#[test]
fn columns_of_several_programs_have_one_name() {
    let nginx =
        r#"{"remote_addr":"192.0.2.7","request":"GET /a?b=c HTTP/1.1","msec":"1700000000"}"#;
    let caddy = r#"{"request":{"remote_ip":"192.0.2.7","method":"GET","uri":"https://h/a?b=c"},"ts":1700000000}"#;
    let trace = File::new("a.jsonl", format!("{nginx}\n{caddy}\n"));
    let template = "{ip} {method} {path} {query}";
    assert_denied(&trace, template, "192.0.2.7 GET /a b=c", 1, &[]);
}

#[test]
fn a_column_that_the_user_names_wins() {
    let trace = File::new("a.csv", "time,caller,user\n1,a,b\n1,a,c\n");
    assert_denied(&trace, "{user}", "a", 1, &["--field", "user=caller"]);
}

#[test]
fn objects_of_json_are_flattened_and_lists_joined() {
    let line = r#"{"ts":1.5,"request":{"uri":"/","headers":{"X":["a","b"]}},"n":null,"b":true}"#;
    let mut trace = format!("{line}\n{line}\n[1]\n{{\"a\":\n").into_bytes();
    trace.extend_from_slice(b"{\"a\":\"\xff\"}\n");
    trace.extend_from_slice(format!("{{\"a\":{}", "[".repeat(1_000)).as_bytes());
    let trace = File::new("a.jsonl", trace);
    let template = "{request.headers.X} {path} {b} {ts}";
    let json = assert_denied(&trace, template, "a,b / true 1.5", 1, &[]);
    assert_eq!(json["skipped_lines"].as_u64(), Some(4));
    let notes = json["notes"].to_string();
    assert_eq!(notes.matches(": no JSON object: ").count(), 4, "{notes}");
    let json = assert_denied(&trace, "{n}", "null", 0, &[]);
    assert_eq!(json["without_descriptor"].as_u64(), Some(2));
}

#[test]
fn columns_of_csv_have_the_names_of_the_first_line() {
    let line = r#"1,"192.0.2.7","/a,""b""""#;
    // A short line after a long one has its own values.
    let trace = format!("time, ip,path\n{line}\n{line}\n1,2\n2,,\n");
    let trace = File::new("a.csv", trace);
    let json = assert_denied(&trace, "{ip} {path}", r#"192.0.2.7 /a,"b""#, 1, &[]);
    assert_eq!(json["without_descriptor"].as_u64(), Some(1));
    let notes = json["notes"].to_string();
    assert!(notes.contains("line 4: 2 columns, expected 3"), "{notes}");
    let names: Vec<_> = (0..100).map(|column| format!("c{column}")).collect();
    let line = format!("1{}last\n", ",".repeat(100));
    let trace = format!("time,{}\n{line}{line}", names.join(","));
    assert_denied(&File::new("a.csv", trace), "{c99}", "last", 1, &[]);
}

#[test]
fn both_log_formats_are_read_with_and_without_a_host() {
    let common = r#"127.0.0.1 - frank [10/Oct/2000:13:55:36 -0700] "GET /a?b HTTP/1.0" 200 2326"#;
    let combined = format!(r#"{common} "http://e/\"x\"" "Mozilla/4.08 [en]""#);
    let lines = [
        common,
        &combined,
        &format!("shop.example:80 {combined}"),
        "a",
        "{\"a\":1}",
        "a - - [x",
        "a - - [x] \"GET /",
        "- [x] \"\"",
        "time,ip",
        "a - - [x]",
    ];
    let trace = File::new("access.log", lines.join("\n"));
    let value = "127.0.0.1 frank 200 GET /a?b HTTP/1.0";
    let json = assert_denied(&trace, "{ip} {user} {status} {request}", value, 2, &[]);
    assert_eq!(json["from"], "2000-10-10T20:55:36Z");
    assert_eq!(json["skipped_lines"].as_u64(), Some(7));
    let value = r#"http://e/"x" Mozilla/4.08 [en]"#;
    assert_denied(&trace, "{referer} {user_agent}", value, 1, &[]);
}

#[test]
fn an_address_is_read_with_a_port_and_from_a_list() {
    let rules = File::new("rules.yaml", BY_IP);
    let line = |ip: &str| format!("1,\"{ip}\"\n").repeat(3);
    let lines: String = [
        "192.0.2.7",
        "192.0.2.7:80",
        "192.0.2.7, 10.0.0.1",
        "::ffff:192.0.2.7",
        "[::ffff:192.0.2.7]:80",
        "localhost",
    ]
    .map(line)
    .concat();
    let trace = File::new("a.csv", format!("time,ip\n{lines}"));
    let json = simulate(&rules, &trace, &["--format", "json"]).json();
    assert_eq!(json["denied"].as_u64(), Some(15 - 10));
    assert_eq!(
        json["notes"][0],
        "3 requests have no descriptors: no address of the client"
    );
}

#[test]
fn the_field_of_the_user_agent_is_a_header_field() {
    let rules = RULES
        .replace("x-tenant", "user-agent")
        .replace("requests_per_unit: 60", "requests_per_unit: 20");
    let (rules, trace) = (
        File::new("rules.yaml", rules),
        File::new("access.log", combined("192.0.2.1", 25)),
    );
    let json = simulate(&rules, &trace, &["--format", "json"]).json();
    assert_eq!(json["denied"].as_u64(), Some(5));
}

#[test]
fn a_request_that_is_much_too_late_has_the_time_of_the_one_before() {
    let rules = File::new("rules.yaml", BY_IP);
    let lines: String = (1..=10_000)
        .chain([5])
        .map(|second| format!("{second},192.0.2.1\n"))
        .collect();
    let trace = File::new("a.csv", format!("time,ip\n{lines}"));
    let json = simulate(&rules, &trace, &["--format", "json"]).json();
    assert_eq!(
        (json["requests"].as_u64(), json["late_lines"].as_u64()),
        (Some(10_001), Some(1))
    );
    assert_eq!(json["to"], "1970-01-01T02:46:40Z");
}

#[test]
fn lines_out_of_order_are_put_in_order() {
    let rules = File::new("rules.yaml", BY_IP);
    let mut lines: Vec<_> = combined("192.0.2.1", 25)
        .lines()
        .map(str::to_owned)
        .collect();
    // Another minute, before the first one in the file.
    lines.extend(
        combined("192.0.2.1", 12)
            .lines()
            .map(|line| line.replace("13:55", "13:54")),
    );
    lines.reverse();
    let trace = File::new("access.log", lines.join("\n"));
    let json = simulate(&rules, &trace, &["--format", "json"]).json();
    assert_eq!(
        (json["denied"].as_u64(), json["late_lines"].as_u64()),
        (Some(15 + 2), Some(0))
    );
}

#[test]
fn a_suggested_quota_denies_no_more_than_asked_and_a_smaller_one_does() {
    let rules = File::new("rules.yaml", BY_IP);
    // One client sends 40, one sends 20, and eighty send one each: 140 requests.
    let single: String = (1..=80)
        .map(|at| combined(&format!("198.51.100.{at}"), 1))
        .collect();
    let trace = File::new(
        "access.log",
        combined("192.0.2.1", 40) + &combined("192.0.2.2", 20) + &single,
    );
    for (percent, expected, denied) in [("0", 40, 0), ("5", 33, 7), ("10", 26, 14), ("50", 1, 58)] {
        let json = simulate(&rules, &trace, &["--suggest", percent, "--format", "json"]).json();
        let suggestion = &json["rules"][0]["suggestions"][0];
        assert_eq!(suggestion["quota"], "10/min");
        assert_eq!(suggestion["denied"].as_u64(), Some(40));
        assert_eq!(
            suggestion["suggested"],
            format!("{expected}/min"),
            "{percent} %"
        );
        assert_eq!(suggestion["suggested_denied"].as_u64(), Some(denied));
    }
    let text = simulate(&rules, &trace, &["--suggest", "5"]).stdout;
    let row = text.lines().find(|line| line.contains("33/min")).unwrap();
    assert_eq!(
        row.split_whitespace().collect::<Vec<_>>(),
        ["shop.remote_address", "10/min", "28.57", "33/min", "5.00"]
    );
    for percent in ["-1", "101", "NaN"] {
        let run = simulate(&rules, &trace, &[&format!("--suggest={percent}")]);
        run.assert_failed("0 to 100 percent");
    }
}

#[test]
fn a_rule_with_a_burst_keeps_its_share_in_a_suggestion() {
    let rules_with = |quota| BY_IP.replace("unit: minute, requests_per_unit: 10", quota);
    let (rules, trace) = (
        File::new("rules.yaml", rules_with("quota: 60/min burst 30")),
        File::new("access.log", combined("192.0.2.1", 118)),
    );
    let json = simulate(&rules, &trace, &["--suggest", "0", "--format", "json"]).json();
    let suggestion = &json["rules"][0]["suggestions"][0];
    let quota: tollgate::Quota = suggestion["suggested"].as_str().unwrap().parse().unwrap();
    assert_eq!(suggestion["suggested_denied"].as_u64(), Some(0));
    assert!(
        quota.burst() == quota.amount() / 2 && quota.amount() > 60,
        "{quota}"
    );

    // In a file, the text without its burst is a fixed window.
    let full = File::new("rules.yaml", rules_with("quota: 60/min burst 60"));
    let json = simulate(&full, &trace, &["--suggest", "0", "--format", "json"]).json();
    let rule = &json["rules"][0];
    assert_eq!(rule["limit"], "60/min burst 60");
    assert_eq!(rule["suggestions"][0]["quota"], "60/min burst 60");
    let suggested = rule["suggestions"][0]["suggested"].as_str().unwrap();
    let quota: tollgate::Quota = suggested.parse().unwrap();
    assert_eq!(
        suggested,
        format!("{0}/min burst {0}", quota.amount()),
        "{json}"
    );
}

#[test]
fn a_plot_shows_a_panel_for_each_rule_that_requests_reached() {
    let (rules, trace) = (
        File::new("rules.yaml", BY_IP),
        File::new("access.log", combined("192.0.2.1", 25)),
    );
    let svg = rules.directory().join("plot.svg");
    assert_eq!(
        simulate(&rules, &trace, &["--svg", svg.to_str().unwrap()]).status,
        0
    );
    let svg = fs::read_to_string(svg).unwrap();
    assert!(
        svg.starts_with("<svg") && svg.contains("shop.remote_address (10/min)"),
        "{svg}"
    );
    let run = simulate(&rules, &trace, &["--svg", "/no/such/plot.svg"]);
    assert!(
        run.status == 2
            && run
                .stderr
                .contains("/no/such/plot.svg: cannot write the plot"),
        "{}",
        run.stderr
    );
}

#[test]
fn a_rule_in_shadow_mode_is_told_and_denies_nothing() {
    let text = BY_IP.replace(
        "{key: remote_address,",
        "{key: remote_address, shadow_mode: true,",
    );
    let (rules, trace) = (
        File::new("rules.yaml", text),
        File::new("access.log", combined("192.0.2.1", 25)),
    );
    let json = simulate(&rules, &trace, &["--format", "json"]).json();
    assert_eq!(
        (json["denied"].as_u64(), json["rules"][0]["denied"].as_u64()),
        (Some(0), Some(15))
    );
    assert_eq!(json["rules"][0]["is_shadow"], true);
}

#[test]
fn requests_of_allowed_and_denied_networks_reach_no_rule() {
    let networks = "networks: {allow: [192.0.2.1], deny: [192.0.2.2]}\nrate_limits:";
    let rules = File::new("rules.yaml", BY_IP.replace("rate_limits:", networks));
    let trace = combined("192.0.2.1", 40) + &combined("192.0.2.2", 25);
    let trace = File::new("access.log", trace + &combined("192.0.2.3", 12));
    let json = simulate(&rules, &trace, &["--suggest", "0", "--format", "json"]).json();
    // All of the denied network, and two above the limit.
    assert_eq!(
        (json["requests"].as_u64(), json["denied"].as_u64()),
        (Some(77), Some(27)),
        "{json}"
    );
    let rule = &json["rules"][0];
    assert_eq!(
        (rule["requests"].as_u64(), rule["denied"].as_u64()),
        (Some(12), Some(2)),
        "{json}"
    );
    assert_eq!(rule["denied_keys"].as_u64(), Some(1), "{json}");
    assert_eq!(rule["suggestions"][0]["suggested"], "12/min", "{json}");
}

#[test]
fn an_unlimited_rule_is_told_with_its_requests_and_a_replaced_one_without() {
    let rules = "\
domain: shop
descriptors:
- {key: all, rate_limit: {name: all, quota: 1/min}}
- {key: ip, rate_limit: {unlimited: true, replaces: [{name: all}]}}
";
    let rules = File::new("rules.yaml", rules);
    let trace = File::new("access.log", combined("192.0.2.1", 25));
    let descriptors = ["--descriptor", "all=x", "--descriptor", "ip={ip}"];
    let json = simulate(
        &rules,
        &trace,
        &[&descriptors[..], &["--format", "json"]].concat(),
    )
    .json();
    assert_eq!(json["denied"].as_u64(), Some(0), "{json}");
    let counts = |rule: &Value| (rule["requests"].as_u64(), rule["replaced"].as_u64());
    assert_eq!(counts(&json["rules"][0]), (Some(0), Some(25)), "{json}");
    assert_eq!(counts(&json["rules"][1]), (Some(25), Some(0)), "{json}");
}

#[test]
fn hostile_lines_are_counted_with_a_reason_and_cost_no_memory() {
    let rules = File::new("rules.yaml", BY_IP);
    let good = combined("192.0.2.1", 12);
    let mut trace = good.clone().into_bytes();
    trace.extend_from_slice(b"\xff\xfe\x00 garbage\n\n");
    trace.extend_from_slice("x".repeat(10 << 20).as_bytes());
    trace.extend_from_slice(
        b"\n192.0.2.1 - - [32/Oct/2000:13:55:00 +0000] \"GET / HTTP/1.1\" 200 1\n",
    );
    trace.extend_from_slice(
        b"192.0.2.1 - - [10/Oct/2000:13:55:59 +0000] \"\\x16\\x03\\x01 \xff\" 400 1\n",
    );
    let run = simulate(
        &rules,
        &File::new("access.log", trace),
        &["--format", "json"],
    );
    let json = run.json();
    assert_eq!(
        (json["requests"].as_u64(), json["denied"].as_u64()),
        (Some(13), Some(3)),
        "{}",
        run.stdout
    );
    assert_eq!(json["skipped_lines"].as_u64(), Some(3));
    let notes = json["notes"].to_string();
    for words in [
        "line 13: not in the common",
        "line 15: longer than 65536 bytes",
        "line 16: the time is in no known form",
    ] {
        assert!(notes.contains(words), "{words}: {notes}");
    }
}

#[test]
fn a_trace_that_cannot_be_used_ends_with_status_2() {
    let rules = File::new("rules.yaml", BY_IP);
    for (content, words) in [
        ("", "the trace has no requests"),
        ("\n\n", "the trace has no requests"),
        ("hello\n", "the first line has no known format"),
        ("{\"a\":1}\n", "access.log:1: no time"),
    ] {
        let run = simulate(&rules, &File::new("access.log", content), &[]);
        assert!(
            run.status == 2 && run.stderr.contains(words),
            "{content:?}: {}",
            run.stderr
        );
    }
    let csv = simulate(
        &rules,
        &File::new("a.csv", "a,b\n1,2\n"),
        &["--trace-format", "csv"],
    );
    assert!(
        csv.stderr.contains("name it with --field time=COLUMN"),
        "{}",
        csv.stderr
    );
    let directory = tempfile::tempdir().unwrap();
    for (path, words) in [
        (directory.path().to_str().unwrap(), "got a directory"),
        ("/no/such.log", "it does not exist"),
    ] {
        let run = tollgate(["simulate", rules.path(), "--trace", path]);
        run.assert_failed(words);
    }
}

#[test]
fn a_trace_is_read_from_the_standard_input() {
    let rules = File::new("rules.yaml", BY_IP);
    let mut child = command();
    child.args(["simulate", rules.path(), "--trace", "-", "--format", "json"]);
    let mut child = child
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(combined("192.0.2.1", 25).as_bytes())
        .unwrap();
    let run = Run::from(child.wait_with_output().unwrap());
    assert_eq!(run.json()["denied"].as_u64(), Some(15), "{}", run.stderr);
}

#[test]
fn a_column_of_another_name_is_read_as_a_field() {
    let rules = File::new("rules.yaml", BY_IP);
    let trace: String = (0..25)
        .map(|_| "2026-01-01T00:00:00Z;192.0.2.1:99\n".replace(';', ","))
        .collect();
    let trace = File::new("a.csv", format!("when,caller\n{trace}"));
    let run = simulate(
        &rules,
        &trace,
        &[
            "--field",
            "time=when",
            "--field",
            "ip=caller",
            "--format",
            "json",
        ],
    );
    assert_eq!(run.json()["denied"].as_u64(), Some(15), "{}", run.stderr);
    let run = simulate(&rules, &trace, &["--field", "time=when"]);
    assert!(
        run.stdout
            .contains("25 requests have no descriptors: no address of the client"),
        "{}",
        run.stdout
    );
    assert_eq!(simulate(&rules, &trace, &["--field", "when"]).status, 2);
}
