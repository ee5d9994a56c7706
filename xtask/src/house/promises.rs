//! The tests that `tests/promises.tsv` and `SECURITY.md` name exist, and each law has one.

use std::{collections::BTreeSet, path::Path};

use super::{page, root, written};

/// Returns every `file.rs::function` that stands in backticks in the text.
fn named(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let code = text.split('`').skip(1).step_by(2);
    code.filter(|code| code.contains(".rs::"))
        .filter_map(|code| code.split_once("::"))
}

/// Returns the names in the text that no file under `tests` defines.
fn missing(text: &str, tests: &Path) -> Vec<String> {
    let exists = |(file, function): &(&str, &str)| {
        std::fs::read_to_string(tests.join(file))
            .is_ok_and(|source| source.contains(&format!("fn {function}(")))
    };
    named(text)
        .filter(|name| !exists(name))
        .map(|(file, function)| format!("{file}::{function}"))
        .collect()
}

#[test]
fn every_test_that_is_named_for_a_promise_exists() {
    for (name, least) in [("tests/promises.tsv", 50), ("SECURITY.md", 5)] {
        let text = page(name);
        assert!(named(&text).count() >= least, "{name} names tests");
        assert_eq!(missing(&text, &root().join("tests/tests")), [""; 0]);
    }
}

#[test]
fn a_name_that_does_not_exist_is_found() {
    let tests = written(&[("a.rs", "#[test]\nfn exists() {}\n")]);
    let text = "`code`\t`a.rs::exists`, `a.rs::gone`, `b.rs::exists`";
    assert_eq!(missing(text, tests.path()), ["a.rs::gone", "b.rs::exists"]);
}

/// Returns the numbers at the beginnings of lines, behind `start`.
fn numbers(text: &str, start: &str) -> BTreeSet<u32> {
    let of_line = |line: &str| line.strip_prefix(start)?.split_once(". ")?.0.parse().ok();
    text.lines().filter_map(of_line).collect()
}

#[test]
fn every_law_has_a_line_and_a_test_of_its_number() {
    let (algorithms, index) = (page("docs/algorithms.md"), page("tests/promises.tsv"));
    let list = algorithms.split("## What holds for all algorithms").nth(1);
    let list = list.and_then(|list| list.split("\n## ").next());
    let laws = numbers(list.expect("the list of laws"), "");
    assert_eq!(laws, (1..=*laws.last().expect("laws")).collect());
    assert_eq!(laws, numbers(&index, ""), "the lines of tests/promises.tsv");
    let of_a_store = numbers(&page("crates/tollgate-core/src/store/mod.rs"), "/// ");
    assert!(of_a_store.is_subset(&laws), "the laws of a store");
    for law in laws {
        let prefix = format!("law_{law:02}_");
        let mut names = named(&index);
        assert!(
            names.any(|(_, test)| test.starts_with(&prefix)),
            "law {law}"
        );
    }
}
