//! The table of `docs/features.md` has every feature that there is, and each example says which it
//! needs. How many crates they bring is bounded.

use std::{
    collections::{BTreeMap, BTreeSet},
    process::Command,
};

use serde_json::Value;

use super::{files, page};
use crate::{failure::output, workspace::Workspace};

/// What stands in the code of an example, and the feature without which it does not compile or
/// serve. Those that are on by default are not named.
const MARKS: [(&str, &str); 7] = [
    ("calendar_window", "`calendar` of `tollgate`"),
    ("ReqwestClient", "`reqwest` of `tollgate-outgoing`"),
    ("LimitedSocket", "`ws` of `tollgate-tower`"),
    ("PrometheusBuilder", "`metrics` of `tollgate-tower`"),
    ("for_requests", "`axum` of `tollgate-rules`"),
    ("tollgate_tonic::{GrpcStatus", "`axum` of `tollgate-tonic`"),
    ("tollgate_postgres", "`postgres`"),
];

/// The sentence in the head of an example.
const SENTENCE: &str = "//! Features: ";

/// Returns the pieces of code in a text.
fn code(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Returns the features that the rows of the table name, by their crates.
fn listed(table: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut listed = BTreeMap::<_, BTreeSet<_>>::new();
    for row in table.lines().filter(|line| line.starts_with("| ")).skip(1) {
        let cells: Vec<_> = row.split(" | ").collect();
        let of_crate = code(cells[1]).next().unwrap_or_default().to_owned();
        let ours = |name: &&str| !name.starts_with("tollgate") && !name.contains(['_', '=']);
        let features = code(cells[2]).filter(ours).map(str::to_owned);
        listed.entry(of_crate).or_default().extend(features);
    }
    listed
}

/// Returns the features of a crate that users choose.
fn features(package: &Value) -> BTreeSet<String> {
    let features = package["features"].as_object().into_iter().flatten();
    let names = features.map(|(name, _)| name.as_str());
    let chosen = names.filter(|name| !["default", "testing"].contains(name));
    chosen.map(str::to_owned).collect()
}

#[test]
fn the_table_of_features_has_all_that_the_libraries_have() {
    const PROGRAMS: [&str; 2] = ["tollgate-cli", "tollgate-envoy"];
    // Users choose their features at `tollgate`, which passes them on.
    const PARTS: [&str; 4] = [
        "tollgate-model",
        "tollgate-core",
        "tollgate-redis",
        "tollgate-remote",
    ];
    let workspace = Workspace::load().expect("cargo metadata works here");
    let table = page("docs/features.md");
    let mut listed = listed(&table);
    let of_tollgate = listed.get("tollgate").cloned().unwrap_or_default();
    for member in workspace.published() {
        if PROGRAMS.contains(&member.name.as_str()) {
            continue;
        }
        if PARTS.contains(&member.name.as_str()) {
            let own: Vec<_> = features(&member.package)
                .difference(&of_tollgate)
                .filter(|name| *name != "test-util")
                .cloned()
                .collect();
            assert!(
                own.is_empty(),
                "tollgate does not pass on {own:?} of {}",
                member.name
            );
            continue;
        }
        let (of_table, features) = (
            listed.remove(&member.name).unwrap_or_default(),
            features(&member.package),
        );
        // One row has the tests of three crates.
        let missing: Vec<_> = features
            .difference(&of_table)
            .filter(|name| *name != "test-util")
            .collect();
        let name = &member.name;
        assert!(
            missing.is_empty(),
            "docs/features.md lacks {missing:?} of {name}"
        );
        let unknown: Vec<_> = of_table.difference(&features).collect();
        assert!(unknown.is_empty(), "{} has no {unknown:?}", member.name);
    }
    assert!(listed.is_empty(), "{listed:?}");
}

/// A layer for Axum whose limiter counts in the process.
#[test]
fn the_page_on_whether_to_use_it_counts_the_crates_that_cargo_counts() {
    let workspace = Workspace::load().expect("cargo metadata works here");
    let mut tree = workspace.cargo("tree");
    tree.args(["-p", "tollgate-tower", "-e", "normal", "--prefix", "none"]);
    let lines = output(tree.arg("--no-dedupe")).expect("cargo tree works here");
    let counted = lines.lines().collect::<BTreeSet<_>>().len();
    let text = page("crates/tollgate/src/guide/should_i_use_this.md");
    let words: Vec<_> = text.split_whitespace().collect();
    let at = words.iter().position(|word| *word == "crates,");
    let said: usize = words[at.expect("the figure") - 1]
        .parse()
        .expect("a number");
    // A version of a dependency brings one or takes one away.
    assert!(
        said.abs_diff(counted) <= 3,
        "{said} on the page, {counted} counted"
    );
}

/// Returns how many crates `cargo tree` lists with these arguments.
fn compiled(mut tree: Command, arguments: &[&str]) -> usize {
    tree.args(["--prefix", "none"]).args(arguments);
    let lines = output(&mut tree).expect("cargo tree works here");
    // The version ends the second word. What follows says that a crate was listed before.
    let crates = lines.lines().map(|line| line.split_whitespace().take(2));
    crates.map(Vec::from_iter).collect::<BTreeSet<_>>().len()
}

#[test]
fn the_two_commands_of_the_readme_compile_no_more_crates_than_they_did() {
    let workspace = Workspace::load().expect("cargo metadata works here");
    let quickstart = compiled(
        workspace.cargo("tree"),
        &["-p", "quickstart", "-e", "normal,build"],
    );
    let mut tests = workspace.cargo_workspace("tree");
    workspace.exclude_tools(&mut tests);
    let tests = compiled(tests, &["--all-features", "-e", "normal,build,dev"]);
    // As `cargo tree` counts, which knows a few more than are compiled. A version of a dependency
    // brings one or takes one away. What serves one test belongs to a package of full runs.
    for (what, counted, most) in [("the quickstart", quickstart, 108), ("tests", tests, 352)] {
        assert!(counted <= most, "{what}: {counted} crates, {most} before");
    }
}

#[test]
fn each_example_names_the_features_that_it_needs() {
    let programs = files().into_iter().filter(|file| {
        let is_code = file.starts_with("examples/") && file.ends_with(".rs");
        is_code && page(file).contains("\nasync fn main()")
    });
    let mut seen = 0;
    for file in programs {
        let text = page(&file);
        let (head, body) = text
            .split_once("\n\nuse ")
            .expect("a head, and then the code");
        let (_, sentence) = head
            .rsplit_once(SENTENCE)
            .unwrap_or_else(|| panic!("{file} has no {SENTENCE:?}"));
        let sentence = sentence.replace("\n//! ", " ");
        for (mark, feature) in MARKS.iter().filter(|(mark, _)| body.contains(mark)) {
            assert!(
                sentence.contains(feature),
                "{file} has {mark}, and no {feature}"
            );
        }
        seen += 1;
    }
    assert!(seen > 25, "{seen}");
}

#[test]
fn a_row_names_features_and_neither_their_crates_nor_code() {
    let table = "| you use | crate | features |\n|---|---|---|\n| a | `x` | `one`, on |\n| b | `x` | none: `default-features = false` |\n\
                 | c | `y` | `two`, also of `tollgate`, with `a_field` `three` |\n";
    let all = listed(table);
    let names = |of: &str| all[of].iter().map(String::as_str).collect::<Vec<_>>();
    assert_eq!(
        (names("x"), names("y")),
        (vec!["one"], vec!["three", "two"])
    );
}
