//! The names that pages may mention: files and folders of the repository, and items of its crates.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use super::{read, written};

/// The ends of a piece of code that is the path of a file. A file of another kind is often one of
/// the reader.
const FILES: [&str; 3] = [".rs", ".lua", ".md"];

/// Types of ours that have the name of a type of another crate, which a page may mean.
const AMBIGUOUS: [&str; 2] = ["Metadata", "Request"];

/// Lists what the repository has.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// Each file and folder, by each end of its path.
    paths: BTreeSet<String>,
    /// The folders at the root.
    roots: BTreeSet<String>,
    /// The types that the crates define.
    defined: BTreeSet<String>,
    /// The words of the files that define or implement a type. An item of it is among them: a look
    /// at the text is enough to find a name that no such file has.
    items: BTreeMap<String, BTreeSet<String>>,
}

impl Names {
    /// Reads the names of these files, and those in the sources of the crates.
    pub(super) fn of(root: &Path, files: &[String]) -> Self {
        let mut names = Self::default();
        for file in files {
            let parts: Vec<_> = file.split('/').collect();
            for start in 0..parts.len() {
                let ends = start + 1..=parts.len();
                names
                    .paths
                    .extend(ends.map(|end| parts[start..end].join("/")));
            }
            let folder = file.split_once('/').map(|(folder, _)| folder.to_owned());
            names.roots.extend(folder);
            if file.starts_with("crates/") && file.contains("/src/") && file.ends_with(".rs") {
                names.source(&read(&root.join(file)));
            }
        }
        names
    }

    fn source(&mut self, text: &str) {
        let (mut types, mut items) = (BTreeSet::new(), BTreeSet::new());
        let lines = text.lines().map(str::trim_start);
        for line in lines.filter(|line| !line.starts_with("//")) {
            let words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
            let words: Vec<_> = words.filter(|word| !word.is_empty()).collect();
            for pair in words.windows(2) {
                if ["struct", "enum", "trait"].contains(&pair[0]) {
                    self.defined.insert(pair[1].to_owned());
                    types.insert(pair[1]);
                }
            }
            if line.starts_with("impl") {
                let is_type = |word: &&&str| word.starts_with(char::is_uppercase);
                types.extend(words.iter().filter(is_type));
            }
            items.extend(words);
        }
        let items: BTreeSet<_> = items.into_iter().map(str::to_owned).collect();
        for name in types {
            let known = self.items.entry(name.to_owned()).or_default();
            known.extend(items.iter().cloned());
        }
    }

    /// Returns what is wrong with a piece of code that names a file, a folder or an item.
    pub(super) fn missing(&self, code: &str) -> Option<String> {
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

#[test]
fn what_does_not_exist_is_found() {
    let file = "crates/a/src/wait/queue.rs";
    let text = "pub struct Plan;\nimpl Plan {\n    pub const fn new() -> Self {\n}\n// old\n";
    let folder = written(&[(file, text)]);
    let names = Names::of(folder.path(), &[file.to_owned()]);
    let there = ["wait/queue.rs", "crates/a/src/wait", "wait/", "target/x/"];
    let others = ["NAME.rs", "/etc/a.md", "other/a.txt", "Other::new"];
    let items = ["Plan::new()", "a(Plan::new(), b)", "Plan::NAME", "Plan::"];
    for code in there.into_iter().chain(others).chain(items) {
        assert_eq!(names.missing(code), None, "{code}");
    }
    for (code, expected) in [
        ("wait/other.rs", "there is no wait/other.rs"),
        ("crates/b", "there is no crates/b"),
        ("other/", "there is no other/"),
        ("(Plan::new, Plan::old())", "Plan has no old"),
    ] {
        assert_eq!(names.missing(code).as_deref(), Some(expected));
    }
}
