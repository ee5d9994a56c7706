//! `tollgate explain`.

use super::{File, SHOP, tollgate};

#[test]
fn the_rule_and_the_others_that_were_tried_are_told() {
    let file = File::new("rules.yaml", SHOP);
    let path = file.path();
    let run = tollgate(["explain", path, "tenant=free-7"]);
    assert_eq!(run.status, 0, "{}", run.stderr);
    let expected = format!(
        "tenant=free-7
  value free-7: no rule
  pattern free-* ({path}:5): selected
  key without a value ({path}:3): not tried, an earlier one was selected
limit 60/min of shop.tenant_free-* ({path}:5)
policy tenant_free-.b0a2e28c7b9f: fixed_window 60/min
counter key shop,(tenant,free-7)
"
    );
    assert_eq!(
        run.stdout
            .replace(&policy(&run.stdout), "tenant_free-.b0a2e28c7b9f"),
        expected
    );
}

/// Returns the name of the policy, which ends in a digest because of the star.
fn policy(text: &str) -> String {
    text.split("policy ")
        .nth(1)
        .unwrap()
        .split(':')
        .next()
        .unwrap()
        .to_owned()
}

#[test]
fn a_leased_limit_is_told() {
    let rules = "domain: d\ndescriptors:\n- {key: k, rate_limit: {quota: 1000/s, lease: true}}\n";
    let file = File::new("rules.yaml", rules);
    let run = tollgate(["explain", file.path(), "k=x"]);
    assert!(
        run.stdout.contains("limit 1000/s leased of d.k "),
        "{}",
        run.stdout
    );
    assert!(
        run.stdout
            .contains("policy k: fixed_window 1000/s leased\n"),
        "{}",
        run.stdout
    );
    let json = tollgate(["explain", file.path(), "k=x", "--format", "json"]).json();
    assert_eq!(
        json["descriptors"][0]["rule"]["policies"][0]["is_leased"],
        true
    );
}

#[test]
fn a_limit_that_another_one_replaces_is_told_as_not_applied() {
    let file = File::new("rules.yaml", SHOP);
    let arguments = [
        "explain",
        file.path(),
        "tenant=gold",
        "+",
        "tenant=gold",
        "route=/export",
    ];
    let run = tollgate(arguments);
    assert!(
        run.stdout
            .contains("not applied, because another limit of the request replaces it"),
        "{}",
        run.stdout
    );
    let json = tollgate(arguments.into_iter().chain(["--format", "json"])).json();
    let descriptors = json["descriptors"].as_array().unwrap();
    assert_eq!(descriptors[0]["treatment"], "replaced");
    assert_eq!(descriptors[1]["treatment"], "charged");
    assert_eq!(descriptors[1]["rule"]["policies"][0]["quota"], "20/hour");
    assert_eq!(
        descriptors[1]["levels"][1]["attempts"][0]["outcome"],
        "selected"
    );
    assert_eq!(descriptors[1]["key"], "shop,(tenant,gold),(route,/export)");
}

#[test]
fn a_request_without_a_limit_is_told_why() {
    let file = File::new("rules.yaml", SHOP);
    let run = tollgate(["explain", file.path(), "tenant=acme", "route=/x"]);
    assert_eq!(run.status, 0);
    assert!(
        run.stdout
            .ends_with("no limit: the rule for the first 1 entries has no rules below it\n"),
        "{}",
        run.stdout
    );
}

#[test]
fn a_question_that_makes_no_sense_ends_with_status_2() {
    let file = File::new("rules.yaml", SHOP);
    for (arguments, message) in [
        (
            &["tenant"][..],
            "error: entry \"tenant\" must have the form KEY=VALUE\n",
        ),
        (
            &["=gold"],
            "error: entry \"=gold\" must have the form KEY=VALUE\n",
        ),
        (
            &["tenant=a", "+"],
            "error: a descriptor must have an entry before and after each +\n",
        ),
        (
            &["--domain", "other", "tenant=a"],
            "error: there is no domain \"other\", expected one of shop\n",
        ),
    ] {
        let run = tollgate([&["explain", file.path()], arguments].concat());
        assert_eq!((run.status, run.stderr.as_str()), (2, message));
    }
    let run = tollgate(["explain", "/no/such/rules.yaml", "a=b"]);
    assert!(
        run.status == 2
            && run
                .stderr
                .contains("/no/such/rules.yaml: cannot read the file"),
        "{}",
        run.stderr
    );
}
