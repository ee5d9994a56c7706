//! The command as a user runs it.
#![allow(clippy::unwrap_used, reason = "these are tests")]

mod arguments;
mod check;
mod except;
mod explain;
mod import;
mod lockout;
mod missing;
mod peek;
mod postgres;
mod published;
mod readme;
mod redis_failures;
mod regions;
mod replicas;
mod rights;
#[cfg(target_os = "linux")]
mod screen;
mod simulate;
#[cfg(target_os = "linux")]
mod terminal;
mod top;
mod watch;
mod who;
mod why;

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
    process::{Command, Output},
    time::Duration,
};

use serde_json::Value;
use tempfile::TempDir;
use tollgate_tests::wait;

/// A run of the command that has ended.
struct Run {
    status: i32,
    stdout: String,
    stderr: String,
}

impl Run {
    /// Parses the standard output of a run with `--format json`.
    fn json(&self) -> Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}{}", self.stdout, self.stderr))
    }

    /// Asserts that the command refused its arguments or its input with these words.
    #[track_caller]
    fn assert_failed(&self, words: &str) {
        let is_refused = self.status == 2 && self.stderr.contains(words);
        assert!(is_refused, "{words}: {}{}", self.stdout, self.stderr);
    }

    /// Asserts that the command printed these words and ended with this status.
    #[track_caller]
    fn assert_printed(&self, status: i32, words: &str) {
        let is_printed = self.status == status && self.stdout.contains(words);
        assert!(is_printed, "{words}: {}{}", self.stdout, self.stderr);
    }
}

impl From<Output> for Run {
    fn from(output: Output) -> Self {
        Self {
            status: output.status.code().expect("a signal ended the command"),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

/// Returns the command without the variables that it reads.
fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    command.env_remove("TOLLGATE_REDIS_URL");
    command
}

fn tollgate<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Run {
    let mut arguments: Vec<_> = arguments
        .into_iter()
        .map(|argument| argument.as_ref().to_owned())
        .collect();
    // A machine that stands still for a moment exceeds the usual five seconds.
    if let Some(at) = arguments
        .iter()
        .position(|argument| argument == "--redis" || argument == "--metrics")
        && !arguments.iter().any(|argument| argument == "--timeout")
    {
        arguments.splice(at..at, ["--timeout", "60"].map(Into::into));
    }
    command().args(arguments).output().unwrap().into()
}

/// Runs the command until limits are published. Those of a service that stands still for seconds
/// lapse, and come back with it.
fn with_published_limits(run: impl Fn() -> Run) -> Run {
    wait::until_some("published limits", Duration::from_secs(60), || {
        let run = run();
        let is_without = [&run.stdout, &run.stderr]
            .iter()
            .any(|text| text.contains("published under the prefix"));
        (!is_without).then_some(run)
    })
}

/// A directory with one file.
struct File {
    directory: TempDir,
    path: PathBuf,
}

impl File {
    fn new(name: &str, content: impl AsRef<[u8]>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(name);
        std::fs::write(&path, content).unwrap();
        Self { directory, path }
    }

    fn path(&self) -> &str {
        self.path.to_str().unwrap()
    }

    fn directory(&self) -> &Path {
        self.directory.path()
    }
}

const SHOP: &str = "\
domain: shop
descriptors:
  - key: tenant
    rate_limit: {quota: 600/min}
  - key: tenant
    value: free-*
    rate_limit: {quota: 60/min}
    share_threshold: false           # each has a counter of its own
  - key: tenant
    value: gold
    rate_limit: {name: gold, quota: 6000/min burst 200}
    descriptors:
      - key: route
        value: /export
        rate_limit: {quota: 20/h, replaces: [{name: gold}]}
";
