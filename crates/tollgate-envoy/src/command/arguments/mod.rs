//! The settings: flags, variables and keys of the file.
//! Forms of values are read in `values.rs`, and the file in `file.rs`, both one floor up. What a
//! setting does is in `start.rs`.

mod ads;
mod answers;
#[cfg(feature = "console")]
mod console;
mod listen;
mod metrics;
mod rules;
mod store;

use std::{any::TypeId, path::PathBuf, time::Duration};

use clap::{Arg, ArgAction, Parser};

pub(crate) use ads::AdsArguments;
pub(crate) use answers::AnswerArguments;
#[cfg(feature = "console")]
pub(crate) use console::ConsoleArguments;
pub(crate) use listen::ListenArguments;
pub(crate) use metrics::MetricsArguments;
pub(crate) use rules::{ConfigType, RuleArguments};
pub(crate) use store::{Backend, OnOutage, RedisType, SocketType, StoreArguments};

use super::{
    log::{LogFormat, LogLevel},
    values::path,
};

/// Serves rate limits to Envoy, in place of envoyproxy/ratelimit.
///
/// Each setting is a flag, a variable and a key of the file: `--grpc-port 8081`, `GRPC_PORT=8081`,
/// `grpc_port = 8081`. A flag overrides a variable, and a variable overrides the file. Variables
/// without the prefix TOLLGATE_ mean the same as in envoyproxy/ratelimit. A duration is written as
/// in `1h30m`, `10s` or `250us`.
#[derive(Parser)]
#[command(name = "tollgate-envoy", version, max_term_width = 100, after_help = EXAMPLES)]
#[command(mut_args(by_type))]
pub(crate) struct Arguments {
    /// Reads settings from a file in TOML
    #[arg(long, env = "TOLLGATE_CONFIG", value_parser = path, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    #[command(flatten, next_help_heading = "Rules")]
    pub(crate) rules: RuleArguments,

    #[command(flatten, next_help_heading = "Rules from a control plane")]
    pub(crate) ads: AdsArguments,

    #[command(flatten, next_help_heading = "Store")]
    pub(crate) store: StoreArguments,

    #[command(flatten, next_help_heading = "Server")]
    pub(crate) listen: ListenArguments,

    #[command(flatten, next_help_heading = "Answers")]
    pub(crate) answers: AnswerArguments,

    #[command(flatten, next_help_heading = "Metrics")]
    pub(crate) metrics: MetricsArguments,

    #[cfg(feature = "console")]
    #[command(flatten, next_help_heading = "Console")]
    pub(crate) console: ConsoleArguments,

    /// Sets the level from which log lines are written
    #[arg(long, env, default_value = "warn", ignore_case = true)]
    #[arg(help_heading = "Log", value_name = "LEVEL")]
    pub(crate) log_level: LogLevel,

    /// Sets the form of log lines
    #[arg(long, env, default_value = "text", ignore_case = true)]
    #[arg(help_heading = "Log", value_name = "FORMAT")]
    pub(crate) log_format: LogFormat,
}

/// Adds what all settings of a type have. A boolean may stand without a value, as in `--flag`, or
/// with one, as in `--flag=false`.
fn by_type(argument: Arg) -> Arg {
    let of_values = argument.get_value_parser().type_id();
    if of_values == TypeId::of::<Duration>() {
        return argument.value_name("DURATION");
    }
    if of_values != TypeId::of::<bool>() || argument.get_env().is_none() {
        return argument;
    }
    let optional = argument.action(ArgAction::Set).num_args(0..=1);
    optional.require_equals(true).default_missing_value("true")
}

const EXAMPLES: &str = "\
Examples:
  tollgate-envoy --rules rules.yaml
  tollgate-envoy --rules rules/ --store redis://127.0.0.1 --use-prometheus
  tollgate-envoy --config-type GRPC_XDS_SOTW --config-grpc-xds-server-url control-plane:18000

Exit status:
  0  SIGTERM, SIGINT or SIGQUIT ended the program
  1  a second signal ended it at once
  2  a wrong setting, rules that cannot be loaded, a port that cannot be opened";

#[cfg(test)]
mod tests;
