//! Writes the manifest whose lock has the lowest version of everything that the published crates
//! accept: what an adopter with an old lock may be left with.
//!
//! The manifests of the workspace cannot be asked for it. Their tests need newer versions than the
//! crates themselves, so together they have no lowest versions.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs, io,
    path::{Path, PathBuf},
};

use serde_json::Value;

use crate::{
    failure::{self, Failure},
    workspace::Workspace,
};

/// What the published crates take of one dependency, all features together.
#[derive(Debug, Default)]
struct Taken<'a> {
    requirements: BTreeSet<&'a str>,
    features: BTreeSet<&'a str>,
    has_default_features: bool,
}

/// Writes the manifest and its lock, and returns the path of the manifest.
///
/// # Errors
///
/// When a file cannot be written, or cargo finds no versions, or does not reach its registry.
pub(crate) fn locked(workspace: &Workspace) -> Result<PathBuf, Failure> {
    let folder = workspace.target().join("lowest");
    let manifest = folder.join("Cargo.toml");
    let written = |error: io::Error| Failure::new(format!("{}: {error}", folder.display()));
    write(&manifest, workspace).map_err(written)?;
    let mut lock = workspace.cargo("generate-lockfile");
    // The option is one of nightly cargo. The variable lets that of any toolchain take it.
    lock.env("RUSTC_BOOTSTRAP", "1")
        .args(["-Z", "direct-minimal-versions", "--quiet"]);
    failure::run(lock.arg("--manifest-path").arg(&manifest))?;
    Ok(manifest)
}

fn write(manifest: &Path, workspace: &Workspace) -> io::Result<()> {
    let library = manifest.with_file_name("src");
    fs::create_dir_all(&library)?;
    fs::write(library.join("lib.rs"), "")?;
    // A lock that is there would be kept.
    match fs::remove_file(manifest.with_file_name("Cargo.lock")) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let packages: Vec<&Value> = workspace
        .published()
        .map(|member| &member.package)
        .collect();
    fs::write(manifest, manifest_of(&packages))
}

/// Returns a manifest with the dependencies of these packages, which have the form of
/// `cargo metadata`.
fn manifest_of(packages: &[&Value]) -> String {
    let mut all: BTreeMap<&str, Taken<'_>> = BTreeMap::new();
    for dependency in packages.iter().flat_map(|package| of_others(package)) {
        let taken = all.entry(text(&dependency["name"])).or_default();
        taken.requirements.insert(text(&dependency["req"]));
        taken
            .features
            .extend(list(&dependency["features"]).map(text));
        taken.has_default_features |= dependency["uses_default_features"] == true;
    }
    for package in packages {
        let values = package["features"].as_object().into_iter().flatten();
        for (name, feature) in values
            .flat_map(|(_, values)| list(values))
            .filter_map(|value| text(value).split_once('/'))
        {
            if let Some(taken) = all.get_mut(name.trim_end_matches('?')) {
                taken.features.insert(feature);
            }
        }
    }
    let mut manifest = String::from(
        "[package]\nname = \"lowest\"\nversion = \"0.0.0\"\nedition = \"2024\"\nlicense = \"MIT\"\n\
         publish = false\n\n[workspace]\n\n[dependencies]\n",
    );
    for (name, taken) in all {
        let requirements: Vec<&str> = taken.requirements.into_iter().collect();
        let (requirement, defaults) = (requirements.join(", "), taken.has_default_features);
        let features: Vec<&str> = taken.features.into_iter().collect();
        _ = writeln!(
            manifest,
            "{name} = {{ version = {requirement:?}, default-features = {defaults}, features = {features:?} }}"
        );
    }
    manifest
}

/// Returns the dependencies of a package that its users get, without those on crates of the
/// workspace.
fn of_others(package: &Value) -> impl Iterator<Item = &Value> {
    list(&package["dependencies"])
        .filter(|dependency| dependency["kind"] != "dev" && dependency["path"].is_null())
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_manifest_has_each_dependency_once_with_what_all_crates_ask_of_it() {
        let dependency = |name: &str, kind: Value, features: Value| {
            json!({
                "name": name, "req": "^1.2.3", "kind": kind, "features": features,
                "uses_default_features": false,
            })
        };
        let one = json!({
            "dependencies": [
                dependency("bytes", Value::Null, json!(["std"])),
                dependency("tempfile", json!("dev"), json!([])),
                { "name": "tollgate", "req": "^0.1.0", "kind": null, "path": "/somewhere" },
            ],
            "features": { "tls": ["dep:rustls", "bytes?/serde", "tollgate/tls"] },
        });
        let other = json!({
            "dependencies": [dependency("bytes", Value::Null, json!(["extra"]))],
            "features": {},
        });
        let manifest = manifest_of(&[&one, &other]);
        let lines = manifest
            .split_once("[dependencies]\n")
            .map(|(_, lines)| lines);
        assert_eq!(
            lines,
            Some(
                "bytes = { version = \"^1.2.3\", default-features = false, features = [\"extra\", \"serde\", \"std\"] }\n"
            )
        );
    }
}
