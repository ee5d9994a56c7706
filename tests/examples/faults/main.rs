//! Raises the faults a limiter has to survive, against real servers, and measures what they cost.
//!
//! Run as `cargo xtask faults [--quick] [--write] [--server NAME] [ROW…]`. Each row starts what it needs on free ports of 127.0.0.1, waits
//! on conditions, and prints its figures with their targets. A figure that misses its target says so and is no
//! failure of the run: machines differ and neighbours disturb. A row that cannot be carried out is one. Rows that need
//! network namespaces are raised for root; they are left out aloud for others.

use std::{
    env, fs,
    panic::{self, AssertUnwindSafe},
    path::Path,
    process::ExitCode,
    time::Instant,
};

mod load;
mod report;
mod rows;

use report::{Findings, Report};
use tollgate_tests::island;

const HELP: &str = "\
Usage: cargo xtask faults [--quick] [--write] [--server redis8|valkey8] [ROW…]

  --quick  shorter stalls, fewer repetitions: ends within three minutes
  --write  writes docs/reliability.md, which a full run of all rows does anyway
  --server takes Redis 8 or Valkey 8, unpacked beside the system, instead of the server found

Rows:";

type Part = fn(&str);

/// What this program is when a row starts it as another process, with a URL.
const PARTS: &[(&str, Part)] =
    &[("process", rows::recovery::process), ("caller", rows::clock::caller), ("islander", rows::sentinel::islander)];

/// How much of everything.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    pub(crate) is_quick: bool,
}

impl Pace {
    /// One number for a full run, another for a quick one.
    pub(crate) fn of<T>(self, full: T, quick: T) -> T {
        if self.is_quick { quick } else { full }
    }
}

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    // Rows start this program again where they need another process.
    if let [first, url] = words.as_slice()
        && let Some(part) = PARTS.iter().find_map(|(name, part)| (name == first).then_some(part))
    {
        part(url);
        return ExitCode::SUCCESS;
    }
    let (options, chosen): (Vec<_>, Vec<_>) = words.iter().map(String::as_str).partition(|word| word.starts_with('-'));
    let known = |id: &&str| rows::ALL.iter().any(|row| row.id == *id);
    if !chosen.iter().all(known) || !options.iter().all(|option| ["--quick", "--write"].contains(option)) {
        eprintln!("{HELP}");
        rows::ALL.iter().for_each(|row| eprintln!("  {:<4}{}", row.id, row.fault));
        return ExitCode::FAILURE;
    }
    let pace = Pace { is_quick: options.contains(&"--quick") };
    let rows = || rows::ALL.iter().filter(|row| chosen.is_empty() || chosen.contains(&row.id));
    let (apart, mut raised): (Vec<_>, Vec<_>) = rows().partition(|row| rows::APART.contains(&row.id));
    let mut report = Report::new(pace);
    if !apart.is_empty() {
        // The other rows do not mind where they are.
        match island::enter() {
            Ok(()) => raised = rows().collect(),
            Err(why) => {
                let ids: Vec<_> = apart.iter().map(|row| row.id).collect();
                println!("*** NOT RAISED: {}: {why} ***", ids.join(", "));
                apart.iter().for_each(|row| report.leave_out(row.id, row.fault, &why));
            }
        }
    }
    run(report, pace, &raised, options.contains(&"--write") || chosen.is_empty() && !pace.is_quick)
}

fn run(mut report: Report, pace: Pace, rows: &[&rows::Row], write: bool) -> ExitCode {
    let began = Instant::now();
    for row in rows {
        let found = panic::catch_unwind(AssertUnwindSafe(|| raise(row, pace)));
        report.add(row.id, row.fault, found.ok());
    }
    let broken = report.broken();
    println!();
    report.print_scores();
    println!("\n{} in {:.0} s", report.tally(), began.elapsed().as_secs_f64());
    if write {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reliability.md");
        if let Err(error) = fs::write(&path, report.markdown()) {
            eprintln!("docs/reliability.md cannot be written: {error}");
            return ExitCode::FAILURE;
        }
    }
    if broken { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// On a runtime of its own, which ends with the row.
fn raise(row: &rows::Row, pace: Pace) -> Findings {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on((row.raise)(pace))
}
