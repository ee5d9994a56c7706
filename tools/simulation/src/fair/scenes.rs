//! The runs of the page.

use std::num::NonZeroU32;

use super::scene::{Class, Scene, Traffic};

/// The second in which the greedy customers begin.
const BEGIN: u64 = 10;

const UNTIL: u64 = 50;

fn class(title: &'static str, customers: u64, rate: f64) -> Class {
    let weight = NonZeroU32::MIN;
    Class {
        title,
        customers,
        rate,
        weight,
        traffic: Traffic::From(0),
        is_pinned: false,
    }
}

/// Customers that together ask for much more than the limit.
fn greedy(title: &'static str, customers: u64, rate: f64) -> Class {
    Class {
        traffic: Traffic::From(BEGIN),
        ..class(title, customers, rate)
    }
}

fn pinned(class: Class) -> Class {
    Class {
        is_pinned: true,
        ..class
    }
}

fn scene(title: &'static str, classes: Vec<Class>) -> Scene {
    Scene {
        title,
        classes,
        limit: 1_000,
        burst: 1_000,
        replicas: 4,
        from: BEGIN + 5,
        until: UNTIL,
    }
}

pub(super) fn all() -> Vec<Scene> {
    let heavy = || greedy("1 at 5000/s", 1, 5_000.0);
    let weight = |weight| NonZeroU32::new(weight).unwrap_or(NonZeroU32::MIN);
    let weighted = |title, times| Class {
        weight: weight(times),
        ..greedy(title, 1, 2_000.0)
    };
    let on_off = Class {
        traffic: Traffic::OnOff(2),
        ..class("10 at 100/s, 2 s on and 2 s off", 10, 100.0)
    };
    let churn = Class {
        traffic: Traffic::Once,
        ..class("100 000, one request each", 100_000, 500.0 / 100_000.0)
    };
    vec![
        scene(
            "light customers ask for half",
            vec![class("50 at 10/s", 50, 10.0), heavy()],
        ),
        scene(
            "all ask for too much",
            vec![class("50 at 30/s", 50, 30.0), heavy()],
        ),
        scene(
            "light customers on one replica each",
            vec![pinned(class("50 at 30/s", 50, 30.0)), heavy()],
        ),
        scene(
            "heavy customers on one and on four replicas",
            vec![
                pinned(greedy("1 at 2000/s on one", 1, 2_000.0)),
                greedy("1 at 2000/s on four", 1, 2_000.0),
            ],
        ),
        scene("on and off", vec![on_off, heavy()]),
        Scene {
            until: 200,
            ..scene(
                "customers that come once",
                vec![churn, greedy("1 at 2000/s", 1, 2_000.0)],
            )
        },
        scene(
            "weights",
            vec![
                weighted("weight 1", 1),
                weighted("weight 2", 2),
                weighted("weight 4", 4),
            ],
        ),
        scene(
            "many greedy customers",
            vec![
                greedy("100 at 20/s", 100, 20.0),
                greedy("10 at 200/s", 10, 200.0),
            ],
        ),
        scene("one customer alone", vec![heavy()]),
        Scene {
            replicas: 16,
            ..scene(
                "16 replicas",
                vec![pinned(class("50 at 30/s", 50, 30.0)), heavy()],
            )
        },
        Scene {
            limit: 100,
            burst: 100,
            ..scene(
                "a limit of 100/s",
                vec![class("10 at 5/s", 10, 5.0), greedy("1 at 500/s", 1, 500.0)],
            )
        },
        Scene {
            limit: 20,
            burst: 20,
            ..scene(
                "a limit of 20/s",
                vec![class("5 at 2/s", 5, 2.0), greedy("1 at 100/s", 1, 100.0)],
            )
        },
    ]
}
