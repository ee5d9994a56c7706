//! What each crate weighs without its tests, compared with `docs/contributors/ruler.tsv`.
//! Imports are read in `circles.rs`, which judges those between rooms itself.
//!
//! A figure that falls stays low from then on: its line has to be written anew. One that rises is
//! seen in the change of that line, and its commit says why. Lines, because that is what a reader
//! reads; tokens beside them, because no formatter changes these.

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    path::Path,
};

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

use super::{
    circles::{is, is_end, is_of_tests, list, of_files},
    entries, page, read, root, written,
};

const PAGE: &str = "docs/contributors/ruler.tsv";

/// The figures of a crate. Those that are not compared say what the compared ones are made of.
const COLUMNS: [(&str, bool); 7] = [
    ("lines of code", true),
    ("tokens", false),
    ("files", false),
    ("files without a head", true),
    ("names of two types", true),
    ("hidden public items", true),
    ("circles of files", true),
];

/// The words before the name of a type.
const KINDS: [&str; 5] = ["struct", "enum", "trait", "type", "union"];

/// What the files of a crate have.
#[derive(Debug, Default)]
struct Weight {
    lines: usize,
    tokens: usize,
    files: usize,
    headless: Vec<String>,
    /// The files of each type name, once for each type.
    types: BTreeMap<String, Vec<String>>,
    /// The files of hidden items.
    hidden: Vec<String>,
    circles: Vec<String>,
}

impl Weight {
    /// Reads the crate in this folder.
    fn of(folder: &Path) -> Self {
        let sources = folder.join("src");
        let (mut weight, mut files) = (Self::default(), Vec::new());
        weight.circles = of_files(&sources);
        list(&sources, &mut files);
        files.sort();
        for path in files {
            let name = path.strip_prefix(folder).expect("a file of the folder");
            let name = name.to_string_lossy().into_owned();
            if !is_test(&name) {
                weight.add(&name, &read(&path));
            }
        }
        weight
    }

    fn add(&mut self, name: &str, text: &str) {
        let mut file = File::default();
        file.read(text.parse().expect("it compiles"));
        self.lines += file.lines.len();
        self.tokens += file.tokens;
        self.files += 1;
        if !has_head(text) {
            self.headless.push(name.to_owned());
        }
        let types = file
            .types
            .into_iter()
            .filter(|type_| !file.associated.contains(type_));
        for type_ in types {
            self.types.entry(type_).or_default().push(name.to_owned());
        }
        let hidden = std::iter::repeat_n(name.to_owned(), file.hidden);
        self.hidden.extend(hidden);
    }

    /// Lists the names of two types, with their files.
    fn doubled(&self) -> Vec<String> {
        let doubled = self.types.iter().filter(|(_, files)| files.len() > 1);
        doubled
            .map(|(name, files)| format!("{name} in {}", files.join(", ")))
            .collect()
    }

    /// Returns a figure for each column.
    fn figures(&self) -> [usize; 7] {
        [
            self.lines,
            self.tokens,
            self.files,
            self.headless.len(),
            self.doubled().len(),
            self.hidden.len(),
            self.circles.len(),
        ]
    }

    /// Returns what a column counts, where it can be listed.
    fn listed(&self, column: usize) -> Vec<String> {
        match column {
            3 => self.headless.clone(),
            4 => self.doubled(),
            5 => self.hidden.clone(),
            6 => self.circles.clone(),
            _ => Vec::new(),
        }
    }
}

/// What a file has beside its comments and its tests.
#[derive(Default)]
struct File {
    /// The lines on which a token begins, or a bracket ends.
    lines: BTreeSet<usize>,
    tokens: usize,
    types: Vec<String>,
    /// The names of associated types and plain aliases. They have no meaning of their own.
    associated: BTreeSet<String>,
    hidden: usize,
}

impl File {
    fn read(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut rest = tokens.as_slice();
        while let Some((first, after)) = rest.split_first() {
            if let Some(length) = comment(rest) {
                rest = &rest[length..];
                continue;
            }
            if let (true, Some(TokenTree::Group(attribute))) = (is(first, '#'), after.first()) {
                if is_of_tests(attribute) {
                    let end = rest.iter().position(is_end);
                    rest = &rest[end.map_or(rest.len(), |end| end + 1)..];
                    continue;
                }
                self.hidden += usize::from(hides(attribute));
            }
            self.token(first, after);
            rest = after;
        }
    }

    fn token(&mut self, token: &TokenTree, after: &[TokenTree]) {
        match token {
            TokenTree::Group(group) => {
                if group.delimiter() != Delimiter::None {
                    self.tokens += 2;
                    let (open, close) = (group.span_open(), group.span_close());
                    self.lines.extend([open.start().line, close.start().line]);
                }
                self.read(group.stream());
                return;
            }
            TokenTree::Ident(word) => {
                self.tokens += 1;
                if KINDS.iter().any(|kind| word == kind) {
                    self.named(word == "type", after);
                }
            }
            // A formatter adds and removes these.
            TokenTree::Punct(mark) => self.tokens += usize::from(!",;".contains(mark.as_char())),
            TokenTree::Literal(literal) => self.tokens += pieces(&literal.to_string()),
        }
        self.lines.insert(token.span().start().line);
    }

