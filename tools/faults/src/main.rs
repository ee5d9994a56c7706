//! Raises the faults that a limiter has to survive, on real servers, and measures what they cost.
//!
//! Run it as `cargo xtask faults`, see [`HELP`]. Each row starts its servers on free ports of 127.0.0.1, waits for
//! conditions, and prints its figures with their targets. A figure that misses its target is reported and does not fail
//! the run, because machines differ. A row that cannot be carried out fails the run. Rows that need network namespaces run
//! only as root; for other users a loud line names them.

use std::{
    env, fs, io,
    panic::{self, AssertUnwindSafe},
    path::Path,
    process::ExitCode,
    time::Instant,
};

mod findings;
mod heap;
mod load;
mod options;
mod other_runs;
mod pace;
mod report;
mod rows;

use findings::Findings;
use options::{HELP, Options};
use pace::Pace;
use report::Report;
use tollgate_tests::network_namespace;

type Part = fn(&str);

/// The parts that this program plays when a row starts it as another process, with a URL.
const PARTS: &[(&str, Part)] = &[
    ("process", rows::recovery::process),
    (rows::clock::CALLER, rows::clock::caller),
    ("isolated", rows::sentinel::isolated),
    (rows::outage::REPLICA, rows::outage::replica),
    (rows::permits::REPLICA, rows::permits::replica),
    (rows::leases::REPLICA, rows::leases::replica),
    (rows::crowd::PROCESS, rows::crowd::process),
];

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    // A row that needs another process starts this program again.
    if let [first, url] = words.as_slice()
        && let Some(part) = PARTS.iter().find_map(|(name, part)| (name == first).then_some(part))
    {
        part(url);
        return ExitCode::SUCCESS;
    }
    let Some(mut options) = Options::parse(&words) else {
        eprintln!("{HELP}");
        rows::ALL.iter().for_each(|row| eprintln!("  {:<4}{}", row.id, row.fault));
        return ExitCode::FAILURE;
    };
    let mut report = Report::new(options.pace, options.about.clone());
    let is_apart = |row: &&rows::Row| rows::ISOLATED.contains(&row.id);
    // The other rows run in the namespaces as well as outside.
    if options.rows.iter().any(&is_apart)
        && let Err(why) = network_namespace::enter()
    {
        let (apart, others): (Vec<_>, Vec<_>) = options.rows.into_iter().partition(is_apart);
        let ids: Vec<_> = apart.iter().map(|row| row.id).collect();
        println!("*** NOT RAISED: {}: {why} ***", ids.join(", "));
        apart.iter().for_each(|row| report.leave_out(row.id, row.fault, &why));
        options.rows = others;
    }
    run(report, &options)
}

fn run(mut report: Report, options: &Options) -> ExitCode {
    let began = Instant::now();
    for run in 1..=options.runs {
        if options.runs > 1 {
            println!("run {run} of {}", options.runs);
        }
        report.begin();
        for row in &options.rows {
            let found = panic::catch_unwind(AssertUnwindSafe(|| raise(row, options.pace)));
            report.add(row.id, row.fault, found.ok());
        }
        report.end();
    }
    println!();
    report.print_scores();
    println!("\n{} in {:.0} s", report.tally(), began.elapsed().as_secs_f64());
    if options.rows.len() > 1 {
        println!("not part of this run: 20 minutes of load (--soak)");
    }
    if options.write {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/contributors");
        if let Err(error) = write(&report, options, &docs) {
            eprintln!("the page cannot be written: {error}");
            return ExitCode::FAILURE;
        }
    }
    if report.broken() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Writes the page, and the summary of another run into `docs/contributors/reliability.md`.
fn write(report: &Report, options: &Options, docs: &Path) -> io::Result<()> {
    let main_page = docs.join("reliability.md");
    let previous = fs::read_to_string(&main_page).unwrap_or_default();
    let (path, page) = (options.page(docs), report.markdown(&previous));
    fs::write(&path, &page)?;
    println!("written: {}", path.display());
    match &options.about {
        None => Ok(()),
        Some(about) => fs::write(&main_page, other_runs::with_run(&previous, about, &page)),
    }
}

/// Raises a row on a runtime of its own, which ends with the row.
fn raise(row: &rows::Row, pace: Pace) -> Findings {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on((row.raise)(pace))
}
