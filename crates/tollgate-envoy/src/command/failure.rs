//! The reasons why the program ends early.
//! Failures of requests, while the program runs, are in `service/failure.rs`.

use std::{env, fmt, process::ExitCode};

/// The exit status of a program that cannot start. A wrong argument has the same.
const STATUS: u8 = 2;

/// Reports why the program cannot start. Its message has no password.
#[derive(Debug)]
pub(crate) struct Failure(String);

impl Failure {
    pub(crate) fn new(message: impl fmt::Display) -> Self {
        Self(message.to_string())
    }

    /// Prints the message, one line for each of its lines.
    pub(crate) fn print(&self) -> ExitCode {
        for line in self.0.lines() {
            eprintln!("error: {line}");
        }
        STATUS.into()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Prints an error of the command line, or the help that was asked for.
pub(crate) fn usage(error: &clap::Error) -> ExitCode {
    let rendered = error.render().to_string();
    let shown = without_passwords(
        &rendered,
        env::args_os().filter_map(|argument| argument.into_string().ok()),
    );
    if shown == rendered {
        // Colours, and the choice between standard output and standard error. A closed pipe is no
        // failure.
        let _ = error.print();
    } else {
        eprint!("{shown}");
    }
    u8::try_from(error.exit_code()).unwrap_or(STATUS).into()
}

/// Replaces the user and the password of every URL among the arguments. The message repeats
/// arguments that are wrong.
fn without_passwords(message: &str, arguments: impl Iterator<Item = String>) -> String {
    let mut shown = message.to_owned();
    for argument in arguments {
        let Some((_, rest)) = argument.split_once("://") else {
            continue;
        };
        if let Some((secret, _)) = rest
            .rsplit_once('@')
            .filter(|(secret, _)| !secret.is_empty())
        {
            shown = shown.replace(secret, "***");
        }
    }
    shown
}
