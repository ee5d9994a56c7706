//! Finds circles of imports between the rooms of a crate, and between its files.
//!
//! A room is a folder, or a file that stands alone, beside the root file of a crate. Two rooms may
//! not know each other. Files of a room may, with a reason at their place: `ruler.rs` compares how
//! many such circles each crate has. A file depends on the files that define the names
//! in its paths. Re-exports are followed: a `mod.rs` that only declares its children and re-exports
//! their names is part of no circle. Code under `#[cfg(test)]` does not count.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

use super::{entries, read, root, written};

/// The folders of the workspace that hold crates.
const FOLDERS: [&str; 3] = ["crates", "tools", "."];

/// Re-exports of re-exports are followed this far; a longer chain is a circle of `use` items, which
/// rustc rejects.
const DEEPEST: usize = 32;

/// Returns the room of a file, as the beginning of its path.
fn room(file: &str) -> &str {
    let outer = file.find("src/").map_or(0, |at| at + "src/".len());
    let inner = &file[outer..];
    let end = inner
        .find('/')
        .or_else(|| inner.find(".rs"))
        .unwrap_or(inner.len());
    &file[..outer + end]
}

/// The path of a module or of a name, from the root of the crate.
type Words = Vec<String>;

/// A path in the code of a module.
#[derive(Debug)]
struct Use {
    file: String,
    line: usize,
    path: Words,
}

/// The modules of a crate, without its test code.
#[derive(Debug, Default)]
struct Sources {
    /// The file of each module.
    modules: BTreeMap<Words, String>,
    tests: BTreeSet<Words>,
    /// The meaning of each name that a module imports or re-exports.
    imports: BTreeMap<(Words, String), Words>,
    uses: Vec<Use>,
}

impl Sources {
    /// Reads the crate with these sources; its files are named relative to `base`.
    fn read(sources: &Path, base: &Path) -> Self {
        let mut files = Vec::new();
        list(sources, &mut files);
        let has_library = sources.join("lib.rs").is_file();
        let mut crate_ = Self::default();
        for path in files {
            let words = path.strip_prefix(sources).expect("a file of the folder");
            let words = words.with_extension("");
            let words = words.iter().map(|word| word.to_string_lossy().into_owned());
            let mut module: Words = words.collect();
            match module.last().map(String::as_str) {
                // The root of a program beside a library is another crate.
                Some("main") if has_library && module.len() == 1 => continue,
                Some("lib" | "main") if module.len() == 1 => module.clear(),
                Some("mod") => _ = module.pop(),
                _ => {}
            }
            let tokens: TokenStream = read(&path).parse().expect("it compiles");
            let file = path.strip_prefix(base).expect("a file of the folder");
            let file = file.to_string_lossy().into_owned();
            crate_.modules.insert(module.clone(), file.clone());
            Reader {
                sources: &mut crate_,
                file,
                module,
            }
            .read(tokens);
        }
        crate_
    }

    /// Describes every circle of the places that `place` returns for a file: for each of them the
    /// imports from the others.
    fn circles(&self, kind: &str, place: fn(&str) -> &str) -> Vec<String> {
        let files: BTreeMap<_, _> = self
            .modules
            .iter()
            .map(|(module, file)| (file.as_str(), module))
            .collect();
        let is_test = |file: &str| files.get(file).is_some_and(|module| self.is_test(module));
        let mut imports: BTreeMap<(&str, &str), (usize, BTreeSet<&str>)> = BTreeMap::new();
        for used in self.uses.iter().filter(|used| !is_test(&used.file)) {
            let Some(to) = self.resolve(&used.path, 0) else {
                continue;
            };
            if place(to) != place(&used.file) {
                let (_, names) = imports
                    .entry((&used.file, to))
                    .or_insert((used.line, BTreeSet::new()));
                names.extend(name(&used.path));
            }
        }
        let mut edges: Edges<'_> = BTreeMap::new();
        for (from, to) in imports.keys() {
            edges.entry(place(from)).or_default().insert(place(to));
        }
        let reached: BTreeMap<&str, BTreeSet<&str>> = edges
            .keys()
            .map(|from| (*from, reached(&edges, from)))
            .collect();
        let circle_of = |one: &&str| {
            let others = reached[one].iter().copied();
            others
                .filter(|other| reached.get(other).is_some_and(|back| back.contains(one)))
                .collect::<BTreeSet<_>>()
        };
        let circles: BTreeSet<_> = edges
            .keys()
            .map(circle_of)
            .filter(|circle| circle.len() > 1)
            .collect();
        let describe = |circle: &BTreeSet<&str>| {
            let names: Vec<&str> = circle.iter().copied().collect();
            let mut text = format!("a circle of {} {kind}, {}:", circle.len(), names.join(", "));
            for ((from, to), (line, names)) in &imports {
                if circle.contains(place(from)) && circle.contains(place(to)) {
                    let names: Vec<&str> = names.iter().copied().collect();
                    text += &format!("\n  {from}:{line} takes {} from {to}", names.join(", "));
                }
            }
            text
        };
        circles.iter().map(describe).collect()
    }

