//! Checks that the links of all pages lead somewhere: to a file, a folder, or a heading of a page.
//! What a page names in backticks has to exist, too: see [`Names`].
//!
//! A page of a guide is read in the repository and by rustdoc. It defines its links at its end, for
//! the repository. `links.md` in its folder defines the same labels for rustdoc, and stands before
//! the page there: of two definitions the first one counts.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Component, Path, PathBuf},
};

use pulldown_cmark::{BrokenLink, CowStr, Event, LinkType, Options, Parser, Tag, TagEnd};

use super::{files, names::Names, read, root, written};

/// The file whose definitions rustdoc reads before those of the pages beside it.
const FOR_RUSTDOC: &str = "links.md";

/// Returns a line for each link and each name of the pages among these files that leads nowhere.
fn dead(root: &Path, files: &[String]) -> Vec<String> {
    let names = Names::of(root, files);
    let pages = files.iter().filter(|file| file.ends_with(".md"));
    let pages: BTreeMap<&Path, Page> = pages
        .map(|file| (Path::new(file), Page::parse(&read(&root.join(file)))))
        .collect();
    let mut dead = Vec::new();
    for (&path, page) in &pages {
        if path.ends_with(FOR_RUSTDOC) {
            continue;
        }
        let mut found = page.loose_ends();
        found.extend(page.code.iter().filter_map(|code| names.missing(code)));
        let targets = page.targets.iter();
        found.extend(targets.filter_map(|target| nowhere(root, path, target, &pages)));
        if let Some(rustdoc) = pages.get(path.with_file_name(FOR_RUSTDOC).as_path()) {
            let missing = page.defined.difference(&rustdoc.defined);
            found.extend(missing.map(|label| format!("[{label}] is not in {FOR_RUSTDOC}")));
        }
        dead.extend(
            found
                .iter()
                .map(|what| format!("{}: {what}", path.display())),
        );
    }
    dead
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

#[test]
fn every_link_and_every_name_of_the_repository_leads_somewhere() {
    let dead = dead(root(), &files());
    assert!(dead.is_empty(), "{}", dead.join("\n"));
}

/// Writes pages into a folder, and returns what is wrong with their links.
fn dead_links(pages: &[(&str, &str)]) -> Vec<String> {
    let names: Vec<_> = pages.iter().map(|(name, _)| (*name).to_owned()).collect();
    dead(written(pages).path(), &names)
}

#[test]
fn a_link_to_a_missing_file_or_heading_is_found() {
    let a = "# The `RateLimit` field, [here](b.md)!\n## Two\n## Two\n```\n# no heading\n```\n\
             [b](b.md) [c](c.md) [up](../d.md#x) [here](#two) [there](#there)\n[it][e]\n\n[e]: ../e.rs";
    let b =
        "[1](a.md#the-ratelimit-field-here) [2](a.md#two-1) [3](a.md#two-2) [4](a.md#no-heading)";
    assert_eq!(
        dead_links(&[("docs/a.md", a), ("docs/b.md", b)]),
        [
            "docs/a.md: ../e.rs: there is no e.rs",
            "docs/a.md: c.md: there is no docs/c.md",
            "docs/a.md: ../d.md#x: there is no d.md",
            "docs/a.md: #there: docs/a.md has no heading \"there\"",
            "docs/b.md: a.md#two-2: docs/a.md has no heading \"two-2\"",
            "docs/b.md: a.md#no-heading: docs/a.md has no heading \"no-heading\"",
        ]
    );
}

#[test]
fn code_has_no_links_and_names_files_that_exist_unless_it_is_a_block() {
    let code = "`[a](b)` and `gone.rs` and\n\n```text\n[e](f) `gone.lua`\n```\n\n    - `x[0](1)`\n";
    assert_eq!(dead_links(&[("a.md", code)]), ["a.md: there is no gone.rs"]);
}

#[test]
fn a_label_is_defined_for_both_readers_and_used() {
    let page = "[text][one], [`Two`] and [`Three(n)`]. See\n[four]: this is text.\n\n[`two`]: a.md\n[four]: a.md\n[five]: a.md\n";
    let rustdoc = "[`two`]: crate::Two\n[four]: crate::Four\n";
    let expected = [
        "[`Three(n)`] is not defined",
        "[one] is not defined",
        "[five] is defined and not used",
        "[five] is not in links.md",
    ];
    assert_eq!(
        dead_links(&[("a.md", page), (FOR_RUSTDOC, rustdoc)]),
        expected.map(|what| format!("a.md: {what}"))
    );
}
