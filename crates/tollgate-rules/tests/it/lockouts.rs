//! Lockouts in a file of rules.

use std::time::Duration;

use tollgate::{Policy, Quota};
use tollgate_rules::{Descriptor, Limit};

use super::{refused, rules};

const RULES: &str = "
domain: d
rate_limits:
- actions: [{request_headers: {header_name: x-account, descriptor_key: account}}]
descriptors:
- key: account
  rate_limit: {name: login, quota: 3/10m, algorithm: 'lockout(1m, 4m)'}
";

#[test]
fn a_lockout_has_the_times_of_its_file() {
    let set = rules(RULES);
    let descriptor = Descriptor::from([("account", "ann")]);
    let found = set.find("d", &descriptor).unwrap();
    let Limit::Policies(policies) = found.rule().limit() else {
        panic!("{found:?}")
    };
    let [minute, ten] = [1, 10].map(|minutes| Duration::from_secs(60 * minutes));
    let expected = Policy::lockout("login", Quota::new(3, ten), minute, 4 * minute);
    assert_eq!(policies.iter().collect::<Vec<_>>(), [&expected]);
}

#[test]
fn times_that_make_no_sense_are_refused_with_their_value() {
    for (algorithm, words) in [
        (
            "lockout",
            "algorithm \"lockout\" needs its first and its longest time, as in lockout(1m, 1h)",
        ),
        (
            "lockout(1m)",
            "algorithm \"lockout(1m)\" needs its first and its longest time, as in lockout(1m, 1h)",
        ),
        ("lockout(1m, soon)", "period \"soon\""),
        (
            "lockout(1h, 1m)",
            "algorithm \"lockout(1h, 1m)\" must not have a first time above its longest time",
        ),
    ] {
        let text = RULES.replace("lockout(1m, 4m)", algorithm);
        let error = refused(&text).to_string();
        assert!(
            error.contains("rate_limit") && error.contains(words),
            "{algorithm}: {error}"
        );
    }
    let error = refused(&RULES.replace("3/10m", "3/10m burst 5")).to_string();
    assert!(error.contains("burst"), "{error}");
}
