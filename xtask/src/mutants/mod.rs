//! `cargo xtask mutants`: breaks the code in small ways, and counts the faults that no test notices.

mod options;
mod results;
mod sample;
mod tool;

use std::{collections::BTreeMap, path::PathBuf};

use crate::{copy, failure::Failure, need, workspace::Workspace};
use options::Options;
use results::Results;
use tool::{Scope, Tool};

/// The environment variables that name the servers, with their binaries.
type Binaries = Vec<(&'static str, PathBuf)>;

/// Tests a sample of the mutants, or all of them, and prints the share that the tests notice.
///
/// A mutant is tested with the nearest tests first, and with more tests as long as it is missed. Everything happens in a
/// copy of the workspace under the target directory.
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
    for package in &options.packages {
        let results = test_package(&tool, package, &options)?;
        let report = results.report(package, &known);
        is_enough &= report.is_enough();
        reports.push(report);
    }
    for report in &reports {
        println!("\n{report}");
    }
    if is_enough { Ok(()) } else { Err(Failure::new("the tests of a crate notice fewer mutants than the target")) }
}

/// Tests the mutants of one package that are asked for.
fn test_package(tool: &Tool, package: &str, options: &Options) -> Result<Results, Failure> {
    let all = tool.list(package, &options.files)?;
    let mut results = Results::new(all.len());
    let mut by_steps: BTreeMap<Vec<Scope>, Vec<String>> = BTreeMap::new();
    for mutant in sample::order(all.clone(), options.seed).into_iter().take(options.sample) {
        by_steps.entry(Scope::steps(package, &mutant)).or_default().push(mutant);
    }
    for (steps, mut missed) in by_steps {
        for scope in steps {
            if !missed.is_empty() {
                let outcome = tool.test(&all, &missed, &scope, package)?;
                missed = results.add(outcome);
            }
        }
        results.miss(missed);
    }
    Ok(results)
}
