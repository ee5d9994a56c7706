//! The scripts of reservations and the Rust functions agree, bit for bit, on hostile streams: on
//! keys in debt, on ids that are used twice, on commits that come late or again, and on changed
//! policies. Mistakes in the scripts are found.

use tollgate::{
    Algorithm::{
        FixedWindow, IntervalBucket, LeakyBucket, SlidingLog, SlidingWindow, TokenBucket,
        WindowFromFirstHit,
    },
    testing::ALGORITHMS,
};
use tollgate_test_support::{
    Deployment, InRedis, Kind, Mutants, find_mutants,
    stream::{self, Stream},
};

use super::{BUCKETS, CALENDAR, agree};

#[test]
fn reservations_on_valkey_agree_with_the_rust_functions() {
    let deployment = Deployment::start(
        Kind::Valkey,
        "reservations_on_valkey_agree_with_the_rust_functions",
    );
    let Some(Deployment::Single(server)) = deployment else {
        return;
    };
    let mut valkey = InRedis::on(server);
    for algorithm in ALGORITHMS {
        agree(
            &mut valkey,
            Stream::reserving,
            algorithm,
            1_000_000..1_000_000 + stream::part_of(4),
        );
    }
}

#[test]
fn reservations_on_every_algorithm_agree_with_their_scripts() {
    // Each with a server of its own.
    std::thread::scope(|scope| {
        for algorithm in ALGORITHMS.into_iter().chain([CALENDAR]) {
            scope.spawn(move || {
                agree(
                    &mut InRedis::new(),
                    Stream::reserving,
                    algorithm,
                    stream::seeds(),
                );
            });
        }
    });
}

