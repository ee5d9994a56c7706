//! Copies the workspace, for tools that change its files while they run.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
    process::Command,
};

use crate::failure::{self, Failure};

/// Makes `tree` a copy of the files that git knows or would add under `root`.
///
/// A file that is the same already is left as it is, so that cargo does not build it again.
///
/// # Errors
///
/// When git fails or a file cannot be copied.
pub(crate) fn update(root: &Path, tree: &Path) -> Result<(), Failure> {
    let mut git = Command::new("git");
    git.args(["ls-files", "--cached", "--others", "--exclude-standard", "-z"]).current_dir(root);
    let listed = failure::output(&mut git)?;
    let wanted: BTreeSet<PathBuf> =
        listed.split('\0').filter(|path| !path.is_empty() && root.join(path).exists()).map(PathBuf::from).collect();
    let broken = |error: io::Error| Failure::new(format!("cannot copy the workspace to {}: {error}", tree.display()));
    for path in &wanted {
        copy(&root.join(path), &tree.join(path)).map_err(broken)?;
    }
    let mut found = Vec::new();
    files(tree, tree, &mut found).map_err(broken)?;
    for path in found.into_iter().filter(|path| !wanted.contains(path)) {
        fs::remove_file(tree.join(path)).map_err(broken)?;
    }
    Ok(())
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    if fs::symlink_metadata(from)?.is_symlink() {
        let link = fs::read_link(from)?;
        if fs::read_link(to).is_ok_and(|there| there == link) {
            return Ok(());
        }
        create_directory(to)?;
        let _ = fs::remove_file(to);
        return std::os::unix::fs::symlink(link, to);
    }
    let bytes = fs::read(from)?;
    if fs::read(to).is_ok_and(|there| there == bytes) {
        return Ok(());
    }
    create_directory(to)?;
    fs::write(to, bytes)?;
    fs::set_permissions(to, fs::metadata(from)?.permissions())
}

fn create_directory(file: &Path) -> io::Result<()> {
    file.parent().map_or(Ok(()), fs::create_dir_all)
}

/// Lists the files below `directory`, relative to `tree`. Links are files.
fn files(tree: &Path, directory: &Path, found: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            files(tree, &entry.path(), found)?;
        } else if let Ok(path) = entry.path().strip_prefix(tree) {
            found.push(path.to_owned());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_follows_changes_and_removals() {
        let home = tempfile::tempdir().expect("a temporary directory can be made");
        let (root, tree) = (home.path().join("root"), home.path().join("tree"));
        fs::create_dir_all(root.join("src")).expect("the directory is ours");
        let write = |name: &str, text: &str| fs::write(root.join(name), text).expect("the directory is ours");
        write("src/a.rs", "one");
        write("src/b.rs", "two");
        write(".gitignore", "ignored");
        write("ignored", "three");
        failure::run(Command::new("git").args(["init", "--quiet"]).current_dir(&root)).expect("git is there");
        update(&root, &tree).expect("copied");
        assert_eq!(fs::read_to_string(tree.join("src/a.rs")).expect("copied"), "one");
        assert!(!tree.join("ignored").exists());
        write("src/a.rs", "changed");
        fs::remove_file(root.join("src/b.rs")).expect("the file is ours");
        update(&root, &tree).expect("copied");
        assert_eq!(fs::read_to_string(tree.join("src/a.rs")).expect("copied"), "changed");
        assert!(!tree.join("src/b.rs").exists());
    }
}
