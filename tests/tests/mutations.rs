//! Would the suite notice? Each mutant is a mistake that others ship, built into our scripts; the
//! comparison with the Rust functions has to find it.

mod subject;

use subject::{
    InRedis,
    stream::{self, Stream},
};
use tollgate::Algorithm;

/// A mistake: in which algorithm, what stands there, and what a careless hand would write.
struct Mutant {
    mistake: &'static str,
    algorithm: Algorithm,
    right: &'static str,
    wrong: &'static str,
}

const fn mutant(mistake: &'static str, algorithm: Algorithm, right: &'static str, wrong: &'static str) -> Mutant {
    Mutant { mistake, algorithm, right, wrong }
}

use Algorithm::{FixedWindow, TokenBucket, WindowFromFirstHit};

const EXPIRY: &str = "'PXAT', format('%d', (full_1 - full_1 % 1000) / 1000 + 1)";

const MUTANTS: &[Mutant] = &[
    mutant(
        "the limit is let through once more",
        TokenBucket,
        "next_part_1 <= top_part_1",
        "next_part_1 <= top_part_1 + 1",
    ),
    mutant("the limit is cut short", TokenBucket, "next_part_1 <= top_part_1", "next_part_1 < top_part_1"),
    mutant("no expiry", TokenBucket, ", 'PXAT', format('%d', (full_1 - full_1 % 1000) / 1000 + 1)", ""),
    mutant(
        "expiry floored to whole seconds",
        TokenBucket,
        EXPIRY,
        "'EXAT', format('%d', math.max(1, math.floor(full_1 / 1000000)))",
    ),
    mutant("expiry floored to the millisecond", TokenBucket, "/ 1000 + 1)", "/ 1000)"),
    mutant("a whole-second clock", TokenBucket, "now = now + 0", "now = now - now % 1000000"),
    mutant(
        "floored elapsed time",
        TokenBucket,
        "local ahead_1, part_1, mended_1 = 0, 0, false",
        "now = now - now % 1000\nlocal ahead_1, part_1, mended_1 = 0, 0, false",
    ),
    mutant(
        "remainders are dropped",
        TokenBucket,
        "ahead_1, part_1 = full - now, part",
        "ahead_1, part_1 = full - now, 0",
    ),
    mutant("remainders never carry", TokenBucket, "if next_part_1 >= amount_1 then", "if false then"),
    mutant(
        "a microsecond clock through ..",
        TokenBucket,
        "local full_1 = now + ahead_1",
        "local full_1 = ((now + ahead_1) .. '') + 0",
    ),
    mutant("a clock step back is kept for ever", TokenBucket, "if ahead_1 > top_1", "if false and ahead_1 > top_1"),
    mutant("a state ahead is not mended on denial", TokenBucket, "elseif cost > 0 then", "elseif false then"),
    mutant("a rate change keeps the old wait", TokenBucket, "if pace ~= pace_1 then", "if false then"),
    mutant("a denial writes", TokenBucket, "if mended_1 then", "if true then"),
    mutant("a denial is charged", TokenBucket, "if admitted then", "if true then"),
    mutant("a peek is charged", TokenBucket, "if cost > 0 then", "if true then"),
    mutant(
        "only one policy of a set is asked",
        TokenBucket,
        "local admitted = fits_1",
        "local admitted = fits_1 or fits_1",
    ),
    mutant("a refund makes more than the burst", TokenBucket, "if ahead_1 < step_1 or", "if false or"),
    mutant(
        "a window that never ends under load",
        FixedWindow,
        "local end_1 = start_1 + period_1",
        "local end_1 = now + period_1",
    ),
    mutant("no expiry of a window", FixedWindow, ", 'PXAT', format('%d', (end_1 - end_1 % 1000) / 1000 + 1)", ""),
    mutant("one more than the window holds", FixedWindow, "count_1 + cost <= amount_1", "count_1 <= amount_1"),
    mutant(
        "a window's last microsecond counts to the next",
        FixedWindow,
        "start_1 + period_1 - now\n",
        "start_1 + period_1 - now - 1\n",
    ),
    mutant(
        "the clock steps back into a full window",
        FixedWindow,
        "if start >= start_1 and",
        "if start == start_1 and",
    ),
    mutant("a window far ahead locks out", FixedWindow, "if start > now + period_1 then", "if false then"),
    mutant("a refund crosses into a newer window", FixedWindow, "if spent >= start_1 then", "if true then"),
    mutant("the window moves with each hit", WindowFromFirstHit, "start_1 = start", "start_1 = now"),
    mutant(
        "the window ends one microsecond late",
        WindowFromFirstHit,
        "now - start < period_1",
        "now - start <= period_1",
    ),
    mutant("a first hit ahead of the clock is believed", WindowFromFirstHit, "if start > now then", "if false then"),
];

#[test]
fn every_mutant_is_noticed() {
    let mut redis = InRedis::new();
    let mut survivors = Vec::new();
    for mutant in MUTANTS {
        let seen = std::cell::Cell::new(false);
        let alter = |text: &str| {
            let text = text.to_owned();
            let changed = text.replace(mutant.right, mutant.wrong);
            seen.set(seen.get() || changed != text);
            changed
        };
        let noticed =
            (0..10).any(|seed| stream::compare(&mut redis, &mut Stream::new(seed, mutant.algorithm), alter).is_err());
        assert!(seen.get(), "nothing to change for: {}", mutant.mistake);
        if !noticed {
            survivors.push(mutant.mistake);
        }
    }
    assert!(survivors.is_empty(), "nobody noticed: {survivors:#?}");
    println!("{} mutants, all noticed", MUTANTS.len());
}
