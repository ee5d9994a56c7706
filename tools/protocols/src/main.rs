//! Prints what explorations find: `cargo xtask model`, see [`HELP`].
//! The rows are in `rows.rs` of each protocol.

use std::{env, process::ExitCode, time::Instant};

use tollgate_protocols::{
    explorer::{Limits, Protocol, explore, walk},
    leases, regions,
    table::{Row, Seeded},
};

const HELP: &str = "\
Usage: cargo xtask model [--long] [--mistakes] [--walks NUMBER] [ROW…]

Explores the rows, or those that are short, and prints how many states they have.

  --long      all rows: minutes, and up to 10 GB of memory
  --mistakes  the mistakes instead of the rows, each with the steps that show it
  --walks     as many random walks with all faults at once instead of the rows

Rows (* is short):";

/// Selects what is explored.
#[derive(Default)]
struct Options {
    is_long: bool,
    with_mistakes: bool,
    walks: u64,
    rows: Vec<String>,
}

fn main() -> ExitCode {
    let Some(options) = options(env::args().skip(1)) else {
        eprintln!("{HELP}");
        for (name, is_short, says) in names() {
            let mark = if is_short { "*" } else { " " };
            eprintln!("  {mark} {name:<15} {says}");
        }
        return ExitCode::FAILURE;
    };
    let holds = if options.with_mistakes {
        mistakes(&regions::MISTAKES) & mistakes(&leases::mistakes())
    } else if options.walks > 0 {
        walks(options.walks)
    } else {
        println!("| row | what may happen | different states | steps | | seconds |");
        println!("|---|---|---|---|---|---|");
        rows(&regions::ROWS, &options) & rows(&leases::rows(), &options)
    };
    if holds {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Lists all rows: their names, whether they are short, and what may happen.
fn names() -> Vec<(&'static str, bool, &'static str)> {
    fn of<P>(row: &Row<P>) -> (&'static str, bool, &'static str) {
        (row.name, row.states.is_some(), row.says)
    }
    let mut names: Vec<_> = regions::ROWS.iter().map(of).collect();
    names.extend(leases::rows().iter().map(of));
    names
}

fn options(mut words: impl Iterator<Item = String>) -> Option<Options> {
    let mut options = Options::default();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--long" => options.is_long = true,
            "--mistakes" => options.with_mistakes = true,
            "--walks" => options.walks = words.next()?.parse().ok()?,
            name => {
                names().into_iter().find(|(known, ..)| *known == name)?;
                options.rows.push(word);
            }
        }
    }
    Some(options)
}

/// Explores rows, and returns whether no state violates an invariant.
fn rows<P: Protocol>(rows: &[Row<P>], options: &Options) -> bool {
    let is_chosen = |row: &&Row<P>| {
        let is_named = options.rows.iter().any(|name| name == row.name);
        is_named || options.rows.is_empty() && (options.is_long || row.states.is_some())
    };
    let mut holds = true;
    for row in rows.iter().filter(is_chosen) {
        let begin = Instant::now();
        let explored = row.explore();
        let end = if explored.is_complete {
            "complete".to_owned()
        } else {
            format!("to depth {}", explored.depth)
        };
        println!(
            "| {} | {} | {} | {} | {end} | {:.1} |",
            row.name,
            row.says,
            explored.states,
            explored.steps,
            begin.elapsed().as_secs_f64()
        );
        if let Some(violation) = explored.violation {
            println!("{violation}");
            holds = false;
        }
    }
    holds
}

/// Shows what finds each mistake, and returns whether all were found.
fn mistakes<P: Protocol>(mistakes: &[Seeded<P>]) -> bool {
    let mut holds = true;
    for seeded in mistakes {
        let violation = seeded.find();
        holds &= violation.is_some();
        let found = violation.map_or("is not found".to_owned(), |found| found.to_string());
        let sound = explore(&seeded.sound, Limits::default());
        holds &= sound.violation.is_none();
        println!("{}: {found}", seeded.says);
        println!("Without it, {} states.\n", sound.states);
    }
    holds
}

/// Walks at random, and returns whether no state violates an invariant.
fn walks(number: u64) -> bool {
    let begin = Instant::now();
    let walked = walk(
        1,
        number,
        regions::Setting::some_faults,
        |setting, world| world.used_periods(setting) > 0,
    );
    println!(
        "{} walks, {} steps, {} of them used all of a period, {:.1} seconds",
        walked.runs,
        walked.steps,
        walked.met,
        begin.elapsed().as_secs_f64()
    );
    if let Some(violation) = &walked.violation {
        println!("{violation}");
    }
    walked.violation.is_none()
}
