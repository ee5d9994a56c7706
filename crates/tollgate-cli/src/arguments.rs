//! The command line.
//! The options of one command stand with it, in `commands/`.

use clap::{Parser, Subcommand};

use crate::{
    commands::{
        Check, Completions, Enforce, Except, Explain, Import, Man, Peek, Reset, Rollout, Simulate,
        Status, Top, Who, Why,
    },
    output::Format,
};

/// Checks, explains and tries rate limit rules, and shows the limits in Redis or PostgreSQL.
///
/// Errors name the file, the line and the field. Passwords of URLs are never printed.
#[derive(Debug, Parser)]
#[command(name = "tollgate", version, max_term_width = 100, arg_required_else_help = true, after_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,

    /// Sets the form of the output
    #[arg(
        long,
        global = true,
        value_enum,
        default_value_t,
        value_name = "FORMAT"
    )]
    pub(crate) format: Format,
}

const EXAMPLES: &str = "\
Examples:
  tollgate check rules.yaml
  tollgate explain rules.yaml tenant=gold route=/export
  tollgate simulate rules.yaml --trace access.log --suggest 1
  tollgate top --redis redis://127.0.0.1

Exit status:
  0  done
  1  `check` found mistakes, `rollout` replicas with other rules, `why` no denial
  2  a wrong argument, a file that cannot be read, a server that is away";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Check(Check),
    Explain(Explain),
    Simulate(Simulate),
    Import(Import),
    Peek(Peek),
    Reset(Reset),
    Top(Top),
    Who(Who),
    Why(Why),
    Enforce(Enforce),
    Except(Except),
    Status(Status),
    Rollout(Rollout),
    Man(Man),
    Completions(Completions),
}
