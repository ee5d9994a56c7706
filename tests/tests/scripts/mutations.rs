//! Shows that the comparison with the Rust functions finds mistakes: each mutant is a mistake of
//! other limiters, built into a script, and has to be found.

use std::time::Duration;

use tollgate::{Algorithm, CalendarUnit, TimeZone};
use tollgate_test_support::{
    InRedis, Mutant, find_mutants,
    stream::{self, Stream},
};

const CALENDAR: Algorithm = Algorithm::CalendarWindow {
    unit: CalendarUnit::Month,
    zone: TimeZone::UTC,
};

use Algorithm::{
    FixedWindow, IntervalBucket, LeakyBucket, SlidingLog, SlidingWindow, TokenBucket,
    WindowFromFirstHit,
};

const LOCKOUT: Algorithm = Algorithm::Lockout {
    first: Duration::from_secs(1),
    longest: Duration::from_secs(5),
};

const BUCKETS: Algorithm = Algorithm::SlidingBuckets { buckets: 10 };

const EXPIRY: &str = "'PXAT', format('%d', begun / 1000 + 1000)";

const MUTANTS: &[Mutant] = &[
    (
        "the limit is let through once more",
        TokenBucket,
        "next_part_1 <= top_part_1",
        "next_part_1 <= top_part_1 + 1",
    ),
    (
        "the limit is cut short",
        TokenBucket,
        "next_part_1 <= top_part_1",
        "next_part_1 < top_part_1",
    ),
    (
        "no expiry",
        TokenBucket,
        ", 'PXAT', format('%d', begun / 1000 + 1000)",
        "",
    ),
    (
        "expiry floored to whole seconds",
        TokenBucket,
        EXPIRY,
        "'EXAT', format('%d', math.max(1, math.floor(full / 1000000)))",
    ),
    (
        "expiry at the beginning of the second",
        TokenBucket,
        "begun / 1000 + 1000",
        "begun / 1000",
    ),
    (
        "the next second keeps the expiry of this one",
        TokenBucket,
        "if begun == kept_1 then",
        "if kept_1 then",
    ),
    (
        "a whole-second clock",
        TokenBucket,
        "if now < 0 then",
        "now = now - now % 1000000\nif now < 0 then",
    ),
    (
        "floored elapsed time",
        TokenBucket,
        "local ahead_1, part_1, mended_1, kept_1",
        "now = now - now % 1000\nlocal ahead_1, part_1, mended_1, kept_1",
    ),
    (
        "remainders are dropped",
        TokenBucket,
        "ahead_1, part_1 = full - now, full_part",
        "ahead_1, part_1 = full - now, 0",
    ),
    (
        "remainders never carry",
        TokenBucket,
        "if next_part_1 >= amount_1 then",
        "if false then",
    ),
    (
        "a microsecond clock through ..",
        TokenBucket,
        "local full = now + ahead_1",
        "local full = ((now + ahead_1) .. '') + 0",
    ),
    (
        "a clock step back is kept for ever",
        TokenBucket,
        " or ahead_1 >= top_1 then",
        " then",
    ),
    (
        "a state ahead is not mended on denial",
        TokenBucket,
        "else\n  if cost_1 > 0",
        "else\n  if false",
    ),
    (
        "a rate change keeps the old wait",
        TokenBucket,
        "if full_pace ~= pace_1 or part_1 >= amount_1 then",
        "if false then",
    ),
    (
        "a remainder of another amount is believed",
        TokenBucket,
        "if full_pace ~= pace_1 or part_1 >= amount_1 then",
        "if full_pace ~= pace_1 then",
    ),
    (
        "a denial at a lower rate stores what it reads",
        TokenBucket,
        "mended_1 = full_pace == pace_1 or ahead_1 > most or { stored, full_pace, is_owed }",
        "mended_1 = true",
    ),
    (
        "a bucket that a slow rate filled is never corrected",
        TokenBucket,
        "full_pace == pace_1 or ahead_1 > most or {",
        "full_pace == pace_1 or {",
    ),
    (
        "a denial at a lower rate waits as at its own",
        TokenBucket,
        "first_1 = first_1 + math.max(mended_1[1] - least, 1)",
        "first_1 = ahead_1",
    ),
    (
        "a peek at a lower rate shows a debt",
        TokenBucket,
        "first_1, second_1 = top_1, top_part_1",
        "first_1 = ahead_1",
    ),
    (
        "units of less than a microsecond are forgotten",
        TokenBucket,
        "if part_1 > 0 and full_pace < 1 then",
        "if false then",
    ),
    (
        "a remainder is rounded up at any rate",
        TokenBucket,
        "if part_1 > 0 and full_pace < 1 then",
        "if part_1 > 0 then",
    ),
    (
        "a large burst is multiplied in a double",
        TokenBucket,
        "if parts < 9007199254740992 then",
        "if true then",
    ),
    (
        "the digits of a large burst are too large",
        TokenBucket,
        "math.floor(4503599627370496 / c)",
        "math.floor(72057594037927936 / c)",
    ),
    (
        "a digit's quotient is not carried",
        TokenBucket,
        "whole_1 = whole_1 * base + (sum - rest_1) / c",
        "whole_1 = (sum - rest_1) / c",
    ),
    (
        "a digit's remainder is not carried",
        TokenBucket,
        "local sum = rest_1 * base + a * digit",
        "local sum = a * digit",
    ),
    (
        "the last digit of a large burst is left out",
        TokenBucket,
        "until power < 1",
        "until power <= 1",
    ),
    (
        "the first digit of a large burst is missed",
        TokenBucket,
        "while power * base <= b do",
        "while power * base * base <= b do",
    ),
    (
        "the time of a large cost is that of the burst",
        LeakyBucket,
        "muldiv(rest_1, cost_1, amount_1)",
        "muldiv(rest_1, burst_1, amount_1)",
    ),
    (
        "the whole microseconds of a large burst are left out",
        LeakyBucket,
        "whole_1, top_part_1 = muldiv(rest_1, burst_1, amount_1)\n    top_1 = top_1 + whole_1",
        "whole_1, top_part_1 = muldiv(rest_1, burst_1, amount_1)",
    ),
    (
        "a denial writes",
        TokenBucket,
        "if mended_1 == true then",
        "if true then",
    ),
    (
        "a denial is charged",
        TokenBucket,
        "if admitted then",
        "if true then",
    ),
    (
        "the second policy has the cost of the first",
        FixedWindow,
        "cost_2 <= amount_2",
        "cost_1 <= amount_2",
    ),
    (
        "the second policy is charged the cost of the first",
        FixedWindow,
        "+ cost_2\n",
        "+ cost_1\n",
    ),
    (
        "a policy without a cost is charged",
        FixedWindow,
        "  if cost_2 > 0 then",
        "  if cost_1 > 0 then",
    ),
    (
        "a policy without a cost is refunded",
        FixedWindow,
        "\nif cost_2 > 0 then",
        "\nif true then",
    ),
    (
        "a refund to the second policy is that to the first",
        FixedWindow,
        "- cost_2",
        "- cost_1",
    ),
    (
        "a peek is charged",
        TokenBucket,
        "if cost_1 > 0 then",
        "if true then",
    ),
    (
        "only one policy of a set is asked",
        TokenBucket,
        "local admitted = fits_1",
        "local admitted = fits_1 or fits_1",
    ),
    (
        "a refund makes more than the burst",
        TokenBucket,
        "if room_1 < step_1 or room_1 == step_1 and room_part_1 <",
        "if false and room_part_1 <",
    ),
    (
        "a refund empties the queue twice",
        LeakyBucket,
        "if ahead_1 < step_1 or",
        "if false or",
    ),
    (
        "a window that never ends under load",
        FixedWindow,
        "local stop = start_1 + period_1",
        "local stop = now + period_1",
    ),
    (
        "no expiry of a window",
        FixedWindow,
        ", 'PXAT', format('%d', (stop - stop % 1000) / 1000 + 1)",
        "",
    ),
    (
        "one more than the window holds",
        FixedWindow,
        "used_1 + cost_1 <= amount_1",
        "used_1 <= amount_1",
    ),
    (
        "a window's last microsecond counts to the next",
        FixedWindow,
        "start_1 + period_1 - now\n",
        "start_1 + period_1 - now - 1\n",
    ),
    (
        "the clock steps back into a full window",
        FixedWindow,
        "if old_start >= start_1 and",
        "if old_start == start_1 and",
    ),
    (
        "a window far ahead locks out",
        FixedWindow,
        "if old_start > now + period_1 then",
        "if false then",
    ),
    (
        "a refund crosses into a newer window",
        FixedWindow,
        "if spent >= start_1 then",
        "if true then",
    ),
    (
        "no expiry of a calendar window",
        CALENDAR,
        ", 'PXAT', format('%d', (stop_1 - stop_1 % 1000) / 1000 + 1)",
        "",
    ),
    (
        "one more than the calendar window holds",
        CALENDAR,
        "used_1 + cost_1 <= amount_1",
        "used_1 <= amount_1",
    ),
    (
        "units of the period before count",
        CALENDAR,
        "if old_start >= start_1 and old_used > 0",
        "if old_used > 0",
    ),
    (
        "a clock that goes back gives units twice",
        CALENDAR,
        "elseif old_start == stop_1 then",
        "elseif false then",
    ),
    (
        "a period far ahead is not mended",
        CALENDAR,
        "if old_start > stop_1 then",
        "if false then",
    ),
    (
        "a refund crosses into a newer period",
        CALENDAR,
        "if spent >= start_1 then",
        "if true then",
    ),
    (
        "the next period ends with this one",
        CALENDAR,
        "start_1, stop_1 = stop_1, next_stop_1",
        "start_1 = stop_1",
    ),
    (
        "a window of another period keeps the expiry",
        FixedWindow,
        "and old_period == period_1 then",
        "then",
    ),
    (
        "the window moves with each hit",
        WindowFromFirstHit,
        "start_1, kept_1 = old_start,",
        "start_1, kept_1 = now,",
    ),
    (
        "a first hit keeps the expiry of another period",
        WindowFromFirstHit,
        "old_period == period_1",
        "true",
    ),
    (
        "the window ends one microsecond late",
        WindowFromFirstHit,
        "now - old_start < period_1",
        "now - old_start <= period_1",
    ),
    (
        "a first hit ahead of the clock is believed",
        WindowFromFirstHit,
        "if old_start > now then",
        "if false then",
    ),
    (
        "one more than is left",
        IntervalBucket,
        "used_1 + cost_1 <= burst_1",
        "used_1 < burst_1",
    ),
    (
        "the part of a period that has passed is lost",
        IntervalBucket,
        "used_1, start_1 = missing, old_start + passed",
        "used_1, start_1 = missing, now",
    ),
    (
        "the fill comes one microsecond early",
        IntervalBucket,
        "local passed = now - old_start\n",
        "local passed = now - old_start + 1\n",
    ),
    (
        "a fill fills to the brim",
        IntervalBucket,
        "missing - passed / period_1 * amount_1",
        "missing - passed / period_1 * burst_1",
    ),
    (
        "no expiry of an interval bucket",
        IntervalBucket,
        ", 'PXAT', format('%d', (full_1 - full_1 % 1000) / 1000 + 1)",
        "",
    ),
    (
        "a timer ahead of the clock locks out",
        IntervalBucket,
        "if old_start > now then",
        "if false then",
    ),
    (
        "a refund crosses a fill",
        IntervalBucket,
        "if spent >= start_1 and",
        "if",
    ),
    (
        "one more than the queue holds",
        LeakyBucket,
        "next_part_1 <= top_part_1",
        "next_part_1 <= top_part_1 + 1",
    ),
    (
        "who is denied joins the queue all the same",
        LeakyBucket,
        "local admitted = fits_1",
        "ahead_1, part_1 = next_ahead_1, next_part_1\nlocal admitted = fits_1",
    ),
    (
        "the queue expires before it is drained",
        LeakyBucket,
        "begun / 1000 + 1000",
        "now / 1000",
    ),
    (
        "a place given back is not",
        LeakyBucket,
        "ahead_1, part_1 = ahead_1 - step_1,",
        "ahead_1, part_1 = ahead_1,",
    ),
    (
        "the weight of the window before is dropped",
        SlidingWindow,
        "previous_1 * math.min(left_1, period_1) <=",
        "0 * math.min(left_1, period_1) <=",
    ),
    (
        "the window before counts in full",
        SlidingWindow,
        "previous_1 * math.min(left_1, period_1) <=",
        "previous_1 * period_1 <=",
    ),
    (
        "the share is rounded down",
        SlidingWindow,
        "previous_1 * math.min(left_1, period_1) <= (amount_1 - current_1 - cost_1) * period_1",
        "math.floor(previous_1 * math.min(left_1, period_1) / period_1) <= amount_1 - current_1 - cost_1",
    ),
    (
        "the last share is not let through",
        SlidingWindow,
        "<= (amount_1 - current_1 - cost_1) * period_1",
        "< (amount_1 - current_1 - cost_1) * period_1",
    ),
    (
        "a large share lets one more through",
        SlidingWindow,
        "fits_1 = share < amount_1 - current_1 - cost_1 or",
        "fits_1 = share <= amount_1 - current_1 - cost_1 or",
    ),
    (
        "a large share that is whole is not let through",
        SlidingWindow,
        "amount_1 - current_1 - cost_1 and part == 0",
        "amount_1 - current_1 - cost_1 and false",
    ),
    (
        "the counters expire with their window",
        SlidingWindow,
        "stop_1 = stop_1 + period_1",
        "stop_1 = stop_1 + 0",
    ),
    (
        "what was spent two windows ago counts",
        SlidingWindow,
        "old_start >= start_1 - period_1 and",
        "old_start >= start_1 - 2 * period_1 and",
    ),
    (
        "the oldest bucket is left out",
        BUCKETS,
        "math.max(old_newest, now_at_1) - buckets_1\n",
        "math.max(old_newest, now_at_1) - buckets_1 + 1\n",
    ),
    (
        "a bucket stays too long",
        BUCKETS,
        "local oldest = math.max(old_newest, now_at_1) - buckets_1",
        "local oldest = math.max(old_newest, now_at_1) - buckets_1 - 1",
    ),
    (
        "the sum keeps what has left",
        BUCKETS,
        "used_1, from_1 = used_1 - count, from_1 + 6",
        "from_1 = from_1 + 6",
    ),
    (
        "one more than the buckets hold",
        BUCKETS,
        "used_1 + cost_1 <= amount_1",
        "used_1 < amount_1",
    ),
    (
        "a clock step back opens an older bucket",
        BUCKETS,
        "newest_1 >= now_at_1 then",
        "newest_1 == now_at_1 then",
    ),
    (
        "no expiry of the buckets",
        BUCKETS,
        ", 'PXAT', format('%d', (stop_1 - stop_1 % 1000) / 1000 + 1)",
        "",
    ),
    (
        "denied attempts are stored",
        SlidingLog,
        "local admitted = fits_1",
        "if cost_1 > 0 and not fits_1 then call('LPUSH', key_1, pack('<dc0', now, tag)) end\nlocal admitted = fits_1",
    ),
    (
        "what has left is never trimmed",
        SlidingLog,
        "call('LTRIM', key_1, '0', format('%d', used_1 + add_1 - 1))",
        "local untrimmed = true",
    ),
    (
        "entries from ahead of the clock stay beside their copies",
        SlidingLog,
        "call('LTRIM', key_1, format('%d', -used_1), '-1')",
        "local untrimmed = true",
    ),
    (
        "one more than the log holds",
        SlidingLog,
        "used_1 + add_1 + cost_1 <= amount_1",
        "used_1 < amount_1",
    ),
    (
        "an entry leaves a microsecond late",
        SlidingLog,
        "if time > edge then",
        "if time >= edge then",
    ),
    (
        "a cost is logged once",
        SlidingLog,
        "for left = add_1, 1, -1000 do",
        "for left = 1, 1, -1000 do",
    ),
    (
        "the log's expiry is that of its oldest entry",
        SlidingLog,
        "local stop_1 = newest_1 + period_1",
        "local stop_1 = oldest_1 + period_1",
    ),
    (
        "no expiry of the log",
        SlidingLog,
        "call('PEXPIREAT', key_1, format('%d', (stop_1 - stop_1 % 1000) / 1000 + 1))",
        "local forever = true",
    ),
    (
        "the log's clock goes back",
        SlidingLog,
        "elseif newest_1 < now then",
        "else",
    ),
    (
        "a lockout does not end",
        LOCKOUT,
        "if locked_1 and old_stop <= now then",
        "if false then",
    ),
    (
        "a lockout ends late",
        LOCKOUT,
        "locked_1 and old_stop <= now then",
        "locked_1 and old_stop < now then",
    ),
    (
        "lockouts are not counted",
        LOCKOUT,
        "math.min(old_level + 1, 64), old_stop, 0",
        "old_level, old_stop, 0",
    ),
    (
        "the end of a lockout is forgotten",
        LOCKOUT,
        "math.min(old_level + 1, 64), old_stop, 0",
        "math.min(old_level + 1, 64), now, 0",
    ),
    (
        "failures outlive their lockout",
        LOCKOUT,
        "math.min(old_level + 1, 64), old_stop, 0",
        "math.min(old_level + 1, 64), old_stop, count - 1",
    ),
    (
        "a lockout does not double",
        LOCKOUT,
        "math.min(lock_1 * 2 ^ level_1, longest_1)",
        "lock_1",
    ),
    (
        "a lockout has no longest time",
        LOCKOUT,
        "math.min(lock_1 * 2 ^ level_1, longest_1)",
        "lock_1 * 2 ^ level_1",
    ),
    (
        "a time ahead of the clock is kept",
        LOCKOUT,
        "math.min(old_start, now), math.min(old_end, now)",
        "old_start, old_end",
    ),
    (
        "a lockout ahead of the clock is kept",
        LOCKOUT,
        "locked_1 and math.min(old_stop, most)",
        "locked_1 and old_stop",
    ),
    (
        "a corrected lockout is not stored",
        LOCKOUT,
        "mended_1 = count > 0 and old_start > now or",
        "mended_1 = false and",
    ),
    (
        "failures are never forgotten",
        LOCKOUT,
        "count > 0 and now - old_start < period_1 then",
        "count > 0 then",
    ),
    (
        "failures are forgotten late",
        LOCKOUT,
        "now - old_start < period_1 then",
        "now - old_start <= period_1 then",
    ),
    (
        "lockouts are never forgotten",
        LOCKOUT,
        "(locked or now - old_end < longest_1)",
        "true",
    ),
    (
        "lockouts are forgotten late",
        LOCKOUT,
        "now - old_end < longest_1",
        "now - old_end <= longest_1",
    ),
    (
        "a key is locked too late",
        LOCKOUT,
        "  if failures_1 >= amount_1 then",
        "  if failures_1 > amount_1 then",
    ),
    (
        "a locked key expires with its lockout",
        LOCKOUT,
        "local fresh_1, mark_1 = stop_1 + longest_1",
        "local fresh_1, mark_1 = stop_1",
    ),
    (
        "the lockouts expire with the window",
        LOCKOUT,
        "level_1 > 0 and ended_1 + longest_1 or 0)",
        "0)",
    ),
    (
        "failures of another window come back",
        LOCKOUT,
        "open_1 and spent >= raw_1[1]",
        "open_1",
    ),
    (
        "failures that are over come back",
        LOCKOUT,
        "raw_1[3] > 0 and raw_1[2] > now",
        "raw_1[3] > 0",
    ),
    (
        "a full window is a lockout",
        LOCKOUT,
        "marked and count > 0 and count >= amount_1",
        "count > 0 and count >= amount_1",
    ),
    (
        "a lockout has no mark",
        LOCKOUT,
        "longest_1, 1000000000000000",
        "longest_1, 0",
    ),
    (
        "the time of a lockout is not told",
        LOCKOUT,
        "third_1 = stop_1 - now",
        "third_1 = 0",
    ),
    (
        "the memory of lockouts is not told",
        LOCKOUT,
        "math.max(ended_1 + longest_1 - now, 0)",
        "0",
    ),
];

