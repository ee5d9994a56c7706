//! The command `tollgate`: checks and explains rules, tries them on access logs, and shows the limits of a
//! running system in Redis or PostgreSQL.
//!
//! `tollgate --help` lists the subcommands. Each is a file of `commands/`. What the command does with
//! a running system, other programs do by an `Operator` of tollgate-operator.

// Nothing but the choice of the command stands here.

mod arguments;
mod cells;
mod commands;
mod event_log;
mod failure;
mod options;
mod output;
mod rollout;
mod rules;
mod simulate;
mod trace;
mod watch;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use arguments::{Arguments, Command};
use failure::Failure;
use output::Report;

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return failure::usage(&error),
    };
    match run(arguments) {
        Ok(report) => report.print(),
        Err(failure) => failure.print(),
    }
}

fn run(arguments: Arguments) -> Result<Report, Failure> {
    let format = arguments.format;
    match arguments.command {
        Command::Check(command) => Ok(command.run(format)),
        Command::Explain(command) => command.run(format),
        Command::Simulate(command) => command.run(format),
        Command::Import(command) => command.run(),
        Command::Peek(command) => command.run(format),
        Command::Reset(command) => command.run(format),
        Command::Top(command) => command.run(format),
        Command::Who(command) => command.run(format),
        Command::Why(command) => command.run(format),
        Command::Enforce(command) => command.run(format),
        Command::Except(command) => command.run(format),
        Command::Status(command) => command.run(format),
        Command::Rollout(command) => command.run(format),
        Command::Man(command) => command.run(Arguments::command()),
        Command::Completions(command) => Ok(command.run(Arguments::command())),
    }
}
