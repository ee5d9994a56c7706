//! Rules that are allowed and probably mean something else.

use tollgate_rules::{Descriptor, Format, RuleSet, RuleWarningKind};

use super::{envoy_rules, rules};

/// Returns the warnings about the descriptors, each on a line of its own from line 3 on.
fn warnings(set: &RuleSet) -> Vec<String> {
    set.warnings().iter().map(ToString::to_string).collect()
}

fn file(descriptors: &[&str]) -> String {
    let lines: Vec<_> = descriptors
        .iter()
        .map(|descriptor| format!("- {{{descriptor}}}\n"))
        .collect();
    format!("domain: d\ndescriptors:\n{}", lines.concat())
}

#[test]
fn a_rule_behind_a_pattern_that_matches_all_its_values_is_never_selected() {
    let limit = "share_threshold: false, rate_limit: {unit: day, requests_per_unit: 1}";
    let lines = [
        format!("key: a, value: fr*, {limit}"),
        format!("key: a, value: free-*, {limit}"),
        format!("key: a, value: f*x, {limit}"),
        format!("key: a, value: free-1, {limit}"),
        format!("key: a, {limit}"),
        format!("key: b, value: '*', {limit}"),
        format!("key: b, {limit}"),
        // Patterns of another key say nothing about this one.
        format!("key: c, value: free-*, {limit}"),
    ];
    let text = file(&lines.each_ref().map(String::as_str));
    let expected = [
        "line 4: a=free-* is never selected, because a=fr* (line 3) matches all its values",
        "line 9: b without a value is never selected, because b=* (line 8) matches all its values",
    ];
    assert_eq!(warnings(&rules(&text)), expected);
    assert_eq!(warnings(&envoy_rules(&text)), expected);
}

#[test]
fn a_pattern_whose_values_are_counted_apart_is_named_unless_the_file_says_that_it_is_meant() {
    let limit = "rate_limit: {unit: day, requests_per_unit: 1}";
    let lines = [
        format!("key: a, value: /export*, {limit}"),
        format!("key: b, value: /export*, share_threshold: true, {limit}"),
        format!("key: c, value: free-*, share_threshold: false, {limit}"),
        // As without a value.
        format!("key: d, value: '*', {limit}"),
        // The counter of what is below belongs to the value, too.
        format!("key: e, value: /x*, descriptors: [{{key: f, {limit}}}]"),
        format!("key: g, value: x, descriptors: [{{key: h, value: '*.png', {limit}}}]"),
        "key: i, value: /x*, rate_limit: {unlimited: true}".to_owned(),
        "key: j, value: /x*, rate_limit: {unit: day, requests_per_unit: 0}".to_owned(),
    ];
    let text = file(&lines.each_ref().map(String::as_str));
    let warning = |line, pattern| {
        format!(
            "line {line}: each value of {pattern} has a counter of its own, so a client that chooses the value has no \
             limit: set share_threshold to true, or to false where the values are yours"
        )
    };
    let expected = [(3, "a=/export*"), (7, "e=/x*"), (8, "h=*.png")];
    let expected = expected.map(|(line, pattern)| warning(line, pattern));
    for set in [rules(&text), envoy_rules(&text)] {
        assert_eq!(warnings(&set), expected);
        let kinds: Vec<_> = set.warnings().iter().map(|found| found.kind()).collect();
        assert_eq!(kinds, [RuleWarningKind::CountedApart; 3]);
    }
    let networks = format!("key: a, value: '2001:*', prefix_v6: 64, {limit}");
    assert_eq!(warnings(&rules(&file(&[&networks]))), [""; 0]);
}

/// The values of a warning are its promise: with another value, the limit begins anew.
#[test]
fn the_rules_of_the_examples_have_no_warning_and_a_suffix_of_a_path_no_fresh_limit() {
    let examples = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let load = |name: &str| RuleSet::load(examples.join(name)).unwrap();
    for name in ["rules.yaml", "ranked.yaml", "envoy/rules.yaml"] {
        assert_eq!(warnings(&load(name)), [""; 0], "{name}");
    }
    let set = load("rules.yaml");
    let key = |tenant, path| {
        let descriptor = Descriptor::from([("tenant", tenant), ("path", path)]);
        set.find("shop", &descriptor).unwrap().key()
    };
    assert_eq!(key("acme", "/export"), key("acme", "/export?page=2"));
    assert_ne!(key("acme", "/export"), key("other", "/export"));
}

#[test]
fn a_rule_that_changes_nothing_is_named() {
    let text = file(&[
        "key: a",
        "key: b, value: x",
        "key: c, value: x",
        "key: c, rate_limit: {unit: day, requests_per_unit: 1}",
        "key: d, value: x-*",
        "key: d, value: '*', rate_limit: {unit: day, requests_per_unit: 1}",
        "key: e, descriptors: [{key: f, rate_limit: {unit: day, requests_per_unit: 1}}]",
    ]);
    for set in [rules(&text), envoy_rules(&text)] {
        let found = set.warnings();
        assert_eq!(
            found
                .iter()
                .map(|warning| warning.line())
                .collect::<Vec<_>>(),
            [3, 4],
            "{found:#?}"
        );
        assert!(
            found
                .iter()
                .all(|warning| warning.kind() == RuleWarningKind::NoEffect)
        );
    }
}

#[test]
fn a_replaced_name_that_no_limit_of_the_domain_has_is_named() {
    let text = file(&[
        "key: a, rate_limit: {name: one, unit: day, requests_per_unit: 1}",
        "key: b, rate_limit: {unit: day, requests_per_unit: 1, replaces: [{name: one}, {name: two}]}",
    ]);
    assert_eq!(
        warnings(&rules(&text)),
        ["line 4: replaces \"two\", but no limit of the domain d has that name"]
    );
}

#[test]
fn quirks_are_told_in_the_mode_envoy_alone() {
    let text = file(&[
        "key: user, rate_limit: {unit: day, requests_per_unit: 1}",
        "key: user_id, value: '7', rate_limit: {unit: day, requests_per_unit: 1}",
        "key: x, value_to_metric: true, descriptors: [{key: y, metadata: {a: 1}, rate_limit: {unit: day, requests_per_unit: 1}}]",
    ]);
    assert_eq!(warnings(&rules(&text)), [""; 0]);
    assert_eq!(
        warnings(&envoy_rules(&text)),
        [
            "line 4: an entry user=id_7 also selects user_id=7, because the mode envoy compares the text key_value",
            "line 5: the metadata is lost in the mode envoy, because of detailed_metric or value_to_metric",
        ]
    );
}

#[test]
fn a_forced_mode_is_that_of_files_which_name_another() {
    let text = "compat: envoy\ndomain: d\ndescriptors: [{key: a*, rate_limit: {unit: day, requests_per_unit: 1}}]";
    assert!(RuleSet::parse(text, Format::Yaml).is_ok());
    let builder = RuleSet::builder().force_compat(tollgate_rules::Compat::Native);
    assert!(
        builder
            .parse(text, Format::Yaml)
            .unwrap_err()
            .to_string()
            .contains("must not contain *")
    );
}
