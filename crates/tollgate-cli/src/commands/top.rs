//! `tollgate top`: watches a prefix, or shows the keys with the most use once.
//! Figures are gathered and drawn in `watch/`; here the manner of showing them is chosen.

use std::{
    env,
    fmt::Write as _,
    io::{self, IsTerminal as _},
    time::Duration,
};

use clap::{Args, ValueEnum};
use serde::Serialize;
use tollgate_operator::{
    Order,
    states::{First, Limits, Names, StateEntry, Wanted},
};

use super::states::{run_async, state_table};
use crate::{
    cells::{ScanCounts, scan_line},
    failure::Failure,
    options::{LimitOptions, NameOptions, RedisOptions, ScanOptions, connect, require},
    output::{Format, Report},
    watch::{self, Collector, EndpointOptions, Pace, Plain, Screen},
};

/// Watches the limits: what each policy spends, the keys with the most use, and the state of the
/// store.
///
/// On a terminal, the figures are renewed until q or Ctrl-C. With --once, with --format json, or
/// when the output is not a terminal, the keys with the most use are printed once. With --once and
/// --plain or --metrics, all figures are printed once, after one interval, because rates need two
/// readings.
///
/// Redis has the units spent. --metrics adds decisions, outages and latencies, as the running
/// services count them. Without --redis, only these are shown. A server or a service that does not
/// answer is shown as away.
///
/// The server is scanned in small steps (SCAN with COUNT), so it goes on deciding meanwhile. The
/// memory of this command does not grow with the number of keys.
///
/// The columns for the share of a limit and for limited keys need limits: those that services
/// publish, or those that --rules or --policy name. Published limiters are listed.
#[derive(Args, Debug)]
#[command(mut_arg("url", |url| url.required(false)))]
#[command(after_help = "\
Examples:
  tollgate top --redis redis://127.0.0.1
  tollgate top --redis redis://127.0.0.1 --metrics http://127.0.0.1:9090/metrics --rules rules.yaml
  tollgate top --metrics http://127.0.0.1:9090/metrics --metrics http://127.0.0.1:9091/metrics
  tollgate top --redis redis://127.0.0.1 --plain --interval 10s --format json
  tollgate top --metrics http://127.0.0.1:9090/metrics --once --interval 1s
  tollgate top --redis redis://127.0.0.1 --once --plain
  tollgate top --redis redis://127.0.0.1 --once --number 50 --count 200
  tollgate top --redis redis://127.0.0.1 --once --rules rules.yaml --by share")]
pub(crate) struct Top {
    /// Sets how many keys are shown
    #[arg(long, short, default_value_t = 20, value_name = "KEYS", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    number: u32,

    /// Sets the order of the keys
    #[arg(long, value_enum, default_value_t)]
    by: By,

    /// Prints the keys with the most use, or all figures with --plain, --metrics or --denied, and
    /// ends
    #[arg(long, conflicts_with = "refreshes")]
    once: bool,

    /// Prints the figures as lines at each refresh, instead of drawing a screen
    #[arg(long)]
    plain: bool,

    /// Sets the time between two refreshes: 2, 2s, 1m
    #[arg(long, default_value = "2s", value_name = "TIME", value_parser = interval)]
    interval: Duration,

    /// Ends after this many refreshes; rates need two
    #[arg(long, value_name = "REFRESHES", value_parser = clap::value_parser!(u32).range(1..))]
    refreshes: Option<u32>,

    #[command(flatten)]
    endpoints: EndpointOptions,

    #[command(flatten)]
    names: NameOptions,

    #[command(flatten)]
    limits: LimitOptions,

    #[command(flatten)]
    scan: ScanOptions,

    #[command(flatten)]
    redis: RedisOptions,
}

/// The orders of keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum By {
    /// Units that are spent
    #[default]
    Spent,
    /// Share of the limit that is spent, where the limit is known
    Share,
}

/// The ways to show the figures.
enum Manner {
    /// The keys with the most use.
    Once,
    /// All figures, once.
    Figures,
    Plain,
    Screen,
}

#[derive(Serialize)]
struct Topped {
    #[serde(flatten)]
    counts: ScanCounts,
    states: Vec<StateEntry>,
}

