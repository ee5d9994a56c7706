//! The error of a task, and the functions that run other programs.

use std::{
    ffi::OsStr,
    fmt,
    path::Path,
    process::{Command, Stdio},
};

/// The error of a task: one sentence that says what went wrong, and what to do where that is known.
#[derive(Debug)]
pub(crate) struct Failure(String);

impl Failure {
    pub(crate) fn new(sentence: impl Into<String>) -> Self {
        Self(sentence.into())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Formats a command as a person types it.
pub(crate) fn spelled(command: &Command) -> String {
    let settings = command
        .get_envs()
        .filter_map(|(name, value)| Some(format!("{}={}", name.display(), quoted(value?))));
    let program = Path::new(command.get_program());
    let program = program.file_name().unwrap_or(command.get_program());
    let words = std::iter::once(program).chain(command.get_args());
    settings
        .chain(words.map(quoted))
        .collect::<Vec<_>>()
        .join(" ")
}

fn quoted(word: &OsStr) -> String {
    let word = word.to_string_lossy();
    if word.is_empty() || word.contains(char::is_whitespace) {
        format!("'{word}'")
    } else {
        word.into_owned()
    }
}

/// Runs a command and shows its output.
///
/// # Errors
///
/// When the command cannot be started or fails.
pub(crate) fn run(command: &mut Command) -> Result<(), Failure> {
    let spelled = spelled(command);
    eprintln!("$ {spelled}");
    let status = command
        .status()
        .map_err(|error| Failure::new(format!("cannot start `{spelled}`: {error}")))?;
    if status.success() {
        Ok(())
    } else {
        Err(Failure::new(format!("`{spelled}` failed: {status}")))
    }
}

/// Runs a command and returns its standard output. Its errors stay visible.
///
/// # Errors
///
/// As [`run`].
pub(crate) fn output(command: &mut Command) -> Result<String, Failure> {
    let spelled = spelled(command);
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| Failure::new(format!("cannot start `{spelled}`: {error}")))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(Failure::new(format!(
            "`{spelled}` failed: {}",
            output.status
        )))
    }
}

/// Runs a command without any output, and returns whether it succeeds.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Returns whether a program says its version here.
pub(crate) fn starts(program: &Path) -> bool {
    succeeds(Command::new(program).arg("--version"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_spelled_as_it_would_be_typed() {
        let mut command = Command::new("/toolchain/bin/cargo");
        command
            .args(["doc", "--no-deps"])
            .env("RUSTDOCFLAGS", "-D warnings");
        assert_eq!(
            spelled(&command),
            "RUSTDOCFLAGS='-D warnings' cargo doc --no-deps"
        );
    }
}
