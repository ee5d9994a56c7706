//! Raises faults on real servers, and measures what they cost a limiter.
//!
//! Run it as `cargo xtask faults`, see [`HELP`]. Each row starts its servers on free ports of
//! 127.0.0.1, waits for conditions, and prints its figures with their targets, as lines of a table.
//! A row asserts what has to hold on every machine, and fails the run when it breaks. A time or a
//! size that misses its target is only reported, because machines differ. Rows that need network
//! namespaces run only as root; for other users a loud line names them.

use std::{
    env,
    panic::{self, AssertUnwindSafe},
    process::ExitCode,
    time::Instant,
};

mod findings;
mod load;
mod rows;

use findings::Findings;
use rows::{Pace, Row};
use tollgate_tests::{machine, network_namespace};

const HELP: &str = "\
Usage: cargo xtask faults [--quick] [--soak] [--server NAME] [ROW…]

  --quick   shorter stalls, fewer repetitions: ends within three minutes
  --soak    20 minutes of load instead of the rows (one minute with --quick)
  --server  runs on another server: redis6, redis7, redict7, redis8, valkey8 or valkey9

Rows:";

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    // A row that needs another process starts this program again.
    if let [first, url] = words.as_slice()
        && let Some((_, part)) = rows::PARTS.iter().find(|(name, _)| name == first)
    {
        part(url);
        return ExitCode::SUCCESS;
    }
    let Some((pace, mut rows)) = options(&words) else {
        eprintln!("{HELP}");
        for row in rows::ALL {
            eprintln!("  {:<4}{}", row.id, row.fault);
        }
        return ExitCode::FAILURE;
    };
    let is_apart = |row: &&Row| rows::ISOLATED.contains(&row.id);
    // The other rows run in the namespaces as well as outside.
    if rows.iter().any(is_apart)
        && let Err(why) = network_namespace::enter()
    {
        let ids: Vec<_> = rows
            .extract_if(.., |row| is_apart(row))
            .map(|row| row.id)
            .collect();
        println!("*** NOT RAISED: {}: {why} ***\n", ids.join(", "));
    }
    println!("{}\n", machine::describe().join(", "));
    run(pace, &rows)
}

/// Returns the rows that are asked for, and nothing for invalid options.
fn options(words: &[String]) -> Option<(Pace, Vec<&'static Row>)> {
    let (mut is_quick, mut is_soak, mut rows) = (false, false, Vec::new());
    for word in words {
        match word.as_str() {
            "--quick" => is_quick = true,
            "--soak" => is_soak = true,
            id => rows.push(rows::ALL.iter().find(|row| row.id == id)?),
        }
    }
    match (is_soak, rows.is_empty()) {
        (true, true) => rows.push(&rows::SOAK),
        (true, false) => return None,
        (false, true) => rows.extend(rows::ALL),
        (false, false) => {}
    }
    Some((Pace { is_quick }, rows))
}

fn run(pace: Pace, rows: &[&Row]) -> ExitCode {
    let (began, mut broken, [mut met, mut missed]) = (Instant::now(), 0, [0; 2]);
    println!("| row | fault | figure | measured | target | |");
    for row in rows {
        let Row { id, fault, .. } = row;
        let Ok(found) = panic::catch_unwind(AssertUnwindSafe(|| raise(row, pace))) else {
            println!("| {id} | {fault} | – | – | – | **broken** |");
            broken += 1;
            continue;
        };
        found.lines(id, fault).for_each(|line| println!("{line}"));
        let [of_row, misses] = found.tally();
        (met, missed) = (met + of_row, missed + misses);
    }
    println!(
        "\n{} rows, {broken} broken; figures: {met} met, {missed} missed; {} s",
        rows.len(),
        began.elapsed().as_secs()
    );
    if broken > 0 {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

/// Raises a row on a runtime of its own, which ends with the row.
fn raise(row: &Row, pace: Pace) -> Findings {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on((row.raise)(pace))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_chosen_by_their_names_and_a_soak_is_a_row_of_its_own() {
        let ids = |line: &str| {
            let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            options(&words).map(|(_, rows)| rows.iter().map(|row| row.id).collect::<Vec<_>>())
        };
        assert_eq!(ids("--quick").expect("all rows").len(), rows::ALL.len());
        assert_eq!(ids("N1 --quick N2").expect("rows"), ["N1", "N2"]);
        assert_eq!(ids("--soak").expect("a soak"), ["L1"]);
        for line in ["--fast", "X1", "--soak N1"] {
            assert_eq!(ids(line), None, "{line}");
        }
    }
}
