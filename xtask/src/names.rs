//! The names that pages may mention: files and folders of the repository, and items of its crates.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use crate::failure::Failure;

/// The ends of a piece of code that is the path of a file. A file of another kind is often one of
/// the reader.
const FILES: [&str; 3] = [".rs", ".lua", ".md"];

/// Types of ours that have the name of a type of another crate, which a page may mean.
const AMBIGUOUS: [&str; 2] = ["Metadata", "Request"];

/// Lists what the repository has.
#[derive(Debug, Default)]
pub(crate) struct Names {
    /// Each file and folder, by each end of its path.
    paths: BTreeSet<String>,
    /// The folders at the root.
    roots: BTreeSet<String>,
    /// The types that the crates define.
    defined: BTreeSet<String>,
    /// Lists what a type has: functions, constants and variants.
    items: BTreeMap<String, BTreeSet<String>>,
}

impl Names {
    /// Reads the names of the files, and those in the sources of the crates.
    ///
    /// # Errors
    ///
    /// When a source cannot be read.
    pub(crate) fn read(root: &Path, files: &[&str]) -> Result<Self, Failure> {
        let mut names = Self::default();
        for file in files {
            let parts: Vec<_> = file.split('/').collect();
            for start in 0..parts.len() {
                names
                    .paths
                    .extend((start + 1..=parts.len()).map(|end| parts[start..end].join("/")));
            }
            names
                .roots
                .extend(file.split_once('/').map(|(root, _)| root.to_owned()));
            if file.starts_with("crates/") && file.contains("/src/") && file.ends_with(".rs") {
                let text = fs::read_to_string(root.join(file))
                    .map_err(|error| Failure::new(format!("cannot read {file}: {error}")))?;
                names.source(&text);
            }
        }
        Ok(names)
    }

    /// Adds the items of a file. The types that it defines or implements have all of them: a look
    /// at the text is enough to find a name that no such file has.
    fn source(&mut self, text: &str) {
        let (mut types, mut items) = (BTreeSet::new(), BTreeSet::new());
        for line in text
            .lines()
            .map(str::trim_start)
            .filter(|line| !line.starts_with("//"))
        {
            let words = line
                .split(|c: char| !c.is_alphanumeric() && c != '_')
                .filter(|word| !word.is_empty());
            let words: Vec<_> = words.map(str::to_owned).collect();
            let after = |keywords: [&'static str; 3]| {
                let pairs = words
                    .windows(2)
                    .filter(move |pair| keywords.contains(&pair[0].as_str()));
                pairs.map(|pair| pair[1].clone())
            };
            self.defined.extend(after(["struct", "enum", "trait"]));
            types.extend(after(["struct", "enum", "trait"]));
            if line.starts_with("impl") {
                types.extend(
                    words
                        .iter()
                        .filter(|word| word.starts_with(char::is_uppercase))
                        .cloned(),
                );
            }
            items.extend(
                words
                    .first()
                    .cloned()
                    .into_iter()
                    .chain(after(["fn", "const", "type"])),
            );
        }
        for name in types {
            self.items
                .entry(name)
                .or_default()
                .extend(items.iter().cloned());
        }
    }

    /// Returns what is wrong with a piece of code that names a file, a folder or an item.
    pub(crate) fn missing(&self, code: &str) -> Option<String> {
        let is_placeholder = |text: &str| text.contains("NAME");
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
        let root = code.split('/').next().unwrap_or_default();
        let is_path = FILES.iter().any(|end| code.ends_with(end))
            || code.ends_with('/')
            || self.roots.contains(root);
        if is_path
            && code.chars().all(is_plain)
            && !code.starts_with(['/', '.'])
            && !is_placeholder(code)
        {
            let is_built = root == "target";
            return (!is_built && !self.paths.contains(code.trim_end_matches('/')))
                .then(|| format!("there is no {code}"));
        }
        let is_item = |c: char| c.is_alphanumeric() || "_:".contains(c);
        code.split(|c: char| !is_item(c)).find_map(|item| {
            let (name, rest) = item.split_once("::")?;
            let member = rest.split("::").next()?;
            let is_ours = self.defined.contains(name) && !AMBIGUOUS.contains(&name);
            let known = self.items.get(name).filter(|_| is_ours)?;
            (!member.is_empty() && !is_placeholder(member) && !known.contains(member))
                .then(|| format!("{name} has no {member}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_exist_is_found() {
        let folder = tempfile::tempdir().expect("a temporary directory can be made");
        let file = "crates/a/src/wait/queue.rs";
        fs::create_dir_all(folder.path().join("crates/a/src/wait")).expect("the directory is ours");
        let text = "pub struct Plan;\nimpl Plan {\n    pub const fn new() -> Self {\n}\nimpl From<Plan> for Duration {}\npub enum Kind {\n    One,\n}\n";
        fs::write(folder.path().join(file), text).expect("the directory is ours");
        let names = Names::read(folder.path(), &[file]).expect("readable");
        for code in [
            "wait/queue.rs",
            "crates/a/src/wait",
            "wait/",
            "target/x/",
            "NAME.rs",
            "/etc/a.md",
            "other/a.txt",
            "Other::new",
        ] {
            assert_eq!(names.missing(code), None, "{code}");
        }
        for code in [
            "Plan::new()",
            "Plan::new",
            "Kind::One",
            "Plan::NAME",
            "a(Plan::new(), Kind::One)",
            "Plan::",
        ] {
            assert_eq!(names.missing(code), None, "{code}");
        }
        for (code, expected) in [
            ("wait/other.rs", "there is no wait/other.rs"),
            ("crates/b", "there is no crates/b"),
            ("other/", "there is no other/"),
            ("(Kind::One, Plan::old())", "Plan has no old"),
        ] {
            assert_eq!(names.missing(code).as_deref(), Some(expected));
        }
    }
}
