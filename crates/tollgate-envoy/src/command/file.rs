//! Reads settings from flags, variables and a file.
//! Which settings there are stands in `arguments/`.

use std::{ffi::OsString, fs, path::PathBuf, process::ExitCode};

use clap::{ArgMatches, Command, CommandFactory, FromArgMatches, parser::ValueSource};

use super::{arguments::Arguments, environment::similar, failure};
use crate::command::failure::Failure;

/// Returns the settings, or the exit status after an error or a page of help was printed.
pub(crate) fn arguments(words: impl IntoIterator<Item = OsString>) -> Result<Arguments, ExitCode> {
    let words: Vec<_> = words.into_iter().collect();
    let parse = |words: &[OsString]| {
        Arguments::command()
            .try_get_matches_from(words)
            .map_err(|error| failure::usage(&error))
    };
    let mut matches = parse(&words)?;
    if let Some(path) = matches
        .get_one::<PathBuf>("config")
        .filter(|path| !path.as_os_str().is_empty())
    {
        let more =
            flags(path, &matches, &Arguments::command()).map_err(|failure| failure.print())?;
        matches = parse(&[words, more].concat())?;
    }
    Arguments::from_arg_matches(&matches).map_err(|error| failure::usage(&error))
}

/// Returns the settings of the file as flags, without those that a flag or a variable sets.
fn flags(
    path: &PathBuf,
    matches: &ArgMatches,
    command: &Command,
) -> Result<Vec<OsString>, Failure> {
    let text = fs::read_to_string(path)
        .map_err(|error| Failure::new(format_args!("cannot read {}: {error}", path.display())))?;
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
        Failure::new(format_args!("{}: {}", path.display(), error.message()))
    })?;
    let mut flags = Vec::new();
    for (key, value) in &table {
        let names = || {
            command
                .get_arguments()
                .map(|argument| argument.get_id().as_str())
                .filter(|id| *id != "config")
        };
        if !names().any(|name| name == key) {
            let hint = similar(key, names())
                .map(|name| format!("; did you mean {name}?"))
                .unwrap_or_default();
            return Err(Failure::new(format_args!(
                "{}: unknown setting {key:?}{hint}",
                path.display()
            )));
        }
        let is_set = matches!(
            matches.value_source(key),
            Some(ValueSource::CommandLine | ValueSource::EnvVariable)
        );
        if !is_set {
            flags.push(format!("--{}={}", key.replace('_', "-"), value_text(value)).into());
        }
    }
    Ok(flags)
}

/// Returns a value as it stands on the command line. A table is a list of names and values.
fn value_text(value: &toml::Value) -> String {
    match value {
        toml::Value::String(text) => text.clone(),
        toml::Value::Table(fields) => {
            let pairs: Vec<_> = fields
                .iter()
                .map(|(name, value)| format!("{name}:{}", value_text(value)))
                .collect();
            pairs.join(",")
        }
        toml::Value::Array(items) => items.iter().map(value_text).collect::<Vec<_>>().join(","),
        toml::Value::Integer(number) => number.to_string(),
        toml::Value::Float(number) => number.to_string(),
        toml::Value::Boolean(value) => value.to_string(),
        toml::Value::Datetime(time) => time.to_string(),
    }
}
