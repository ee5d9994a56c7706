//! Checks that the links of all pages lead somewhere: to a file, a folder, or a heading of a page.
//! What a page names in backticks has to exist, too: see [`Names`].
//!
//! A page of a guide is read in the repository and by rustdoc. It defines its links at its end, for
//! the repository. `links.md` in its folder defines the same labels for rustdoc, and stands before
//! the page there: of two definitions the first one counts.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Component, Path, PathBuf},
    process::Command,
};

use pulldown_cmark::{BrokenLink, CowStr, Event, LinkType, Options, Parser, Tag, TagEnd};

use crate::{
    failure::{self, Failure},
    names::Names,
    workspace::Workspace,
};

/// The file whose definitions rustdoc reads before those of the pages beside it.
const FOR_RUSTDOC: &str = "links.md";

/// Checks the links of all Markdown files that git knows or would add.
///
/// # Errors
///
/// Lists the links that lead nowhere.
pub(crate) fn check(workspace: &Workspace) -> Result<(), Failure> {
    let mut git = Command::new("git");
    git.args([
        "ls-files",
        "--cached",
        "--others",
        "--exclude-standard",
        "-z",
    ])
    .current_dir(workspace.root());
    let listed = failure::output(&mut git)?;
    let exists = |path: &&str| workspace.root().join(path).is_file();
    let files: Vec<_> = listed.split('\0').filter(exists).collect();
    let is_page = |path: &&&str| path.ends_with(".md");
    let pages: BTreeSet<_> = files.iter().filter(is_page).map(PathBuf::from).collect();
    let names = Names::read(workspace.root(), &files)?;
    let dead = dead(workspace.root(), &pages, &names)?;
    if dead.is_empty() {
        eprintln!(
            "the links of {} pages lead somewhere, and the files and items that they name exist",
            pages.len()
        );
        Ok(())
    } else {
        Err(Failure::new(format!(
            "{} links or names lead nowhere:\n  {}",
            dead.len(),
            dead.join("\n  ")
        )))
    }
}

/// Returns a line for each link and each name of the pages that leads nowhere.
fn dead(root: &Path, paths: &BTreeSet<PathBuf>, names: &Names) -> Result<Vec<String>, Failure> {
    let mut pages = BTreeMap::new();
    for path in paths {
        let text = fs::read_to_string(root.join(path))
            .map_err(|error| Failure::new(format!("cannot read {}: {error}", path.display())))?;
        pages.insert(path.as_path(), Page::parse(&text));
    }
    let mut dead = Vec::new();
    for (&path, page) in &pages {
        let mut found = page.loose_ends();
        found.extend(page.code.iter().filter_map(|code| names.missing(code)));
        if path.ends_with(FOR_RUSTDOC) {
            continue;
        }
        found.extend(
            page.targets
                .iter()
                .filter_map(|target| nowhere(root, path, target, &pages)),
        );
        if let Some(rustdoc) = pages.get(path.with_file_name(FOR_RUSTDOC).as_path()) {
            let missing = page
                .defined
                .iter()
                .filter(|label| !rustdoc.defined.contains(*label));
            found
                .extend(missing.map(|label| {
                    format!("[{label}] is not defined in {FOR_RUSTDOC}, for rustdoc")
                }));
        }
        dead.extend(
            found
                .into_iter()
                .map(|what| format!("{}: {what}", path.display())),
        );
    }
    Ok(dead)
}

/// Returns what is wrong with a link from the page at `from`.
fn nowhere(
    root: &Path,
    from: &Path,
    target: &str,
    pages: &BTreeMap<&Path, Page>,
) -> Option<String> {
    if ["https://", "http://", "mailto:", "data:"]
        .iter()
        .any(|scheme| target.starts_with(scheme))
    {
        return None;
    }
    let (file, anchor) = target
        .split_once('#')
        .map_or((target, None), |(file, anchor)| (file, Some(anchor)));
    let path = if file.is_empty() {
        from.to_owned()
    } else {
        resolve(&from.with_file_name(file))
    };
    if !root.join(&path).exists() {
        return Some(format!("{target}: there is no {}", path.display()));
    }
    let heads = &pages.get(path.as_path())?.anchors;
    let anchor = anchor.filter(|anchor| !heads.contains(*anchor))?;
    Some(format!(
        "{target}: {} has no heading {anchor:?}",
        path.display()
    ))
}

