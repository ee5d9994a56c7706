//! The scripts of leased policies and the pure functions agree, bit for bit, on hostile streams.

use tollgate::Algorithm;
use tollgate_test_support::{Alteration, InRedis, LEASED_ALGORITHMS, compare_leases};

/// Mistakes in the scripts of leases: the mistake, the algorithm of the stream, the right text and the wrong one.
const MUTANTS: &[(&str, Algorithm, &str, &str)] = &[
    ("units that lapse are not charged", Algorithm::TokenBucket, "if old > 0 then", "if false then"),
    ("units that lapse are not charged to a log", Algorithm::SlidingLog, "if old > 0 then", "if false then"),
    (
        "units that lapse are charged now",
        Algorithm::FixedWindow,
        "local now, cost_1 = (generation + 1) * length, old",
        "local now, cost_1 = now, old",
    ),
    (
        "units lapse with their own generation",
        Algorithm::TokenBucket,
        "generation + 1, 0, new, true",
        "generation + 1, 0, 0, true",
    ),
    (
        "a generation far ahead of the clock stays",
        Algorithm::TokenBucket,
        "if generation > present + 1 then",
        "if false then",
    ),
    (
        "the birth survives a clock that goes back",
        Algorithm::TokenBucket,
        "birth, generation, told_1 = 0, present + 1, true",
        "generation, told_1 = present + 1, true",
    ),
    (
        "outstanding units are free",
        Algorithm::SlidingWindow,
        "if cost_1 > 0 and book_1[4] + book_1[5] > 0 then",
        "if false then",
    ),
    (
        "units of the earlier generation are free",
        Algorithm::TokenBucket,
        "local cost_1 = book_1[4] + book_1[5]",
        "local cost_1 = book_1[4]",
    ),
    ("only outstanding units decide", Algorithm::TokenBucket, "fits_1 = fits_1 and leaves_1", "fits_1 = leaves_1"),
    (
        "a report of another birth counts",
        Algorithm::TokenBucket,
        "if birth == book_1[1] and birth > 0 and",
        "if birth > 0 and",
    ),
    (
        "a report without a birth counts",
        Algorithm::TokenBucket,
        "birth == book_1[1] and birth > 0 and",
        "birth == book_1[1] and",
    ),
    (
        "a report of any generation counts",
        Algorithm::TokenBucket,
        "local age = book_1[3] - generation",
        "local age = math.max(0, math.min(1, book_1[3] - generation))",
    ),
    (
        "a report may spend more than is outstanding",
        Algorithm::FixedWindow,
        "math.min(spent, book_1[4 + age])",
        "spent",
    ),
    (
        "a report may return more than is outstanding",
        Algorithm::FixedWindow,
        "math.min(returned, book_1[4 + age] - cost_1)",
        "returned",
    ),
    (
        "returned units stay outstanding",
        Algorithm::TokenBucket,
        "book_1[4 + age] - cost_1 - back",
        "book_1[4 + age] - cost_1",
    ),
    (
        "reported units stay outstanding",
        Algorithm::TokenBucket,
        "book_1[4 + age] - cost_1 - back",
        "book_1[4 + age] - back",
    ),
    ("the charge of a report is not stored", Algorithm::TokenBucket, "use_1 = 2\n", "use_1 = use_1\n"),
    ("a return is not stored", Algorithm::TokenBucket, "if cost_1 + back > 0 then", "if cost_1 > 0 then"),
    ("all that remains is granted", Algorithm::TokenBucket, "math.floor(free / 4)", "free"),
    (
        "the share of the burst is no bound",
        Algorithm::TokenBucket,
        "math.min(grant, math.floor(free / 4), most)",
        "math.min(grant, math.floor(free / 4))",
    ),
    (
        "units of another length of a generation are granted",
        Algorithm::TokenBucket,
        "if book_1[2] ~= length_1 then",
        "if false then",
    ),
    (
        "a state that is fresh has the birth of an earlier one",
        Algorithm::TokenBucket,
        "if book_1[1] == 0 or book_1[4] + book_1[5] == 0 then",
        "if book_1[1] == 0 then",
    ),
    (
        "a state keeps no birth after the clock went back",
        Algorithm::TokenBucket,
        "if book_1[1] == 0 or book_1[4] + book_1[5] == 0 then",
        "if book_1[4] + book_1[5] == 0 then",
    ),
    (
        "a grant is not outstanding",
        Algorithm::TokenBucket,
        "book_1[4], told_1 = book_1[4] + grant, true",
        "told_1 = true",
    ),
    (
        "a grant lives a generation too long",
        Algorithm::TokenBucket,
        "(book_1[3] + 2) * book_1[2] - now",
        "(book_1[3] + 3) * book_1[2] - now",
    ),
    ("a grant lives longer after the clock went back", Algorithm::TokenBucket, "- now, 2 * book_1[2])", "- now)"),
    ("the key of outstanding units stays", Algorithm::TokenBucket, "call('DEL', account_1)", "local kept = true"),
    ("no expiry of outstanding units", Algorithm::TokenBucket, ", 'PXAT', format('%d', ends / 1000 + 1))", ")"),
    (
        "outstanding units expire before their charges do",
        Algorithm::SlidingLog,
        ", 'PXAT', format('%d', ends / 1000 + 1))",
        ", 'PXAT', format('%d', (last - last % 1000) / 1000 + 1))",
    ),
    ("what is outstanding is not stored", Algorithm::TokenBucket, "if told_1 then", "if false then"),
    ("a denial is granted units", Algorithm::TokenBucket, "if granted < count then", "if false then"),
    ("a peek is granted units", Algorithm::TokenBucket, "if costs and grant > 0 then", "if grant > 0 then"),
];

fn agree(algorithms: &[Algorithm]) {
    let mut redis = InRedis::new();
    let mut granted = 0;
    for seed in 0..20 {
        match compare_leases(&mut redis, seed, algorithms, &str::to_owned) {
            Ok(units) => granted += units,
            Err(difference) => panic!("{difference}"),
        }
    }
    assert!(granted > 1_000, "{granted} units granted");
}

#[test]
fn leases_of_each_algorithm_agree_with_the_pure_functions() {
    for algorithm in LEASED_ALGORITHMS {
        agree(&[algorithm]);
    }
}

#[test]
fn leases_of_sets_agree_with_the_pure_functions() {
    for at in 0..LEASED_ALGORITHMS.len() {
        agree(&[LEASED_ALGORITHMS[at], LEASED_ALGORITHMS[(at + 3) % LEASED_ALGORITHMS.len()]]);
    }
}

#[test]
fn every_mutant_of_leases_is_found() {
    let mut redis = InRedis::new();
    let mut survivors = Vec::new();
    for &(mistake, algorithm, right, wrong) in MUTANTS {
        let alteration = Alteration::new(right, wrong);
        let alter = |text: &str| alteration.apply(text);
        let is_found = (0..20).any(|seed| compare_leases(&mut redis, seed, &[algorithm], &alter).is_err());
        assert!(alteration.was_applied(), "the scripts have no such text: {mistake}");
        if !is_found {
            survivors.push(mistake);
        }
    }
    assert!(survivors.is_empty(), "not found: {survivors:#?}");
    println!("{} mutants, all found", MUTANTS.len());
}
