//! Files of rules, good and bad, in both modes. Each file says in its first lines what is expected.

use std::{fs, path::PathBuf};

use tollgate_rules::{Compat, Descriptor, Limit, RuleSet};

const MODES: [Compat; 2] = [Compat::Native, Compat::Envoy];

/// Returns the files of a directory, with their texts.
fn files(directory: &str) -> Vec<(PathBuf, String)> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures")
        .join(directory);
    let entries = fs::read_dir(&path)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let files: Vec<_> = entries
        .map(|path| (path.clone(), fs::read_to_string(path).unwrap()))
        .collect();
    assert!(!files.is_empty(), "{}", path.display());
    files
}

/// Returns the limit of a descriptor, such as `20/minute`.
fn limit(set: &RuleSet, entries: &str) -> String {
    let pairs = entries.split(' ').map(|pair| pair.split_once('=').unwrap());
    let descriptor: Descriptor<'_> = pairs.collect();
    let Some(found) = set.find("shop", &descriptor) else {
        return "none".to_owned();
    };
    let rule = found.rule();
    match (rule.limit(), rule.amount(), rule.unit()) {
        (Limit::Unlimited, ..) => "unlimited".to_owned(),
        (_, Some((requests, _)), Some(unit)) => format!("{requests}/{unit}"),
        (limit, ..) => limit.to_string(),
    }
}

#[test]
fn good_files_limit_each_descriptor_as_they_say() {
    for (path, text) in files("good") {
        for compat in MODES {
            let set = RuleSet::builder().compat(compat).load(&path).unwrap();
            let asked = text
                .lines()
                .filter_map(|line| line.strip_prefix("# ask ")?.split_once(" -> "));
            let asked: Vec<_> = asked.collect();
            assert!(!asked.is_empty(), "{}", path.display());
            for (entries, expected) in asked {
                assert_eq!(
                    limit(&set, entries),
                    expected,
                    "{} in {}, mode {compat}",
                    entries,
                    path.display()
                );
            }
        }
    }
}

#[test]
fn bad_files_are_refused_with_the_field_or_the_reason() {
    for (path, text) in files("bad") {
        let expected = text
            .lines()
            .next()
            .and_then(|line| line.strip_prefix("# refused: "))
            .unwrap();
        for compat in MODES {
            let errors = RuleSet::builder()
                .compat(compat)
                .load(&path)
                .unwrap_err()
                .to_string();
            assert!(
                errors.contains(expected),
                "{}, mode {compat}: {errors}",
                path.display()
            );
        }
    }
}

#[test]
fn two_files_have_one_domain_only_when_they_are_merged() {
    let directory = tempfile::tempdir().unwrap();
    for key in ["a", "b"] {
        let text = format!(
            "{{domain: shop, descriptors: [{{key: {key}, rate_limit: {{unit: day, requests_per_unit: 1}}}}]}}"
        );
        fs::write(directory.path().join(format!("{key}.yaml")), text).unwrap();
    }
    for compat in MODES {
        let options = RuleSet::builder().compat(compat);
        let errors = options
            .clone()
            .load(directory.path())
            .unwrap_err()
            .to_string();
        assert!(errors.contains("domain"), "{errors}");
        let set = options.merge_domains(true).load(directory.path()).unwrap();
        assert_eq!(
            (limit(&set, "a=x"), limit(&set, "b=x")),
            ("1/day".to_owned(), "1/day".to_owned())
        );
    }
}
