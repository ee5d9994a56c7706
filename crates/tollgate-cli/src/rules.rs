//! Loads rules as the options of a command say.
//! The language of the files is read by tollgate-rules.

use std::path::Path;

use clap::{Args, ValueEnum};
use tollgate_rules::{Compat, RuleSet, RuleSetBuilder};

use crate::failure::Failure;

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
