//! Files that are wrong: each mistake is named with its place and with what would be right.

use serde_json::{Value, json};
use tollgate_rules::{Compat, Descriptor, Format, Limits, RuleErrorKind, RuleSet, spring};

use super::{envoy_refused, refused};

const HEAD: &str = "domain: d\ndescriptors:\n";

fn error(yaml: &str) -> String {
    refused(yaml).to_string()
}

/// Returns the mistake in the limit of a descriptor.
fn limit_error(limit: &str) -> String {
    error(&format!("{HEAD}- key: a\n  rate_limit: {limit}\n"))
}

#[test]
fn a_misspelt_field_is_reported_with_the_field_that_was_meant() {
    assert_eq!(
        error("domain: d\ndescriptors:\n- key: a\n  rate_limits: {unit: day}\n"),
        "line 4, column 3: descriptors[0].rate_limits: unknown field, did you mean rate_limit?"
    );
    assert_eq!(
        error("domian: d\n").lines().next(),
        Some("line 1, column 1: domian: unknown field, did you mean domain?")
    );
    assert!(
        limit_error("{unit: day, requests-per-unit: 1}")
            .contains("did you mean requests_per_unit?")
    );
}

#[test]
fn an_unknown_field_is_reported_with_the_fields_that_exist() {
    assert_eq!(
        limit_error("{unit: day, requests_per_unit: 1, colour: red}"),
        "line 4, column 49: descriptors[0].rate_limit.colour: unknown field, expected unit, requests_per_unit, unlimited, \
         name, replaces, quota, window, algorithm, burst, time_zone, begins, lease, unranked, hidden or limits"
    );
}

#[test]
fn a_field_that_appears_twice_is_refused() {
    for (text, format, place) in [
        (
            "domain: d\ndescriptors: []\ndomain: e\n",
            Format::Yaml,
            "line 3, column 1",
        ),
        (
            "{\"domain\": \"d\",\n \"domain\": \"e\"}",
            Format::Json,
            "line 2, column 2",
        ),
    ] {
        let errors = RuleSet::parse(text, format).unwrap_err();
        assert_eq!(
            errors.to_string(),
            format!("{place}: field \"domain\" appears twice in one mapping")
        );
        assert_eq!(
            errors.iter().next().unwrap().kind(),
            RuleErrorKind::Duplicate
        );
    }
    let errors = RuleSet::parse("domain = \"d\"\ndomain = \"e\"\n", Format::Toml).unwrap_err();
    assert_eq!(
        errors.to_string(),
        "line 2, column 1: invalid TOML: duplicate key"
    );
}

#[test]
fn a_value_of_the_wrong_type_is_refused() {
    for (text, expected) in [
        ("- 1\n", "line 1, column 1: expected a mapping, got a list"),
        (
            "domain: [d]\n",
            "line 1, column 9: domain: expected a text, got a list",
        ),
        (
            "domain: 1.5\n",
            "line 1, column 9: domain: expected a text, got the number 1.5, write it in quotes",
        ),
        (
            "domain: d\ndescriptors: {}\n",
            "line 2, column 14: descriptors: expected a list, got a mapping",
        ),
        (
            "domain: d\ndescriptors: [a]\n",
            "line 2, column 15: descriptors[0]: expected a mapping, got the text \"a\"",
        ),
        (
            "domain: d\ndescriptors: [{key: a, shadow_mode: yes}]\n",
            "line 2, column 37: descriptors[0].shadow_mode: expected true or false, got the text \"yes\"",
        ),
        (
            "domain: d\ndescriptors: [{key: a, rate_limit: {unit: day, requests_per_unit: \"5\"}}]\n",
            "line 2, column 67: descriptors[0].rate_limit.requests_per_unit: expected an integer from 0 to \
             999999999999999, got the text \"5\"",
        ),
        (
            "domain: d\ndescriptors: [{key: a, metadata: [1]}]\n",
            "line 2, column 34: descriptors[0].metadata: expected a mapping, got a list",
        ),
        (
            "domain: d\ndescriptors: [{key: a, metadata: {x: .nan}}]\n",
            "line 2, column 38: descriptors[0].metadata.x: expected a text, a finite number, true, false, a list or a \
             mapping, got the number .nan",
        ),
    ] {
        assert_eq!(error(text), expected);
    }
    let errors = RuleSet::parse("domain = 1979-05-27\n", Format::Toml).unwrap_err();
    assert_eq!(
        errors.to_string(),
        "line 1, column 10: domain: expected a text, got 1979-05-27, write it in quotes"
    );
}

