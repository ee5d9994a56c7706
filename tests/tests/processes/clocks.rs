//! Law 10 on a real server: its clock jumps, or the clocks of the callers are wrong.
#![cfg(target_os = "linux")]

use std::{process::Command, time::Duration};

use tollgate::testing::ALGORITHMS;
use tollgate_test_support::{
    JUMPS, JumpingServer, PHASES, SKEWS, SPENT, answers_under_skew, longest_wrong_denial,
};
use tollgate_tests::Process;

#[tokio::test]
async fn law_10_a_jump_forward_admits_one_burst_more_and_a_jump_back_none_and_denies_for_one_period_at_most()
 {
    let mut server = JumpingServer::start().await;
    for algorithm in ALGORITHMS {
        for (phase, spent, by) in all() {
            let forward = server.forward(algorithm, phase, spent, by).await;
            assert!(
                forward.extra() <= 1.0,
                "{algorithm:?} at {phase:?}, {by:?} forward: {forward:?}"
            );
            let back = server.back(algorithm, phase, spent, by).await;
            assert!(
                back.extra() == 0.0,
                "{algorithm:?} at {phase:?}, {by:?} back: {back:?}"
            );
            assert!(
                back.wrongly <= longest_wrong_denial(algorithm),
                "{algorithm:?} at {phase:?}, {by:?} back: {back:?}"
            );
        }
    }
    let (keys, expires) = server.server().keys_and_expires();
    assert_eq!(keys, expires, "every key expires");
}

fn all() -> impl Iterator<Item = (Duration, u64, Duration)> {
    let places = PHASES
        .into_iter()
        .flat_map(|phase| SPENT.map(|spent| (phase, spent)));
    places.flat_map(|(phase, spent)| JUMPS.map(|by| (phase, spent, by)))
}

#[test]
fn callers_with_wrong_clocks_get_the_same_decisions() {
    let program = Process::example("caller");
    let answers = |skews| answers_under_skew(|| Command::new(program.get_program()), skews);
    let expected = answers([0, 0]);
    assert!(
        expected.iter().any(|line| line.contains("denied")),
        "{expected:?}"
    );
    assert!(
        expected.iter().any(|line| line.contains("allowed")),
        "{expected:?}"
    );
    for skews in SKEWS {
        assert_eq!(answers(skews), expected, "{skews:?}");
    }
}
