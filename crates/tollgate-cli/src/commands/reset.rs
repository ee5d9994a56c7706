//! `tollgate reset`: makes a key fresh.
//! States are found and removed by tollgate-operator.

use std::time::Duration;

use clap::Args;
use serde::Serialize;
use tollgate::Quota;
use tollgate_operator::states::{StateEntry, denied_ms};

use super::states::run_async;
use crate::{
    failure::Failure,
    options::{KeyOptions, RedisOptions, connect},
    output::{Format, Report},
};

/// Removes what a key has spent, so that every policy has its whole burst again.
///
/// Only this key changes. The outer levels of a nested key are shared with other keys, and have
/// keys of their own.
///
/// A process that has denied the key remembers that for up to a second, and does not ask Redis
/// meanwhile. The command prints for how long the key may still be denied. Set --deny-cache-cap if
/// the stores of your services have another `deny_cache_cap`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  tollgate reset acme --redis redis://127.0.0.1 --dry-run
  tollgate reset --rules rules.yaml tenant=gold --redis redis://127.0.0.1
  tollgate reset 'tollgate:{acme}:api:t1' --redis redis://127.0.0.1")]
pub(crate) struct Reset {
    #[command(flatten)]
    key: KeyOptions,

    /// Shows what would be removed, and removes nothing
    #[arg(long)]
    dry_run: bool,

    /// Sets the time for which the services remember a denial, such as 1s or 1m
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = Quota::parse_period)]
    deny_cache_cap: Duration,

    #[command(flatten)]
    redis: RedisOptions,
}

#[derive(Serialize)]
struct Removed {
    is_dry_run: bool,
    /// The longest time for which a process may still deny the key, in milliseconds from now.
    denied_ms: u64,
    states: Vec<StateEntry>,
}

impl Reset {
    pub(crate) fn run(&self, format: Format) -> Result<Report, Failure> {
        let mut limits = self.key.limits.load()?;
        let states = run_async(async {
            let mut server = connect(&mut limits, &self.redis).await?;
            let scan = self.key.scan.over(&mut server, &limits);
            let states = scan.find(&self.key.query()).await?;
            if !self.dry_run {
                for state in &states {
                    // One command for each, because a cluster takes no keys of several slots.
                    server.remove(state).await?;
                }
            }
            Ok(states)
        })?;
        let denied_ms = denied_ms(&states, self.deny_cache_cap);
        let removed = Removed {
            is_dry_run: self.dry_run,
            denied_ms,
            states,
        };
        Ok(Report::new(format, &removed, || {
            let word = if removed.is_dry_run {
                "would remove"
            } else {
                "removed"
            };
            let line =
                |state: &StateEntry| format!("{word} {}, {} spent\n", state.redis_key, state.spent);
            match &removed.states[..] {
                [] => "nothing is spent\n".to_owned(),
                states => states.iter().map(line).collect::<String>() + &removed.note(),
            }
        }))
    }
}

impl Removed {
    /// Returns the line about the time for which the key may still be denied.
    fn note(&self) -> String {
        match self.denied_ms {
            0 => String::new(),
            _ if self.is_dry_run => String::new(),
            millis => format!(
                "processes that remember a denial of the key may deny it for up to {:.3} s more\n",
                Duration::from_millis(millis).as_secs_f64()
            ),
        }
    }
}
