//! Tries what differs between the two modes of the language.

use tollgate_rules::{Compat, Descriptor, Format, Limit, RuleErrorKind, RuleSet};

use super::{envoy_refused, envoy_rules, refused, rules};

#[test]
fn additions_are_refused_in_envoy_mode_with_the_field_and_the_way_out() {
    for field in [
        "quota: 5/s",
        "window: 10m",
        "algorithm: token_bucket",
        "burst: 5",
        "hidden: true",
        "limits: []",
    ] {
        let name = field.split(':').next().unwrap();
        let text = format!(
            "domain: d\ndescriptors:\n- key: a\n  rate_limit: {{unit: day, requests_per_unit: 5, {field}}}\n"
        );
        let errors = envoy_refused(&text);
        assert_eq!(
            errors.to_string(),
            format!(
                "line 4, column 49: descriptors[0].rate_limit.{name}: field {name} is an addition of Tollgate and is \
                 refused in the mode envoy, remove it or set compat: native"
            )
        );
        assert_eq!(
            errors.iter().next().unwrap().kind(),
            RuleErrorKind::Addition
        );
    }
    for field in ["prefix_v6: 64", "on_outage: allow"] {
        let errors = envoy_refused(&format!("domain: d\ndescriptors:\n- key: a\n  {field}\n"));
        assert_eq!(
            errors.iter().next().unwrap().kind(),
            RuleErrorKind::Addition,
            "{errors}"
        );
        assert_eq!(errors.count(), 1, "{errors}");
    }
}

#[test]
fn a_file_names_its_mode() {
    assert_eq!(rules("domain: d\ncompat: envoy\n").compat(), Compat::Envoy);
    assert_eq!(rules("domain: d\n").compat(), Compat::Native);
    assert_eq!(envoy_rules("domain: d\n").compat(), Compat::Envoy);
    assert_eq!(
        envoy_rules("domain: d\ncompat: native\n").compat(),
        Compat::Native
    );
    assert_eq!(
        refused("domain: d\ncompat: lyft\n").to_string(),
        "line 2, column 9: compat: expected native or envoy, got the text \"lyft\""
    );
}

#[test]
fn leniencies_of_envoys_service_hold_in_its_mode_alone() {
    let head = "domain: d\ndescriptors:\n- key: a\n  rate_limit:";
    let missing = format!("{head} {{unit: day}}\n");
    let descriptor = Descriptor::from([("a", "x")]);
    let envoy = envoy_rules(&missing);
    assert!(matches!(
        envoy.find("d", &descriptor).unwrap().rule().limit(),
        Limit::Blocked { .. }
    ));
    refused(&missing);

    let unlimited = format!("{head} {{unlimited: true, unit: nonsense}}\n");
    let envoy = envoy_rules(&unlimited);
    assert!(matches!(
        envoy.find("d", &descriptor).unwrap().rule().limit(),
        Limit::Unlimited
    ));
    refused(&unlimited);
    envoy_refused(&format!("{head} {{unlimited: true, unit: day}}\n"));

    let yes = "domain: d\ndescriptors: [{key: a, shadow_mode: yes, rate_limit: {unit: day, requests_per_unit: 1}}]\n";
    assert!(
        envoy_rules(yes)
            .find("d", &descriptor)
            .unwrap()
            .rule()
            .is_shadow()
    );
    refused(yes);

    let large = format!("{head} {{unit: day, requests_per_unit: 4294967296}}\n");
    envoy_refused(&large);
    assert_eq!(
        rules(&large)
            .find("d", &descriptor)
            .unwrap()
            .rule()
            .amount()
            .unwrap()
            .0,
        4_294_967_296
    );
}

#[test]
fn a_number_with_a_leading_zero_is_octal_in_envoy_mode_and_refused_in_native_mode() {
    let text = |number| {
        format!(
            "domain: d\ndescriptors:\n- key: a\n  rate_limit: {{unit: day, requests_per_unit: {number}}}\n"
        )
    };
    let descriptor = Descriptor::from([("a", "x")]);
    let amount = |set: &RuleSet| {
        set.find("d", &descriptor)
            .unwrap()
            .rule()
            .amount()
            .unwrap()
            .0
    };
    assert_eq!(amount(&envoy_rules(&text("010"))), 8);
    assert_eq!(amount(&envoy_rules(&text("0"))), 0);
    assert_eq!(amount(&rules(&text("0"))), 0);
    for errors in [refused(&text("010")), envoy_refused(&text("09"))] {
        assert!(
            errors
                .to_string()
                .contains("requests_per_unit: expected an integer without leading zeros, got 0")
        );
    }
}

#[test]
fn what_is_no_error_in_the_language_is_accepted_in_both_modes() {
    let text = "
domain: d
descriptors:
  - key: both
    rate_limit: {unit: day, requests_per_unit: 1, name: same, replaces: [{name: nobody}]}
    descriptors: [{key: x, rate_limit: {unit: Day, requests_per_unit: 1, name: same}}]
  - {key: never, rate_limit: {unit: SECOND, requests_per_unit: 0}}
  - {key: free, rate_limit: {unlimited: true, requests_per_unit: 5}}
  - {key: nothing, value: , rate_limit: , descriptors: , metadata: }
  - {key: 10, value: 010}
  - {key: true, value: false}
";
    for set in [rules(text), envoy_rules(text)] {
        let descriptor = Descriptor::from([("never", "x")]);
        let found = set.find("d", &descriptor).unwrap();
        assert!(
            matches!(found.rule().limit(), Limit::Blocked { .. }),
            "{found:?}"
        );
        assert!(
            set.explain("d", &Descriptor::from([("10", "010")]))
                .to_string()
                .contains("has no rate_limit")
        );
        assert!(
            set.explain("d", &Descriptor::from([("true", "false")]))
                .to_string()
                .contains("has no rate_limit")
        );
    }
}

#[test]
fn files_of_one_set_have_one_mode() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(
        directory.path().join("a.yaml"),
        "domain: a\ncompat: envoy\n",
    )
    .unwrap();
    std::fs::write(directory.path().join("b.yaml"), "domain: b\n").unwrap();
    assert_eq!(
        RuleSet::load(directory.path()).unwrap().compat(),
        Compat::Envoy
    );
    std::fs::write(
        directory.path().join("c.yaml"),
        "domain: c\ncompat: native\n",
    )
    .unwrap();
    let errors = RuleSet::load(directory.path()).unwrap_err();
    assert!(errors.to_string().ends_with(
        "c.yaml:2:9: compat: all files of a set must have one mode, got native after envoy"
    ));
}

#[test]
fn both_modes_read_json_and_toml() {
    for compat in [Compat::Native, Compat::Envoy] {
        let builder = RuleSet::builder().compat(compat);
        assert!(builder.parse("{\"domain\": \"d\"}", Format::Json).is_ok());
        assert!(builder.parse("domain = \"d\"", Format::Toml).is_ok());
    }
}
