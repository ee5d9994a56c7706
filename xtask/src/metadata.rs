//! Checks the metadata and the files that every published crate has to have.

use std::{fs, path::Path};

use serde_json::Value;

use crate::{
    failure::Failure,
    workspace::{Member, Workspace},
};

/// The files that every published crate packs, beside its sources and its README.
const LICENCES: [&str; 2] = ["LICENSE-MIT", "LICENSE-APACHE"];

/// The most keywords that crates.io accepts.
const KEYWORDS: usize = 5;

/// Checks the manifest, the README and the licences of every published crate.
///
/// # Errors
///
/// Lists everything that is missing.
pub(crate) fn check(workspace: &Workspace) -> Result<(), Failure> {
    let mut missing = Vec::new();
    for member in workspace.published_members() {
        let absent = fields(&member.package)
            .into_iter()
            .chain(files(workspace.root(), member)?);
        missing.extend(absent.map(|what| format!("{}: {what}", member.name)));
    }
    let nowhere: Vec<_> = workspace
        .published_members()
        .filter(|member| is_blank(&member.package["repository"]))
        .collect();
    if !nowhere.is_empty() {
        eprintln!(
            "*** {} of the published crates have no `repository`: set it before the first release, see docs/contributors/release.md ***",
            nowhere.len()
        );
    }
    if missing.is_empty() {
        Ok(())
    } else {
        Err(Failure::new(format!(
            "the metadata is not complete:\n  {}",
            missing.join("\n  ")
        )))
    }
}

/// Returns what a manifest lacks. `package` has the form of `cargo metadata`.
fn fields(package: &Value) -> Vec<String> {
    let mut missing: Vec<String> = ["description", "license", "readme", "rust_version"]
        .into_iter()
        .filter(|field| is_blank(&package[field]))
        .map(|field| format!("no `{field}`"))
        .collect();
    let count = |field: &str| package[field].as_array().map_or(0, Vec::len);
    for field in ["keywords", "categories", "authors"] {
        if count(field) == 0 {
            missing.push(format!("no `{field}`"));
        }
    }
    if count("keywords") > KEYWORDS {
        missing.push(format!(
            "{} keywords, crates.io accepts {KEYWORDS}",
            count("keywords")
        ));
    }
    if is_library(package) && package["metadata"]["docs"]["rs"]["all-features"] != true {
        missing.push("no `all-features = true` in [package.metadata.docs.rs]".to_owned());
    }
    missing
}

/// Returns what is wrong with the files of a crate.
fn files(root: &Path, member: &Member) -> Result<Vec<String>, Failure> {
    let manifest = Path::new(member.package["manifest_path"].as_str().unwrap_or_default());
    let directory = manifest.parent().unwrap_or(root);
    let read = |path: &Path| {
        fs::read_to_string(path)
            .map_err(|error| Failure::new(format!("cannot read {}: {error}", path.display())))
    };
    let mut wrong = Vec::new();
    for licence in LICENCES {
        if read(&directory.join(licence))? != read(&root.join(licence))? {
            wrong.push(format!(
                "{licence} is not the licence of the workspace: is it still a link to it?"
            ));
        }
    }
    let readme = read(&directory.join("README.md"))?;
    wrong.extend(
        relative_links(&readme)
            .map(|link| format!("README.md links to {link}, which crates.io does not have")),
    );
    if is_library(&member.package) {
        let library = read(&directory.join("src/lib.rs"))?;
        if !library.contains("#[doc = include_str!(\"../README.md\")]") {
            wrong.push("src/lib.rs does not compile the examples of README.md".to_owned());
        }
        let has_features = member.package["features"]
            .as_object()
            .is_some_and(|features| !features.is_empty());
        if has_features && !library.contains("#![cfg_attr(docsrs, feature(doc_cfg))]") {
            wrong.push("src/lib.rs does not turn on the badges of features".to_owned());
        }
    }
    Ok(wrong)
}

/// Returns the links of a page that need the repository around it.
fn relative_links(page: &str) -> impl Iterator<Item = &str> {
    let targets = page
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split(')').next());
    targets.filter(|target| !target.starts_with("https://") && !target.starts_with('#'))
}

fn is_library(package: &Value) -> bool {
    let kinds = |target: &Value| target["kind"].as_array().cloned().unwrap_or_default();
    package["targets"].as_array().is_some_and(|targets| {
        targets
            .iter()
            .flat_map(kinds)
            .any(|kind| kind == "lib" || kind == "proc-macro")
    })
}

fn is_blank(value: &Value) -> bool {
    value.as_str().is_none_or(str::is_empty)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_into_the_repository_is_found() {
        let page = "[a](https://docs.rs/a) and [b](#licence) and [c](../../docs/c.md)";
        assert_eq!(
            relative_links(page).collect::<Vec<_>>(),
            ["../../docs/c.md"]
        );
    }

    #[test]
    fn every_crate_of_this_workspace_is_complete() {
        check(&Workspace::load().expect("cargo metadata works here")).expect("complete");
    }
}
