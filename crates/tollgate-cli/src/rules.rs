//! Loads rules as the options of a command say.
//! The language of the files is read by tollgate-rules. Limits for states in a store are found in
//! `redis/limits.rs`.

use std::path::Path;

use clap::{Args, ValueEnum};
use tollgate_rules::{Compat, RuleSet, RuleSetBuilder};

use crate::{failure::Failure, output::shown};

/// The options of all commands that read rules.
#[derive(Args, Debug, Default)]
pub(crate) struct RuleOptions {
    /// Sets the mode of files without the field compat
    #[arg(long, value_enum, default_value_t, value_name = "MODE")]
    compat: Mode,

    /// Joins the rules of several files for one domain, as MERGE_DOMAIN_CONFIG does
    #[arg(long)]
    merge_domains: bool,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum Mode {
    /// The language with Tollgate's additions and without quirks
    #[default]
    Native,
    /// The language as Envoy's rate limit service reads it
    Envoy,
}

impl RuleOptions {
    /// Returns the builder with these options.
    pub(crate) fn builder(&self) -> RuleSetBuilder {
        let compat = match self.compat {
            Mode::Native => Compat::Native,
            Mode::Envoy => Compat::Envoy,
        };
        RuleSet::builder()
            .compat(compat)
            .merge_domains(self.merge_domains)
    }

    /// Loads a file, or all files of a directory.
    pub(crate) fn load(&self, path: &Path) -> Result<RuleSet, Failure> {
        self.builder().load(path).map_err(Failure::new)
    }
}

/// Returns the domain with this name, or the only one.
pub(crate) fn domain<'a>(set: &'a RuleSet, name: Option<&'a str>) -> Result<&'a str, Failure> {
    let mut domains: Vec<_> = set.domains().collect();
    domains.sort_unstable();
    match (name, &domains[..]) {
        (Some(name), _) if set.has_domain(name) => Ok(name),
        (Some(name), _) => Err(Failure::new(format_args!(
            "there is no domain {name:?}, expected one of {}",
            shown(&domains.join(", "))
        ))),
        (None, [domain]) => Ok(domain),
        (None, _) => {
            let names = shown(&domains.join(", "));
            Err(Failure::new(format_args!(
                "the files have several domains, choose one with --domain: {names}"
            )))
        }
    }
}

/// Reads an entry of a descriptor.
pub(crate) fn pair(entry: &str) -> Result<(&str, &str), Failure> {
    let wrong = || {
        Failure::new(format_args!(
            "entry {entry:?} must have the form KEY=VALUE, because --rules is given"
        ))
    };
    entry
        .split_once('=')
        .filter(|(key, _)| !key.is_empty())
        .ok_or_else(wrong)
}
