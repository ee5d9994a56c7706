//! The options that name a key.
//! The meaning of a key and its states are found by tollgate-operator.

use clap::Args;
use tollgate_operator::states::KeyQuery;

use super::{limits::LimitOptions, scan::ScanOptions};

/// The options of commands that look at one key.
#[derive(Args, Debug)]
pub(crate) struct KeyOptions {
    /// The key: a text or an address, as `top` and `who` print it, a whole Redis key, or with
    /// --rules KEY=VALUE entries
    #[arg(required = true, value_name = "KEY")]
    key: Vec<String>,

    /// Selects the domain of the entries, when the rules have several
    #[arg(long)]
    domain: Option<String>,

    #[command(flatten)]
    pub(crate) limits: LimitOptions,

    #[command(flatten)]
    pub(crate) scan: ScanOptions,
}

impl KeyOptions {
    /// Returns what is asked for.
    pub(crate) fn query(&self) -> KeyQuery {
        KeyQuery::entries(self.key.clone(), self.domain.clone())
    }
}
