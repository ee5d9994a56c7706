//! `tollgate who`: lists the keys that are limited now.
//! States and their limits are read by tollgate-operator.

use std::fmt::Write as _;

use clap::Args;
use serde::Serialize;
use tollgate_operator::states::{ScanReport, StateEntry, Wanted};

use super::states::{run_async, state_table};
use crate::{
    cells::{ScanCounts, scan_line},
    failure::Failure,
    options::{LimitOptions, RedisOptions, ScanOptions, connect, require},
    output::{Format, Report},
};

/// Lists the keys that are limited now: a request of one unit would be denied.
///
/// The limits are those that services publish, or those of --rules and --policy. The server is
/// scanned in small steps.
///
/// In the mode envoy, all rules of one unit have one policy name. Their limits are known only when
/// all of these rules have the same limit.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  tollgate who --redis redis://127.0.0.1
  tollgate who --redis redis://127.0.0.1 --rules rules.yaml
  tollgate who --redis redis://127.0.0.1 --policy api=100/min --policy 'burst=10/s burst 40'
  tollgate who --redis redis://127.0.0.1 --rules rules.yaml --format json | jq -r '.states[].subject'")]
pub(crate) struct Who {
    /// Sets how many keys are listed at most
    #[arg(long, short, default_value_t = 1_000, value_name = "KEYS", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    number: u32,

    #[command(flatten)]
    limits: LimitOptions,

    #[command(flatten)]
    scan: ScanOptions,

    #[command(flatten)]
    redis: RedisOptions,
}

#[derive(Serialize)]
struct Limited {
    #[serde(flatten)]
    counts: ScanCounts,
    #[serde(skip)]
    scan: ScanReport,
    limited: u64,
    states: Vec<StateEntry>,
}

impl Who {
    pub(crate) fn run(&self, format: Format) -> Result<Report, Failure> {
        let mut limits = self.limits.load()?;
        let (mut states, mut limited) = (Vec::new(), 0);
        let scan = run_async(async {
            let mut server = connect(&mut limits, &self.redis).await?;
            require(&limits, "who", server.prefix())?;
            let visit = |state: StateEntry| {
                if state.is_limited() {
                    limited += 1;
                    if states.len() < self.number as usize {
                        states.push(state);
                    }
                }
            };
            let mut scan = self.scan.over(&mut server, &limits);
            Ok(scan.run(&Wanted::All, visit).await?)
        })?;
        states.sort_by(|a, b| a.redis_key.cmp(&b.redis_key));
        states.dedup_by(|a, b| a.redis_key == b.redis_key);
        let report = Limited {
            counts: ScanCounts::from(&scan),
            scan,
            limited,
            states,
        };
        Ok(Report::new(format, &report, || report.text()))
    }
}

impl Limited {
    fn text(&self) -> String {
        let mut text = if self.states.is_empty() {
            String::new()
        } else {
            state_table(&self.states)
        };
        // Writing to memory cannot fail.
        let _ = writeln!(
            text,
            "{} limited, of {}",
            self.limited,
            scan_line(&self.scan)
        );
        text
    }
}
