//! Leases under random schedules: replicas crash, stall and sleep, calls and answers are lost, late and out of order, the
//! clock of the server steps, quotas change, keys are reset, and decisions are refunded. No schedule may admit more than
//! the bound of the algorithm, and every mistake in the rule must be found.

mod efficiency;
mod mistake;
mod oracle;
mod page;
mod schedule;
mod server;
#[cfg(test)]
mod tests;

use mistake::Mistake;
pub(crate) use page::parts;
use schedule::Outcome;

/// Runs schedules of consecutive seeds. Returns the sum of what they admitted, and the seeds that exceeded a bound.
pub(crate) fn run(seeds: std::ops::Range<u64>) -> (Outcome, Vec<u64>) {
    let mut sum = Outcome::default();
    let mut exceeded = Vec::new();
    for seed in seeds {
        let outcome = schedule::run(seed, None);
        sum.admitted += outcome.admitted;
        sum.leased += outcome.leased;
        if outcome.exceeded {
            exceeded.push(seed);
        }
    }
    (sum, exceeded)
}

/// Returns the first seed that finds each mistake, and `None` for a mistake that no seed finds.
pub(crate) fn mistakes(seeds: u64) -> impl Iterator<Item = (Mistake, Option<u64>)> {
    let found = move |mistake| (0..seeds).find(|&seed| schedule::run(seed, Some(mistake)).exceeded);
    Mistake::ALL.into_iter().map(move |mistake| (mistake, found(mistake)))
}

/// Prints how much leased replicas admit, and how many trips they make.
pub(crate) fn print_efficiency() {
    println!("of the ideal | trips per check | trips/s | least and most admitted replica | run");
    for (title, run) in efficiency::runs() {
        let figures = efficiency::run(&run);
        let (low, high) = figures.fairness;
        println!(
            "{:.4} | {:.4} | {:.1} | {low:.3} {high:.3} | {title}",
            figures.of_ideal, figures.trips, figures.trips_per_second
        );
    }
}
