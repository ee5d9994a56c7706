//! Rows: calls that the server executes, and whose replies never arrive.

use std::time::Duration;

use tollgate::reservation::Settlement;
use tollgate_test_support::{
    lost_settlements::LostSettlements,
    permits::{AfterLoss, LostReply},
};

use crate::{
    findings::{Findings, Target},
    load::millis,
    pace::Pace,
};

const LIFE: Duration = Duration::from_secs(1);

pub(super) async fn permits(pace: Pace) -> Findings {
    let mut findings = Findings::default();
    let (mut lost, mut free_after) = (0, Duration::ZERO);
    for call in LostReply::ALL {
        let mut worst = AfterLoss::default();
        for round in 0..pace.of(10, 2) {
            let after = call.lose(LIFE, round % 2 == 0).await;
            worst.most_held = worst.most_held.max(after.most_held);
            worst.most_in_use = worst.most_in_use.max(after.most_in_use);
            (lost, free_after) = (lost + after.lost, free_after.max(after.free_after));
        }
        let name = format!("{call:?}").to_lowercase();
        findings.figure(format!("{name}: permits held, of 2, most"), Target::AtMost(2.0), worst.most_held.into(), "");
        let in_use = worst.most_in_use as f64;
        findings.figure(format!("{name}: permits in use, of 2, most"), Target::AtMost(2.0), in_use, "");
    }
    findings.figure("permits lost that the server holds", Target::AtMost(0.0), lost as f64, "");
    let free_after = millis(free_after.saturating_sub(LIFE));
    findings.figure("all free again, after the life of the permits", Target::AtMost(1000.0), free_after, " ms");
    findings
}

pub(super) async fn settlements(pace: Pace) -> Findings {
    let mut findings = Findings::default();
    let (mut losing, mut wrong) = (LostSettlements::start().await, 0);
    let rounds = pace.of(50, 5);
    for _ in 0..rounds {
        wrong += u32::from(losing.round().await != [Settlement::Settled, Settlement::AlreadySettled]);
    }
    let [spent, expected] = losing.spent().await;
    for (at, unit) in ["requests", "tokens"].into_iter().enumerate() {
        let off = spent[at].abs_diff(expected[at]) as f64;
        findings.figure(format!("{unit} charged twice or never, of {}", expected[at]), Target::AtMost(0.0), off, "");
    }
    findings.figure(format!("commits with a wrong answer, of {rounds}"), Target::AtMost(0.0), f64::from(wrong), "");
    findings.keys(losing.server().keys_and_expires());
    findings
}
