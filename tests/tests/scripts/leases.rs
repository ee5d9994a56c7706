//! The scripts of leased policies and the pure functions agree, bit for bit, on hostile streams.

use tollgate::{Algorithm, CalendarUnit, TimeZone};
use tollgate_test_support::{
    Alteration, InRedis, Mutants, compare_leases, find_mutants, leased_algorithms, stream,
};

/// Mistakes in the scripts of leases: the mistake, the algorithm of the stream, the right text and
/// the wrong one.
const MUTANTS: &[Mutants] = &[
    (
        Algorithm::TokenBucket,
        r"
units that lapse are not charged
- if old > 0 then
+ if false then
units lapse with their own generation
- generation + 1, 0, new, true
+ generation + 1, 0, 0, true
a generation far ahead of the clock stays
- if generation > present + 1 then
+ if false then
the birth survives a clock that goes back
- birth, generation, told_1 = 0, present + 1, true
+ generation, told_1 = present + 1, true
units of the earlier generation are free
- local cost_1 = book_1[4] + book_1[5]
+ local cost_1 = book_1[4]
only outstanding units decide
- fits_1 = fits_1 and leaves_1
+ fits_1 = leaves_1
a report of another birth counts
- if birth == book_1[1] and birth > 0 and
+ if birth > 0 and
a report without a birth counts
- birth == book_1[1] and birth > 0 and
+ birth == book_1[1] and
a report of any generation counts
- local age = book_1[3] - generation
+ local age = math.max(0, math.min(1, book_1[3] - generation))
returned units stay outstanding
- book_1[4 + age] - cost_1 - back
+ book_1[4 + age] - cost_1
reported units stay outstanding
- book_1[4 + age] - cost_1 - back
+ book_1[4 + age] - back
the charge of a report is not stored
- use_1 = 2
-
+ use_1 = use_1
+
a return is not stored
- told_1 or cost_1 + back > 0
+ told_1 or cost_1 > 0
a report forgives a debt
- if use_1 == 2 then
-         -- store_owed: stores a debt with its mark
-         if ahead_1 > top_1 or ahead_1 == top_1 and part_1 > top_part_1 then
+ if use_1 == 2 then
+         -- store_owed: stores a debt with its mark
+         if false then
outstanding units expire before a debt is paid
- if book_1[4] + book_1[5] > 0 then
-     -- keep: stores the outstanding units
-     local last_1
+ if false then
+     -- keep: stores the outstanding units
+     local last_1
all that remains is granted
- math.floor(free / 4)
+ free
the share of the burst is no bound
- math.min(grant, math.floor(free_1 / 4), left)
+ math.min(grant, math.floor(free / 4))
units of another length of a generation are granted
- if book_1[2] ~= length_1 then
+ if false then
a state that is fresh has the birth of an earlier one
- if book_1[1] == 0 or book_1[4] + book_1[5] == 0 then
+ if book_1[1] == 0 then
a state keeps no birth after the clock went back
- if book_1[1] == 0 or book_1[4] + book_1[5] == 0 then
+ if book_1[4] + book_1[5] == 0 then
a grant is not outstanding
- book_1[4], told_1 = book_1[4] + grant, true
+ told_1 = true
a grant lives a generation too long
- (book_1[3] + 2) * book_1[2] - now
+ (book_1[3] + 3) * book_1[2] - now
a grant lives longer after the clock went back
- - now, 2 * book_1[2])
+ - now)
the key of outstanding units stays
- call('DEL', account_1)
+ local kept = true
no expiry of outstanding units
- , 'PXAT', format('%d', ends / 1000 + 1))
+ )
what is outstanding is not stored
- if told_1 then
+ if false then
a cost that does not fit beside what is out does not wait until that lapses
- if not fits_1 and book_1[4] + book_1[5] > 0 then
+ if false then
a denial is granted units
- if granted < count then
+ if false then
a peek is granted units
- if costs and grant > 0 then
+ if grant > 0 then
",
    ),
    (
        Algorithm::SlidingLog,
        r"
units that lapse are not charged to a log
- if old > 0 then
+ if false then
what is outstanding is charged beyond the most that a log owes
- out_1 = math.max(math.min(out_1, book_1[4] + book_1[5]), 0)
+ out_1 = book_1[4] + book_1[5]
outstanding units expire before their charges do
- , 'PXAT', format('%d', ends / 1000 + 1))
+ , 'PXAT', format('%d', (last - last % 1000) / 1000 + 1))
a cost that does not fit beside what is out waits for the earlier lapse
- (book_1[4] > 0 and 2 or 1)
+ 1
",
    ),
    (
        Algorithm::FixedWindow,
        r"
units that lapse are charged now
- local alive, now, cost_1, tag = now, (generation + 1) * length_1, old, ''
+ local alive, now, cost_1, tag = now, now, old, ''
a report may spend more than is outstanding
- math.min(spent, book_1[4 + age])
+ spent
a report may return more than is outstanding
- math.min(returned, book_1[4 + age] - cost_1)
+ returned
a cost that fits beside what is out waits until that lapses
- cost_1 + book_1[4] + book_1[5] > whole_1 then
+ true then
",
    ),
    (
        Algorithm::SlidingWindow,
        r"
outstanding units are free
- if cost_1 > 0 and book_1[4] + book_1[5] > 0 then
+ if false then
",
    ),
    (
        Algorithm::IntervalBucket,
        r"
a report is charged beyond the most that is owed
- math.min(cost_1, burst_1 * 8 - used_1)
+ cost_1
units that lapse are not stored
- stored_1, expiry_1 = value, time + 0
+ stored_1, expiry_1 = value, nil
",
    ),
    (
        Algorithm::WindowFromFirstHit,
        r"
a charge of the same second is expected at the server
-       local kept_1
-
",
    ),
    (
        Algorithm::CalendarWindow {
            unit: CalendarUnit::Day,
            zone: TimeZone::UTC,
            anchor: None,
        },
        r"
units that lapse in a calendar window are written in place
-       local kept_1
-
",
    ),
];

