//! `tollgate man` and `tollgate completions`: pages and completions made of the definition of the
//! command line.
//! The texts are those of the arguments: none is written here.

use std::{io, path::PathBuf};

use clap::Args;
use clap_complete::Shell;

use crate::{failure::Failure, output::Report};

/// Prints the man page, or writes the man pages of all subcommands into a directory.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  tollgate man | man -l -
  tollgate man --directory ~/.local/share/man/man1")]
pub(crate) struct Man {
    /// Writes a page for each subcommand into this directory
    #[arg(long, value_name = "DIRECTORY")]
    directory: Option<PathBuf>,
}

/// Prints the completions of a shell.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  tollgate completions bash > ~/.local/share/bash-completion/completions/tollgate
  tollgate completions zsh > ~/.zfunc/_tollgate")]
pub(crate) struct Completions {
    /// Names the shell
    shell: Shell,
}

impl Man {
    pub(crate) fn run(&self, definition: clap::Command) -> Result<Report, Failure> {
        let failed =
            |error: io::Error| Failure::new(format_args!("cannot write the man pages: {error}"));
        if let Some(directory) = &self.directory {
            clap_mangen::generate_to(definition, directory).map_err(failed)?;
            return Ok(Report::of_text(String::new()));
        }
        let mut page = Vec::new();
        clap_mangen::Man::new(definition)
            .render(&mut page)
            .map_err(failed)?;
        Ok(Report::of_text(String::from_utf8_lossy(&page).into_owned()))
    }
}

impl Completions {
    pub(crate) fn run(&self, mut definition: clap::Command) -> Report {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut definition, "tollgate", &mut script);
        Report::of_text(String::from_utf8_lossy(&script).into_owned())
    }
}
