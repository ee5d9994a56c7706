//! Assembles a script from a frame and the files of its algorithms, in `scripts/`.
//!
//! A file has a header, perhaps text, and sections. A section begins with `--# NAME`, or with
//! `--# NAME: …`, which stays in the script as a comment. These parts of a file are replaced:
//!
//! | part | stands for |
//! |---|---|
//! | `--@ NAME NAME` | these sections of each policy in turn; what comes out alike for several policies is written once |
//! | `--@ own NAME` | the section of the algorithm, and not that of the frame, of leases or of a ceiling |
//! | `--@ like FILE` | the sections of FILE, where the file has none of its own |
//! | `--@ numbers LIST` | `arguments.lua`, and the line that reads these [numbers](Part::list) |
//! | `--@ next LIST` | the line that reads the next numbers of a batch; `again LIST` declares no names |
//! | `<keys>`, `<policies>` | how many keys a subject has, and how many policies |
//! | `<place>`, `<number>` | the place of the key of a policy, and the number of the policy |
//! | `<words>`, `<slots>`, `<width>` | the words of a policy or of all, their places in the replies, and how many they are |
//! | `<fits>` | the verdicts of all policies |
//!
//! A section is searched for in `leased.lua` if the policies are leased, in the frame, in
//! `correct.lua` for a refund or a commit, in the file of the algorithm, and in `shared.lua`. In
//! the file, `NAME_capped` comes before NAME under a ceiling, and `NAME_alone` if one word may be
//! the reply.
//!
//! In a script over several policies, the numbers of a policy, and the names that its sections
//! declare without indentation, end in the number of the policy.

// Which frame and which policies are put together is decided in `mod.rs`; the parts of an algorithm
// come from `parts.rs`.

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
};

use super::{parts::Part, sources::source};

pub(super) const REFUND: &str = source!("refund");
pub(super) const COMMIT: &str = source!("commit");
const ARGUMENTS: &str = source!("arguments");
const CORRECT: &str = source!("correct");
const LEASED: &str = source!("leased");
const MULDIV: &str = source!("muldiv");
const SHARED: &str = source!("shared");

/// Begins the first line of a section.
const TITLE: &str = "--# ";

/// Sections by their names.
type Sections = HashMap<&'static str, &'static str>;

/// A frame, and the policies that fill it.
pub(super) struct Frame<'a> {
    source: &'static str,
    parts: &'a [Part],
    /// Precedes the place of a key: `at + ` in a loop over subjects.
    before: &'static str,
    /// The sections of each policy: those around its algorithm, and those of the algorithm.
    sections: Vec<[Sections; 2]>,
    /// The names that each policy has for itself.
    names: Vec<HashSet<&'static str>>,
}

impl<'a> Frame<'a> {
    pub(super) fn new(source: &'static str, parts: &'a [Part], before: &'static str) -> Self {
        let (mut all, mut names) = (Vec::new(), Vec::new());
        for part in parts {
            let corrects = if [COMMIT, REFUND].contains(&source) {
                CORRECT
            } else {
                ""
            };
            let outer = sections(&[corrects, source, if part.leased { LEASED } else { "" }]);
            let own = sections(&[SHARED, MULDIV, part.like.unwrap_or_default(), part.source]);
            let lines = outer
                .values()
                .chain(own.values())
                .flat_map(|section| section.lines());
            let lines = lines.filter(|line| !line.starts_with("local function"));
            let declared =
                lines.filter_map(|line| line.strip_prefix("local ")?.split(" = ").next());
            let numbers = ["costs", "quotas", "places", "words"]
                .into_iter()
                .filter_map(|item| part.list(item));
            names.push(
                declared
                    .flat_map(|names| names.split(", "))
                    .chain(numbers.flatten())
                    .collect(),
            );
            all.push([outer, own]);
        }
        Self {
            source,
            parts,
            before,
            sections: all,
            names,
        }
    }