    /// Notes the name of a type. `after` begins with it.
    fn named(&mut self, is_alias: bool, after: &[TokenTree]) {
        let [TokenTree::Ident(name), after @ ..] = after else {
            return;
        };
        let name = name.to_string();
        let begins_body = |token: &TokenTree| "=:;".chars().any(|mark| is(token, mark));
        if is_alias && after.first().is_some_and(begins_body) {
            self.associated.insert(name);
        } else if name.starts_with(char::is_uppercase) {
            self.types.push(name);
        }
    }
}

/// Returns whether a file of `src` holds only tests, or was generated.
fn is_test(name: &str) -> bool {
    name.split('/')
        .any(|part| ["tests", "generated", "tests.rs"].contains(&part))
        || name.ends_with("_tests.rs")
}

/// Returns whether a file begins with `//!`, after attributes of its module at most.
fn has_head(text: &str) -> bool {
    let mut text = text.trim_start();
    while let Some((_, after)) = text
        .strip_prefix("#![")
        .and_then(|attribute| attribute.split_once(']'))
    {
        text = after.trim_start();
    }
    text.starts_with("//!")
}

/// Returns the number of tokens of a comment, if these begin with one: `proc_macro2` reads it as
/// an attribute, all of whose tokens are at one place.
fn comment(tokens: &[TokenTree]) -> Option<usize> {
    let length = match tokens {
        [_, TokenTree::Group(_), ..] => 2,
        [_, mark, TokenTree::Group(_), ..] if is(mark, '!') => 3,
        _ => return None,
    };
    let places = [&tokens[0], &tokens[length - 1]].map(|token| token.span().start());
    (is(&tokens[0], '#') && places[0] == places[1]).then_some(length)
}

fn hides(attribute: &Group) -> bool {
    let text = attribute.stream().to_string();
    text.replace(char::is_whitespace, "").contains("doc(hidden")
}

/// Returns the number of tokens for which a literal counts: a number by its parts, and any text as
/// two, because a longer message is no more code.
fn pieces(literal: &str) -> usize {
    if literal.contains(['"', '\'']) {
        return 2;
    }
    let is_word = |sign: char| sign.is_alphanumeric() || sign == '_';
    let words = literal.split(|sign| !is_word(sign));
    let marks = literal.chars().filter(|sign| !is_word(*sign)).count();
    words.filter(|word| !word.is_empty()).count() + marks
}

type Crates = BTreeMap<String, Weight>;

/// Weighs the crates in a folder.
fn weighed(folder: &Path) -> Crates {
    let crates = entries(folder).into_iter();
    crates
        .filter(|path| path.join("Cargo.toml").is_file())
        .map(|path| {
            let name = path.file_name().expect("a folder").to_string_lossy();
            (name.into_owned(), Weight::of(&path))
        })
        .collect()
}

/// Writes a line for each crate. There is no sum: two changes of two crates would meet in it.
fn table(crates: &Crates) -> String {
    let line = |cells: Vec<String>| cells.join("\t") + "\n";
    let columns = COLUMNS.iter().map(|(column, _)| (*column).to_owned());
    let mut text = line([String::from("crate")].into_iter().chain(columns).collect());
    for (name, weight) in crates {
        let figures = weight
            .figures()
            .into_iter()
            .map(|figure| figure.to_string());
        text += &line([name.clone()].into_iter().chain(figures).collect());
    }
    text
}

/// Describes where a table does not say what the crates weigh.
fn differences(table: &str, crates: &Crates) -> Vec<String> {
    let mut lines: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for line in table.lines().skip(1) {
        let mut cells = line.split('\t');
        lines.insert(cells.next().unwrap_or_default(), cells.collect());
    }
    let mut found = Vec::new();
    for (name, weight) in crates {
        let Some(cells) = lines.remove(name.as_str()) else {
            found.push(format!("{name} has no line"));
            continue;
        };
        for (at, (column, is_compared)) in COLUMNS.into_iter().enumerate() {
            let figure = weight.figures()[at];
            let written = cells.get(at).and_then(|cell| cell.parse().ok());
            if !is_compared || written == Some(figure) {
                continue;
            }
            let written: usize = written.unwrap_or_default();
            let way = if figure > written { "rise" } else { "fall" };
            let mut text = format!("{name}: {column} {way} from {written} to {figure}");
            if figure > written {
                let listed = weight.listed(at);
                listed
                    .iter()
                    .for_each(|what| text += &format!("\n    {what}"));
            }
            found.push(text);
        }
    }
    found.extend(lines.keys().map(|name| format!("{name} is no crate")));
    found
}