fn agree(algorithms: &[Algorithm]) {
    let mut redis = InRedis::new();
    let mut granted = 0;
    let seeds = stream::part_of(20);
    for seed in 0..seeds {
        match compare_leases(&mut redis, seed, algorithms, &str::to_owned) {
            Ok(units) => granted += units,
            Err(difference) => panic!("{difference}"),
        }
    }
    assert!(granted > 50 * seeds, "{granted} units granted");
}

#[test]
fn leases_of_each_algorithm_agree_with_the_pure_functions() {
    for algorithm in leased_algorithms() {
        agree(&[algorithm]);
    }
}

#[test]
fn leases_of_sets_agree_with_the_pure_functions() {
    let algorithms = leased_algorithms();
    for at in 0..algorithms.len() {
        agree(&[algorithms[at], algorithms[(at + 3) % algorithms.len()]]);
    }
}

/// The trace of a token bucket lives longer than the units in it, by the units that were returned:
/// up to a burst.
#[test]
fn outstanding_units_are_remembered_until_no_late_refund_counts() {
    let mut redis = InRedis::new();
    for seed in [15, 19] {
        if let Err(difference) = compare_leases(
            &mut redis,
            seed,
            &[Algorithm::TokenBucket; 2],
            &str::to_owned,
        ) {
            panic!("{difference}");
        }
    }
}

/// Makes a script fail when it touches a key that it has deleted, or has given an expiry in the
/// past: the source of a slot that moves refuses that.
fn watched(text: &str) -> String {
    const WATCH: &str = "
local gone = {}
local function watched(send)
  return function(name, key, ...)
    if name ~= 'MGET' and gone[key] then
      error(name .. ' of a key that is gone')
    end
    local now, value, _, time = struct.unpack('<d', ARGV[1]), ...
    local expiry = name == 'PEXPIREAT' and value or name == 'SET' and time
    if name == 'DEL' or expiry and expiry * 1000 <= now then
      gone[key] = true
    end
    return send(name, key, ...)
  end
end
";
    let call = "local call, pcall = watched(redis.call), watched(redis.pcall)\n";
    let text = text.replace("redis.call('LINDEX'", "call('LINDEX'");
    text.replacen(
        "local call, pcall, all = redis.call, redis.pcall, unpack\n",
        &format!("{WATCH}{call}local all = unpack\n"),
        1,
    )
}

#[test]
fn no_script_touches_a_key_that_it_has_deleted() {
    let mut redis = InRedis::new();
    let agree = |redis: &mut InRedis, seeds, algorithm, alter: &dyn Fn(&str) -> String| {
        (0..seeds).try_for_each(|seed| {
            compare_leases(redis, seed, &[algorithm], &|text| watched(&alter(text))).map(drop)
        })
    };
    for algorithm in leased_algorithms() {
        let seeds = stream::part_of(10).max(2);
        if let Err(difference) = agree(&mut redis, seeds, algorithm, &str::to_owned) {
            panic!("{difference}");
        }
    }
    for (algorithm, right, wrong) in [
        (
            Algorithm::TokenBucket,
            "math.max(expiry_1, (now - now % 1000) / 1000 + 1)",
            "expiry_1",
        ),
        (
            Algorithm::FixedWindow,
            "  for report = 1,",
            "  if told_1 then call('DEL', account_1) end\n  for report = 1,",
        ),
    ] {
        let alteration = Alteration::new(right, wrong);
        assert!(
            agree(&mut redis, 10, algorithm, &|text| alteration.apply(text)).is_err(),
            "not found: {wrong}"
        );
        assert!(
            alteration.was_applied(),
            "the scripts have no such text: {right}"
        );
    }
}

#[test]
fn every_mutant_of_leases_is_found() {
    let mut redis = InRedis::new();
    find_mutants(MUTANTS, |algorithm, alter| {
        (0..80).any(|seed| compare_leases(&mut redis, seed, &[algorithm], alter).is_err())
    });
}
