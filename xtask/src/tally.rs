//! Counts tests from what `cargo test` prints.

use std::fmt;

/// How many tests passed, failed and were skipped, summed over every test binary and doc-test run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) skipped: u64,
}

impl Tally {
    /// Adds what `line` reports, if it is the closing line of a test binary:
    /// `test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s`.
    pub(crate) fn read(&mut self, line: &str) {
        let Some(counts) = line.strip_prefix("test result:") else {
            return;
        };
        self.passed += before(counts, "passed");
        self.failed += before(counts, "failed;");
        self.skipped += before(counts, "ignored");
    }

    pub(crate) fn ran(&self) -> u64 {
        self.passed + self.failed
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }
}

/// The number right before `word`.
fn before(counts: &str, word: &str) -> u64 {
    let mut previous = "";
    for token in counts.split_ascii_whitespace() {
        if token.starts_with(word) {
            return previous.parse().unwrap_or(0);
        }
        previous = token;
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(lines: &[&str]) -> Tally {
        let mut tally = Tally::default();
        lines.iter().for_each(|line| tally.read(line));
        tally
    }

    #[test]
    fn results_of_all_binaries_are_summed() {
        let tally = of(&[
            "running 2 tests",
            "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s",
            "",
            "test result: FAILED. 40 passed; 2 failed; 0 ignored; 0 measured; 7 filtered out; finished in 1.00s",
        ]);
        assert_eq!(tally, Tally { passed: 43, failed: 2, skipped: 1 });
        assert_eq!(tally.to_string(), "43 passed, 2 failed, 1 skipped");
    }

    #[test]
    fn colour_around_the_verdict_does_not_hide_the_counts() {
        let line = "test result: \u{1b}[31mFAILED\u{1b}(B\u{1b}[m. 1 passed; 2 failed; 3 ignored; 0 measured";
        assert_eq!(of(&[line]), Tally { passed: 1, failed: 2, skipped: 3 });
    }

    #[test]
    fn other_lines_count_nothing() {
        assert_eq!(
            of(&["test denial_costs_nothing ... ok", "note: test result: 9 passed", "3 passed"]),
            Tally::default()
        );
    }
}
