//! Every published crate has the metadata and the files that crates.io and docs.rs show.

use std::path::Path;

use serde_json::Value;

use super::{page, read};
use crate::workspace::Workspace;

/// The files that every published crate packs, beside its sources and its README.
const LICENCES: [&str; 2] = ["LICENSE-MIT", "LICENSE-APACHE"];

/// Returns what a crate lacks. `package` has the form of `cargo metadata`.
fn missing(package: &Value) -> Vec<String> {
    let is_there = |field: &&str| match &package[field] {
        Value::Array(list) => !list.is_empty(),
        value => value.as_str().is_some_and(|text| !text.is_empty()),
    };
    let fields = ["description", "license", "readme", "rust_version"];
    let lists = ["keywords", "categories", "authors"];
    let absent = fields.iter().chain(&lists).filter(|field| !is_there(field));
    let mut missing: Vec<String> = absent.map(|field| format!("no `{field}`")).collect();

    let manifest = Path::new(package["manifest_path"].as_str().unwrap_or_default());
    let of_crate = |name: &str| read(&manifest.with_file_name(name));
    let changed = LICENCES
        .iter()
        .filter(|licence| of_crate(licence) != page(licence));
    missing.extend(changed.map(|licence| format!("{licence} is no link to that of the workspace")));
    let readme = of_crate("README.md");
    let links = relative_links(&readme);
    missing.extend(links.map(|link| format!("crates.io does not have {link} of README.md")));

    let targets = package["targets"].as_array().into_iter().flatten();
    let mut kinds = targets.map(|target| &target["kind"][0]);
    if kinds.any(|kind| kind == "lib" || kind == "proc-macro") {
        let library = of_crate("src/lib.rs");
        // The examples of a crate of macros need the crates that use it.
        let elsewhere = format!(
            "{}/README.md\")]",
            package["name"].as_str().unwrap_or_default()
        );
        let has_features = package["features"]
            .as_object()
            .is_some_and(|features| !features.is_empty());
        let rules = [
            (
                package["metadata"]["docs"]["rs"]["all-features"] == true,
                "no `all-features = true` in [package.metadata.docs.rs]",
            ),
            (
                library.contains("#[doc = include_str!(\"../README.md\")]")
                    || page("tests/macros/src/lib.rs").contains(&elsewhere),
                "no src/lib.rs compiles the examples of README.md",
            ),
            (
                !has_features || library.contains("#![cfg_attr(docsrs, feature(doc_cfg))]"),
                "src/lib.rs does not turn on the badges of features",
            ),
        ];
        let broken = rules.into_iter().filter(|(holds, _)| !holds);
        missing.extend(broken.map(|(_, rule)| rule.to_owned()));
    }
    missing
}

/// Returns the links of a page that need the repository around it.
fn relative_links(page: &str) -> impl Iterator<Item = &str> {
    let rests = page.split("](").skip(1);
    rests
        .filter_map(|rest| rest.split(')').next())
        .filter(|target| !target.starts_with("https://") && !target.starts_with('#'))
}

#[test]
fn every_published_crate_is_complete() {
    let workspace = Workspace::load().expect("cargo metadata works here");
    let members: Vec<_> = workspace.published().collect();
    assert!(members.len() > 5);
    for member in members {
        assert_eq!(missing(&member.package), [""; 0], "{}", member.name);
    }
}

#[test]
fn a_link_into_the_repository_is_found() {
    let page = "[a](https://docs.rs/a) and [b](#licence) and [c](../../docs/c.md)";
    let links: Vec<_> = relative_links(page).collect();
    assert_eq!(links, ["../../docs/c.md"]);
}
