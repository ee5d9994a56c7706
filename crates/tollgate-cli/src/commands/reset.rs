//! `tollgate reset`: makes a key fresh.

use clap::Args;
use serde::Serialize;

use super::states::run_async;
use crate::{
    failure::Failure,
    output::{Format, Report},
    redis::{Entry, KeyOptions, RedisOptions, find},
};

/// Makes a key fresh: removes its states, so that every policy has its whole burst again.
///
/// Only the states of this key are removed. The outer levels of a nested key are shared with other keys, and have keys of
/// their own.
///
/// A process may deny a key for up to a second more, because it remembers a denial.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  tollgate reset acme --redis redis://127.0.0.1 --dry-run
  tollgate reset --rules rules.yaml tenant=gold --redis redis://127.0.0.1
  tollgate reset 'tollgate:{acme}:api:t1' --redis redis://127.0.0.1")]
pub(crate) struct Reset {
    #[command(flatten)]
    key: KeyOptions,

    /// Tells what would be removed, and removes nothing
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    redis: RedisOptions,
}

#[derive(Serialize)]
struct Removed {
    is_dry_run: bool,
    states: Vec<Entry>,
}

impl Reset {
    pub(crate) fn run(&self, format: Format) -> Result<Report, Failure> {
        let states = run_async(async {
            let mut server = self.redis.connect().await?;
            let states = find(&self.key, &mut server).await?;
            if !self.dry_run {
                for state in &states {
                    // One command for each, because a cluster takes no keys of several slots.
                    let _: u64 = server.command(redis::cmd("DEL").arg(&state.redis_key)).await?;
                }
            }
            Ok(states)
        })?;
        let removed = Removed { is_dry_run: self.dry_run, states };
        Ok(Report::new(format, &removed, || {
            let word = if removed.is_dry_run { "would remove" } else { "removed" };
            let line = |state: &Entry| format!("{word} {}, {} spent\n", state.redis_key, state.spent);
            match &removed.states[..] {
                [] => "nothing is spent\n".to_owned(),
                states => states.iter().map(line).collect(),
            }
        }))
    }
}
