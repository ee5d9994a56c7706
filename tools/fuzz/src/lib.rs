//! Feeds the parsers of untrusted input with generated inputs, and checks each result against a
//! law.
//!
//! Each target is a test. `cargo xtask test` makes 20 000 inputs of each, and `cargo xtask fuzz`
//! five million, optimised. The inputs come from grammars that know the syntax and how to break it,
//! because random bytes are refused at the first one. The generator is proptest, which reduces an
//! input that fails before it is shown. It measures no coverage, so each grammar knows where
//! quotes, brackets, escapes and limits are, and breaks them on purpose. Each law is an oracle that
//! was written independently of the code, or the parser of the standard library.
#![cfg(test)]

use std::{env, fmt};

use proptest::{
    strategy::Strategy,
    test_runner::{Config, RngSeed, TestCaseError, TestRunner},
};

mod addresses;
mod targets;

/// Generates inputs and checks each against the law. `PROPTEST_CASES` is their number, and
/// `FUZZ_SEED` draws others.
///
/// # Panics
///
/// Describes the smallest input that breaks the law or causes a panic.
#[track_caller]
fn hold<S: Strategy>(inputs: &S, law: impl Fn(S::Value) -> Result<(), String>) {
    let number = |name: &str| {
        env::var(name)
            .ok()
            .and_then(|number| number.parse::<u32>().ok())
    };
    let config = Config {
        cases: number("PROPTEST_CASES").unwrap_or(20_000),
        failure_persistence: None,
        max_global_rejects: 0,
        rng_seed: RngSeed::Fixed(number("FUZZ_SEED").unwrap_or(2).into()),
        source_file: None,
        ..Config::default()
    };
    let outcome =
        TestRunner::new(config).run(inputs, |input| law(input).map_err(TestCaseError::fail));
    outcome.unwrap_or_else(|error| panic!("{error}"));
}

/// Returns an error unless both are equal.
#[expect(
    clippy::needless_pass_by_value,
    reason = "what is compared is made for it"
)]
fn equal<T: PartialEq + fmt::Debug>(what: &str, found: T, expected: T) -> Result<(), String> {
    if found == expected {
        Ok(())
    } else {
        Err(format!("{what}: {found:?} where {expected:?} belongs"))
    }
}