#[test]
fn the_message_of_the_parser_is_whole() {
    assert_eq!(
        error("domain: & x\n"),
        "line 1, column 9: invalid YAML: while scanning an anchor or alias, did not find expected alphabetic or numeric \
         character"
    );
}

#[test]
fn an_empty_domain_or_key_is_refused() {
    for (text, expected) in [
        (
            "domain: \"\"\n",
            "line 1, column 9: domain: must not be empty",
        ),
        ("domain:\n", "line 1, column 7: domain: must not be empty"),
        (
            "descriptors: []\n",
            "line 1, column 1: domain: is missing, expected a name for these rules",
        ),
        (
            "domain: d\ndescriptors:\n- key: \"\"\n",
            "line 3, column 8: descriptors[0].key: must not be empty",
        ),
        (
            "domain: d\ndescriptors:\n- value: x\n",
            "line 3, column 3: descriptors[0].key: is missing",
        ),
    ] {
        assert_eq!(error(text), expected);
    }
}

#[test]
fn a_bad_unit_is_refused_with_the_units_that_exist() {
    let units = "expected second, minute, hour, day, week, month or year";
    assert_eq!(
        limit_error("{unit: minuts, requests_per_unit: 1}"),
        format!(
            "line 4, column 22: descriptors[0].rate_limit.unit: unknown unit \"minuts\", {units}; did you mean minute?"
        )
    );
    assert_eq!(
        limit_error("{unit: 10m, requests_per_unit: 1}"),
        format!(
            "line 4, column 22: descriptors[0].rate_limit.unit: unknown unit \"10m\", {units}; write window: 10m"
        )
    );
    assert_eq!(
        limit_error("{requests_per_unit: 1}"),
        format!("line 4, column 15: descriptors[0].rate_limit.unit: is missing, {units}")
    );
    assert!(limit_error("{unit: unknown, requests_per_unit: 1}").contains("unknown unit"));
}

#[test]
fn contradictions_in_a_limit_are_refused() {
    for (limit, expected) in [
        (
            "{unlimited: true, unit: day}",
            "unlimited: must not stand beside unit, quota, window, lease or limits",
        ),
        (
            "{unit: day}",
            "requests_per_unit: is missing, write 0 to deny every request",
        ),
        (
            "{unit: day, requests_per_unit: -1}",
            "requests_per_unit: must be 0 to 999999999999999, got -1",
        ),
        (
            "{unit: day, requests_per_unit: 1, replaces: [{name: \"\"}]}",
            "replaces[0].name: must not be empty",
        ),
        (
            "{unit: day, requests_per_unit: 1, replaces: [{}]}",
            "replaces[0].name: must not be empty",
        ),
        (
            "{unit: day, requests_per_unit: 1, name: n, replaces: [{name: m}, {name: n}]}",
            "replaces[1].name: must not be the name of the same limit",
        ),
        (
            "{unit: day, requests_per_unit: 1, replaces: [n]}",
            "replaces[0]: expected a mapping, got the text \"n\"",
        ),
    ] {
        let error = limit_error(limit);
        assert!(
            error.ends_with(&format!("descriptors[0].rate_limit.{expected}")),
            "{error}"
        );
    }
}

