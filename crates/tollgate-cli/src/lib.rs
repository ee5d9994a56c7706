//! The command `tollgate`: checks and explains rate limit rules, tries them on access logs, and
//! shows the limits in Redis or PostgreSQL.
//!
//! `tollgate --help` lists the subcommands. Each is a file of `commands/`. What the command does with
//! a running system, other programs can do by an [`Operator`]. They need no feature `command`.

// Nothing but the choice of the command stands here.

#![cfg_attr(docsrs, feature(doc_cfg))]
// A program with an operator alone has no use for much of what the commands share.
#![cfg_attr(not(feature = "command"), allow(dead_code, unused_imports))]

#[cfg(feature = "command")]
mod arguments;
#[cfg(feature = "command")]
mod commands;
#[cfg(feature = "command")]
mod event_log;
mod exceptions;
mod failure;
mod operator;
mod output;
mod redis;
mod replicas;
mod rules;
#[cfg(feature = "command")]
mod simulate;
mod trace;
#[cfg(feature = "command")]
mod watch;

#[cfg(feature = "command")]
use std::process::ExitCode;

#[cfg(feature = "command")]
use clap::{CommandFactory, Parser};

#[cfg(feature = "command")]
use arguments::{Arguments, Command};
pub use exceptions::ExceptionRow;
#[cfg(feature = "command")]
use failure::Failure;
pub use operator::{
    ChangedException, EnforcedLimits, ExceptionRequest, GrantedExceptions, HeaviestKeys, KeyStates,
    Operator, OperatorBuilder, OperatorError, Order, PublishedLimiters, RemovedStates,
};
#[cfg(feature = "command")]
use output::Report;

/// Runs the command with the arguments of the process, and returns its exit status.
#[cfg(feature = "command")]
#[must_use]
pub fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return failure::usage(&error),
    };
    match run(arguments) {
        Ok(report) => report.print(),
        Err(failure) => failure.print(),
    }
}

/// Compiles the examples of the README with the tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(feature = "command")]
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