/// Resolves `.` and `..` in a path.
fn resolve(path: &Path) -> PathBuf {
    let mut resolved = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => {
                resolved.pop();
            }
            Component::CurDir => {}
            other => resolved.push(other),
        }
    }
    resolved
}

/// Holds the links of a page, and what links can lead to.
#[derive(Debug, Default)]
struct Page {
    /// The targets of the links, those of definitions too.
    targets: Vec<String>,
    /// The labels that are defined, in small letters.
    defined: BTreeSet<String>,
    /// Those of them that are used.
    used: BTreeSet<String>,
    /// The labels of `[text][label]` and of `` [`label`] `` that are not defined.
    undefined: BTreeSet<String>,
    anchors: BTreeSet<String>,
    /// The pieces of code in the prose.
    code: Vec<String>,
}

impl Page {
    fn parse(text: &str) -> Self {
        let mut page = Self::default();
        // A label without a definition is a link to nothing, which `link` judges.
        let to_nothing = |_: BrokenLink<'_>| Some((CowStr::from(""), CowStr::from("")));
        let options = Options::ENABLE_TABLES;
        let parser = Parser::new_with_broken_link_callback(text, options, Some(to_nothing));
        for (label, definition) in parser.reference_definitions().iter() {
            page.defined.insert(small(label));
            page.targets.push(definition.dest.to_string());
        }
        let mut heading = None;
        for event in parser {
            match event {
                Event::Start(
                    Tag::Link {
                        link_type,
                        dest_url,
                        id,
                        ..
                    }
                    | Tag::Image {
                        link_type,
                        dest_url,
                        id,
                        ..
                    },
                ) => page.link(link_type, &dest_url, &id),
                Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
                Event::End(TagEnd::Heading(_)) => page.heading(&heading.take().unwrap_or_default()),
                Event::Text(text) => heading.iter_mut().for_each(|it| it.push_str(&text)),
                Event::Code(code) => {
                    heading.iter_mut().for_each(|it| it.push_str(&code));
                    page.code.push(code.to_string());
                }
                Event::Html(html) | Event::InlineHtml(html) => {
                    let ids = html.split("id=\"").skip(1);
                    let ids = ids.filter_map(|rest| Some(rest.split_once('"')?.0.to_owned()));
                    page.anchors.extend(ids);
                }
                _ => {}
            }
        }
        page
    }

    fn link(&mut self, kind: LinkType, target: &str, label: &str) {
        match kind {
            LinkType::Inline => self.targets.push(target.to_owned()),
            LinkType::Reference | LinkType::Collapsed | LinkType::Shortcut => {
                self.used.insert(small(label));
            }
            LinkType::ReferenceUnknown | LinkType::CollapsedUnknown => {
                self.undefined.insert(label.to_owned());
            }
            LinkType::ShortcutUnknown if label.starts_with('`') && label.ends_with('`') => {
                self.undefined.insert(label.to_owned());
            }
            _ => {}
        }
    }

    /// Adds the anchor that GitHub and GitLab give a heading.
    fn heading(&mut self, text: &str) {
        let kept = text
            .chars()
            .filter(|&c| c.is_alphanumeric() || [' ', '-', '_'].contains(&c));
        let slug: String = kept
            .flat_map(char::to_lowercase)
            .map(|c| if c == ' ' { '-' } else { c })
            .collect();
        let repeated = (1..).map(|count| format!("{slug}-{count}"));
        let mut names = [slug.clone()].into_iter().chain(repeated);
        let free = names.find(|name| !self.anchors.contains(name));
        self.anchors.extend(free);
    }