#[test]
fn a_shared_counter_needs_a_pattern() {
    assert_eq!(
        error(&format!(
            "{HEAD}- {{key: a, value: x, share_threshold: true}}\n"
        )),
        "line 3, column 39: descriptors[0].share_threshold: needs a value with a pattern, such as free-*"
    );
}

#[test]
fn a_pattern_in_a_key_is_refused_in_native_mode() {
    assert_eq!(
        error(&format!("{HEAD}- key: \"a*\"\n")),
        "line 3, column 8: descriptors[0].key: must not contain *, which is a pattern only in a value"
    );
}

#[test]
fn equal_descriptors_of_one_level_are_refused_with_both_places() {
    assert_eq!(
        error(&format!(
            "{HEAD}- {{key: a, value: x}}\n- {{key: a}}\n- {{key: a, value: x}}\n"
        )),
        "line 5, column 19: descriptors[2].value: key \"a\" with value \"x\" appears twice at one level, first at line 3"
    );
    // An empty value is none.
    assert!(
        error(&format!("{HEAD}- {{key: a, value: \"\"}}\n- {{key: a}}\n"))
            .contains("key \"a\" without a value")
    );
    // Different pairs with one joined text are different in native mode alone.
    let pairs = format!("{HEAD}- {{key: a, value: b_c}}\n- {{key: a_b, value: c}}\n");
    assert!(RuleSet::parse(&pairs, Format::Yaml).is_ok());
    assert!(
        envoy_refused(&pairs)
            .to_string()
            .contains("appears twice at one level")
    );
}

#[test]
fn several_mistakes_are_reported_at_once_up_to_a_number() {
    let errors = refused(
        "domain: d\ndescriptors:\n- {key: a, colour: red}\n- {kye: b}\n- {key: c, rate_limit: {unit: x}}\n",
    );
    let fields: Vec<_> = errors
        .iter()
        .map(|error| (error.line().unwrap(), error.field()))
        .collect();
    assert_eq!(
        fields,
        [
            (3, "descriptors[0].colour"),
            (4, "descriptors[1].kye"),
            (4, "descriptors[1].key"),
            (5, "descriptors[2].rate_limit.unit"),
        ]
    );
    let errors = refused(&format!("{HEAD}{}", "- {}\n".repeat(50)));
    assert_eq!((errors.iter().len(), errors.count()), (20, 50));
    assert!(errors.to_string().ends_with("\nand 30 more"), "{errors}");
}

#[test]
fn broken_syntax_is_reported_with_its_place() {
    for (text, format, expected) in [
        (
            "domain: [d\n",
            Format::Yaml,
            "line 2, column 1: invalid YAML: ",
        ),
        (
            "domain: d\n\tdescriptors: []\n",
            Format::Yaml,
            "line 1, column 9: invalid YAML: while scanning a plain scalar, found a tab",
        ),
        (
            "domain: d\ndescriptors:\n\t- key: a\n",
            Format::Yaml,
            "line 3, column ",
        ),
        (
            "domain: d\n---\ndomain: e\n",
            Format::Yaml,
            "line 2, column 1: a file must hold one document",
        ),
        ("", Format::Yaml, "line 1, column 1: the file is empty"),
        ("# nothing\n", Format::Yaml, ""),
        ("domain: !secret d\n", Format::Yaml, "line 1, column "),
        (
            "? [a]\n: b\n",
            Format::Yaml,
            "line 1, column 3: the name of a field must be a text",
        ),
        (
            "1: b\n",
            Format::Yaml,
            "line 1, column 1: the name of a field must be a text",
        ),
        (
            "{\"domain\": \"d\"",
            Format::Json,
            "line 2, column 1: invalid JSON: ",
        ),
        (
            "{\"domain\": \"\\ud83d\\ude00\"}",
            Format::Json,
            "line 1, column 12: invalid JSON: ",
        ),
        ("", Format::Json, "line 1, column 1: the file is empty"),
        ("{} {}", Format::Json, "line 1, column 4: invalid JSON: "),
        (
            "domain = \n",
            Format::Toml,
            "line 1, column 10: invalid TOML: ",
        ),
        ("", Format::Toml, "line 1, column 1: domain: is missing"),
    ] {
        let errors = RuleSet::parse(text, format).unwrap_err();
        assert!(
            errors.to_string().starts_with(expected),
            "{text:?}: {errors}"
        );
    }
}

