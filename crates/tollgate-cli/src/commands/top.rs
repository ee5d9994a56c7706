//! `tollgate top`: shows the keys with the most use.

use std::{cmp::Ordering, fmt::Write as _};

use clap::{Args, ValueEnum};
use serde::Serialize;

use super::states::{StateTable, run_async};
use crate::{
    failure::Failure,
    output::{Format, Report},
    redis::{Entry, LimitOptions, RedisOptions, Scan, ScanOptions, ScanReport, Wanted},
};

/// Shows the keys with the most use.
///
/// The server is scanned in small steps (SCAN with COUNT), so it goes on deciding meanwhile. The memory of this command
/// does not grow with the number of keys.
///
/// Redis holds what is spent, and not the limits. Tell the limits with --rules or --policy to see shares.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  tollgate top --redis redis://127.0.0.1
  tollgate top --redis redis://127.0.0.1 --number 50 --count 200
  tollgate top --redis redis://127.0.0.1 --rules rules.yaml --by share")]
pub(crate) struct Top {
    /// Sets how many keys are shown
    #[arg(long, short, default_value_t = 20, value_name = "KEYS", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    number: u32,

    /// Sets the order
    #[arg(long, value_enum, default_value_t)]
    by: Order,

    #[command(flatten)]
    limits: LimitOptions,

    #[command(flatten)]
    scan: ScanOptions,

    #[command(flatten)]
    redis: RedisOptions,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Order {
    /// Units that are spent
    #[default]
    Spent,
    /// Share of the limit that is spent, which needs --rules or --policy
    Share,
}

#[derive(Serialize)]
struct Topped {
    #[serde(flatten)]
    scan: ScanReport,
    states: Vec<Entry>,
}

impl Top {
    pub(crate) fn run(&self, format: Format) -> Result<Report, Failure> {
        if self.by == Order::Share && self.limits.is_empty() {
            return Err(Failure::new("--by share needs the limits, tell them with --rules or --policy"));
        }
        let limits = self.limits.load()?;
        let mut first = First { states: Vec::new(), most: self.number as usize, by: self.by };
        let scan = run_async(async {
            let mut server = self.redis.connect().await?;
            Scan::new(&mut server, &limits).run(&self.scan, &Wanted::All, |state| first.add(state)).await
        })?;
        let topped = Topped { scan, states: first.states };
        Ok(Report::new(format, &topped, || {
            let mut text = StateTable::of(&topped.states);
            // Writing to memory cannot fail.
            let _ = writeln!(text, "{}", topped.scan.line());
            text
        }))
    }
}

/// Holds the first states in an order.
struct First {
    states: Vec<Entry>,
    most: usize,
    by: Order,
}

impl First {
    fn add(&mut self, state: Entry) {
        let is_before = |other: &Entry| self.compare(&state, other) != Ordering::Greater;
        let at = self.states.iter().rposition(|other| !is_before(other)).map_or(0, |last| last + 1);
        // A scan may find a key twice.
        if at < self.most && !self.states.iter().any(|other| other.redis_key == state.redis_key) {
            self.states.insert(at, state);
            self.states.truncate(self.most);
        }
    }

    /// Compares so that the most used state comes first.
    fn compare(&self, a: &Entry, b: &Entry) -> Ordering {
        let by_spent = || b.spent.cmp(&a.spent).then_with(|| a.redis_key.cmp(&b.redis_key));
        match self.by {
            Order::Spent => by_spent(),
            // A state without a limit comes last.
            Order::Share => {
                let share = |entry: &Entry| entry.share().unwrap_or(-1.0);
                share(b).total_cmp(&share(a)).then_with(by_spent)
            }
        }
    }
}