    /// Returns the script: the headers of its files, and the frame with its sections.
    pub(super) fn script(&self) -> String {
        let (head, main) = split(self.source);
        // A server shows the first 128 bytes of a text in its SLOWLOG.
        let name =
            |source: &'static str| source["-- ".len()..].split(':').next().unwrap_or_default();
        let names: Vec<_> = self.parts.iter().map(|part| name(part.source)).collect();
        let mut text = format!(
            "-- tollgate: {} for {}\n--\n{head}",
            name(self.source),
            names.join(", ")
        );
        let leased = self.parts.iter().filter(|part| part.leased).map(|_| LEASED);
        for source in self.parts.iter().map(|part| part.source).chain(leased) {
            let head = split(source).0;
            if !text.contains(head) {
                text += &format!("--\n{head}");
            }
        }
        self.fill(&mut text, main, "", None);
        text
    }

    /// Appends lines of the frame, or of a section of a policy.
    fn fill(&self, text: &mut String, lines: &str, margin: &str, policy: Option<usize>) {
        for line in lines.lines().filter(|line| !line.is_empty()) {
            let code = line.trim_start();
            let indent = format!("{margin}{}", &line[..line.len() - code.len()]);
            let mut push = |line: &str| *text += &format!("{indent}{line}\n");
            match (code.strip_prefix(TITLE), code.strip_prefix("--@ ")) {
                (Some(title), _) if title.contains(':') => push(&format!("-- {title}")),
                (Some(_), _) => {}
                (_, None) => push(&self.line(code, policy)),
                (_, Some(names)) => match names.split_once(' ').unwrap_or_default() {
                    ("like", _) => {}
                    (verb @ ("numbers" | "next" | "again"), list) => {
                        self.read(verb, list).lines().for_each(push);
                    }
                    ("own", name) => self.insert(text, &[name], true, &indent, policy),
                    _ => self.insert(
                        text,
                        &names.split(' ').collect::<Vec<_>>(),
                        false,
                        &indent,
                        policy,
                    ),
                },
            }
        }
    }

    /// Appends sections of one policy, or of each policy.
    fn insert(
        &self,
        text: &mut String,
        names: &[&str],
        is_own: bool,
        margin: &str,
        policy: Option<usize>,
    ) {
        let mut written = HashSet::new();
        for at in policy.map_or(0..self.parts.len(), |at| at..at + 1) {
            for name in names {
                let mut section = String::new();
                self.fill(
                    &mut section,
                    self.section(at, name, is_own),
                    margin,
                    Some(at),
                );
                if written.insert(section.clone()) {
                    *text += &section;
                }
            }
        }
    }

