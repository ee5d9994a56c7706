//! `cargo xtask mutants`: breaks the code in small ways, and counts the faults that no test notices.

mod options;
mod results;
mod sample;
mod tool;

use std::{collections::BTreeMap, path::PathBuf, time::Instant};

use crate::{copy, failure::Failure, need, workspace::Workspace};
use options::Options;
use results::Results;
use tool::{Scope, Tool};

/// The environment variables that name the servers, with their binaries.
type Binaries = Vec<(&'static str, PathBuf)>;

/// The mutants of one run of the tool. The time is looked at between two runs.
const AT_ONCE: usize = 10;

/// Tests a sample of the mutants, or all of them, and prints the share that the tests notice.
///
/// A mutant is tested with the nearest tests first. The mutants that those miss are tested with all tests of the crates
/// that use the code. Everything happens in a copy of the workspace under the target directory.
///
/// # Errors
///
/// When the tool cannot be installed, when the tests cannot run, and when the tests of a crate notice less than the target.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    let options = Options::parse(arguments)?;
    let workspace = Workspace::load()?;
    let home = workspace.target().join("mutants");
    let tool = Tool::provide(workspace.target(), &home, need::provide(workspace.target())?)?;
    copy::update(workspace.root(), &tool.tree())?;
    let known = results::known_equal(workspace.root())?;
    println!("seed {}", options.seed);
    let (mut reports, mut is_enough) = (Vec::new(), true);
    for (at, package) in options.packages.iter().enumerate() {
        let left = options.packages.len() - at;
        let end = options.until.map(|until| {
            let now = Instant::now();
            now + until.saturating_duration_since(now) / left as u32
        });
        let results = test_package(&tool, package, &options, end)?;
        let report = results.report(package, &known);
        is_enough &= report.is_enough();
        reports.push(report);
    }
    for report in &reports {
        println!("\n{report}");
    }
    if is_enough { Ok(()) } else { Err(Failure::new("the tests of a crate notice fewer mutants than the target")) }
}

/// Tests the mutants of one package until the time is over.
fn test_package(tool: &Tool, package: &str, options: &Options, end: Option<Instant>) -> Result<Results, Failure> {
    let all = tool.list(package, &options.files)?;
    let mut results = Results::new(all.len());
    // Half of the time belongs to the mutants that the nearest tests miss.
    let half = end.map(|end| Instant::now() + end.saturating_duration_since(Instant::now()) / 2);
    for chunk in sample::order(all, options.seed).chunks(AT_ONCE) {
        if half.is_some_and(|half| Instant::now() >= half) {
            break;
        }
        let mut by_scope: BTreeMap<Scope, Vec<String>> = BTreeMap::new();
        for mutant in chunk {
            by_scope.entry(Scope::nearest(package, mutant)).or_default().push(mutant.clone());
        }
        for (scope, mutants) in by_scope {
            results.add(tool.test(package, &mutants, &scope)?);
        }
    }
    let missed = results.take_missed();
    for (at, mutants) in missed.chunks(AT_ONCE / 2).enumerate() {
        if end.is_some_and(|end| Instant::now() >= end) {
            results.leave_out(&missed[at * AT_ONCE / 2..]);
            break;
        }
        results.add(tool.test(package, mutants, &Scope::all(package))?);
    }
    Ok(results)
}