    /// Returns a line for each label that is used and not defined, or defined and not used.
    fn loose_ends(&self) -> Vec<String> {
        let undefined = self
            .undefined
            .iter()
            .map(|label| format!("[{label}] is not defined"));
        let unused = self
            .defined
            .difference(&self.used)
            .map(|label| format!("[{label}] is defined and not used"));
        undefined.chain(unused).collect()
    }
}

/// Compares labels as Markdown does: without regard to case and line ends.
fn small(label: &str) -> String {
    label
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
        .to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes pages into a folder, and returns what is wrong with their links.
    fn dead_links(pages: &[(&str, &str)]) -> Vec<String> {
        let folder = tempfile::tempdir().expect("a temporary directory can be made");
        for (name, text) in pages {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().expect("a folder")).expect("the directory is ours");
            fs::write(path, text).expect("the directory is ours");
        }
        let names = Names::read(folder.path(), &[]).expect("no file");
        dead(
            folder.path(),
            &pages.iter().map(|(name, _)| name.into()).collect(),
            &names,
        )
        .expect("readable")
    }

    #[test]
    fn every_link_and_every_name_of_the_repository_leads_somewhere() {
        check(&Workspace::load().expect("cargo metadata works here")).expect("no dead link");
    }

    #[test]
    fn a_link_to_a_missing_file_is_found() {
        let pages = [
            (
                "docs/a.md",
                "[b](b.md) [c](c.md) [up](../d.md#x)\n[it][e]\n\n[e]: ../e.rs",
            ),
            ("docs/b.md", ""),
        ];
        assert_eq!(
            dead_links(&pages),
            [
                "docs/a.md: ../e.rs: there is no e.rs",
                "docs/a.md: c.md: there is no docs/c.md",
                "docs/a.md: ../d.md#x: there is no d.md",
            ]
        );
    }

    #[test]
    fn a_link_to_a_missing_heading_is_found() {
        let text =
            "# The `RateLimit` field, [here](b.md)!\n## Two\n## Two\n```\n# no heading\n```\n";
        let links = "[1](a.md#the-ratelimit-field-here) [2](a.md#two-1) [3](a.md#two-2) [4](a.md#no-heading)";
        let dead = dead_links(&[("a.md", text), ("b.md", links)]);
        assert_eq!(
            dead,
            [
                "b.md: a.md#two-2: a.md has no heading \"two-2\"",
                "b.md: a.md#no-heading: a.md has no heading \"no-heading\""
            ]
        );
        assert_eq!(
            dead_links(&[("a.md", "# Here\n[up](#here) [down](#there)")]),
            ["a.md: #there: a.md has no heading \"there\""]
        );
    }

    #[test]
    fn links_in_code_are_none() {
        let code = "`[a](b)` and `` `[c](d)` `` and\n\n```text\n[e](f)\n```\n\n    - `x[0](1)`\n";
        assert_eq!(dead_links(&[("a.md", code)]), [""; 0]);
    }

    #[test]
    fn a_file_that_does_not_exist_is_found_unless_a_block_names_it() {
        let text = "See `gone.rs`.\n\n```\n`gone.lua`\n```\n";
        assert_eq!(dead_links(&[("a.md", text)]), ["a.md: there is no gone.rs"]);
    }

    #[test]
    fn a_label_is_defined_and_used() {
        let page = "[text][one], [`Two`] and [`Three(n)`]. See\n[four]: this is text.\n\n[`two`]: a.md\n[four]: a.md\n[five]: a.md\n";
        let dead = dead_links(&[("a.md", page)]);
        let expected = [
            "[`Three(n)`] is not defined",
            "[one] is not defined",
            "[five] is defined and not used",
        ];
        assert_eq!(dead, expected.map(|what| format!("a.md: {what}")));
    }

    #[test]
    fn rustdoc_has_its_own_definition_of_each_link_of_a_guide() {
        let guide = "[one] and [two].\n\n[one]: guide.md\n[two]: guide.md\n";
        let rustdoc = "[one]: crate::One\n";
        let dead = dead_links(&[("guide.md", guide), (FOR_RUSTDOC, rustdoc)]);
        assert_eq!(
            dead,
            ["guide.md: [two] is not defined in links.md, for rustdoc"]
        );
    }
}
