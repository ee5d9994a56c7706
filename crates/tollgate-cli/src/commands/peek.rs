//! `tollgate peek`: shows what a key has spent.

use clap::Args;
use serde::Serialize;

use super::states::{StateTable, run_async};
use crate::{
    failure::Failure,
    output::{Format, Report},
    redis::{Entry, KeyOptions, RedisOptions, find},
};

/// Shows what a key has spent, for each policy. Changes nothing.
///
/// Redis holds what is spent, and not the limits. Tell the limits with --rules or --policy to see what is left.
///
/// Without --rules all keys of the server are scanned, unless KEY is a whole Redis key.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  tollgate peek acme --redis redis://127.0.0.1
  tollgate peek 192.0.2.7 --redis redis://127.0.0.1 --policy api=100/min
  tollgate peek --rules rules.yaml tenant=gold route=/export --redis redis://127.0.0.1
  tollgate peek 'tollgate:{acme}:api:t1' --redis redis://127.0.0.1")]
pub(crate) struct Peek {
    #[command(flatten)]
    key: KeyOptions,

    #[command(flatten)]
    redis: RedisOptions,
}

#[derive(Serialize)]
struct Peeked {
    states: Vec<Entry>,
}

impl Peek {
    pub(crate) fn run(&self, format: Format) -> Result<Report, Failure> {
        let states = run_async(async {
            let mut server = self.redis.connect().await?;
            find(&self.key, &mut server).await
        })?;
        let peeked = Peeked { states };
        Ok(Report::new(format, &peeked, || match &peeked.states[..] {
            [] => "nothing is spent\n".to_owned(),
            states => StateTable::of(states),
        }))
    }
}
