//! `tollgate import`: converts the limits of another program into a file of rules.
//! The conversion itself is in `spring/` of tollgate-rules.

use std::{env, path::PathBuf};

use clap::{Args, ValueEnum};
use tollgate_rules::spring;

use crate::{failure::Failure, output::Report};

/// Converts the limits of another program into a file of rules, and prints it.
///
/// Of a Spring Cloud Gateway, the filters RequestRateLimiter are read. A request has the entries
/// route and key. What rules have no field for stands in a comment above each limit: the cost of a
/// request, the key resolver, and the statuses. A placeholder ${NAME} is the environment variable
/// of this name.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  tollgate import spring application.yml > rules.yaml
  tollgate import spring application.yml --profile production")]
pub(crate) struct Import {
    /// The program
    program: Program,

    /// Its file
    file: PathBuf,

    /// Reads the documents of this profile too; may be repeated
    #[arg(long = "profile", value_name = "NAME")]
    profiles: Vec<String>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Program {
    /// Spring Cloud Gateway, by its application.yml
    Spring,
}

impl Import {
    pub(crate) fn run(&self) -> Result<Report, Failure> {
        let Program::Spring = self.program;
        let rules = spring::convert_file(&self.file, &self.profiles, &|name| env::var(name).ok());
        rules.map(Report::of_text).map_err(Failure::new)
    }
}