impl Top {
    pub(crate) fn run(&self, format: Format) -> Result<Report, Failure> {
        if self.by == By::Share && !self.redis.is_named() {
            return Err(Failure::new(
                "--by share needs the limits and what is spent, expected --redis <URL>",
            ));
        }
        self.check_sources()?;
        let limits = self.limits.load()?;
        let names = self.names.load()?;
        match self.manner(format)? {
            Manner::Once => self.print_once(format, limits, &names),
            Manner::Figures => self.watch(limits, names, Some(2), || Ok(Plain::last_of(2, format))),
            Manner::Plain => self.watch(limits, names, self.refreshes, || Ok(Plain::new(format))),
            Manner::Screen => self.watch(limits, names, self.refreshes, Screen::open),
        }
    }

    fn first(&self) -> First {
        let order = match self.by {
            By::Spent => Order::Spent,
            By::Share => Order::Share,
        };
        First::new(self.number, order)
    }

    /// Checks that there is something to read, and no option that only a server fulfils.
    fn check_sources(&self) -> Result<(), Failure> {
        if self.redis.is_named() {
            return Ok(());
        }
        if self.endpoints.is_empty() {
            let message = "there is nothing to read: name a server with --redis <URL>, or running services with --metrics \
                           <URL>";
            return Err(Failure::new(message));
        }
        if !self.limits.is_empty() {
            return Err(Failure::new(
                "--rules and --policy are compared with what is spent, which needs --redis <URL>",
            ));
        }
        Ok(())
    }

    fn manner(&self, format: Format) -> Result<Manner, Failure> {
        let is_terminal = || {
            let is_dumb = env::var_os("TERM").is_some_and(|name| name == "dumb");
            format == Format::Text && io::stdout().is_terminal() && !is_dumb
        };
        if self.once && (self.plain || !self.endpoints.is_empty()) {
            Ok(Manner::Figures)
        } else if self.plain {
            Ok(Manner::Plain)
        } else if !self.once && is_terminal() {
            Ok(Manner::Screen)
        } else if self.endpoints.is_empty() {
            Ok(Manner::Once)
        } else {
            Err(Failure::new(
                "--metrics and --denied need a terminal, --plain or --once",
            ))
        }
    }

    fn print_once(
        &self,
        format: Format,
        mut limits: Limits,
        names: &Names,
    ) -> Result<Report, Failure> {
        let mut first = self.first();
        let scan = run_async(async {
            let mut server = connect(&mut limits, &self.redis).await?;
            if self.by == By::Share {
                require(&limits, "--by share", server.prefix())?;
            }
            let mut scan = self.scan.over(&mut server, &limits);
            Ok(scan.run(&Wanted::All, |state| first.add(state)).await?)
        })?;
        let mut states = first.take();
        states.iter_mut().for_each(|state| names.apply(state));
        let topped = Topped {
            counts: ScanCounts::from(&scan),
            states,
        };
        Ok(Report::new(format, &topped, || {
            let mut text = state_table(&topped.states);
            // Writing to memory cannot fail.
            let _ = writeln!(text, "{}", scan_line(&scan));
            text
        }))
    }

    fn watch<V: watch::View>(
        &self,
        limits: Limits,
        names: Names,
        refreshes: Option<u32>,
        open: impl FnOnce() -> io::Result<V>,
    ) -> Result<Report, Failure> {
        let first = self.first();
        let collector = Collector::new(
            &self.redis,
            limits,
            &self.scan,
            &self.endpoints,
            names,
            first,
        )?;
        let pace = Pace {
            interval: self.interval,
            refreshes,
        };
        run_async(watch::run(collector, pace, open))?;
        Ok(Report::of_text(String::new()))
    }
}

/// Reads a time of 1 second to 1 hour: a number of seconds, or a number and its unit.
fn interval(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|sign: char| sign.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "" | "s" => Some(1),
        "m" => Some(60),
        "h" => Some(3_600),
        _ => None,
    };
    let seconds = digits
        .parse::<u64>()
        .ok()
        .zip(unit)
        .and_then(|(number, unit)| number.checked_mul(unit));
    match seconds.filter(|seconds| (1..=3_600).contains(seconds)) {
        Some(seconds) => Ok(Duration::from_secs(seconds)),
        None => Err("expected 1s to 1h, such as 2, 2s or 1m".to_owned()),
    }
}
