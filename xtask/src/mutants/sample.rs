use std::collections::BTreeMap;

/// Orders mutants so that every beginning of the list is a sample: one mutant of each file, then a second one of each, and
/// so on, in a random order within each file.
///
/// The same seed gives the same order.
pub(super) fn order(mutants: Vec<String>, seed: u64) -> Vec<String> {
    let mut files: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for mutant in mutants {
        files.entry(file(&mutant).to_owned()).or_default().push(mutant);
    }
    let mut dice = Dice(seed);
    let mut all = Vec::new();
    for mutants in files.into_values() {
        let count = mutants.len();
        let mut ranked: Vec<(u64, String)> = mutants.into_iter().map(|mutant| (dice.roll(), mutant)).collect();
        ranked.sort();
        // Evenly spread places, with a random start: a file with twice the mutants is met twice as often.
        let start = dice.roll() as f64 / u64::MAX as f64;
        all.extend(
            ranked.into_iter().enumerate().map(|(at, (_, mutant))| ((at as f64 + start) / count as f64, mutant)),
        );
    }
    all.sort_by(|one, other| one.0.total_cmp(&other.0));
    all.into_iter().map(|(_, mutant)| mutant).collect()
}

/// Returns the file of a mutant, as the tool prints it: `file:line:column: change`.
pub(super) fn file(mutant: &str) -> &str {
    mutant.split(':').next().unwrap_or(mutant)
}

/// A small random number generator (SplitMix64), so that a seed gives the same sample everywhere.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mutants() -> Vec<String> {
        let of = |file: &str, count: usize| (0..count).map(|at| format!("{file}:{at}:1: change")).collect::<Vec<_>>();
        [of("a.rs", 100), of("b.rs", 50), of("c.rs", 1)].concat()
    }

    #[test]
    fn a_beginning_of_the_order_holds_each_file_by_its_share() {
        let order = order(mutants(), 1);
        assert_eq!(order.len(), 151);
        let count = |name| order[..30].iter().filter(|mutant| file(mutant) == name).count();
        assert!((18..=21).contains(&count("a.rs")), "{}", count("a.rs"));
        assert!((9..=11).contains(&count("b.rs")), "{}", count("b.rs"));
    }

    #[test]
    fn a_seed_gives_one_order_and_another_seed_another() {
        assert_eq!(order(mutants(), 7), order(mutants(), 7));
        assert_ne!(order(mutants(), 7), order(mutants(), 8));
    }
}