/// Ends a line, clears the screen of a terminal, turns the direction of writing, and is long.
fn hostile() -> String {
    format!("a\n\r\u{1b}[2J\u{9b}\u{202e}\"{}", "x".repeat(10_000))
}

/// Returns the tree once for each name and each text in it, with a hostile one in its place.
fn with_hostile_texts(tree: &Value) -> Vec<Value> {
    match tree {
        Value::String(_) => vec![hostile().into()],
        Value::Array(items) => {
            let with = |at: usize, item: Value| {
                // Twice, so that it is the second of its name.
                let twice = items[..at]
                    .iter()
                    .chain([&item, &item])
                    .chain(&items[at + 1..]);
                Value::Array(twice.cloned().collect())
            };
            let changed = |(at, item)| {
                with_hostile_texts(item)
                    .into_iter()
                    .map(move |item| with(at, item))
            };
            items.iter().enumerate().flat_map(changed).collect()
        }
        Value::Object(fields) => {
            let with = |name: &String, (changed, value): (String, Value)| {
                let mut fields = fields.clone();
                fields.remove(name);
                fields.insert(changed, value);
                Value::Object(fields)
            };
            let changed = |(name, value): (&String, &Value)| {
                let values = with_hostile_texts(value)
                    .into_iter()
                    .map(|value| (name.clone(), value));
                values
                    .chain([(hostile(), value.clone())])
                    .map(|field| with(name, field))
                    .collect::<Vec<_>>()
            };
            fields.iter().flat_map(changed).collect()
        }
        _ => Vec::new(),
    }
}

