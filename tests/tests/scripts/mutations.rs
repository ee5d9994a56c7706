//! Shows that the comparison with the Rust functions finds mistakes: each mutant is a mistake of
//! other limiters, built into a script, and has to be found.

use std::time::Duration;

use tollgate::Algorithm;
use tollgate_test_support::{
    InRedis, Mutants, find_mutants,
    stream::{self, Stream},
};

use super::{BUCKETS, CALENDAR};
use Algorithm::{
    FixedWindow, IntervalBucket, LeakyBucket, SlidingLog, SlidingWindow, TokenBucket,
    WindowFromFirstHit,
};

const LOCKOUT: Algorithm = Algorithm::Lockout {
    first: Duration::from_secs(1),
    longest: Duration::from_secs(5),
};

const MUTANTS: &[Mutants] = &[
    (
        TokenBucket,
        r"
the limit is let through once more
- next_part_1 <= top_part_1
+ next_part_1 <= top_part_1 + 1
the limit is cut short
- next_part_1 <= top_part_1
+ next_part_1 < top_part_1
no expiry
- , 'PXAT', format('%d', begun / 1000 + 1000)
expiry floored to whole seconds
- 'PXAT', format('%d', begun / 1000 + 1000)
+ 'EXAT', format('%d', math.max(1, math.floor(full / 1000000)))
expiry at the beginning of the second
- begun / 1000 + 1000
+ begun / 1000
the next second keeps the expiry of this one
- if begun == kept_1 then
+ if kept_1 then
a whole-second clock
- if now < 0 then
+ now = now - now % 1000000
+ if now < 0 then
floored elapsed time
- local ahead_1, part_1, mended_1, kept_1
+ now = now - now % 1000
+ local ahead_1, part_1, mended_1, kept_1
remainders are dropped
- ahead_1, part_1 = full - now, full_part
+ ahead_1, part_1 = full - now, 0
remainders never carry
- if next_part_1 >= amount_1 then
+ if false then
a microsecond clock through ..
- local full = now + ahead_1
+ local full = ((now + ahead_1) .. '') + 0
a clock step back is kept for ever
-  or ahead_1 >= top_1 then
+  then
a state ahead is not mended on denial
- else
-   if cost_1 > 0
+ else
+   if false
a rate change keeps the old wait
- if full_pace ~= pace_1 or part_1 >= amount_1 then
+ if false then
a remainder of another amount is believed
- if full_pace ~= pace_1 or part_1 >= amount_1 then
+ if full_pace ~= pace_1 then
a denial at a lower rate stores what it reads
- mended_1 = full_pace == pace_1 or ahead_1 > most or { stored, full_pace, is_owed }
+ mended_1 = true
a bucket that a slow rate filled is never corrected
- full_pace == pace_1 or ahead_1 > most or {
+ full_pace == pace_1 or {
a denial at a lower rate waits as at its own
- first_1 = first_1 + math.max(mended_1[1] - least, 1)
+ first_1 = ahead_1
a peek at a lower rate shows a debt
- first_1, second_1 = top_1, top_part_1
+ first_1 = ahead_1
units of less than a microsecond are forgotten
- if part_1 > 0 and full_pace < 1 then
+ if false then
a remainder is rounded up at any rate
- if part_1 > 0 and full_pace < 1 then
+ if part_1 > 0 then
a large burst is multiplied in a double
- if parts < 9007199254740992 then
+ if true then
the digits of a large burst are too large
- math.floor(4503599627370496 / c)
+ math.floor(72057594037927936 / c)
a digit's quotient is not carried
- whole_1 = whole_1 * base + (sum - rest_1) / c
+ whole_1 = (sum - rest_1) / c
a digit's remainder is not carried
- local sum = rest_1 * base + a * digit
+ local sum = a * digit
the last digit of a large burst is left out
- until power < 1
+ until power <= 1
the first digit of a large burst is missed
- while power * base <= b do
+ while power * base * base <= b do
a denial writes
- if mended_1 == true then
+ if true then
a denial is charged
- if admitted then
+ if true then
a peek is charged
- if cost_1 > 0 then
+ if true then
only one policy of a set is asked
- local admitted = fits_1
+ local admitted = fits_1 or fits_1
a refund makes more than the burst
- if room_1 < step_1 or room_1 == step_1 and room_part_1 <
+ if false and room_part_1 <
",
    ),
    (
        LeakyBucket,
        r"
the time of a large cost is that of the burst
- muldiv(rest_1, cost_1, amount_1)
+ muldiv(rest_1, burst_1, amount_1)
the whole microseconds of a large burst are left out
- whole_1, top_part_1 = muldiv(rest_1, burst_1, amount_1)
-     top_1 = top_1 + whole_1
+ whole_1, top_part_1 = muldiv(rest_1, burst_1, amount_1)
a refund empties the queue twice
- if ahead_1 < step_1 or
+ if false or
one more than the queue holds
- next_part_1 <= top_part_1
+ next_part_1 <= top_part_1 + 1
who is denied joins the queue all the same
- local admitted = fits_1
+ ahead_1, part_1 = next_ahead_1, next_part_1
+ local admitted = fits_1
the queue expires before it is drained
- begun / 1000 + 1000
+ now / 1000
a place given back is not
- ahead_1, part_1 = ahead_1 - step_1,
+ ahead_1, part_1 = ahead_1,
",
    ),
    (
        FixedWindow,
        r"
the second policy has the cost of the first
- cost_2 <= amount_2
+ cost_1 <= amount_2
the second policy is charged the cost of the first
- + cost_2
-
+ + cost_1
+
a policy without a cost is charged
-   if cost_2 > 0 then
+   if cost_1 > 0 then
a policy without a cost is refunded
-
- if cost_2 > 0 then
+
+ if true then
a refund to the second policy is that to the first
- - cost_2
+ - cost_1
a window that never ends under load
- local stop = start_1 + period_1
+ local stop = now + period_1
no expiry of a window
- , 'PXAT', format('%d', (stop - stop % 1000) / 1000 + 1)
one more than the window holds
- used_1 + cost_1 <= amount_1
+ used_1 <= amount_1
a window's last microsecond counts to the next
- start_1 + period_1 - now
-
+ start_1 + period_1 - now - 1
+
the clock steps back into a full window
- if old_start >= start_1 and
+ if old_start == start_1 and
a window far ahead locks out
- if old_start > now + period_1 then
+ if false then
a refund crosses into a newer window
- if spent >= start_1 then
+ if true then
a window of another period keeps the expiry
- and old_period == period_1 then
+ then
",
    ),
    (
        CALENDAR,
        r"
no expiry of a calendar window
- , 'PXAT', format('%d', (stop_1 - stop_1 % 1000) / 1000 + 1)
one more than the calendar window holds
- used_1 + cost_1 <= amount_1
+ used_1 <= amount_1
units of the period before count
- if old_stop > start_1 and old_used > 0
+ if old_used > 0
units are forgotten when the anchor moves
- if old_stop > start_1 and old_used > 0
+ if old_start >= start_1 and old_used > 0
a clock that goes back gives units twice
- if old_start == stop_1 then
+ if false then
a period far ahead is not mended
- mended_1 = old_stop > stop_1
+ mended_1 = false
units of a longer period count in the next one, too
- mended_1 = old_stop > stop_1
+ mended_1 = old_start > stop_1
a refund crosses into a newer period
- if spent >= start_1 then
+ if true then
the next period ends with this one
- start_1, stop_1 = stop_1, next_stop_1
+ start_1 = stop_1
",
    ),
    (
        WindowFromFirstHit,
        r"
the window moves with each hit
- start_1, kept_1 = old_start,
+ start_1, kept_1 = now,
a first hit keeps the expiry of another period
- old_period == period_1
+ true
the window ends one microsecond late
- now - old_start < period_1
+ now - old_start <= period_1
a first hit ahead of the clock is believed
- if old_start > now then
+ if false then
",
    ),
    (
        IntervalBucket,
        r"
one more than is left
- used_1 + cost_1 <= burst_1
+ used_1 < burst_1
the part of a period that has passed is lost
- used_1, start_1 = missing, old_start + passed
+ used_1, start_1 = missing, now
the fill comes one microsecond early
- local passed = now - old_start
-
+ local passed = now - old_start + 1
+
a fill fills to the brim
- missing - passed / period_1 * amount_1
+ missing - passed / period_1 * burst_1
no expiry of an interval bucket
- , 'PXAT', format('%d', (full_1 - full_1 % 1000) / 1000 + 1)
a timer ahead of the clock locks out
- if old_start > now then
+ if false then
a refund crosses a fill
- if spent >= start_1 and
+ if
",
    ),
    (
        SlidingWindow,
        r"
the weight of the window before is dropped
- previous_1 * math.min(left_1, period_1) <=
+ 0 * math.min(left_1, period_1) <=
the window before counts in full
- previous_1 * math.min(left_1, period_1) <=
+ previous_1 * period_1 <=
the share is rounded down
- previous_1 * math.min(left_1, period_1) <= (amount_1 - current_1 - cost_1) * period_1
+ math.floor(previous_1 * math.min(left_1, period_1) / period_1) <= amount_1 - current_1 - cost_1
the last share is not let through
- <= (amount_1 - current_1 - cost_1) * period_1
+ < (amount_1 - current_1 - cost_1) * period_1
a large share lets one more through
- fits_1 = share < amount_1 - current_1 - cost_1 or
+ fits_1 = share <= amount_1 - current_1 - cost_1 or
a large share that is whole is not let through
- amount_1 - current_1 - cost_1 and part == 0
+ amount_1 - current_1 - cost_1 and false
the counters expire with their window
- stop_1 = stop_1 + period_1
+ stop_1 = stop_1 + 0
what was spent two windows ago counts
- old_start >= start_1 - period_1 and
+ old_start >= start_1 - 2 * period_1 and
",
    ),
    (
        BUCKETS,
        r"
the oldest bucket is left out
- math.max(old_newest, now_at_1) - buckets_1
-
+ math.max(old_newest, now_at_1) - buckets_1 + 1
+
a bucket stays too long
- local oldest = math.max(old_newest, now_at_1) - buckets_1
+ local oldest = math.max(old_newest, now_at_1) - buckets_1 - 1
the sum keeps what has left
- used_1, from_1 = used_1 - count, from_1 + 6
+ from_1 = from_1 + 6
one more than the buckets hold
- used_1 + cost_1 <= amount_1
+ used_1 < amount_1
a clock step back opens an older bucket
- newest_1 >= now_at_1 then
+ newest_1 == now_at_1 then
no expiry of the buckets
- , 'PXAT', format('%d', (stop_1 - stop_1 % 1000) / 1000 + 1)
",
    ),
    (
        SlidingLog,
        r"
denied attempts are stored
- local admitted = fits_1
+ if cost_1 > 0 and not fits_1 then call('LPUSH', key_1, pack('<dc0', now, tag)) end
+ local admitted = fits_1
what has left is never trimmed
- call('LTRIM', key_1, '0', format('%d', used_1 + add_1 - 1))
+ local untrimmed = true
entries from ahead of the clock stay beside their copies
- call('LTRIM', key_1, format('%d', -used_1), '-1')
+ local untrimmed = true
one more than the log holds
- used_1 + add_1 + cost_1 <= amount_1
+ used_1 < amount_1
an entry leaves a microsecond late
- if time > edge then
+ if time >= edge then
a cost is logged once
- for left = add_1, 1, -1000 do
+ for left = 1, 1, -1000 do
the log's expiry is that of its oldest entry
- local stop_1 = newest_1 + period_1
+ local stop_1 = oldest_1 + period_1
no expiry of the log
- call('PEXPIREAT', key_1, format('%d', (stop_1 - stop_1 % 1000) / 1000 + 1))
+ local forever = true
the log's clock goes back
- elseif newest_1 < now then
+ else
",
    ),
    (
        LOCKOUT,
        r"
a lockout does not end
- if locked_1 and old_stop <= now then
+ if false then
a lockout ends late
- locked_1 and old_stop <= now then
+ locked_1 and old_stop < now then
lockouts are not counted
- math.min(old_level + 1, 64), old_stop, 0
+ old_level, old_stop, 0
the end of a lockout is forgotten
- math.min(old_level + 1, 64), old_stop, 0
+ math.min(old_level + 1, 64), now, 0
failures outlive their lockout
- math.min(old_level + 1, 64), old_stop, 0
+ math.min(old_level + 1, 64), old_stop, count - 1
a lockout does not double
- math.min(lock_1 * 2 ^ level_1, longest_1)
+ lock_1
a lockout has no longest time
- math.min(lock_1 * 2 ^ level_1, longest_1)
+ lock_1 * 2 ^ level_1
a time ahead of the clock is kept
- math.min(old_start, now), math.min(old_end, now)
+ old_start, old_end
a lockout ahead of the clock is kept
- locked_1 and math.min(old_stop, most)
+ locked_1 and old_stop
a corrected lockout is not stored
- mended_1 = count > 0 and old_start > now or
+ mended_1 = false and
failures are never forgotten
- count > 0 and now - old_start < period_1 then
+ count > 0 then
failures are forgotten late
- now - old_start < period_1 then
+ now - old_start <= period_1 then
lockouts are never forgotten
- (locked or now - old_end < longest_1)
+ true
lockouts are forgotten late
- now - old_end < longest_1
+ now - old_end <= longest_1
a key is locked too late
-   if failures_1 >= amount_1 then
+   if failures_1 > amount_1 then
a locked key expires with its lockout
- local fresh_1, mark_1 = stop_1 + longest_1
+ local fresh_1, mark_1 = stop_1
the lockouts expire with the window
- level_1 > 0 and ended_1 + longest_1 or 0)
+ 0)
failures of another window come back
- open_1 and spent >= raw_1[1]
+ open_1
failures that are over come back
- raw_1[3] > 0 and raw_1[2] > now
+ raw_1[3] > 0
a full window is a lockout
- marked and count > 0 and count >= amount_1
+ count > 0 and count >= amount_1
a lockout has no mark
- longest_1, 1000000000000000
+ longest_1, 0
the time of a lockout is not told
- third_1 = stop_1 - now
+ third_1 = 0
the memory of lockouts is not told
- math.max(ended_1 + longest_1 - now, 0)
+ 0
",
    ),
];

