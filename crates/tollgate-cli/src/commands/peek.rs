//! `tollgate peek`: shows what a key has spent.
//! States are found by tollgate-operator. Many keys are shown by `top.rs` and `who.rs`.

use std::time::Duration;

use clap::Args;
use serde::Serialize;
use tollgate_operator::{
    states::{HomeEntry, PurseEntry, Regional, StateEntry, look_ahead},
    text::span,
};

use super::states::{run_async, state_table};
use crate::{
    cells::fits_in,
    failure::Failure,
    options::{KeyOptions, RedisOptions, connect, require},
    output::{Format, Report, Table},
};

/// Shows what a key has spent, for each policy. Changes nothing.
///
/// Also shows what is left, where the limit is known: services publish it, or --rules or --policy
/// name it. A key that has spent more than its limit has a debt: units that were charged although
/// they did not fit.
///
/// Without --rules, all keys of the server are scanned, unless KEY is a whole Redis key.
///
/// Of a limit that several regions share, shows the purse: what this region holds. With --home, also
/// shows what is used of the limit in all regions.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  tollgate peek acme --redis redis://127.0.0.1
  tollgate peek 192.0.2.7 --redis redis://127.0.0.1 --policy api=100/min
  tollgate peek acme --redis redis://127.0.0.1 --policy api=100/min --cost 5
  tollgate peek --rules rules.yaml tenant=gold route=/export --redis redis://127.0.0.1
  tollgate peek 'tollgate:{acme}:api:t1' --redis redis://127.0.0.1
  tollgate peek acme --redis redis://eu.example --home redis://us.example")]
pub(crate) struct Peek {
    #[command(flatten)]
    key: KeyOptions,

    /// Shows when a check of this many units would be admitted, and spends nothing
    #[arg(long, value_name = "UNITS")]
    cost: Option<u64>,

    /// Also looks at the home of limits that several regions share
    #[arg(
        long,
        value_name = "URL",
        env = "TOLLGATE_HOME_URL",
        hide_env_values = true
    )]
    home: Option<String>,

    #[command(flatten)]
    redis: RedisOptions,
}

#[derive(Serialize)]
struct Peeked {
    states: Vec<StateEntry>,
    #[serde(flatten)]
    regional: Regional,
}

impl Peek {
    pub(crate) fn run(&self, format: Format) -> Result<Report, Failure> {
        let mut limits = self.key.limits.load()?;
        let (states, regional) = run_async(async {
            let mut server = connect(&mut limits, &self.redis).await?;
            if self.cost.is_some() {
                require(&limits, "--cost", server.prefix())?;
            }
            let (query, scan) = (self.key.query(), &self.key.scan);
            let found = scan.over(&mut server, &limits).find_regional(&query);
            let (mut states, mut regional) = found.await?;
            if let Some(cost) = self.cost {
                look_ahead(&mut server, &mut states, cost).await?;
            }
            if let Some(home) = self.home.as_deref().filter(|url| !url.is_empty()) {
                let home = self.redis.at(home);
                // The home may be in this region.
                if home.address()? == self.redis.server().address()? {
                    return Ok((states, regional));
                }
                let mut home = home.connect().await?;
                let found = scan.over(&mut home, &limits).find_regional(&query);
                let (_, at_home) = found.await?;
                regional.append(at_home);
            }
            Ok((states, regional))
        })?;
        let peeked = Peeked { states, regional };
        Ok(Report::new(format, &peeked, || self.text(&peeked)))
    }

    fn text(&self, peeked: &Peeked) -> String {
        let states = match &peeked.states[..] {
            [] => String::new(),
            states => state_table(states) + &self.waits(states),
        };
        let Regional { purses, homes, .. } = &peeked.regional;
        let regional = [
            ("in this region", purse_table(purses)),
            ("at the home", home_table(homes)),
        ];
        let regional = regional
            .iter()
            .filter(|(_, table)| table.rows() > 0)
            .map(|(title, table)| format!("{title}\n{}", table.text()));
        let parts = [states].into_iter().filter(|states| !states.is_empty());
        match parts.chain(regional).collect::<Vec<_>>() {
            parts if parts.is_empty() => "nothing is spent\n".to_owned(),
            parts => parts.join("\n"),
        }
    }

    /// Returns a line for each state: when the cost fits.
    fn waits(&self, states: &[StateEntry]) -> String {
        let Some(cost) = self.cost else {
            return String::new();
        };
        let line = |state: &StateEntry| {
            format!("{cost} units of {} fit {}\n", state.policy, fits_in(state))
        };
        states.iter().map(line).collect()
    }
}

/// Returns the lines of purses: what the region holds.
fn purse_table(purses: &[PurseEntry]) -> Table {
    let mut table = Table::new([
        ">free",
        ">in processes",
        ">unreported",
        ">demand/s",
        "call",
        "empty in",
        "key",
        "policy",
    ]);
    for purse in purses {
        let call = if purse.awaits_units { "under way" } else { "" };
        table.row([
            purse.free.to_string(),
            purse.leased.to_string(),
            purse.unreported.to_string(),
            format!("{:.1}", purse.demand),
            call.to_owned(),
            span(Duration::from_millis(purse.expires_ms)),
            purse.subject.clone(),
            purse.policy.clone(),
        ]);
    }
    table
}

/// Returns the lines of homes: what is used of a limit in all regions.
fn home_table(homes: &[HomeEntry]) -> Table {
    let mut table = Table::new([
        ">spent",
        ">in regions",
        ">left",
        ">regions",
        "fresh in",
        "key",
        "policy",
        "quota",
    ]);
    for home in homes {
        let used = home.spent.saturating_add(home.outstanding);
        let left = home
            .limit
            .map(|limit| limit.saturating_sub(used).to_string());
        table.row([
            home.spent.to_string(),
            home.outstanding.to_string(),
            left.unwrap_or_default(),
            home.regions.to_string(),
            span(Duration::from_millis(home.expires_ms)),
            home.subject.clone(),
            home.policy.clone(),
            home.quota.clone().unwrap_or_default(),
        ]);
    }
    table
}
