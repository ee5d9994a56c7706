//! The flags and variables for the console.
//! They become its routes in `command/console.rs`.

use clap::Args;

use crate::command::values::boolean;

/// The settings of the console.
#[derive(Args)]
pub(crate) struct ConsoleArguments {
    /// Serves a page for operators at this port [default: none]
    #[arg(long, env = "TOLLGATE_CONSOLE_PORT", value_name = "PORT")]
    pub(crate) console_port: Option<u16>,

    /// Sets the address for the console
    #[arg(long, env = "TOLLGATE_CONSOLE_HOST", default_value = "127.0.0.1")]
    #[arg(value_name = "HOST")]
    pub(crate) console_host: String,

    /// Allows an address that other machines reach: the console takes no credentials
    #[arg(long, env = "TOLLGATE_CONSOLE_REMOTE", value_parser = boolean, default_value = "false")]
    pub(crate) console_remote: bool,

    /// Takes the author of an action from this header field, which a proxy that authenticates sets
    #[arg(
        long,
        env = "TOLLGATE_CONSOLE_AUTHOR_HEADER",
        default_value = "tollgate-author"
    )]
    #[arg(value_name = "NAME")]
    pub(crate) console_author_header: String,

    /// Reads and changes the store by this URL, with rights of its own [default: that of --store]
    #[arg(long, env = "TOLLGATE_CONSOLE_STORE", hide_env_values = true)]
    #[arg(value_name = "URL")]
    pub(crate) console_store: Option<String>,
}
