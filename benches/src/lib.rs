//! Measures Tollgate and its peers on the same work.
//!
//! A peer is another way to limit requests: a crate, a server module, or code written by hand.
//! Tollgate and the peers are the contestants. Run the benches with
//! `cargo xtask bench [--quick] [SECTION…]`.
//!
//! Machines differ, and other processes disturb the measurement. For this reason the turns of all
//! contestants alternate, and a ratio is computed within one round before the median is taken; see
//! `rounds.rs`. Each contestant is measured through its public interface. Its answers are checked,
//! and a wrong answer ends the run.

use std::{env, process::ExitCode};

mod callgrind;
mod keys;
mod load;
mod machine;
mod pace;
mod peers;
mod report;
mod rounds;
mod sections;
mod server;

use pace::Pace;
use report::Findings;

const HELP: &str = "\
Usage: cargo xtask bench [--quick] [SECTION…]

  --quick  runs three short rounds instead of five longer ones: ends within four minutes

Sections:";

/// Runs the sections that the command line names. A program of the benches is this function alone, with
/// an allocator or features of its own.
#[must_use]
pub fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    if let ["probe", words @ ..] = &words[..] {
        sections::probe(words);
        return ExitCode::SUCCESS;
    }
    let (options, chosen): (Vec<&str>, Vec<&str>) =
        words.into_iter().partition(|word| word.starts_with('-'));
    let known = |name: &&str| sections::ALL.iter().any(|section| section.name == *name);
    if !chosen.iter().all(known) || options.iter().any(|option| *option != "--quick") {
        eprintln!("{HELP}");
        for section in sections::ALL {
            eprintln!("  {:<13}{}", section.name, section.about);
        }
        return ExitCode::FAILURE;
    }
    run(&Pace::new(!options.is_empty()), &chosen);
    ExitCode::SUCCESS
}

/// Runs the sections, and prints the tables. The targets go to the standard error.
fn run(pace: &Pace, chosen: &[&str]) {
    machine::stay_on_the_client_core();
    let mut all = Findings::default();
    for section in sections::ALL {
        if chosen.is_empty() || chosen.contains(&section.name) {
            eprintln!("{}: {} …", section.name, section.about);
            all.add((section.run)(pace));
        }
    }
    println!(
        "# Measured\n\n\
         Printed by `cargo xtask bench`. {}\n\n\
         Each figure is the median of {} turns, or of {} turns in process. The turns of all contestants alternate. \
         A ratio is computed within one round, before the median is taken. For this reason ratios stay valid \
         when the speed of the machine changes. In a label, *A to B* means the figure of A divided by the figure \
         of B; *to B* means the figure of the row divided by the figure of B. All connections use the loopback \
         interface. *Away* is the latency of a network that a proxy adds.{}",
        machine::describe(),
        pace.load.count,
        pace.inside.count,
        if pace.is_quick {
            " This was a quick run: the figures vary by several per cent."
        } else {
            ""
        }
    );
    all.tables
        .iter()
        .for_each(|table| print!("{}", table.text()));
    eprint!("{}", all.targets().text());
}
