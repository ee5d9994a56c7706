//! Finds the directories in which a change can mean other rules.
//! The watch over them is in `watch.rs`.

use std::{
    collections::BTreeSet,
    ffi::OsString,
    fs,
    path::{Component, Path, PathBuf},
};

/// Bounds the links on the way to a file, as Linux does. A way with more of them leads nowhere.
const MAX_LINKS: usize = 40;

/// Adds the directories in which a change can lead an absolute path elsewhere, or change what is
/// there.
///
/// They are the directory of each link on the way, that of the place at the end, and the place
/// itself when it is a directory. Of a way that ends early, it is the last directory that exists:
/// what is missing appears there.
pub(super) fn add_directories(path: &Path, found: &mut BTreeSet<PathBuf>) {
    let (mut place, mut rest, mut links) = (PathBuf::new(), steps(path), 0);
    while let Some(step) = rest.pop() {
        let name = match step {
            PathStep::Start(start) => {
                place = start;
                continue;
            }
            PathStep::Up => {
                place.pop();
                continue;
            }
            PathStep::Name(name) => name,
        };
        let next = place.join(name);
        let Ok(metadata) = next.symlink_metadata() else {
            break;
        };
        if metadata.is_symlink() {
            let Ok(target) = fs::read_link(&next) else {
                break;
            };
            links += 1;
            if links > MAX_LINKS {
                return;
            }
            found.insert(place.clone());
            rest.extend(steps(&target));
        } else if rest.is_empty() {
            found.insert(std::mem::replace(&mut place, next));
        } else {
            place = next;
        }
    }
    if place.is_dir() {
        found.insert(place);
    }
}

/// A step on the way to a file.
enum PathStep {
    /// The root, with the disk on Windows.
    Start(PathBuf),
    Up,
    Name(OsString),
}

/// Returns the steps of a path, the first one last.
fn steps(path: &Path) -> Vec<PathStep> {
    let mut start = PathBuf::new();
    let mut steps = Vec::new();
    for component in path.components() {
        match component {
            Component::Prefix(_) | Component::RootDir => start.push(component),
            Component::CurDir => {}
            Component::ParentDir => steps.push(PathStep::Up),
            Component::Normal(name) => steps.push(PathStep::Name(name.to_owned())),
        }
    }
    steps.reverse();
    if !start.as_os_str().is_empty() {
        steps.push(PathStep::Start(start));
    }
    steps
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn directories(root: &Path, path: &str) -> Vec<String> {
        let mut found = BTreeSet::new();
        add_directories(&root.join(path), &mut found);
        let shown = found.iter().map(|path| {
            path.strip_prefix(root)
                .unwrap_or(path)
                .display()
                .to_string()
        });
        shown.collect()
    }

    #[test]
    fn the_directories_of_all_links_are_found_and_the_last_one_that_exists() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("disk/v1/ratelimit/config")).unwrap();
        fs::create_dir(root.join("srv")).unwrap();
        symlink("v1", root.join("disk/current")).unwrap();
        symlink("../disk/current/.", root.join("srv/data")).unwrap();
        symlink(root.join("srv"), root.join("absolute")).unwrap();
        symlink("round", root.join("round")).unwrap();
        let whole = [
            "",
            "disk",
            "disk/v1/ratelimit",
            "disk/v1/ratelimit/config",
            "srv",
        ];
        assert_eq!(directories(&root, "absolute/data/ratelimit/config"), whole);
        assert_eq!(
            directories(&root, "srv/data/ratelimit/../none/config"),
            ["disk", "disk/v1", "srv"]
        );
        assert_eq!(directories(&root, "srv/none/config"), ["srv"]);
        assert_eq!(directories(&root, "round/config"), [""]);
    }
}