/// Mistakes in the scripts of checks under ceilings.
const CAPPED: &[Mutant] = &[
    (
        "the ceiling of a bucket is its burst",
        TokenBucket,
        "next_ahead_1 < limits.ceiling_1",
        "next_ahead_1 < top_1",
    ),
    (
        "the ceiling of a queue is its burst",
        LeakyBucket,
        "next_ahead_1 < limits.ceiling_1",
        "next_ahead_1 < top_1",
    ),
    (
        "the part of a ceiling is left out",
        TokenBucket,
        "next_part_1 <= limits.ceiling_part_1",
        "false",
    ),
    (
        "a debt of a waiter is not marked",
        TokenBucket,
        "local stored_part = part_1 + 1000000000000000",
        "local stored_part = part_1",
    ),
    (
        "a fill that comes just in time is too late",
        IntervalBucket,
        "- now <= limits.ceiling_wait_1",
        "- now < limits.ceiling_wait_1",
    ),
    (
        "a debt has no end",
        IntervalBucket,
        "used_1 <= burst_1 * 7 then",
        "true then",
    ),
    (
        "a failure in a locked key prolongs the lockout",
        LOCKOUT,
        "if failures_1 - cost_1 < amount_1 then",
        "if true then",
    ),
    (
        "a debt of missing units is not marked",
        IntervalBucket,
        "used_1 + 1000000000000000",
        "used_1",
    ),
    (
        "the ceiling of a window is its amount",
        FixedWindow,
        "<= limits.ceiling_1",
        "<= amount_1",
    ),
    (
        "the second ceiling is the first",
        FixedWindow,
        "<= limits.ceiling_2",
        "<= limits.ceiling_1",
    ),
    (
        "the ceiling of a share is the amount",
        SlidingWindow,
        "(limits.ceiling_1 - current_1",
        "(amount_1 - current_1",
    ),
    (
        "the ceiling of a large share is the amount",
        SlidingWindow,
        "share < limits.ceiling_1",
        "share < amount_1",
    ),
    (
        "the ceiling of the buckets is the amount",
        BUCKETS,
        "<= limits.ceiling_1",
        "<= amount_1",
    ),
    (
        "buckets are waited for without the ceiling",
        BUCKETS,
        "cost_1 - limits.ceiling_1",
        "cost_1 - amount_1",
    ),
    (
        "the ceiling of a log is its amount",
        SlidingLog,
        "<= limits.ceiling_1",
        "<= amount_1",
    ),
    (
        "a log is waited for without the ceiling",
        SlidingLog,
        "format('%d', limits.ceiling_1 - cost_1)",
        "format('%d', amount_1 - cost_1)",
    ),
];

