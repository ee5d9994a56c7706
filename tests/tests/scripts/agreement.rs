//! The scripts and the Rust functions agree, bit for bit, on hostile streams of checks: on Redis
//! and on Valkey. So does the adapter over a map, which runs the functions on bytes.
//!
//! Both receive the same (Δt, key, cost). The Rust functions decide first, so that a step can aim
//! at the microsecond at which the last answer changes. The test compares the decision, the
//! remaining units and the waits of every policy, the stored bytes and the expiry.

use tollgate::testing::ALGORITHMS;
use tollgate_test_support::{
    Deployment, InMap, InRedis, Kind,
    stream::{self, Stream},
};

use super::{CALENDAR, agree};

#[test]
fn policies_at_the_levels_of_nested_keys_agree_with_their_scripts() {
    let mut server = InRedis::new();
    for algorithm in ALGORITHMS {
        agree(
            &mut server,
            Stream::nested,
            algorithm,
            0..stream::part_of(5),
        );
    }
}

#[test]
fn policies_on_the_branches_of_keys_agree_with_their_scripts() {
    let mut server = InRedis::new();
    for algorithm in ALGORITHMS {
        agree(
            &mut server,
            Stream::branched,
            algorithm,
            0..stream::part_of(5),
        );
    }
}

#[test]
fn checks_under_ceilings_agree_with_their_scripts() {
    let mut server = InRedis::new();
    for algorithm in ALGORITHMS.into_iter().chain([CALENDAR]) {
        agree(
            &mut server,
            Stream::capped,
            algorithm,
            0..stream::part_of(10),
        );
    }
}

#[test]
fn looks_agree_with_their_scripts() {
    let mut server = InRedis::new();
    for algorithm in ALGORITHMS.into_iter().chain([CALENDAR]) {
        agree(
            &mut server,
            Stream::changing,
            algorithm,
            0..stream::part_of(3),
        );
    }
}

/// With seeds that the streams on Redis do not use.
#[test]
fn every_algorithm_agrees_with_its_script_on_valkey() {
    let deployment = Deployment::start(
        Kind::Valkey,
        "every_algorithm_agrees_with_its_script_on_valkey",
    );
    let Some(Deployment::Single(server)) = deployment else {
        return;
    };
    let mut valkey = InRedis::on(server);
    for algorithm in ALGORITHMS {
        agree(
            &mut valkey,
            Stream::new,
            algorithm,
            1_000_000..1_000_000 + stream::part_of(3),
        );
    }
}

#[test]
fn the_adapter_over_a_map_decides_and_stores_as_in_process_whatever_others_write_meanwhile() {
    let adapted = |algorithm| {
        for (seed, stream) in [
            Stream::changing,
            Stream::nested,
            Stream::branched,
            Stream::reserving,
        ]
        .iter()
        .enumerate()
        {
            let (mut subject, mut stream) = (InMap::new(), stream(seed as u64, algorithm));
            if let Err(difference) = stream::compare_on(&mut subject, &mut stream, 1_000) {
                panic!("{algorithm:?} seed {seed}: {difference}");
            }
            let (written, refused) = subject.bytes.writes();
            assert!(refused > written / 8, "{written} writes, {refused} refused");
        }
    };
    std::thread::scope(|scope| {
        for algorithm in ALGORITHMS.into_iter().chain([CALENDAR]) {
            scope.spawn(move || adapted(algorithm));
        }
    });
}

#[test]
fn every_algorithm_agrees_with_its_script() {
    // Each with a server of its own.
    std::thread::scope(|scope| {
        for algorithm in ALGORITHMS.into_iter().chain([CALENDAR]) {
            scope
                .spawn(move || agree(&mut InRedis::new(), Stream::new, algorithm, stream::seeds()));
        }
    });
}
