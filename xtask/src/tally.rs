//! Counts tests in the output of `cargo test`.

use std::fmt;

/// The numbers of tests that passed, failed and were skipped, summed over all test binaries and doc
/// tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) skipped: u64,
    /// The tests of the current binary that announced that they were skipped.
    announced: u64,
}

/// The beginning of the line of a skipped test.
const SKIPPED: &str = "*** SKIPPED: ";

impl Tally {
    /// Adds the counts of the closing line of a test binary:
    /// `test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s`.
    ///
    /// A test that finds no server to run on cannot tell cargo so, which counts it as passed. It
    /// writes a line that begins with [`SKIPPED`]; each such line moves one test from passed to
    /// skipped.
    pub(crate) fn read(&mut self, line: &str) {
        if line.starts_with(SKIPPED) {
            self.announced += 1;
        }
        let Some(counts) = line.strip_prefix("test result:") else {
            return;
        };
        let skipped = std::mem::take(&mut self.announced).min(before(counts, "passed"));
        self.passed += before(counts, "passed") - skipped;
        self.failed += before(counts, "failed;");
        self.skipped += before(counts, "ignored") + skipped;
    }

    /// Adds the counts of another run.
    pub(crate) fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }

    pub(crate) fn ran(&self) -> u64 {
        self.passed + self.failed
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} passed, {} failed, {} skipped",
            self.passed, self.failed, self.skipped
        )
    }
}

/// Returns the number right before `word`.
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
        assert_eq!(
            tally,
            Tally {
                passed: 43,
                failed: 2,
                skipped: 1,
                announced: 0
            }
        );
        assert_eq!(tally.to_string(), "43 passed, 2 failed, 1 skipped");
    }

    #[test]
    fn colour_around_the_verdict_does_not_hide_the_counts() {
        let line = "test result: \u{1b}[31mFAILED\u{1b}(B\u{1b}[m. 1 passed; 2 failed; 3 ignored; 0 measured";
        assert_eq!(
            of(&[line]),
            Tally {
                passed: 1,
                failed: 2,
                skipped: 3,
                announced: 0
            }
        );
    }

    #[test]
    fn a_test_that_announces_that_it_was_skipped_is_not_counted_as_passed() {
        let tally = of(&[
            "*** SKIPPED: suite::valkey::a: VALKEY_SERVER names no binary ***",
            "test suite::valkey::a ... ok",
            "*** SKIPPED: suite::valkey::b: VALKEY_SERVER names no binary ***",
            "test result: ok. 5 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s",
            "test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s",
        ]);
        assert_eq!(tally.to_string(), "5 passed, 0 failed, 3 skipped");
    }

    #[test]
    fn other_lines_count_nothing() {
        assert_eq!(
            of(&[
                "test denial_costs_nothing ... ok",
                "note: test result: 9 passed",
                "3 passed"
            ]),
            Tally::default()
        );
    }
}
