//! Code on pages is whole and tested, and pages count the algorithms that exist.

use super::{files, page};

/// Returns the blocks of Rust in a page: the words behind the three ticks, and the code.
fn blocks(page: &str) -> impl Iterator<Item = (&str, &str)> {
    let blocks = page.split("\n```").skip(1).step_by(2);
    blocks
        .filter_map(|block| block.split_once('\n'))
        .filter(|(words, _)| words.starts_with("rust"))
}

/// Returns whether rustdoc hides a line of this code, which readers of the page see.
fn hides_a_line(code: &str) -> bool {
    code.lines()
        .map(str::trim_start)
        .any(|line| line == "#" || line.starts_with("# "))
}

#[test]
fn code_on_pages_hides_no_line_and_is_a_test() {
    let is_text = |name: &String| name.ends_with(".md") || name.ends_with(".rs");
    let files = files().into_iter().filter(is_text);
    let (pages, sources): (Vec<_>, Vec<_>) = files.partition(|name| name.ends_with(".md"));
    let sources: Vec<_> = sources.iter().map(|name| page(name)).collect();
    let mut with_code = 0;
    for name in pages {
        let text = page(&name);
        for (words, code) in blocks(&text) {
            with_code += 1;
            assert!(!hides_a_line(code), "{name} hides a line of\n{code}");
            assert!(!words.contains("ignore"), "{name} does not compile\n{code}");
            let file = name.rsplit('/').next().unwrap_or(&name);
            let included = [format!("/{file}\")"), format!("(\"{file}\")")];
            assert!(
                sources
                    .iter()
                    .any(|source| included.iter().any(|it| source.contains(it))),
                "no source includes {name} as a test of its code"
            );
        }
    }
    assert!(with_code > 40, "{with_code}");
}

#[test]
fn pages_that_count_the_algorithms_count_those_that_exist() {
    const WORDS: [&str; 8] = [
        "seven", "eight", "nine", "ten", "eleven", "twelve", "thirteen", "fourteen",
    ];
    let rows = page("crates/tollgate-model/src/limits/algorithm/table.rs");
    let count = rows
        .lines()
        .filter(|line| line.ends_with(": &Row = &Row {"))
        .count();
    let (algorithms, expected) = (page("docs/algorithms.md"), WORDS[count - 7]);
    let (table, sections) = algorithms
        .split_once("## How to choose")
        .expect("the heading exists");
    assert_eq!(
        table.lines().filter(|line| line.starts_with("| [")).count(),
        count,
        "rows of docs/algorithms.md"
    );
    assert_eq!(
        sections.matches("\n- *Guarantee*").count(),
        count,
        "sections of docs/algorithms.md"
    );
    for name in [
        "CHANGELOG.md",
        "crates/tollgate/README.md",
        "docs/comparison.md",
    ] {
        let page = page(name).to_lowercase();
        let phrases = |word: &str| {
            [
                format!("{word} algorithms"),
                format!("[{word}](algorithms.md)"),
            ]
        };
        let counts: Vec<_> = WORDS
            .into_iter()
            .filter(|word| phrases(word).iter().any(|it| page.contains(it)))
            .collect();
        assert_eq!(counts, [expected], "{name}");
    }
}

#[test]
fn a_hidden_line_is_found() {
    let text = "text\n\n```rust,no_run\n#[derive(Debug)]\nstruct A;\n```\n\n```sh\n# a comment\n```\n\n```rust\n  # let b = 1;\n```\n";
    let found: Vec<_> = blocks(text).map(|(_, code)| hides_a_line(code)).collect();
    assert_eq!(found, [false, true]);
}