    /// Returns a section of a policy. One that no file has is empty.
    fn section(&self, at: usize, name: &str, is_own: bool) -> &'static str {
        let (part, [outer, own]) = (&self.parts[at], &self.sections[at]);
        let varied = part
            .variant
            .and_then(|variant| own.get(format!("{name}_{variant}").as_str()));
        let around = outer.get(name).or(varied).filter(|_| !is_own);
        around.or(own.get(name)).copied().unwrap_or_default()
    }

    /// Returns the lines that read numbers.
    fn read(&self, verb: &str, list: &str) -> String {
        let names: Vec<String> = list
            .split(' ')
            .flat_map(|item| self.list(item, None))
            .collect();
        let (all, form) = (names.join(", "), format!("<{}", "d".repeat(names.len())));
        // The numbers of ceilings are in a table: the largest set would have too many locals.
        let locals: Vec<_> = names
            .iter()
            .map(String::as_str)
            .filter(|name| !name.contains('.'))
            .collect();
        let limits = if locals.len() < names.len() {
            "local limits = {}\n"
        } else {
            ""
        };
        let declared = format!("local {}\n{limits}", locals.join(", "));
        let arguments = split(ARGUMENTS).1.replace("<form>", &form);
        match verb {
            "numbers" if limits.is_empty() => {
                format!("{arguments}local {all} = unpack(form, packed)")
            }
            "numbers" => format!("{arguments}{declared}{all} = unpack(form, packed)"),
            "next" => format!("{declared}{all}, next_byte = unpack('{form}', packed, next_byte)"),
            _ => format!("{all}, next_byte = unpack('{form}', packed, next_byte)"),
        }
    }

    /// Returns the names in the place of one in a list, for one policy or for all: see
    /// [`Part::list`].
    fn list(&self, item: &str, policy: Option<usize>) -> Vec<String> {
        let mut names = Vec::new();
        for at in policy.map_or(0..self.parts.len(), |at| at..at + 1) {
            let Some(list) = self.parts[at].list(item) else {
                return vec![item.to_owned()];
            };
            names.extend(
                list.into_iter()
                    .map(|name| self.named(name, at).into_owned()),
            );
        }
        names
    }

    /// Returns a line of the frame, or of a section of a policy, with what depends on the policies.
    fn line(&self, line: &str, policy: Option<usize>) -> String {
        let keys = |parts: &[Part]| parts.iter().map(Part::keys).sum::<usize>();
        let mut line = line.to_owned();
        if line.contains('<') {
            let (at, words) = (policy.unwrap_or_default(), self.list("words", policy));
            let slots: Vec<String> = (1..=words.len())
                .map(|word| format!("replies[place + {word}]"))
                .collect();
            let place = format!("{}{}", self.before, keys(&self.parts[..at]) + 1);
            line = line
                .replace("<words>", &words.join(", "))
                .replace("<slots>", &slots.join(", "));
            line = line
                .replace("<width>", &words.len().to_string())
                .replace("<place>", &place);
            line = line
                .replace("<number>", &(at + 1).to_string())
                .replace("<keys>", &keys(self.parts).to_string());
            line = line.replace("<policies>", &self.parts.len().to_string());
            line = line.replace("<fits>", &self.list("fits", policy).join(" and "));
        }
        let words =
            line.split_inclusive(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
        match policy {
            Some(at) if !line.starts_with("--") => words.map(|word| self.named(word, at)).collect(),
            _ => line,
        }
    }

    /// Returns a word of a section, perhaps with the sign behind it, as the name that it is for a
    /// policy.
    fn named<'w>(&self, word: &'w str, at: usize) -> Cow<'w, str> {
        let part = &self.parts[at];
        let name =
            word.trim_end_matches(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
        let (before, rest) = match name.strip_prefix("ceiling") {
            Some(_) if part.ceiling.contains(&name) => ("limits.", name),
            Some(rest) => (part.top, rest),
            None if self.names[at].contains(name) => ("", name),
            None => return word.into(),
        };
        let number = if self.parts.len() > 1 {
            format!("_{}", at + 1)
        } else {
            String::new()
        };
        let sign = &word[name.len()..];
        format!("{before}{rest}{number}{sign}").into()
    }
}

/// Returns the header of a file, and its text before the first section.
fn split(source: &'static str) -> (&'static str, &'static str) {
    let is_header = |line: &&str| line.starts_with("-- ") || *line == "--\n";
    let head: usize = source
        .split_inclusive('\n')
        .take_while(is_header)
        .map(str::len)
        .sum();
    (
        &source[..head],
        source[head..].split(TITLE).next().unwrap_or_default(),
    )
}

/// Returns the sections of files. A later file comes first.
fn sections(files: &[&'static str]) -> Sections {
    let mut sections = Sections::new();
    for source in files {
        let starts: Vec<usize> = source
            .match_indices("\n--# ")
            .map(|(at, _)| at + 1)
            .collect();
        for (at, &start) in starts.iter().enumerate() {
            let text = &source[start..starts.get(at + 1).copied().unwrap_or(source.len())];
            sections.insert(
                text[TITLE.len()..]
                    .split([':', '\n'])
                    .next()
                    .unwrap_or_default(),
                text,
            );
        }
    }
    sections
}