/// Mistakes in the scripts of checks under ceilings.
const CAPPED: &[Mutants] = &[
    (
        TokenBucket,
        r"
the ceiling of a bucket is its burst
- next_ahead_1 < limits.ceiling_1
+ next_ahead_1 < top_1
the part of a ceiling is left out
- next_part_1 <= limits.ceiling_part_1
+ false
a debt of a waiter is not marked
- local stored_part = part_1 + 1000000000000000
+ local stored_part = part_1
",
    ),
    (
        LeakyBucket,
        r"
the ceiling of a queue is its burst
- next_ahead_1 < limits.ceiling_1
+ next_ahead_1 < top_1
",
    ),
    (
        IntervalBucket,
        r"
a fill that comes just in time is too late
- - now <= limits.ceiling_wait_1
+ - now < limits.ceiling_wait_1
a debt has no end
- used_1 <= burst_1 * 7 then
+ true then
a debt of missing units is not marked
- used_1 + 1000000000000000
+ used_1
",
    ),
    (
        LOCKOUT,
        r"
a failure in a locked key prolongs the lockout
- if failures_1 - cost_1 < amount_1 then
+ if true then
",
    ),
    (
        FixedWindow,
        r"
the ceiling of a window is its amount
- <= limits.ceiling_1
+ <= amount_1
the second ceiling is the first
- <= limits.ceiling_2
+ <= limits.ceiling_1
",
    ),
    (
        SlidingWindow,
        r"
the ceiling of a share is the amount
- (limits.ceiling_1 - current_1
+ (amount_1 - current_1
the ceiling of a large share is the amount
- share < limits.ceiling_1
+ share < amount_1
",
    ),
    (
        BUCKETS,
        r"
the ceiling of the buckets is the amount
- <= limits.ceiling_1
+ <= amount_1
buckets are waited for without the ceiling
- cost_1 - limits.ceiling_1
+ cost_1 - amount_1
",
    ),
    (
        SlidingLog,
        r"
the ceiling of a log is its amount
- <= limits.ceiling_1
+ <= amount_1
a log is waited for without the ceiling
- format('%d', limits.ceiling_1 - cost_1)
+ format('%d', amount_1 - cost_1)
",
    ),
];

/// Mistakes in the scripts that look at what a check would decide.
const LOOKS: &[Mutants] = &[
    (
        TokenBucket,
        r"
a look corrects a bucket that a lowered quota left too empty
- local is_owed = true
+ local is_owed = false
",
    ),
    (
        IntervalBucket,
        r"
a look leaves missing units that a check cuts to a lowered quota
- local is_owed = marked >= 1000000000000000
+ local is_owed = true
a debt is looked at with its mark
- missing = missing - 1000000000000000
+ local kept = missing
",
    ),
    (
        SlidingWindow,
        r"
a look leaves a window too full that a check cuts to a lowered quota
- local is_owed = marked >= 1000000000000000
+ local is_owed = true
a window in debt is looked at with its mark
- in_last = in_last - 1000000000000000
+ local kept = in_last
",
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

fn find(mutants: &[Mutants], stream: fn(u64, Algorithm) -> Stream) {
    let mut redis = InRedis::new();
    find_mutants(mutants, |algorithm, alter| {
        (0..60)
            .any(|seed| stream::compare(&mut redis, &mut stream(seed, algorithm), alter).is_err())
    });
}
