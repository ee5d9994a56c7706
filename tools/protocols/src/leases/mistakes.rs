//! The mistakes that have to be found, each in a setting that finds it soon.
//! The lines that they change are in `server.rs` and `steps.rs`.

use tollgate::Algorithm::{FixedWindow, TokenBucket};

use super::{
    rows::calls,
    setting::{Mistake, Setting},
};
use crate::table::Seeded;

/// Lists the mistakes, with the invariant that finds each, the steps to it, and the number of states
/// of the setting without the mistake.
#[must_use]
pub fn mistakes() -> Vec<Seeded<Setting>> {
    let bucket = |number, last| calls(TokenBucket, number, last);
    let returned = |setting: Setting| setting.budget(|left| left.returns = 1);
    vec![
        seeded(
            Mistake::ReportStays,
            "a report stays with the process when it is sent",
            bucket(3, 3),
            ("backed", 9, 16_578),
        ),
        seeded(
            Mistake::CallTwice,
            "a call whose answer is lost is sent again",
            returned(bucket(2, 0).processes(2, 1)).budget(|left| left.losses = 1),
            ("backed", 8, 154),
        ),
        seeded(
            Mistake::LifeFromAnswer,
            "the life of units begins with the answer",
            bucket(2, 5),
            ("backed", 7, 10_410),
        ),
        seeded(
            Mistake::LongerLife,
            "units live for one more generation",
            bucket(2, 5),
            ("backed", 6, 10_410),
        ),
        seeded(
            Mistake::KeptUnits,
            "a process spends units that have lapsed",
            calls(FixedWindow, 2, 9),
            ("rush", 12, 52_883),
        ),
        seeded(
            Mistake::LapseIsFree,
            "units that lapse are not charged",
            bucket(2, 5),
            ("rush", 10, 10_410),
        ),
        seeded(
            Mistake::NothingLapses,
            "units stay outstanding for good",
            bucket(2, 5),
            ("recovers", 2, 10_410),
        ),
        seeded(
            Mistake::ReportIsFree,
            "reported units are not charged",
            bucket(2, 5),
            ("rush", 6, 10_410),
        ),
        seeded(
            Mistake::GrantIsFree,
            "granted units are not outstanding",
            bucket(2, 5),
            ("backed", 2, 10_410),
        ),
        seeded(
            Mistake::AnyGeneration,
            "a report counts although its generation has lapsed",
            returned(bucket(3, 5)),
            ("backed", 13, 164_705),
        ),
        seeded(
            Mistake::AnyBirth,
            "a report counts although its state was lost",
            returned(bucket(3, 1).processes(2, 1)).budget(|left| left.lost_states = 1),
            ("backed", 8, 45_971),
        ),
        seeded(
            Mistake::ReturnKeeps,
            "a process keeps the units that it returns",
            returned(bucket(2, 0)),
            ("backed", 5, 59),
        ),
    ]
}

fn seeded(
    mistake: Mistake,
    says: &'static str,
    sound: Setting,
    (invariant, steps, states): (&'static str, usize, usize),
) -> Seeded<Setting> {
    Seeded {
        says,
        mistaken: sound.clone().mistake(mistake),
        sound,
        invariant,
        steps,
        states,
    }
}
