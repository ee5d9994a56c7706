//! The three formats: places of mistakes, types, anchors.

use tollgate_rules::{Descriptor, Format, RuleSet};

use super::rules;

#[test]
fn a_mistake_has_the_same_field_in_every_format_and_its_own_place() {
    let message = "descriptors[1].rate_limit.unit: unknown unit \"dai\", expected second, minute, hour, day, week, month or \
                   year; did you mean day?";
    for (text, format, place) in [
        (
            "domain: d\ndescriptors:\n- key: ä\n- key: b\n  rate_limit:\n    requests_per_unit: 1\n    unit: dai\n",
            Format::Yaml,
            "line 7, column 11",
        ),
        (
            "{\"domain\": \"d\", \"descriptors\": [\n {\"key\": \"ä\"}, {\"key\": \"b\", \"rate_limit\": {\"unit\": \"dai\",\n \"requests_per_unit\": 1}}]}",
            Format::Json,
            "line 2, column 52",
        ),
        (
            "domain = \"d\"\n[[descriptors]]\nkey = \"ä\"\n[[descriptors]]\nkey = \"b\"\nrate_limit.unit = \"dai\"\nrate_limit.requests_per_unit = 1\n",
            Format::Toml,
            "line 6, column 19",
        ),
    ] {
        let errors = RuleSet::parse(text, format).unwrap_err();
        assert_eq!(
            errors.to_string(),
            format!("{place}: {message}"),
            "{format:?}"
        );
    }
}

#[test]
fn the_place_of_a_json_field_is_found_behind_escapes_and_nesting() {
    let text = "{\"domain\": \"d\\\"{},\", \"descriptors\": [{\"key\": \"a\", \"metadata\": {\"x\": [1, {\"y\": \"}\"}]},\n\t\t\"colour\": 1}]}";
    let errors = RuleSet::parse(text, Format::Json).unwrap_err();
    let error = errors.iter().next().unwrap();
    assert_eq!(
        (error.field(), error.line(), error.column()),
        ("descriptors[0].colour", Some(2), Some(3))
    );
}

#[test]
fn anchors_and_merge_keys_are_expanded() {
    let set = rules(
        "
domain: d
descriptors:
  - key: a
    rate_limit: &base {unit: day, requests_per_unit: 7}
  - key: b
    rate_limit: *base
  - key: c
    rate_limit: {<<: *base, requests_per_unit: 8}
",
    );
    for (key, amount) in [("a", 7), ("b", 7), ("c", 8)] {
        let descriptor = Descriptor::from([(key, "x")]);
        assert_eq!(
            set.find("d", &descriptor)
                .unwrap()
                .rule()
                .amount()
                .unwrap()
                .0,
            amount,
            "{key}"
        );
    }
}

#[test]
fn metadata_holds_every_type() {
    let set = rules(
        "
domain: d
descriptors:
  - key: a
    metadata: {text: x, number: 7, half: 0.5, yes: true, none: ~, list: [1, {deep: y}], quoted: \"7\"}
    rate_limit: {unit: day, requests_per_unit: 1}
",
    );
    let descriptor = Descriptor::from([("a", "x")]);
    let found = set.find("d", &descriptor).unwrap();
    let expected = serde_json::json!({
        "text": "x", "number": 7, "half": 0.5, "yes": true, "none": null, "list": [1, {"deep": "y"}], "quoted": "7",
    });
    assert_eq!(found.rule().metadata(), expected.as_object());
}
