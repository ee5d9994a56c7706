//! Rows: clocks that jump, and wrong clocks.

use std::{env, process::Command, time::Duration};

use tollgate::testing::ALGORITHMS;
use tollgate_test_support::{
    JUMPS, JumpingServer, PHASES, SKEWS, SPENT, answers_under_skew, longest_wrong_denial, run_caller,
};

use crate::{
    findings::{Findings, Target},
    pace::Pace,
};

/// The word that makes this program one of the callers.
pub(crate) const CALLER: &str = "caller";

/// Runs one of the callers.
pub(crate) fn caller(url: &str) {
    run_caller(url);
}

pub(super) async fn forward(_: Pace) -> Findings {
    let mut findings = Findings::default();
    let mut jumper = JumpingServer::start().await;
    for by in JUMPS {
        let mut extra = 0.0_f64;
        for algorithm in ALGORITHMS {
            for (phase, spent) in places() {
                extra = extra.max(jumper.forward(algorithm, phase, spent, by).await.extra());
            }
        }
        let asked = format!("extra bursts of a key, {} s", by.as_secs());
        findings.figure(asked, Target::AtMost(1.0), extra, "");
    }
    findings.keys(jumper.server().keys_and_expires());
    findings
}

pub(super) async fn back(_: Pace) -> Findings {
    let mut findings = Findings::default();
    let mut jumper = JumpingServer::start().await;
    for by in JUMPS {
        // The longest wrong denials, in shares of the target of the algorithm.
        let (mut extra, mut shares) = (0.0_f64, [0.0_f64; 2]);
        for algorithm in ALGORITHMS {
            let is_bucket = longest_wrong_denial(algorithm) < longest_wrong_denial(ALGORITHMS[3]);
            for (phase, spent) in places() {
                let landing = jumper.back(algorithm, phase, spent, by).await;
                extra = extra.max(landing.extra());
                let share = landing.wrongly.as_secs_f64() / longest_wrong_denial(algorithm).as_secs_f64();
                let worst = &mut shares[usize::from(is_bucket)];
                *worst = worst.max(share);
            }
        }
        let seconds = by.as_secs();
        findings.figure(format!("extra bursts of a key, {seconds} s"), Target::AtMost(0.0), extra, "");
        let [windows, buckets] = shares;
        let asked = format!("longest wrong denial by a bucket or queue, {seconds} s");
        findings.figure(asked, Target::AtMost(2.0), buckets * 2.0, " T");
        let asked = format!("longest wrong denial by the others, {seconds} s");
        findings.figure(asked, Target::AtMost(1.0), windows, " W");
    }
    findings.keys(jumper.server().keys_and_expires());
    findings
}

fn places() -> impl Iterator<Item = (Duration, u64)> {
    PHASES.into_iter().flat_map(|phase| SPENT.map(|spent| (phase, spent)))
}

pub(super) async fn skewed(_: Pace) -> Findings {
    let compare = || {
        let program = || {
            let mut command = Command::new(env::current_exe().expect("this program has a path"));
            command.arg(CALLER);
            command
        };
        let expected = answers_under_skew(program, [0, 0]);
        let others = SKEWS.map(|skews| answers_under_skew(program, skews));
        let differs = |answers: &Vec<String>| {
            let pairs = answers.iter().zip(&expected).filter(|(one, other)| one != other).count();
            pairs + answers.len().abs_diff(expected.len())
        };
        (others.iter().map(differs).sum::<usize>(), others.iter().map(Vec::len).sum::<usize>())
    };
    let (differ, all) = tokio::task::spawn_blocking(compare).await.expect("a task");
    let mut findings = Findings::default();
    findings.figure(
        format!("decisions of {all} that differ from those without"),
        Target::AtMost(0.0),
        differ as f64,
        "",
    );
    findings
}
