//! The commands of the README print what it says.

use std::fs;

use tempfile::TempDir;

use super::command;

const README: &str = include_str!("../../README.md");

/// Returns the text of the first block of a language.
fn block(language: &str) -> &'static str {
    let (_, rest) = README
        .split_once(&format!("```{language}\n"))
        .expect("the README has the block");
    rest.split_once("```").expect("the block ends").0
}

#[test]
fn the_commands_of_the_readme_print_what_it_says() {
    let directory = TempDir::new().unwrap();
    fs::write(directory.path().join("rules.yaml"), block("yaml")).unwrap();
    let mut runs = 0;
    for run in block("console")
        .split("$ tollgate ")
        .filter(|run| !run.is_empty())
    {
        let (line, expected) = run.split_once('\n').expect("a command ends with its line");
        let output = command()
            .args(line.split(' '))
            .current_dir(directory.path())
            .output()
            .unwrap();
        assert_eq!(
            String::from_utf8(output.stdout).unwrap(),
            expected,
            "tollgate {line}"
        );
        assert!(
            output.status.success(),
            "tollgate {line}: {}",
            output.status
        );
        runs += 1;
    }
    assert_eq!(runs, 2);
}
