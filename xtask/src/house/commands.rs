//! README begins with the two commands of the project, and says what the second one takes.

use super::page;
use crate::need::TESTS;

/// Two screens of text.
const MAX_LINES: usize = 160;

/// Returns the commands of the blocks for a terminal, each with the comment behind it.
fn commands(page: &str) -> impl Iterator<Item = (&str, &str)> {
    let blocks = page.split("\n```console\n").skip(1);
    let lines = blocks.flat_map(|block| block.split("\n```").next().unwrap_or_default().lines());
    lines
        .filter_map(|line| line.strip_prefix("$ "))
        .map(|line| line.split_once('#').unwrap_or((line, "")))
        .map(|(command, comment)| (command.trim_end(), comment))
}

/// Returns the comment behind a command of a page.
fn comment<'a>(page: &'a str, command: &str) -> Option<&'a str> {
    commands(page)
        .find(|(found, _)| *found == command)
        .map(|(_, comment)| comment)
}

#[test]
fn readme_has_the_two_commands_and_says_what_the_second_one_takes() {
    let readme = page("README.md");
    assert!(comment(&readme, "cargo run -p quickstart").is_some());
    let tests = comment(&readme, "cargo xtask test").expect("the second command");
    for need in TESTS {
        let (_, name) = need.name.split_once(' ').expect("an article");
        let name = name.trim_end_matches(" server");
        assert!(tests.contains(name), "{name} is not in {tests:?}");
    }
    let times = page("docs/contributors/commands.md");
    let row = times
        .lines()
        .find(|line| line.starts_with("| `cargo xtask test` |"));
    let cells: Vec<_> = row.expect("its row").split(" | ").collect();
    let takes = cells[2].trim_end_matches(" |");
    assert!(takes.ends_with("minutes"), "{takes}");
    assert!(tests.contains(takes), "{takes} is not in {tests:?}");
    let lines = readme.lines().count();
    assert!(lines <= MAX_LINES, "README.md has {lines} lines");
}

#[test]
fn a_command_that_stands_in_the_prose_alone_is_not_found() {
    let page = "`cargo test`\n\n```console\n$ cargo run    # in a clone\n200\n```\n\n```sh\ncargo test\n```\n";
    assert_eq!(comment(page, "cargo run"), Some(" in a clone"));
    assert_eq!(comment(page, "cargo test"), None);
}