    fn is_test(&self, module: &[String]) -> bool {
        (1..=module.len()).any(|length| self.tests.contains(&module[..length]))
    }

    /// Returns the file that defines the name at the end of a path. A module is only the way to its
    /// names.
    fn resolve(&self, path: &[String], depth: usize) -> Option<&str> {
        let mut module = Words::new();
        for (at, word) in path.iter().enumerate() {
            let below = [module.as_slice(), std::slice::from_ref(word)].concat();
            if self.modules.contains_key(&below) {
                module = below;
            } else if let Some(import) = self.imports.get(&(module.clone(), word.clone())) {
                let whole = [import, &path[at + 1..]].concat();
                return if depth < DEEPEST {
                    self.resolve(&whole, depth + 1)
                } else {
                    None
                };
            } else {
                return self.modules.get(&module).map(String::as_str);
            }
        }
        None
    }
}

/// The places from which each place imports.
type Edges<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

/// Lists the places that a place uses, directly or through others.
fn reached<'a>(edges: &Edges<'a>, from: &'a str) -> BTreeSet<&'a str> {
    let (mut known, mut next) = (BTreeSet::new(), vec![from]);
    while let Some(place) = next.pop() {
        let used = edges.get(place).into_iter().flatten().copied();
        next.extend(used.filter(|used| known.insert(*used)));
    }
    known
}

/// Returns the word of a path that is written as a name: the type of `Type::new`, the function of
/// `module::function`.
fn name(path: &[String]) -> Option<&str> {
    path.iter()
        .find(|word| word.starts_with(char::is_uppercase))
        .or(path.last())
        .map(String::as_str)
}

/// Describes the circles of files of the crate with these sources.
pub(super) fn of_files(sources: &Path) -> Vec<String> {
    Sources::read(sources, sources).circles("files", |file| file)
}