/// Mistakes in the scripts that look at what a check would decide.
const LOOKS: &[Mutant] = &[
    (
        "a look corrects a bucket that a lowered quota left too empty",
        TokenBucket,
        "local is_owed = true",
        "local is_owed = false",
    ),
    (
        "a look corrects missing units that a lowered quota left",
        IntervalBucket,
        "local is_owed = true",
        "local is_owed = false",
    ),
    (
        "a look corrects a window that a lowered quota left too full",
        SlidingWindow,
        "local is_owed = true",
        "local is_owed = false",
    ),
    (
        "a debt is looked at with its mark",
        IntervalBucket,
        "missing = missing - 1000000000000000",
        "local kept = missing",
    ),
    (
        "a window in debt is looked at with its mark",
        SlidingWindow,
        "in_last = in_last - 1000000000000000",
        "local kept = in_last",
    ),
];

#[test]
fn every_mutant_of_a_look_is_found() {
    find(LOOKS, Stream::changing);
}

#[test]
fn every_mutant_is_found() {
    find(MUTANTS, Stream::new);
}

#[test]
fn every_mutant_of_a_ceiling_is_found() {
    find(CAPPED, Stream::capped);
}

fn find(mutants: &[Mutant], stream: fn(u64, Algorithm) -> Stream) {
    let mut redis = InRedis::new();
    find_mutants(mutants, |algorithm, alter| {
        (0..30)
            .any(|seed| stream::compare(&mut redis, &mut stream(seed, algorithm), alter).is_err())
    });
}
