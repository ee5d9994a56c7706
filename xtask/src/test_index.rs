//! The lines of `tests/promises.tsv` name tests that exist.

use std::{collections::BTreeSet, fs, path::Path};

/// Returns every `file.rs::function` that stands in backticks in the text.
fn named(text: &str) -> Vec<(&str, &str)> {
    text.split('`')
        .skip(1)
        .step_by(2)
        .filter_map(|code| code.split_once(".rs::").map(|_| code))
        .map(split)
        .collect()
}

fn split(code: &str) -> (&str, &str) {
    code.split_once("::").unwrap_or((code, ""))
}

/// Returns the names in the text that no file under `tests` defines.
fn missing(text: &str, tests: &Path) -> Vec<String> {
    let exists = |(file, function): &(&str, &str)| {
        fs::read_to_string(tests.join(file))
            .is_ok_and(|source| source.contains(&format!("fn {function}(")))
    };
    named(text)
        .into_iter()
        .filter(|name| !exists(name))
        .map(|(file, function)| format!("{file}::{function}"))
        .collect()
}

#[test]
fn every_test_of_the_index_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the workspace is above");
    let text = fs::read_to_string(root.join("tests/promises.tsv")).expect("the index exists");
    assert!(named(&text).len() > 50, "the index names the tests");
    assert_eq!(missing(&text, &root.join("tests/tests")), [""; 0]);
}

/// Returns the numbers at the beginnings of lines, behind `start`.
fn numbers(text: &str, start: &str) -> BTreeSet<u32> {
    let of_line = |line: &str| line.strip_prefix(start)?.split_once(". ")?.0.parse().ok();
    text.lines().filter_map(of_line).collect()
}

#[test]
fn every_law_has_a_line_and_a_test_of_its_number() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the workspace is above");
    let page = |name: &str| fs::read_to_string(root.join(name)).expect("the page exists");
    let (algorithms, index, store) = (
        page("docs/algorithms.md"),
        page("tests/promises.tsv"),
        page("crates/tollgate/src/store/mod.rs"),
    );
    let (_, list) = algorithms
        .split_once("## What holds for all algorithms")
        .expect("the list of laws");
    let laws = numbers(list.split("\n## ").next().unwrap_or(list), "");
    assert_eq!(laws, (1..=*laws.last().expect("laws")).collect());
    assert_eq!(laws, numbers(&index, ""), "the lines of tests/promises.tsv");
    assert!(
        numbers(&store, "/// ").is_subset(&laws),
        "the laws of a store"
    );
    for law in laws {
        let prefix = format!("law_{law:02}_");
        assert!(
            named(&index)
                .iter()
                .any(|(_, function)| function.starts_with(&prefix)),
            "law {law}"
        );
    }
}

#[test]
fn a_name_that_does_not_exist_is_found() {
    let tests = tempfile::tempdir().expect("a temporary directory can be made");
    fs::write(tests.path().join("a.rs"), "#[test]\nfn exists() {}\n")
        .expect("the directory is ours");
    let text = "`code`\t`a.rs::exists`, `a.rs::gone`, `b.rs::exists`";
    assert_eq!(missing(text, tests.path()), ["a.rs::gone", "b.rs::exists"]);
}