const MUTANTS: &[Mutants] = &[
    (
        TokenBucket,
        r"
a repeated id is charged again
- return { 2, record }
+ status = 1
a denied reservation is recorded
- if status == 1 then
+ if status < 2 then
a record has no expiry
- call('SET', KEYS[1], record, 'PXAT', format('%d', (lapse - lapse % 1000) / 1000 + 1))
+ call('SET', KEYS[1], record)
a commit counts twice
- elseif settled ~= 0 then
+ elseif false then
a call that is sent again is another commit
- return settled == number and 1 or 2
+ return 2
a settled record loses its expiry
- call('SETRANGE', KEYS[1], '8', pack('<d', number))
+ call('SET', KEYS[1], pack('<ddd', lapse, number, spent) .. record:sub(25))
more than reserved is refunded
- more_1, cost_1 = cost_1 > held,
+ more_1, cost_1 = false,
the whole cost is charged again
- math.min(math.abs(held - cost_1), 9007199254740991)
+ cost_1
a debt is forgiven
- local stored_part_1 = part_1 + 1000000000000000
+ local stored_part_1 = part_1
a debt has no bound
-       ahead_1, part_1 = most, most_part
-     end
-   end
-
+       local unbounded = true
+     end
+   end
+
a policy at no cost denies in debt
-  or cost_1 == 0
-
+
+
a late refund has no bound
- if room_1 < step_1 or room_1 == step_1 and room_part_1 < step_part_1 then
+ if false then
the end of a request bounds no refund
- spent + was_first_1 - now - list_1[1]
+ 0
a part of the last request stays
- elseif not is_last_1 and passed_1 > 0 then
+ elseif passed_1 > 0 then
what was returned is returned again
- list_1[1] = math.max(list_1[1], math.min(list_1[1] + given_1, top_1))
+ list_1[1] = 0
what was returned has no bound
- math.min(list_1[1] + given_1, top_1)
+ list_1[1] + given_1
a part that was returned is returned again
-  + math.min(step_part_1, 1)
the last request leaves a trace
- local is_last_1 = is_end_1 and list_1[1] == 0
+ local is_last_1 = false
others have no claim after the last request
- is_end_1 and list_1[1] == 0
+ is_end_1
a refund leaves the least as it was
- math.max(list_1[at + 1] - lost, 0)
+ list_1[at + 1]
a refund leaves the former least as it was
- for at = 2, 4, 2 do
+ for at = 2, 2 do
a refund lowers the least by all its units
- lost = math.min(lost, passed_1)
+ lost = lost + 0
a refund lowers the least by what accrued alone
- if list_1[at] < spent then
+ if true then
the least is more than what is missing
- list_1[at + 1] - lost, 0), ahead_1)
+ list_1[at + 1] - lost, 0), 1e15)
what cannot have accrued stays spent
- room_1, room_part_1 = step_1 - accrued, step_part_1
+ room_1, room_part_1 = 0, 0
what has accrued is returned
- local accrued = passed_1
+ local accrued = 0
a settlement counts at the rate of its decision
- if full_pace ~= pace_1 and ahead_1 + part_1 > 0 then
+ if false then
a settlement at a lower rate forgets what accrued
- accrued = math.ceil(passed_1 / held_1.other * pace_1)
+ accrued = 0
a settlement cuts a debt to its burst
- most, most_part = ahead_1, part_1
+ local kept = true
a commit at another rate leaves no mark
- held_1.owed = held_1.owed or more_1
+ held_1.other = held_1.other
a full bucket forgets who can claim
- if list_1[1] == 0 and ahead_1 == 0
+ if ahead_1 == 0
a reservation is not remembered
- if trace_1[3] * 2 < ahead_1 then
+ if false then
each reservation begins anew
- if trace_1[3] * 2 < ahead_1 then
+ if true then
the former time is never kept
- if trace_1[5] * 2 < trace_1[3] then
+ if true then
the least that was missing is forgotten
- math.min(list_1[3], ahead_1)
+ list_1[3]
units from before the time come back
- if spent >= list_1[2] then
+ if true then
a full bucket keeps what was returned
- list_1[1] - math.max(now - full, 0)
+ list_1[1]
a mended bucket keeps its trace
- list_1 = { top_1, 0, 0, 0, 0 }
+ list_1[1] = list_1[1]
a full bucket forgets its trace
- if is_sound_1 and full + list_1[1] > now then
+ if full > now then
a trace is kept for ever
- if is_sound_1 and full + list_1[1] > now then
+ if is_sound_1 then
a trace expires with its bucket
- local free_at_1 = now + ahead_1 + t_1[1]
+ local free_at_1 = now + ahead_1
",
    ),
    (
        FixedWindow,
        r"
a lapsed record is repeated
- and now < unpack('<d', record) then
+ then
a commit after the lapse counts
- if not (now < lapse) then
+ if false then
a commit is refunded at its own time
- local lapse, settled, spent = unpack('<ddd', record)
+ local lapse, settled, spent = unpack('<ddd', record)
+ spent = now
a commit reads the cost of another policy
- record, 40 * 2 - 15)
+ record, 40 * 1 - 15)
a window owes without bound
- math.min(cost_1, amount_1 * 8 - used_1)
+ cost_1
",
    ),
    (
        LeakyBucket,
        r"
the remainder of the bound is left out
- most_part = top_part_1 * 8 % amount_1
+ most_part = 0
a place in the middle of a queue is returned
- now + ahead_1 == spent + was_first_1 and part_1 == was_second_1
+ true
the end of a place has no remainder
- was_first_1, was_second_1 = first_1, second_1
+ was_first_1, was_second_1 = first_1, 0
",
    ),
    (
        IntervalBucket,
        r"
an interval bucket forgives a debt
- used_1 + 1000000000000000
+ used_1
an interval bucket owes without bound
- math.max(math.min(cost_1, burst_1 * 8 - used_1), 0)
+ cost_1
an interval bucket gives back what a fill gave back
- if spent >= start_1 and used_1 > 0 then
+ if used_1 > 0 then
",
    ),
    (
        SlidingWindow,
        r"
a settlement forgets a mark
- held_1.owed = is_owed
+ held_1.owed = false
a sliding window forgives a debt
- current_1 + 1000000000000000
+ current_1
a sliding window forgives the debt of the window before
- if previous_1 > amount_1 then
+ if false then
",
    ),
    (
        CALENDAR,
        r"
a calendar window owes without bound
- math.min(cost_1, amount_1 * 8 - used_1)
+ cost_1
",
    ),
    (
        WindowFromFirstHit,
        r"
a first hit owes nothing
- math.min(cost_1, amount_1 * 8 - used_1)
+ 0
",
    ),
    (
        BUCKETS,
        r"
sliding buckets owe without bound
- math.min(amount_1 * 8, 4294967295) - used_1
+ cost_1
",
    ),
    (
        SlidingLog,
        r"
a log owes without bound
- math.min(amount_1 * 8, amount_1 + 100000) - used_1
+ cost_1
",
    ),
];

#[test]
fn every_mistake_in_the_scripts_of_reservations_is_found() {
    let mut redis = InRedis::new();
    find_mutants(MUTANTS, |algorithm, alter| {
        (0..40).any(|seed| {
            stream::compare(&mut redis, &mut Stream::reserving(seed, algorithm), alter).is_err()
        })
    });
}