/// Lists the sources in a folder and those below.
pub(super) fn list(folder: &Path, found: &mut Vec<PathBuf>) {
    for path in entries(folder) {
        if path.is_dir() {
            list(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// Reads the code of a module.
struct Reader<'a> {
    sources: &'a mut Sources,
    file: String,
    module: Words,
}

impl Reader<'_> {
    fn read(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let (mut rest, mut is_test, mut is_public) = (tokens.as_slice(), false, false);
        while let Some(first) = rest.first() {
            let mut length = 1;
            match (first, rest.get(1)) {
                (TokenTree::Punct(mark), Some(TokenTree::Group(attribute)))
                    if mark.as_char() == '#' =>
                {
                    is_test |= is_of_tests(attribute);
                    rest = &rest[2..];
                    continue;
                }
                (TokenTree::Ident(word), visibility) if word == "pub" => {
                    is_public = true;
                    rest =
                        &rest[1 + usize::from(matches!(visibility, Some(TokenTree::Group(_))))..];
                    continue;
                }
                (TokenTree::Ident(word), Some(TokenTree::Ident(name))) if word == "mod" => {
                    self.module(&name.to_string(), rest.get(2), is_test);
                    length = 3;
                }
                _ if is_test => length = 1 + rest.iter().position(is_end).unwrap_or(rest.len() - 1),
                (TokenTree::Ident(word), _) if word == "use" => {
                    self.import(&rest[1..], &[], is_public);
                    length = 1 + rest
                        .iter()
                        .position(is_end_of_import)
                        .unwrap_or(rest.len() - 1);
                }
                (TokenTree::Group(group), _) => self.read(group.stream()),
                _ => {
                    let (words, tokens) = path(rest);
                    // A single word may be a variable. A path that begins with `::` leads out of
                    // the crate.
                    if words.len() > 1 && matches!(first, TokenTree::Ident(_)) {
                        self.note(self.absolute(&words), first);
                    }
                    length = tokens.max(1);
                }
            }
            rest = &rest[length..];
            (is_test, is_public) = (false, false);
        }
    }

    fn module(&mut self, name: &str, block: Option<&TokenTree>, is_test: bool) {
        let child = [self.module.as_slice(), &[name.to_owned()]].concat();
        match block {
            _ if is_test => _ = self.sources.tests.insert(child),
            Some(TokenTree::Group(block)) => {
                self.sources
                    .modules
                    .insert(child.clone(), self.file.clone());
                let outer = std::mem::replace(&mut self.module, child);
                self.read(block.stream());
                self.module = outer;
            }
            // Its file is read on its own, unless an attribute says that it is in another crate.
            _ => {
                let file = Path::new(&self.file)
                    .with_file_name(name)
                    .with_extension("rs");
                self.sources
                    .modules
                    .entry(child)
                    .or_insert_with(|| file.to_string_lossy().into_owned());
            }
        }
    }

    /// Reads a tree of a `use` item below the words of `outer`.
    fn import(&mut self, tokens: &[TokenTree], outer: &[String], is_public: bool) {
        let (words, length) = path(tokens);
        let mut words = [outer, &words].concat();
        match tokens.get(length..).unwrap_or_default() {
            [TokenTree::Group(group), ..] => {
                let trees: Vec<TokenTree> = group.stream().into_iter().collect();
                trees
                    .split(|token| is(token, ','))
                    .for_each(|tree| self.import(tree, &words, is_public));
            }
            after if !tokens.is_empty() => {
                words.pop_if(|word| word == "self" && !outer.is_empty());
                let rename = match after {
                    [TokenTree::Ident(word), TokenTree::Ident(name), ..] if word == "as" => {
                        Some(name.to_string())
                    }
                    _ => None,
                };
                let (name, path) = (rename.or(words.last().cloned()), self.absolute(&words));
                // A re-export alone is no dependency: whoever uses the name depends on the file
                // that defines it.
                if !is_public {
                    self.note(path.clone(), &tokens[0]);
                }
                self.sources
                    .imports
                    .insert((self.module.clone(), name.unwrap_or_default()), path);
            }
            _ => {}
        }
    }

    fn note(&mut self, path: Words, at: &TokenTree) {
        let line = at.span().start().line;
        self.sources.uses.push(Use {
            file: self.file.clone(),
            line,
            path,
        });
    }

    /// Returns a path of this module as one from the root of the crate.
    fn absolute(&self, words: &[String]) -> Words {
        let mut module = self.module.clone();
        for (at, word) in words.iter().enumerate() {
            match word.as_str() {
                "crate" => module.clear(),
                "super" => _ = module.pop(),
                "self" => {}
                _ => return [module.as_slice(), &words[at..]].concat(),
            }
        }
        module
    }
}

/// Returns the words of the path at the begin of these tokens, and the number of its tokens.
fn path(tokens: &[TokenTree]) -> (Words, usize) {
    let (mut words, mut length) = (Words::new(), 0);
    loop {
        match &tokens[length..] {
            [TokenTree::Ident(word), rest @ ..] => {
                words.push(word.to_string());
                length += 1;
                if !matches!(rest, [one, two, ..] if is(one, ':') && is(two, ':')) {
                    return (words, length);
                }
                length += 2;
            }
            [one, two, ..] if length == 0 && is(one, ':') && is(two, ':') => length += 2,
            _ => return (words, length),
        }
    }
}

pub(super) fn is(token: &TokenTree, mark: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == mark)
}

fn is_end_of_import(token: &TokenTree) -> bool {
    is(token, ';')
}

/// Returns whether an attribute keeps what follows for tests.
pub(super) fn is_of_tests(attribute: &Group) -> bool {
    let text = attribute.stream().to_string();
    let text = text.replace(char::is_whitespace, "");
    text.starts_with("cfg(test)") || text.starts_with("cfg(all(test,")
}

/// Returns whether an item ends with this token.
pub(super) fn is_end(token: &TokenTree) -> bool {
    is(token, ';')
        || matches!(token, TokenTree::Group(block) if block.delimiter() == Delimiter::Brace)
}

#[test]
fn no_rooms_of_a_crate_import_from_each_other() {
    let crates = FOLDERS
        .iter()
        .flat_map(|folder| entries(&root().join(folder)));
    let sources = crates.map(|crate_| crate_.join("src"));
    let sources: Vec<_> = sources.filter(|folder| folder.is_dir()).collect();
    assert!(sources.len() > 10);
    let circles = sources
        .iter()
        .flat_map(|folder| Sources::read(folder, root()).circles("rooms", room));
    let circles: Vec<_> = circles.collect();
    assert!(circles.is_empty(), "{}", circles.join("\n"));
}

/// Writes a crate of these files and returns its circles of rooms.
fn circles(files: &[(&str, &str)]) -> Vec<String> {
    let folder = written(files);
    Sources::read(folder.path(), folder.path()).circles("rooms", room)
}

#[test]
fn rooms_that_import_from_each_other_are_a_circle() {
    for (a, b, expected) in [
        (
            "use crate::b::B;\npub struct A(B);",
            "\nuse super::a::{A, other};",
            "A, other",
        ),
        (
            "pub fn a() { crate::b::B::new() }",
            "\npub fn b() { assert!(super::a::A::new() > 1); }",
            "A",
        ),
        (
            "mod inner { use super::super::b::B; }",
            "\nuse crate::a;\nfn b() { a::made_by_a_macro(); }",
            "made_by_a_macro",
        ),
        (
            "pin_project! { pub struct A { inner: crate::b::B } }",
            "\npub struct B(Box<crate::a::A>);",
            "A",
        ),
    ] {
        let found = circles(&[("lib.rs", "mod a; mod b;"), ("a.rs", a), ("b.rs", b)]);
        let line = if expected.contains('_') { 3 } else { 2 };
        let from_b = format!("  b.rs:{line} takes {expected} from a.rs");
        assert_eq!(
            found,
            [format!(
                "a circle of 2 rooms, a, b:\n  a.rs:1 takes B from b.rs\n{from_b}"
            )]
        );
    }
}

#[test]
fn files_of_one_room_are_a_circle_of_files_alone() {
    let mut files = [
        ("lib.rs", "mod room;"),
        ("room/mod.rs", "mod a; mod b; pub use a::A;"),
        ("room/a.rs", "use super::b::B;\npub struct A(B);"),
        ("room/b.rs", "pub struct B(Box<super::A>);"),
    ];
    assert_eq!(circles(&files), [""; 0]);
    let imports = "room/a.rs:1 takes B from room/b.rs\n  room/b.rs:1 takes A from room/a.rs";
    assert_eq!(
        of_files(written(&files).path()),
        [format!(
            "a circle of 2 files, room/a.rs, room/b.rs:\n  {imports}"
        )]
    );
    files[3].1 = "pub struct B;";
    assert_eq!(of_files(written(&files).path()), [""; 0]);
}

#[test]
fn three_rooms_are_a_circle() {
    let found = circles(&[
        ("lib.rs", "mod a; mod b; mod c; mod d;"),
        ("a.rs", "use crate::b::b;"),
        ("b.rs", "use crate::c::c;"),
        ("c.rs", "use crate::{a::a, d::d};"),
        ("d.rs", "pub fn d() {}"),
    ]);
    assert!(
        matches!(&found[..], [circle] if circle.starts_with("a circle of 3 rooms, a, b, c:\n")),
        "{found:?}"
    );
}

#[test]
fn a_re_export_leads_to_the_file_that_defines_the_name() {
    let mut files = [
        ("lib.rs", "mod room; mod user; pub use room::Inner;"),
        (
            "room/mod.rs",
            "mod inner; mod other;\npub use inner::Inner;\npub(crate) use other::Other;",
        ),
        (
            "room/inner.rs",
            "use crate::user::User;\npub struct Inner(User);",
        ),
        (
            "room/other.rs",
            "use super::Inner;\npub struct Other(Inner);",
        ),
        ("user.rs", "use crate::Inner;\npub struct User(Box<Inner>);"),
    ];
    let (one, other) = (
        "room/inner.rs:1 takes User from user.rs",
        "user.rs:1 takes Inner from room/inner.rs",
    );
    assert_eq!(
        circles(&files),
        [format!(
            "a circle of 2 rooms, room, user:\n  {one}\n  {other}"
        )]
    );
    // Without the import from `inner`, `mod.rs` and `lib.rs` are in no circle although all
    // names pass through them.
    files[2].1 = "pub struct Inner;";
    assert_eq!(circles(&files), [""; 0]);
}

#[test]
fn one_room_one_file_tests_and_other_crates_make_no_circle() {
    let found = circles(&[
        (
            "lib.rs",
            "mod a; mod b; mod redis; mod c { pub struct C(super::D); } pub struct D(c::C);",
        ),
        (
            "a.rs",
            "pub struct A;\n#[cfg(test)] mod tests { use crate::b::B; }\n#[cfg(all(test, unix))] use crate::b::B;\n#[cfg(test)] mod far;",
        ),
        ("a/far.rs", "use crate::b::B;"),
        (
            "b.rs",
            "use crate::{a::A, redis::R};\npub struct B(A);\nimpl B {\n  #[cfg(test)] fn c() { crate::c::C; }\n}",
        ),
        (
            "redis/mod.rs",
            "mod inner; pub(crate) use inner::R; fn f(b: u8) -> ::b::B { b; std::b::b() }",
        ),
        (
            "redis/inner.rs",
            "use super::R; use std::{fmt, b}; pub struct R(fmt::R);",
        ),
    ]);
    assert_eq!(found, [""; 0]);
}
