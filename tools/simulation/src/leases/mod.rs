//! Leases under random schedules: replicas crash, stall and sleep, calls and answers are lost, late
//! and out of order, the clock of the server steps, quotas change, keys are reset, and decisions
//! are refunded. No schedule may admit more than the bound of the algorithm, and every mistake in
//! the rule must be found.

mod efficiency;
mod mistake;
mod oracle;
mod schedule;
mod server;
#[cfg(test)]
mod tests;

use efficiency::Figures;
use mistake::Mistake;
use schedule::Outcome;

/// Runs schedules of consecutive seeds. Returns the sum of what they admitted, and the seeds that
/// exceeded a bound.
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
    Mistake::ALL
        .into_iter()
        .map(move |mistake| (mistake, found(mistake)))
}

/// Prints how much leased replicas admit, and how many trips they make.
pub(crate) fn print_efficiency() {
    println!(
        "| units/s | replicas | load | trips per check | trips/s | of the ideal | least and most |"
    );
    for run in efficiency::runs() {
        let Figures {
            of_ideal,
            trips,
            trips_per_second,
            fairness: (low, high),
        } = efficiency::run(&run);
        let (amount, replicas, load) = (run.policy.quota().amount(), run.replicas, run.load);
        println!(
            "| {amount} | {replicas} | {load} | {trips:.4} | {trips_per_second:.0} | {of_ideal:.4} | {low:.3} {high:.3} |"
        );
    }
}
