//! Runs a target.
//!
//! The generator is proptest. It runs on stable Rust, the property tests use it already, and it reduces a failing input. It
//! measures no coverage, so each grammar knows where quotes, brackets, escapes and limits are, and breaks them on purpose.

use std::fmt;

use proptest::{
    strategy::Strategy,
    test_runner::{Config, RngSeed, TestCaseError, TestError, TestRunner},
};

/// A parser of untrusted input, and its law.
#[derive(Clone, Copy)]
pub(crate) struct Target {
    pub(crate) name: &'static str,
    pub(crate) law: &'static str,
    pub(crate) run: fn(&mut TestRunner) -> Result<(), String>,
}

/// The options of a run.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) executions: u32,
    pub(crate) seed: u64,
    pub(crate) targets: Vec<Target>,
}

impl Plan {
    /// Reads the command line. Returns nothing for an unknown word.
    pub(crate) fn parse(words: impl Iterator<Item = String>, all: &[Target]) -> Option<Self> {
        let mut plan = Self { executions: 5_000_000, seed: 1, targets: Vec::new() };
        let mut words = words;
        while let Some(word) = words.next() {
            match word.as_str() {
                "--executions" => plan.executions = words.next()?.parse().ok().filter(|&executions| executions > 0)?,
                "--seed" => plan.seed = words.next()?.parse().ok()?,
                name => plan.targets.push(*all.iter().find(|target| target.name == name)?),
            }
        }
        if plan.targets.is_empty() {
            plan.targets = all.to_vec();
        }
        Some(plan)
    }
}

impl Target {
    /// Runs the target on this number of inputs.
    ///
    /// # Errors
    ///
    /// Describes the smallest input that breaks the law or causes a panic.
    pub(crate) fn run(&self, executions: u32, seed: u64) -> Result<(), String> {
        let config = Config {
            cases: executions,
            failure_persistence: None,
            max_global_rejects: 0,
            rng_seed: RngSeed::Fixed(seed),
            source_file: None,
            ..Config::default()
        };
        (self.run)(&mut TestRunner::new(config))
    }
}

/// Generates inputs and checks each against the law.
pub(crate) fn hold<S: Strategy>(
    runner: &mut TestRunner,
    inputs: &S,
    law: impl Fn(S::Value) -> Result<(), String>,
) -> Result<(), String> {
    let outcome = runner.run(inputs, |input| law(input).map_err(TestCaseError::fail));
    outcome.map_err(|error| match error {
        TestError::Abort(reason) => format!("stopped: {reason}\n"),
        TestError::Fail(reason, input) => format!("{reason}\ninput: {input:?}\n"),
    })
}

/// Returns an error unless both are equal.
#[expect(clippy::needless_pass_by_value, reason = "what is compared is made for it")]
pub(crate) fn equal<T: PartialEq + fmt::Debug>(what: &str, found: T, expected: T) -> Result<(), String> {
    if found == expected { Ok(()) } else { Err(format!("{what}: {found:?} where {expected:?} belongs")) }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::any;

    use super::*;

    fn words(line: &str) -> impl Iterator<Item = String> {
        line.split_whitespace().map(str::to_owned)
    }

    const SMALL: Target = Target {
        name: "small",
        law: "a number is below a hundred",
        run: |runner| hold(runner, &any::<u8>(), |it| if it < 100 { Ok(()) } else { Err(format!("{it} is not")) }),
    };

    const PANICS: Target = Target {
        name: "panics",
        law: "nothing panics",
        run: |runner| hold(runner, &any::<u8>(), |it| if it < 200 { Ok(()) } else { panic!("at {it}") }),
    };

    #[test]
    fn a_broken_law_is_reported_with_the_smallest_input() {
        let message = SMALL.run(10_000, 7).expect_err("it does not hold");
        assert!(message.contains("100 is not") && message.contains("input: 100"), "{message}");
        assert!(PANICS.run(10_000, 7).expect_err("it panics").contains("input: 200"));
    }

    #[test]
    fn arguments_choose_targets_executions_and_seed() {
        let plan = Plan::parse(words("small --executions 12 --seed 3"), &[SMALL, PANICS]).expect("a plan");
        assert_eq!((plan.executions, plan.seed, plan.targets.len()), (12, 3, 1));
        assert_eq!(Plan::parse(words(""), &[SMALL, PANICS]).expect("a plan").targets.len(), 2);
        for nonsense in ["--executions", "--executions 0", "--executions x", "--seed", "other", "--fast"] {
            assert!(Plan::parse(words(nonsense), &[SMALL]).is_none(), "{nonsense}");
        }
    }
}
