//! `tollgate check`: reports mistakes in rules.
//! Mistakes and warnings are found by tollgate-rules; here they are only listed.

use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
};

use clap::Args;
use serde::Serialize;
use tollgate_operator::text::shown;
use tollgate_rules::{
    Compat, RuleError, RuleErrorKind, RuleErrors, RuleSet, RuleWarning, RuleWarningKind,
};

use crate::{
    failure,
    output::{Format, Report},
    rules::RuleOptions,
};

/// Checks files of rules, and reports each mistake with its file, line, column and field.
///
/// Each FILE is a set of rules: one file, or a directory with all of its .yaml, .yml, .json and
/// .toml files.
///
/// A warning is about a rule that is allowed, but probably does not do what you meant. A quirk is a
/// place in a file that means something else, or is refused, outside of the mode envoy.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Check {
    /// Files or directories of rules
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,

    /// Ends with status 1 for warnings too
    #[arg(long)]
    deny_warnings: bool,

    #[command(flatten)]
    rules: RuleOptions,
}

const EXAMPLES: &str = "\
Examples:
  tollgate check rules.yaml
  tollgate check --compat envoy config/
  tollgate check --format json rules.toml | jq '.files[].errors[].message'

Exit status:
  0  no mistakes
  1  mistakes, or warnings with --deny-warnings
  2  a file cannot be read";

/// The result for all files.
#[derive(Serialize)]
struct Checked {
    files: Vec<FileReport>,
}

/// The result for one file or directory.
#[derive(Serialize)]
struct FileReport {
    path: PathBuf,
    is_valid: bool,
    compat: Option<&'static str>,
    domains: usize,
    rules: usize,
    /// The digest by which `status` and `rollout` know the rules.
    digest: Option<String>,
    errors: Vec<Problem>,
    /// The number of errors that are not listed.
    more_errors: usize,
    warnings: Vec<Problem>,
    quirks: Vec<Problem>,
    /// The file is refused, and the mode envoy would accept it.
    is_valid_in_envoy: bool,
    #[serde(skip)]
    is_unreadable: bool,
}

/// A mistake, a warning or a quirk, with its place.
#[derive(Serialize)]
struct Problem {
    file: Option<PathBuf>,
    line: Option<u32>,
    column: Option<u32>,
    field: String,
    kind: &'static str,
    message: String,
    #[serde(skip)]
    shown: String,
}

impl Check {
    pub(crate) fn run(&self, format: Format) -> Report {
        let checked = Checked {
            files: self.files.iter().map(|path| self.check(path)).collect(),
        };
        let has = |test: fn(&FileReport) -> bool| checked.files.iter().any(test);
        let status = if has(|file| file.is_unreadable) {
            failure::STATUS
        } else if has(|file| !file.is_valid)
            || (self.deny_warnings && has(|file| !file.warnings.is_empty()))
        {
            1
        } else {
            0
        };
        Report::new(format, &checked, || {
            checked.files.iter().map(FileReport::text).collect()
        })
        .with_status(status)
    }

    fn check(&self, path: &Path) -> FileReport {
        match self.rules.builder().load(path) {
            Ok(set) => self.accepted(path, &set),
            Err(errors) => self.refused(path, &errors),
        }
    }

    fn accepted(&self, path: &Path, set: &RuleSet) -> FileReport {
        let (quirks, warnings): (Vec<_>, Vec<_>) = set
            .warnings()
            .into_iter()
            .partition(|warning| warning.kind() == RuleWarningKind::Quirk);
        let mut quirks: Vec<_> = quirks.iter().map(Problem::from).collect();
        if set.compat() == Compat::Envoy {
            // What native mode refuses is a quirk too.
            let native = self.rules.builder().force_compat(Compat::Native).load(path);
            quirks.extend(
                native
                    .err()
                    .iter()
                    .flat_map(RuleErrors::iter)
                    .map(Problem::from),
            );
        }
        FileReport {
            path: path.to_owned(),
            is_valid: true,
            compat: Some(set.compat().as_str()),
            domains: set.domains().len(),
            rules: set.rules().count(),
            digest: Some(set.digest().to_string()),
            errors: Vec::new(),
            more_errors: 0,
            warnings: warnings.iter().map(Problem::from).collect(),
            quirks,
            is_valid_in_envoy: false,
            is_unreadable: false,
        }
    }

    fn refused(&self, path: &Path, errors: &RuleErrors) -> FileReport {
        let is_unreadable = errors.iter().any(|error| error.kind() == RuleErrorKind::Io);
        let is_valid_in_envoy = !is_unreadable
            && self
                .rules
                .builder()
                .force_compat(Compat::Envoy)
                .load(path)
                .is_ok();
        FileReport {
            path: path.to_owned(),
            is_valid: false,
            compat: None,
            domains: 0,
            rules: 0,
            digest: None,
            errors: errors.iter().map(Problem::from).collect(),
            more_errors: errors.count() - errors.iter().len(),
            warnings: Vec::new(),
            quirks: Vec::new(),
            is_valid_in_envoy,
            is_unreadable,
        }
    }
}

impl From<&RuleError> for Problem {
    fn from(error: &RuleError) -> Self {
        Self {
            file: error.file().map(Path::to_owned),
            line: error.line(),
            column: error.column(),
            field: error.field().to_owned(),
            kind: error.kind().as_str(),
            message: error.message().to_owned(),
            shown: error.to_string(),
        }
    }
}

impl From<&RuleWarning> for Problem {
    fn from(warning: &RuleWarning) -> Self {
        Self {
            file: warning.file().map(Path::to_owned),
            line: Some(warning.line()),
            column: None,
            field: String::new(),
            kind: warning.kind().as_str(),
            message: warning.message().to_owned(),
            shown: warning.to_string(),
        }
    }
}

impl FileReport {
    fn text(&self) -> String {
        let mut text = String::new();
        // Writing to memory cannot fail.
        for (word, problems) in [
            ("error", &self.errors),
            ("warning", &self.warnings),
            ("quirk", &self.quirks),
        ] {
            for problem in problems {
                let _ = writeln!(text, "{word}: {}", problem.shown);
            }
        }
        let path = shown(&self.path.to_string_lossy());
        if self.more_errors > 0 {
            let _ = writeln!(text, "error: {path}: and {} more", self.more_errors);
        }
        if self.is_valid_in_envoy {
            let _ = writeln!(
                text,
                "note: {path}: the mode envoy accepts these rules: --compat envoy"
            );
        }
        let _ = match self.compat {
            Some(mode) => writeln!(
                text,
                "{path}: ok, {}, {}, mode {mode}, digest {}",
                counted(self.rules, "rule"),
                counted(self.domains, "domain"),
                self.digest.as_deref().unwrap_or_default()
            ),
            None => writeln!(
                text,
                "{path}: {}",
                counted(self.errors.len() + self.more_errors, "mistake")
            ),
        };
        text
    }
}

fn counted(count: usize, noun: &str) -> String {
    if count == 1 {
        format!("1 {noun}")
    } else {
        format!("{count} {noun}s")
    }
}
