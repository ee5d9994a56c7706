//! A mixed batch decides as the same checks one by one: with quotas and costs that differ from key
//! to key, several runs of one key, damaged states, and quotas that were changed. Mistakes that are
//! built into its script are found.

use tollgate::{
    Algorithm::{self, FixedWindow, SlidingLog, SlidingWindow, TokenBucket},
    testing::ALGORITHMS,
};
use tollgate_test_support::{
    Deployment, InMemory, InRedis, Kind, Mutants, Subject, find_mutants,
    mixed::{MixedStream, compare},
    stream,
};

use super::{BUCKETS, CALENDAR};

fn agree(
    redis: &mut InRedis,
    single: impl Fn() -> Box<dyn Subject>,
    seeds: u64,
    rounds: usize,
    stream: fn(u64, Algorithm) -> MixedStream,
) {
    for algorithm in ALGORITHMS.into_iter().chain([CALENDAR]) {
        for seed in 0..seeds {
            let mut stream = stream(seed, algorithm);
            if let Err(disagreement) =
                compare(redis, &mut *single(), &mut stream, rounds, &str::to_owned)
            {
                panic!("{algorithm:?} seed {seed}: {disagreement}");
            }
        }
    }
}

#[test]
fn a_mixed_batch_decides_as_the_same_checks_in_process() {
    agree(
        &mut InRedis::new(),
        || Box::new(InMemory::new()),
        stream::part_of(30),
        60,
        MixedStream::new,
    );
}

#[test]
fn a_mixed_batch_decides_as_the_same_checks_one_by_one_at_a_server() {
    agree(
        &mut InRedis::new(),
        || Box::new(InRedis::new()),
        stream::part_of(2),
        stream::part_of(40).max(8) as usize,
        MixedStream::new,
    );
}

#[test]
fn a_mixed_batch_under_ceilings_decides_as_the_same_checks_in_process() {
    agree(
        &mut InRedis::new(),
        || Box::new(InMemory::new()),
        stream::part_of(20),
        60,
        MixedStream::capped,
    );
}

#[test]
fn a_mixed_batch_decides_on_valkey_as_the_same_checks_in_process() {
    let deployment = Deployment::start(
        Kind::Valkey,
        "a_mixed_batch_decides_on_valkey_as_the_same_checks_in_process",
    );
    let Some(Deployment::Single(server)) = deployment else {
        return;
    };
    agree(
        &mut InRedis::on(server),
        || Box::new(InMemory::new()),
        stream::part_of(3),
        60,
        MixedStream::new,
    );
}

const MUTANTS: &[Mutants] = &[
    (
        TokenBucket,
        r"
all subjects have the numbers of the first
- amount_1, period_1, burst_1, subjects, runs, cost_1, count, next_byte = unpack('<ddddddd', packed, next_byte)
+ amount_1, period_1, burst_1 = unpack('<ddd', packed, 9)
+   local _
+   _, _, _, subjects, runs, cost_1, count, next_byte = unpack('<ddddddd', packed, next_byte)
a state ahead is not mended on denial
- if use_1 == 1 then
+ if false then
a denial writes
- if mended_1 == true then
+ if true then
a peek mends
- local use_1 = 0
+ local use_1 = 1
a word that is zero is left out
- place = place + 2
+ place = place + 1
the remainder of a cost is dropped
- step_part_1 = parts % amount_1
+ step_part_1 = 0
a large cost is multiplied in a double
- if parts < 9007199254740992 then
+ if true then
the whole microseconds of a large cost are left out
- step_1 = step_1 + whole_1
+ step_1 = step_1 + 0
",
    ),
    (
        FixedWindow,
        r"
all subjects have the cost of the first
- cost_1, next_byte = unpack('<d', packed, next_byte)
+ local _; _, next_byte = unpack('<d', packed, next_byte)
all subjects have the second cost of the first
- cost_1, cost_2, next_byte = unpack('<dd', packed, next_byte)
+ local _; cost_1, _, next_byte = unpack('<dd', packed, next_byte)
all runs have the cost of the first
- cost_1, count, next_byte = unpack('<dd', packed, next_byte)
-       end
+ local _; _, count, next_byte = unpack('<dd', packed, next_byte)
+       end
all runs have the count of the first
- cost_1, count, next_byte = unpack('<dd', packed, next_byte)
-       end
+ local _; cost_1, _, next_byte = unpack('<dd', packed, next_byte)
+       end
all runs have the second cost of the first
- cost_1, cost_2, count, next_byte = unpack('<ddd', packed, next_byte)
-       end
+ local _; cost_1, _, count, next_byte = unpack('<ddd', packed, next_byte)
+       end
a policy without a cost is written
- if cost_2 > 0 and use_2 < 2
+ if use_2 < 2
a policy is written when another has a cost
- if cost_2 > 0 and use_2
+ if cost_1 > 0 and use_2
a peek at one policy is a peek at all
- asked = asked + cost_2
+ asked = asked
a denied run denies the next one
- local admitted = fits_1
+ local admitted = fits_1 and not replies.is_over
+         replies.is_over = not admitted
a denial at the end takes the charge back
- if cost_1 > 0 and use_1 < 2
+ if cost_1 > 0
only the first run is stored
- if run == runs then
+ if run == 1 then
a peek writes
- if cost_1 > 0 and use_1 < 2
+ if use_1 < 2
a run admits one more than it has
- granted == count
-
+ granted > count or cost_1 == 0
+
a run ends one check early
- granted == count
-
+ granted >= count - 1
+
a run is one check
- until not admitted or granted == count
+ until true
the end of a long reply is cut off
- for first = 1, place, 4000 do
+ for first = 1, math.min(place, 4000), 4000 do
a long reply is packed at once
- for first = 1, place, 4000 do
-   local last = math.min(first + 3999, place)
+ for first = 1, place, 400000 do
+   local last = place
a number is lost where the parts of a long reply meet
- math.min(first + 3999, place)
+ math.min(first + 3998, place)
all subjects have the state of the first
- states[at + 1]
+ states[1]
all subjects have the key of the first
- KEYS[at + 1]
+ KEYS[1]
",
    ),
    (
        SlidingLog,
        r"
all subjects have the tag of the first
- ARGV[at / 1 + 2]
+ ARGV[2]
a log is not stored
-       if run == runs then
-         if use_1 == 2
+       if false then
+         if use_1 == 2
",
    ),
    (
        SlidingWindow,
        r"
a charge does not count for the next run
- current_1 = current_1 + cost_1
+ current_1 = math.max(current_1, cost_1)
",
    ),
    (
        BUCKETS,
        r"
the second run cuts off buckets that the first has cut off
- newest_1 % 65536, sum_1)
-             from_1 = 25
+ newest_1 % 65536, sum_1)
",
    ),
];

#[test]
fn every_mutant_of_a_mixed_batch_is_found() {
    let mut redis = InRedis::new();
    find_mutants(MUTANTS, |algorithm, alter| {
        (0..20).any(|seed| {
            compare(
                &mut redis,
                &mut InMemory::new(),
                &mut MixedStream::new(seed, algorithm),
                60,
                alter,
            )
            .is_err()
        })
    });
}