#[test]
fn no_crate_weighs_more_than_is_written_down() {
    let crates = weighed(&root().join("crates"));
    assert!(crates.len() > 5);
    if env::var_os("TOLLGATE_BLESS").is_some() {
        fs::write(root().join(PAGE), table(&crates)).expect("the page can be written");
        return;
    }
    let differences = differences(&page(PAGE), &crates);
    assert!(
        differences.is_empty(),
        "{PAGE} has other figures than the crates:\n  {}\nRun this, and commit its change:\n  \
         TOLLGATE_BLESS=1 cargo test -p xtask ruler\nA figure that fell stays low from now on. For \
         one that rose, the commit has to say why.",
        differences.join("\n  ")
    );
}

const FILES: [(&str, &str); 6] = [
    ("one/Cargo.toml", ""),
    (
        "one/src/lib.rs",
        "#![warn(missing_docs)]\n//! A head.\n\n/// A comment.\n#[doc(hidden)]\npub struct Both(u8);\n\n\
         #[cfg(test)]\nmod tests {\n    struct Both;\n}\n// doc(hidden)\n/* struct Both; */\n",
    ),
    (
        "one/src/room/mod.rs",
        "fn f<'a>() -> f64 {\n    \"two\n     lines\";\n\n    1.5\n}\n",
    ),
    (
        "one/src/room/both.rs",
        "//! A head.\nenum Both {}\ntype Alias<T> = T;\nimpl T for Both {\n    type Alias = u8;\n}\n\
         #[cfg(all(test, unix))]\nuse a::{b};\n",
    ),
    ("one/src/room/tests.rs", "struct Test;"),
    ("one/src/generated/code.rs", "struct Code;"),
];

/// Weighs a crate of these files.
fn one(files: &[(&str, &str)]) -> Crates {
    weighed(written(files).path())
}

#[test]
fn comments_tests_and_generated_code_weigh_nothing() {
    let crates = one(&FILES);
    let weight = &crates["one"];
    // `#![warn(missing_docs)]`, `#[doc(hidden)]` and `pub struct Both(u8);` are 8, 7 and 6.
    // `fn f<'a>() -> f64 { }` is 13, the text 2, and the number 3.
    // `enum Both {}`, `type Alias<T> = T;`, the four words and two brackets of the `impl`, and
    // `type Alias = u8;` are 4, 7, 6 and 4. The semicolon after `use a::{b}` is no token.
    assert_eq!(weight.tokens, 8 + 7 + 6 + 13 + 2 + 3 + 4 + 7 + 6 + 4);
    // The second line of the text has its semicolon, and the last one of the other file that of
    // the `use`.
    assert_eq!(weight.lines, 3 + 5 + 6);
    assert_eq!(weight.files, 3);
}

#[test]
fn a_file_without_a_head_a_doubled_name_and_a_hidden_item_are_found() {
    let crates = one(&FILES);
    let weight = &crates["one"];
    assert_eq!(weight.headless, ["src/room/mod.rs"]);
    assert_eq!(weight.doubled(), ["Both in src/lib.rs, src/room/both.rs"]);
    assert_eq!(weight.hidden, ["src/lib.rs"]);
}

#[test]
fn a_figure_that_rises_or_falls_and_a_crate_that_comes_or_goes_are_reported() {
    let mut crates = one(&FILES);
    let written = table(&crates);
    assert!(
        written.contains("\none\t14\t60\t3\t1\t1\t1\t0\n"),
        "{written}"
    );
    assert_eq!(differences(&written, &crates), [""; 0]);

    crates
        .get_mut("one")
        .expect("it")
        .add("src/more.rs", "struct More;");
    assert_eq!(
        differences(&written, &crates),
        [
            "one: lines of code rise from 14 to 15",
            "one: files without a head rise from 1 to 2\n    src/room/mod.rs\n    src/more.rs",
        ]
    );

    let circle = "use crate::room::both::Both;\npub struct More;";
    let other = "//! A head.\nenum Both { One(crate::more::More) }";
    let mut files = FILES;
    files[4] = ("one/src/more.rs", circle);
    files[3].1 = other;
    let found = differences(&written, &one(&files));
    assert_eq!(
        found.last().map(String::as_str),
        Some(
            "one: circles of files rise from 0 to 1\n    a circle of 2 files, more.rs, room/both.rs:\n  \
             more.rs:1 takes Both from room/both.rs\n  room/both.rs:2 takes More from more.rs"
        )
    );

    let fewer = differences(&written, &one(&FILES[..2]));
    assert_eq!(
        fewer,
        [
            "one: lines of code fall from 14 to 3",
            "one: files without a head fall from 1 to 0",
            "one: names of two types fall from 1 to 0",
        ]
    );

    let other = written.replace("one\t", "two\t");
    assert_eq!(
        differences(&other, &one(&FILES)),
        ["one has no line", "two is no crate"]
    );
}