#[test]
fn names_and_values_of_a_file_are_escaped_and_cut() {
    let tree = json!({
        "domain": "d",
        "compat": "native",
        "rate_limits": [{"actions": [
            {"request_headers": {"header_name": "x-a", "descriptor_key": "a"}},
            {"generic_key": {"descriptor_key": "b", "descriptor_value": "c"}},
            {"header_value_match": {"descriptor_value": "v", "headers": [{"name": "x-b", "exact_match": "c"}]}},
        ]}],
        "priorities": [{"name": "p", "ceiling": "50%", "key": "a", "value": "x"}, {"name": "q", "ceiling": "50%"}],
        "networks": {"allow": ["10.0.0.0/8"], "deny_file": "denied.txt"},
        "descriptors": [
            {"key": "a", "value": "v*", "enforce": "5%", "on_outage": "fail", "metadata": {"m": [{"n": "o"}], "p": null},
             "rate_limit": {"name": "n", "replaces": [{"name": "o"}], "quota": "5/h", "algorithm": "token_bucket"}},
            {"key": "a", "rate_limit": {"unit": "day", "requests_per_unit": 5}, "descriptors": [{"key": "c"}]},
            {"key": "a", "value": "vw", "rate_limit": {"limits": [{"window": "10s", "requests_per_unit": 1}]}},
            {"key": "u", "value": "v", "rate_limit": {"quota": "9/month", "time_zone": "Europe/Berlin"}},
        ],
    });
    let check = |shown: String, most: usize| {
        let lines = || shown.lines();
        assert!(
            lines().all(|line| line.chars().count() <= most),
            "{} characters: {shown:.3000}",
            shown.len()
        );
        assert!(
            !lines()
                .any(|line| line.contains(|sign: char| sign.is_control() || sign == '\u{202e}')),
            "{shown:?}"
        );
    };
    let bucket = json!({"name": "RequestRateLimiter", "args": {"redis-rate-limiter.replenishRate": 1, "key-resolver": "#{@a}"}});
    let gateway = json!({
        "spring.cloud.gateway": {"filter.request-rate-limiter.deny-empty-key": "true", "routes": [
            {"id": "a", "filters": [bucket, "RequestRateLimiter=1, 2, 1, #{@a}"]},
            {"id": "b", "filters": [{"name": "RequestRateLimiter", "args": {"statusCode": "${A:403}"}}]},
        ]},
        "spring.config.activate.on-profile": "a",
    });
    let allowed = json!({
        "spring.cloud.gateway": {"filter.request-rate-limiter.empty-key-status-code": "401", "routes": [
            {"id": "a", "filters": [{"name": "RequestRateLimiter", "args": {
                "redis-rate-limiter.replenishRate": 1, "key-resolver": "#{@a}", "statusCode": "${A:403}",
            }}]},
        ]},
        "spring.config.activate.on-profile": "a",
    });
    for tree in with_hostile_texts(&gateway)
        .iter()
        .chain(&with_hostile_texts(&allowed))
    {
        let converted = spring::convert(&tree.to_string(), &["a".to_owned()], &|_| None);
        check(
            converted.unwrap_or_else(|errors| errors.to_string()),
            15_000,
        );
    }
    let changed = with_hostile_texts(&tree);
    assert!(changed.len() > 80, "{}", changed.len());
    for tree in changed {
        for compat in [Compat::Native, Compat::Envoy] {
            match RuleSet::builder()
                .force_compat(compat)
                .parse(&tree.to_string(), Format::Json)
            {
                Ok(set) => {
                    check(
                        set.warnings()
                            .iter()
                            .map(|warning| format!("{warning}\n"))
                            .collect(),
                        500,
                    );
                    let descriptor = Descriptor::from([("a", hostile())]);
                    for domain in set.domains() {
                        check(set.explain(domain, &descriptor).to_string(), 15_000);
                    }
                }
                Err(errors) => {
                    check(errors.to_string(), 500);
                    assert_eq!(
                        errors.to_string().lines().count(),
                        errors.iter().len() + usize::from(errors.count() > 20)
                    );
                }
            }
        }
    }
    for (text, format) in [
        (format!("domain: !<{}> d\n", hostile()), Format::Yaml),
        (
            format!("{:?}: 1\n{:?}: 2\n", hostile(), hostile()),
            Format::Yaml,
        ),
        (
            "domain: d\ndescriptors: [{key: a, metadata: {\"x\\n\\e[2J\": .nan}}]\n".to_owned(),
            Format::Yaml,
        ),
        (
            "domain = \"d\"\n\"x\\n\\u001b[2J\" = 1\n\"x\\n\\u001b[2J\" = 2\n".to_owned(),
            Format::Toml,
        ),
        (format!("{} = 1\n", json!(hostile())), Format::Toml),
    ] {
        check(RuleSet::parse(&text, format).unwrap_err().to_string(), 500);
    }
}

#[test]
fn a_test_of_header_fields_without_a_value_is_refused() {
    for (fields, mistake) in [
        (
            "headers: []",
            "headers: must have at least one header field",
        ),
        ("headers: ", "headers: must have at least one header field"),
        (
            "headers: [{name: x-a}], expect_match: ",
            "expect_match: expected true or false, got nothing",
        ),
        (
            "headers: [{name: x-a, present_match: }]",
            "present_match: expected true or false, got nothing",
        ),
    ] {
        let error = error(&format!(
            "domain: d\nrate_limits:\n- actions:\n  - header_value_match: {{descriptor_value: v, {fields}}}\n"
        ));
        assert!(error.contains(mistake), "{error}");
    }
}

