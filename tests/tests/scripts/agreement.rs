//! The scripts and the Rust functions agree, bit for bit, on hostile streams of checks: on Redis
//! and on Valkey. So does the adapter, which runs the functions on bytes: over a map and in PostgreSQL.
//!
//! Both receive the same (Δt, key, cost). The Rust functions decide first, so that a step can aim
//! at the microsecond at which the last answer changes. The test compares the decision, the
//! remaining units and the waits of every policy, the stored bytes and the expiry.

use tollgate::{Algorithm, store::Clock, testing::ALGORITHMS};
use tollgate_test_support::{
    Deployment, InMap, InRedis, Kind, POSTGRES, Rows, START_US, in_postgres,
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
            0..stream::part_of(10),
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
            0..stream::part_of(10),
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
            0..stream::part_of(20),
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
            0..stream::part_of(6),
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
            1_000_000..1_000_000 + stream::part_of(6),
        );
    }
}

/// The streams that the adapter decides.
const ADAPTED: [fn(u64, Algorithm) -> Stream; 4] = [
    Stream::changing,
    Stream::nested,
    Stream::branched,
    Stream::reserving,
];

/// Calls with each algorithm, each in a thread.
fn with_every_algorithm(call: impl Fn(Algorithm) + Sync) {
    std::thread::scope(|scope| {
        for algorithm in ALGORITHMS.into_iter().chain([CALENDAR]) {
            let call = &call;
            scope.spawn(move || call(algorithm));
        }
    });
}

#[test]
fn the_adapter_over_a_map_decides_and_stores_as_in_process_whatever_others_write_meanwhile() {
    with_every_algorithm(|algorithm| {
        for (seed, stream) in (0..).zip(ADAPTED) {
            let (mut subject, mut stream) = (InMap::new(), stream(seed, algorithm));
            if let Err(difference) = stream::compare_on(&mut subject, &mut stream, 1_000) {
                panic!("{algorithm:?} seed {seed}: {difference}");
            }
            let (written, refused) = subject.bytes.writes();
            assert!(refused > written / 8, "{written} writes, {refused} refused");
        }
    });
}

#[test]
fn the_adapter_over_postgres_decides_and_stores_as_in_process() {
    with_every_algorithm(|algorithm| {
        let mut subject = in_postgres(&POSTGRES, Clock::manual(START_US));
        for (seed, stream) in (0..).zip(ADAPTED) {
            subject.with_bytes(Rows::clear);
            let steps = stream::part_of(600) as usize;
            let outcome = stream::compare_on(&mut subject, &mut stream(seed, algorithm), steps);
            if let Err(difference) = outcome {
                panic!("{algorithm:?} seed {seed}: {difference}");
            }
        }
    });
}

#[test]
fn every_algorithm_agrees_with_its_script() {
    // Each with a server of its own.
    with_every_algorithm(|algorithm| {
        agree(&mut InRedis::new(), Stream::new, algorithm, stream::seeds());
    });
}
