//! `tollgate peek`: shows what a key has spent.
//! States are found in `redis/lookup.rs`. Many keys are shown by `top.rs` and `who.rs`.

use clap::Args;
use serde::Serialize;

use super::states::{run_async, state_table};
use crate::{
    failure::Failure,
    output::{Format, Report},
    redis::{KeyOptions, RedisOptions, StateEntry, find, look_ahead},
};

/// Shows what a key has spent, for each policy. Changes nothing.
///
/// Also shows what is left, where the limit is known: services publish it, or --rules or --policy
/// name it. A key that has spent more than its limit has a debt: units that were charged although
/// they did not fit.
///
/// Without --rules, all keys of the server are scanned, unless KEY is a whole Redis key.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  tollgate peek acme --redis redis://127.0.0.1
  tollgate peek 192.0.2.7 --redis redis://127.0.0.1 --policy api=100/min
  tollgate peek acme --redis redis://127.0.0.1 --policy api=100/min --cost 5
  tollgate peek --rules rules.yaml tenant=gold route=/export --redis redis://127.0.0.1
  tollgate peek 'tollgate:{acme}:api:t1' --redis redis://127.0.0.1")]
pub(crate) struct Peek {
    #[command(flatten)]
    key: KeyOptions,

    /// Shows when a check of this many units would be admitted, and spends nothing
    #[arg(long, value_name = "UNITS")]
    cost: Option<u64>,

    #[command(flatten)]
    redis: RedisOptions,
}

#[derive(Serialize)]
struct Peeked {
    states: Vec<StateEntry>,
}

impl Peek {
    pub(crate) fn run(&self, format: Format) -> Result<Report, Failure> {
        let mut limits = self.key.limits.load()?;
        let states = run_async(async {
            let mut server = limits.connect(&self.redis).await?;
            if self.cost.is_some() {
                limits.require("--cost", server.prefix())?;
            }
            let mut states = find(&self.key, &limits, &mut server).await?;
            if let Some(cost) = self.cost {
                look_ahead(&mut server, &mut states, cost).await?;
            }
            Ok(states)
        })?;
        let peeked = Peeked { states };
        Ok(Report::new(format, &peeked, || match &peeked.states[..] {
            [] => "nothing is spent\n".to_owned(),
            states => state_table(states) + &self.waits(states),
        }))
    }

    /// Returns a line for each state: when the cost fits.
    fn waits(&self, states: &[StateEntry]) -> String {
        let Some(cost) = self.cost else {
            return String::new();
        };
        let line = |state: &StateEntry| {
            format!("{cost} units of {} fit {}\n", state.policy, state.fits_in())
        };
        states.iter().map(line).collect()
    }
}
