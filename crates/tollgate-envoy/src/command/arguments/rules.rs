//! The flags and variables for rules: where they are, and in which mode they are read.
//! What stands in a file of rules is decided by tollgate-rules.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use tollgate_rules::Compat;

use crate::command::values::{boolean, path};

/// The settings of rules.
#[derive(Args)]
pub(crate) struct RuleArguments {
    /// Sets the file of rules, or a directory with files of rules. It overrides --runtime-root
    #[arg(long, env = "TOLLGATE_RULES", value_parser = path, value_name = "PATH")]
    pub(crate) rules: Option<PathBuf>,

    /// Sets the first part of the path of the rules: ROOT/SUBDIRECTORY/APPDIRECTORY
    #[arg(long, env, default_value = "/srv/runtime_data/current", value_parser = path)]
    #[arg(value_name = "PATH")]
    pub(crate) runtime_root: PathBuf,

    /// Sets the middle part of the path of the rules. It may be empty
    #[arg(long, env, default_value = "", value_parser = path, value_name = "PATH")]
    pub(crate) runtime_subdirectory: PathBuf,

    /// Sets the last part of the path of the rules
    #[arg(long, env, default_value = "config", value_parser = path, value_name = "PATH")]
    pub(crate) runtime_appdirectory: PathBuf,

    /// Sets where rules come from
    #[arg(long, env, default_value = "FILE", ignore_case = true)]
    #[arg(value_name = "TYPE")]
    pub(crate) config_type: ConfigType,

    /// Sets the mode of files of rules without the field compat
    #[arg(long, env = "TOLLGATE_COMPAT", default_value = "native")]
    #[arg(value_name = "MODE")]
    pub(crate) compat: Mode,

    /// Joins the rules of files with the same domain
    #[arg(long, env, value_parser = boolean, default_value = "false")]
    pub(crate) merge_domain_config: bool,

    /// Starts without rules when they cannot be loaded
    #[arg(long, env, value_parser = boolean, default_value = "false")]
    pub(crate) force_start_without_initial_config: bool,

    /// Reports healthy only while there are rules for at least one domain
    #[arg(long, env, value_parser = boolean, default_value = "false")]
    pub(crate) healthy_with_at_least_one_config_loaded: bool,

    /// Lets every request pass, and counts the requests over their limit
    #[arg(long, env, value_parser = boolean, default_value = "false")]
    pub(crate) shadow_mode: bool,

    /// Puts every descriptor in quota mode: a request is denied only when all of them exceed their
    /// limits
    #[arg(long, env, value_parser = boolean, default_value = "false")]
    pub(crate) quota_mode: bool,
}

/// Selects where rules come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ConfigType {
    /// From files
    #[value(name = "FILE")]
    File,
    /// From a control plane over ADS
    #[value(name = "GRPC_XDS_SOTW")]
    GrpcXdsSotw,
}

/// Selects the meaning of rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    /// Denied requests are free, waits are exact, and the additions of Tollgate are allowed
    Native,
    /// As in envoyproxy/ratelimit
    Envoy,
}

impl From<Mode> for Compat {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Native => Self::Native,
            Mode::Envoy => Self::Envoy,
        }
    }
}

impl RuleArguments {
    /// Returns the file or directory of the rules.
    pub(crate) fn path(&self) -> PathBuf {
        let directories = || {
            self.runtime_root
                .join(&self.runtime_subdirectory)
                .join(&self.runtime_appdirectory)
        };
        self.rules
            .clone()
            .filter(|path| !path.as_os_str().is_empty())
            .unwrap_or_else(directories)
    }
}