#[test]
fn a_byte_order_mark_is_skipped() {
    for (text, format) in [
        ("\u{feff}domain: d\n", Format::Yaml),
        ("\u{feff}{\"domain\": \"d\"}", Format::Json),
        ("\u{feff}domain = \"d\"", Format::Toml),
    ] {
        assert!(
            RuleSet::parse(text, format).unwrap().has_domain("d"),
            "{format:?}"
        );
    }
}

#[test]
fn an_alias_bomb_is_refused() {
    let mut text = "domain: d\nmetadata: \n- &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..30 {
        let aliases = vec![format!("*a{}", level - 1); 9].join(", ");
        text.push_str(&format!("- &a{level} [{aliases}]\n"));
    }
    let error = error(&text);
    assert!(
        error.contains("a file must have at most 1000000 values, also where aliases repeat them"),
        "{error}"
    );
    // Each use of an alias counts, also without further anchors.
    let many = format!(
        "domain: d\nx: &a [{}]\ny: [{}]\n",
        "1, ".repeat(2_000),
        "*a, ".repeat(2_000)
    );
    assert!(
        self::error(&many).contains("a file must have at most 1000000 values"),
        "{}",
        self::error(&many)
    );
    // A long text, and a long name, count as the memory of a copy.
    let long = "x".repeat(8_000_000);
    for anchor in [format!("&a {long}"), format!("&a {{{long}: 1}}")] {
        let text = format!("domain: d\nx: {anchor}\ny: [{}]\n", "*a, ".repeat(20));
        assert!(
            self::error(&text).contains("a file must have at most 1000000 values"),
            "{:.200}",
            self::error(&text)
        );
    }
    // An alias inside its own anchor has no end.
    assert!(self::error("domain: &a [*a]\n").contains("an alias must follow its anchor"));
}

#[test]
fn ten_megabytes_of_nesting_are_refused() {
    const BYTES: usize = 10_000_000;
    for (text, format) in [
        ("[".repeat(BYTES), Format::Yaml),
        ("- ".repeat(BYTES / 2), Format::Yaml),
        ("{a: ".repeat(BYTES / 4), Format::Yaml),
        ("? ".repeat(BYTES / 2), Format::Yaml),
        ("[".repeat(BYTES), Format::Json),
        (
            format!("{}{}", "[".repeat(BYTES / 2), "]".repeat(BYTES / 2)),
            Format::Json,
        ),
        ("{\"a\":".repeat(BYTES / 5), Format::Json),
        (format!("a = {}", "[".repeat(BYTES)), Format::Toml),
        (format!("a{} = 1", ".a".repeat(BYTES / 2)), Format::Toml),
        (
            format!(
                "a = [\"{}\"{}]",
                "x".repeat(BYTES),
                ", 1".repeat(BYTES / 20)
            ),
            Format::Toml,
        ),
    ] {
        let errors = RuleSet::parse(&text, format).unwrap_err();
        assert!(errors.to_string().len() < 400, "{errors}");
    }
    let deep = format!("domain: d\nx: {}1{}\n", "[".repeat(90), "]".repeat(90));
    assert!(
        error(&deep).contains("lists and mappings must be nested at most 64 deep"),
        "{}",
        error(&deep)
    );
}

#[test]
fn a_file_above_a_limit_is_refused() {
    let limits = Limits {
        bytes: 100,
        nodes: 10,
        ..Limits::default()
    };
    let refused = |text: &str| {
        RuleSet::builder()
            .limits(limits.clone())
            .parse(text, Format::Yaml)
            .unwrap_err()
    };
    assert_eq!(
        refused(&" ".repeat(101)).to_string(),
        "a file must have at most 100 bytes, got 101"
    );
    let errors = refused("domain: d\nx: [1, 2, 3, 4, 5, 6, 7, 8, 9]\n");
    assert_eq!(errors.iter().next().unwrap().kind(), RuleErrorKind::Limit);
}
