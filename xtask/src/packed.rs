//! Builds crates from the files that they would publish. That they can be built from the sources of
//! the workspace is shown by everything else.
//!
//! `cargo package` would build them too. It takes them for crates of a registry, which never change:
//! those that it has unpacked and compiled once stay, whatever their files are now.

use std::{fmt::Write as _, fs, io, path::Path, process::Command};

use crate::{
    failure::{self, Failure},
    workspace::Workspace,
};

/// The crates that a user of `tollgate` compiles. The others take minutes: `cargo publish --dry-run`
/// builds all.
const CRATES: [&str; 6] = [
    "tollgate-macros",
    "tollgate-model",
    "tollgate-core",
    "tollgate-remote",
    "tollgate-redis",
    "tollgate",
];

/// Packs the crates, unpacks them, and builds them as one workspace.
///
/// `tollgate-redis` reads the Lua scripts through a directory link. In a checkout where that is a text
/// file, the packed crate does not build.
///
/// # Errors
///
/// When a crate cannot be packed, or its files do not build.
pub(crate) fn build(workspace: &Workspace) -> Result<(), Failure> {
    let mut package = workspace.cargo("package");
    for name in CRATES {
        package.args(["--package", name]);
    }
    package.args(["--allow-dirty", "--quiet", "--no-verify"]);
    failure::run(package.env("CARGO_TARGET_DIR", workspace.target()))?;

    let packed = workspace.target().join("package");
    let folder = packed.join("built");
    let names = CRATES.map(|name| format!("{name}-{}", workspace.version(name)));
    let written = |error: io::Error| Failure::new(format!("{}: {error}", folder.display()));
    prepare(&folder, &names).map_err(written)?;
    for name in &names {
        failure::run(&mut unpack(&packed.join(format!("{name}.crate")), &folder))?;
    }
    // The versions of all others are those of the workspace.
    let lock = workspace.root().join("Cargo.lock");
    fs::copy(lock, folder.join("Cargo.lock")).map_err(written)?;

    let mut build = workspace.cargo("build");
    build.args(["--workspace", "--quiet", "--manifest-path"]);
    build.arg(folder.join("Cargo.toml"));
    // With the profiles of the workspace it takes the compiled dependencies.
    build
        .env("CARGO_TARGET_DIR", workspace.target())
        .arg("--config")
        .arg(workspace.manifest());
    failure::run(&mut build)
}

/// Empties the folder, and writes the manifest of a workspace of these packages.
fn prepare(folder: &Path, names: &[String]) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    fs::create_dir_all(folder)?;
    fs::write(folder.join("Cargo.toml"), manifest_of(names))
}

/// Returns the manifest. Each package takes the others from their files, and not from a registry.
fn manifest_of(names: &[String]) -> String {
    let mut manifest =
        format!("[workspace]\nresolver = \"3\"\nmembers = {names:?}\n\n[patch.crates-io]\n");
    for (package, name) in CRATES.into_iter().zip(names) {
        // Writing to memory cannot fail.
        let _ = writeln!(manifest, "{package} = {{ path = {name:?} }}");
    }
    manifest
}

/// Returns the command that unpacks an archive. Its files are as new as the moment: those in the
/// archive are twenty years old, and cargo would take what it has compiled before for newer.
fn unpack(archive: &Path, folder: &Path) -> Command {
    let mut tar = Command::new("tar");
    tar.arg("-xzmf").arg(archive).arg("-C").arg(folder);
    tar
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;

    #[test]
    fn the_packages_are_taken_from_their_files() {
        let names = CRATES.map(|name| format!("{name}-0.1.0"));
        let manifest = manifest_of(&names);
        assert!(
            manifest.contains(r#"members = ["tollgate-macros-0.1.0", "tollgate-model-0.1.0","#),
            "{manifest}"
        );
        assert!(
            manifest.ends_with("tollgate = { path = \"tollgate-0.1.0\" }\n"),
            "{manifest}"
        );
    }

    #[test]
    fn what_is_unpacked_again_has_changed_and_is_new() {
        let home = tempfile::tempdir().expect("a folder");
        let (sources, folder) = (home.path().join("sources"), home.path().join("folder"));
        let archive = home.path().join("one.crate");
        let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1_153_704_088);
        for text in ["before", "after"] {
            fs::create_dir_all(&sources).expect("a folder");
            let file = fs::File::create(sources.join("lib.rs")).expect("a file");
            fs::write(sources.join("lib.rs"), text).expect("a text");
            file.set_modified(old).expect("an old file");
            let mut pack = Command::new("tar");
            pack.arg("-czf").arg(&archive).arg("-C").arg(&sources);
            assert!(pack.arg("lib.rs").status().expect("tar").success());
            prepare(&folder, &[]).expect("a folder");
            let before = SystemTime::now() - Duration::from_secs(2);
            let unpacked = unpack(&archive, &folder).status().expect("tar");
            assert!(unpacked.success());
            let unpacked = folder.join("lib.rs");
            assert_eq!(fs::read_to_string(&unpacked).expect("a text"), text);
            let modified = fs::metadata(&unpacked).and_then(|it| it.modified());
            assert!(modified.expect("a time") > before);
        }
    }
}
