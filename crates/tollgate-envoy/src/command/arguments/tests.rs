use std::{collections::BTreeMap, fs, path::Path};

use clap::CommandFactory;

use super::*;

/// Returns the variables of the page and of the list beside it, with their defaults: lists both.
fn documented() -> Vec<(Vec<String>, String)> {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let read = |name: &str| fs::read_to_string(docs.join(name)).unwrap();
    let (page, list) = (read("envoy.md"), read("envoy_variables.tsv"));
    let (_, section) = page.split_once("| variable | default |").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
    let rows = rows.map(|row| row.replace(" | ", "\t"));
    let rows = rows
        .chain(list.lines().skip(1).map(str::to_owned))
        .map(|row| {
            let mut cells = row.split('\t');
            let (names, default) = (cells.next().unwrap(), cells.next().unwrap());
            let mut names: Vec<_> = names
                .split(", ")
                .map(|name| name.trim_matches('`').to_owned())
                .collect();
            // A name that begins with dots goes on as the one before.
            for at in 1..names.len() {
                if let Some(end) = names[at].strip_prefix('…') {
                    let start = names[0].rsplit_once("_SERVER").unwrap().0;
                    names[at] = format!("{start}{end}");
                }
            }
            (names, default.trim_end_matches(" |").to_owned())
        });
    rows.collect()
}

/// Returns the variables with their defaults. A variable without one has an empty text.
fn variables() -> BTreeMap<String, String> {
    let command = Arguments::command();
    let arguments = command.get_arguments();
    let pair = |argument: &clap::Arg| {
        let default = argument
            .get_default_values()
            .first()
            .map(|value| value.to_string_lossy().into_owned());
        Some((
            argument.get_env()?.to_string_lossy().into_owned(),
            default.unwrap_or_default(),
        ))
    };
    arguments.filter_map(pair).collect()
}

#[test]
fn the_settings_fit_together() {
    Arguments::command().debug_assert();
}

#[test]
fn each_setting_is_a_variable() {
    for argument in Arguments::command().get_arguments() {
        assert!(argument.get_env().is_some(), "{}", argument.get_id());
    }
}

#[test]
fn the_page_has_all_variables() {
    let mut documented: Vec<_> = documented()
        .into_iter()
        .flat_map(|(names, _)| names)
        .collect();
    documented.sort();
    assert_eq!(documented, variables().into_keys().collect::<Vec<_>>());
}

#[test]
fn the_page_has_the_right_defaults() {
    let variables = variables();
    let mut compared = 0;
    for (names, defaults) in documented() {
        // A cell with a text beside the values is not compared. The last value is that of all
        // further names.
        let values: Option<Vec<_>> = defaults.split(", ").map(value).collect();
        let Some(values) = values else { continue };
        for (at, name) in names.iter().enumerate() {
            let value = values.get(at).or(values.last()).unwrap();
            assert_eq!(&variables[name], value, "{name}");
            compared += 1;
        }
    }
    assert!(compared > 30, "{compared}");
}

/// Returns the value in a list of defaults, or `None` when it is a text for the reader.
fn value(part: &str) -> Option<String> {
    if part == "none" {
        return Some(String::new());
    }
    Some(part.strip_prefix('`')?.strip_suffix('`')?.to_owned())
}
