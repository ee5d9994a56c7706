//! Measures Tollgate and its peers on the same work.
//!
//! A peer is another way to limit requests: a crate, a server module, or code written by hand.
//! Tollgate and the peers are the contestants. Run the benches with
//! `cargo xtask bench [--quick] [SECTION…]`.
//!
//! Machines differ, and other processes disturb the measurement. For this reason the turns of all
//! contestants alternate, and a ratio is computed within one round before the median is taken; see
//! [`rounds`]. Each contestant is measured through its public interface. Its answers are checked,
//! and a wrong answer ends the run.

use std::{env, process::ExitCode};

mod callgrind;
mod keys;
mod load;
mod machine;
mod open;
mod pace;
mod peers;
mod report;
mod rounds;
mod sections;
mod server;
mod steady;

use pace::Pace;
use report::Report;

const HELP: &str = "\
Usage: cargo xtask bench [--quick] [SECTION…]

  --quick  runs three short rounds instead of five longer ones: ends within four minutes

Sections:";

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    if let Some(("probe", words)) = words
        .split_first()
        .map(|(first, words)| (first.as_str(), words))
    {
        sections::probe(words);
        return ExitCode::SUCCESS;
    }
    let (options, chosen): (Vec<_>, Vec<_>) = words
        .iter()
        .map(String::as_str)
        .partition(|word| word.starts_with('-'));
    if options
        .iter()
        .any(|option| ["--help", "-h"].contains(option))
    {
        print!("{}", help());
        return ExitCode::SUCCESS;
    }
    let known = |name: &&str| sections::ALL.iter().any(|section| section.name == *name);
    if !chosen.iter().all(known) || !options.iter().all(|option| *option == "--quick") {
        eprint!("{}", help());
        return ExitCode::FAILURE;
    }
    let is_quick = options.contains(&"--quick");
    run(
        &if is_quick {
            Pace::quick()
        } else {
            Pace::full()
        },
        &chosen,
    );
    ExitCode::SUCCESS
}

fn help() -> String {
    let sections = sections::ALL
        .iter()
        .map(|section| format!("  {:<13}{}\n", section.name, section.about));
    format!("{HELP}\n{}", sections.collect::<String>())
}

/// Runs the sections, and prints the tables. The targets go to the standard error.
fn run(pace: &Pace, chosen: &[&str]) {
    machine::stay_on_the_client_core();
    let mut report = Report::new(&machine::describe(), pace);
    for section in sections::ALL {
        if chosen.is_empty() || chosen.contains(&section.name) {
            eprintln!("{}: {} …", section.name, section.about);
            report.add(section.name, (section.run)(pace));
        }
    }
    println!("{}", report.text());
    eprintln!("{}", report.targets());
}
