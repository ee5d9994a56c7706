//! Feeds the parsers of untrusted input with millions of generated inputs, and checks each result against a law.
//!
//! Run it as `cargo xtask fuzz [--executions N] [--seed N] [TARGET…]`. The inputs come from grammars that know the
//! syntax and how to break it, because random bytes are refused at the first one. An input that fails is reduced before
//! it is shown. Each law is an oracle that was written independently of the code, or the parser of the standard
//! library.

use std::{env, process::ExitCode, time::Instant};

mod addresses;
mod harness;
mod targets;

use harness::{Plan, Target};

const HELP: &str = "\
Usage: cargo xtask fuzz [--executions N] [--seed N] [TARGET…]

  --executions N  the number of inputs for each target; 5000000 by default
  --seed N        draws the inputs from this seed, to see a failure again

Targets:";

fn main() -> ExitCode {
    let Some(plan) = Plan::parse(env::args().skip(1), targets::ALL) else {
        eprintln!("{HELP}");
        targets::ALL.iter().for_each(|target| eprintln!("  {:<17}{}", target.name, target.law));
        return ExitCode::FAILURE;
    };
    println!("{} executions of each target, seed {}", plan.executions, plan.seed);
    let mut crashes = 0;
    for target in &plan.targets {
        let began = Instant::now();
        let outcome = target.run(plan.executions, plan.seed);
        let seconds = began.elapsed().as_secs_f64();
        let (done, crashed) = outcome.map_or_else(|crash| (crash, 1), |()| (plan.executions.to_string(), 0));
        println!("{:<17}{done} executions in {seconds:.1} s, {crashed} crashes", target.name);
        crashes += crashed;
    }
    println!("{} targets, {crashes} crashes", plan.targets.len());
    if crashes == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
