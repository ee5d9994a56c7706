//! The reasons why a command could not do its work.
//! Mistakes in rules are results of a command and not failures of it: `commands/check.rs` shows
//! them.

use std::{env, fmt, process::ExitCode};

use tollgate_operator::OperatorError;

/// The exit status of a command that could not do its work. A wrong argument has the same.
pub(crate) const STATUS: u8 = 2;

/// Reports why a command could not do its work. Its message has no password.
#[derive(Debug)]
pub(crate) struct Failure(String);

impl Failure {
    pub(crate) fn new(message: impl fmt::Display) -> Self {
        Self(message.to_string())
    }

    /// Returns the message.
    pub(crate) fn message(&self) -> &str {
        &self.0
    }

    /// Prints the message, one line for each of its lines.
    pub(crate) fn print(&self) -> ExitCode {
        for line in without_passwords(&self.0, arguments()).lines() {
            eprintln!("error: {line}");
        }
        STATUS.into()
    }
}

impl From<OperatorError> for Failure {
    fn from(error: OperatorError) -> Self {
        Self::new(error)
    }
}

/// Prints an error of the command line, or the help that was asked for.
pub(crate) fn usage(error: &clap::Error) -> ExitCode {
    let rendered = error.render().to_string();
    let shown = without_passwords(&rendered, arguments());
    if shown == rendered {
        // Colours, and the choice between standard output and standard error. A closed pipe is no
        // failure.
        let _ = error.print();
    } else {
        eprint!("{shown}");
    }
    u8::try_from(error.exit_code()).unwrap_or(STATUS).into()
}

/// Returns the arguments, as messages repeat them.
fn arguments() -> impl Iterator<Item = String> {
    env::args_os().map(|argument| argument.to_string_lossy().into_owned())
}

/// Replaces the secrets of every URL among the arguments. The message repeats arguments that are
/// wrong, and may quote them.
fn without_passwords(message: &str, arguments: impl Iterator<Item = String>) -> String {
    let mut shown = message.to_owned();
    for argument in arguments {
        let Some((_, url)) = argument.split_once("://") else {
            continue;
        };
        let hidden = format!("://{}", without_secrets(url));
        let quoted = format!("{url:?}");
        // Not the secret alone is replaced: a short one may be a part of other words.
        for text in [url, &quoted[1..quoted.len() - 1]] {
            shown = shown.replace(&format!("://{text}"), &hidden);
        }
    }
    shown
}

/// Hides the user and the password of a URL, and what stands behind its path. `url` begins behind
/// the scheme.
fn without_secrets(url: &str) -> String {
    let (start, end) = url.split_at(url.find(['?', '#']).unwrap_or(url.len()));
    // Then the sign may be one of the password.
    if end.contains('@') {
        return "***".to_owned();
    }
    let shown = match start.rsplit_once('@') {
        Some((_, host)) => format!("***@{host}"),
        None => start.to_owned(),
    };
    match end.chars().next() {
        Some(sign) => format!("{shown}{sign}***"),
        None => shown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn assert_shown(message: &str, argument: &str, expected: &str) {
        let arguments = [argument.to_owned()].into_iter();
        assert_eq!(without_passwords(message, arguments), expected);
    }

    #[test]
    fn a_url_is_shown_without_its_user_its_password_and_its_query() {
        for (url, shown) in [
            ("redis://host:1/0", "redis://host:1/0"),
            ("redis://ann:secret@host:1/0", "redis://***@host:1/0"),
            ("redis://ann:a/b@c@host", "redis://***@host"),
            (
                "postgres://db/shop?user=a&password=b",
                "postgres://db/shop?***",
            ),
            (
                "postgres://ann:c@db/shop?password=b",
                "postgres://***@db/shop?***",
            ),
            (
                "redis+unix:///run/r.sock?pass=a",
                "redis+unix:///run/r.sock?***",
            ),
            ("redis://host#secret", "redis://host#***"),
            ("redis://ann:a?b@host", "redis://***"),
            ("redis://ann:a#b@host", "redis://***"),
            ("postgres://db/shop?password=a@b", "postgres://***"),
        ] {
            assert_shown(&format!("got '{url}'"), url, &format!("got '{shown}'"));
            let option = format!("--redis={url}");
            assert_shown(&format!("got '{url}'"), &option, &format!("got '{shown}'"));
        }
    }

    #[test]
    fn a_short_secret_is_hidden_in_its_url_alone() {
        assert_shown(
            "error: a value 'redis://a@e?e' is an error",
            "redis://a@e?e",
            "error: a value 'redis://***@e?***' is an error",
        );
        assert_shown("usage: a=b", "a=b", "usage: a=b");
    }

    #[test]
    fn a_url_that_the_message_quotes_is_hidden_too() {
        let url = r#"redis://h?pass=a"b\c"#;
        assert_shown(&format!("{url:?}"), url, r#""redis://h?***""#);
    }
}
