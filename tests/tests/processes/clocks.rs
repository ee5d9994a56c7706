//! The server's clock jumps, and callers' clocks are off: what is admitted beyond the burst, and for how long a key is
//! denied wrongly.
#![cfg(target_os = "linux")]

use std::{process::Command, time::Duration};

use jumps::{ALGORITHMS, JUMPS, Jumper, PHASES, SPENT, longest};
use tollgate_tests::Process;

#[allow(dead_code, unreachable_pub, reason = "the rows that are measured use the rest")]
#[path = "../clock/jumps.rs"]
mod jumps;
#[allow(dead_code, unreachable_pub, reason = "the rows that are measured use the rest")]
#[path = "../clock/skew.rs"]
mod skew;

#[tokio::test]
async fn a_jump_forward_gives_a_burst_at_most_and_a_jump_back_gives_none_and_denies_for_a_period_at_most() {
    let mut jumper = Jumper::start().await;
    for algorithm in ALGORITHMS {
        for (phase, spent, by) in all() {
            let forward = jumper.forward(algorithm, phase, spent, by).await;
            assert!(forward.extra() <= 1.0, "{algorithm:?} at {phase:?}, {by:?} forward: {forward:?}");
            let back = jumper.back(algorithm, phase, spent, by).await;
            assert!(back.extra() == 0.0, "{algorithm:?} at {phase:?}, {by:?} back: {back:?}");
            assert!(back.wrongly <= longest(algorithm), "{algorithm:?} at {phase:?}, {by:?} back: {back:?}");
        }
    }
    let (keys, expires) = jumper.server().keys_and_expires();
    assert_eq!(keys, expires, "every key expires");
}

fn all() -> impl Iterator<Item = (Duration, u64, Duration)> {
    let places = PHASES.into_iter().flat_map(|phase| SPENT.map(|spent| (phase, spent)));
    places.flat_map(|(phase, spent)| JUMPS.map(|by| (phase, spent, by)))
}

#[test]
fn callers_whose_clocks_are_off_are_told_what_the_others_are_told() {
    let program = Process::example("faults");
    let told = |skews| skew::told(|| Command::new(program.get_program()), skews);
    let straight = told([0, 0]);
    assert!(straight.iter().any(|line| line.contains("denied")), "{straight:?}");
    assert!(straight.iter().any(|line| line.contains("allowed")), "{straight:?}");
    for skews in skew::SKEWS {
        assert_eq!(told(skews), straight, "{skews:?}");
    }
}
