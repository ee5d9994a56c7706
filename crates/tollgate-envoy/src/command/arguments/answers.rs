//! The flags and variables for what an answer to Envoy contains besides its code.
//! The header fields themselves are written in `service/headers.rs`.

use clap::Args;

use crate::command::values::{boolean, share};

/// The settings of answers.
#[derive(Args)]
pub(crate) struct AnswerArguments {
    /// Adds header fields with the limit, the units that are left, and the seconds until units
    /// return
    #[arg(long, env, value_parser = boolean, default_value = "false")]
    pub(crate) limit_response_headers_enabled: bool,

    /// Sets the name of the field with the limit
    #[arg(long, env, default_value = "RateLimit-Limit", value_name = "NAME")]
    pub(crate) limit_limit_header: String,

    /// Sets the name of the field with the units that are left
    #[arg(long, env, default_value = "RateLimit-Remaining", value_name = "NAME")]
    pub(crate) limit_remaining_header: String,

    /// Sets the name of the field with the seconds until units return
    #[arg(long, env, default_value = "RateLimit-Reset", value_name = "NAME")]
    pub(crate) limit_reset_header: String,

    /// Adds the fields RateLimit-Policy, RateLimit and Retry-After. Limits in shadow mode and hidden ones have none
    #[arg(long, env = "TOLLGATE_STANDARD_HEADERS", value_parser = boolean)]
    #[arg(default_value = "false")]
    pub(crate) standard_headers: bool,

    /// Adds this header field, with the units that are left, to requests that pass near a limit
    #[arg(long, env = "TOLLGATE_NEAR_LIMIT_HEADER", default_value = "")]
    #[arg(value_name = "NAME")]
    pub(crate) near_limit_header: String,

    /// Sets the share of a limit above which requests are near it
    #[arg(long, env = "TOLLGATE_NEAR_LIMIT_SHARE", value_parser = share, default_value = "0.8")]
    #[arg(value_name = "SHARE")]
    pub(crate) near_limit_share: f64,

    /// Returns the request and the metadata of its rules as dynamic metadata
    #[arg(long, env, value_parser = boolean, default_value = "false")]
    pub(crate) response_dynamic_metadata: bool,
}
