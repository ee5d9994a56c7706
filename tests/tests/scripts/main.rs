//! The scripts, called directly on a server: they decide as the Rust functions do, to the byte.

mod agreement;
mod batches;
mod cascades;
mod decimal_arguments;
mod exceptions;
mod hostile_replies;
mod large_quotas;
mod largest_sets;
mod leases;
mod mistakes;
mod mixed;
mod mutations;
mod pictures;
mod reservations;
mod sliding_log;

use tollgate::{Algorithm, CalendarUnit, TimeZone};
use tollgate_test_support::{
    InRedis,
    stream::{self, Stream},
};

const CALENDAR: Algorithm = Algorithm::CalendarWindow {
    unit: CalendarUnit::Month,
    zone: TimeZone::UTC,
    anchor: None,
};

const BUCKETS: Algorithm = Algorithm::SlidingBuckets { buckets: 10 };

/// Compares the scripts with the Rust functions on the streams of these seeds.
fn agree(
    server: &mut InRedis,
    stream: fn(u64, Algorithm) -> Stream,
    algorithm: Algorithm,
    seeds: impl IntoIterator<Item = u64>,
) {
    for seed in seeds {
        let outcome = stream::compare(server, &mut stream(seed, algorithm), &str::to_owned);
        if let Err(difference) = outcome {
            panic!("{algorithm:?} seed {seed}: {difference}");
        }
    }
}
