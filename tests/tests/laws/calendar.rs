//! Calendar windows: local days, weeks, months and years, and periods that begin with a customer, on
//! both stores.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use tollgate::{
    Algorithm, Anchor, CalendarUnit, Cost, Limiter, MemoryStore, Policy, PolicySet, Quota,
    RedisStore, TimeZone,
};
use tollgate_test_support::{
    Dice, InMemory, InRedis, Subject, calls::Script, decided_at, integers, patient_limiter,
    policies, stream,
};

use crate::{drain, key, micros, remaining};

const HOUR_US: u64 = 3_600_000_000;

const DAY_US: u64 = 24 * HOUR_US;

/// 2096-02-01 00:00:00 UTC. 2096 is a leap year.
const FEBRUARY_US: u64 = 3_978_892_800_000_000;

fn policy(amount: u64, unit: CalendarUnit, zone: &str) -> PolicySet {
    let zone = zone.parse::<TimeZone>().expect("a zone");
    Policy::calendar_window("p", amount, unit, zone).into()
}

/// Makes a set of one window that begins with an anchor, every so many units.
fn anchored(amount: u64, every: u32, unit: CalendarUnit, zone: &str, anchor: &str) -> PolicySet {
    let zone = zone.parse::<TimeZone>().expect("a zone");
    Policy::calendar_window("p", amount, unit, zone)
        .with_anchor(anchor.parse().expect("an anchor"))
        .and_then(|policy| policy.with_quota(Quota::new(amount, every * unit.nominal())))
        .expect("a policy")
        .into()
}

/// Draws a set of one window, every second one with an anchor, and with this amount.
fn drawn(dice: &mut Dice, amount: u64) -> PolicySet {
    let policy = policies::policy(dice, "p", CALENDAR);
    let quota = Quota::new(amount, policy.quota().period());
    policy.with_quota(quota).expect("a policy").into()
}

/// Any calendar window: [`policies::policy`] draws another one.
const CALENDAR: Algorithm = Algorithm::CalendarWindow {
    unit: CalendarUnit::Month,
    zone: TimeZone::UTC,
    anchor: None,
};

fn period_us(set: &PolicySet) -> u64 {
    let policy = set.iter().next().expect("a policy");
    policy.quota().period().as_micros() as u64
}

/// Tries a law with drawn calendars on both stores, more often in process, where a try is cheap.
fn on_both(law: impl Fn(&mut dyn Subject, &mut Dice, &PolicySet)) {
    let mut redis = InRedis::new();
    for seed in 0..stream::part_of(300) {
        let draw = |dice: &mut Dice| {
            let amount = 1 + dice.below(20);
            drawn(dice, amount)
        };
        let start = |dice: &mut Dice| FEBRUARY_US + dice.below(400 * DAY_US);
        let mut dice = Dice::new(seed);
        let (set, mut memory) = (draw(&mut dice), InMemory::new());
        memory.set_now(start(&mut dice));
        law(&mut memory, &mut dice, &set);
        if seed < stream::part_of(60) {
            let mut dice = Dice::new(seed);
            redis.run(&["FLUSHALL"]);
            let set = draw(&mut dice);
            redis.set_now(start(&mut dice));
            law(&mut redis, &mut dice, &set);
        }
    }
}

#[test]
fn a_period_ends_at_its_local_midnight_on_every_store() {
    // The time in µs after 2096-02-01 00:00 UTC, and the end of the period.
    for (unit, zone, at, end) in [
        (CalendarUnit::Month, "UTC", 0, 29 * DAY_US),
        (CalendarUnit::Month, "UTC", 29 * DAY_US - 1, 29 * DAY_US),
        (CalendarUnit::Month, "UTC", 29 * DAY_US, 60 * DAY_US),
        (
            CalendarUnit::Month,
            "+05:30",
            29 * DAY_US - 6 * HOUR_US,
            29 * DAY_US - 5 * HOUR_US - HOUR_US / 2,
        ),
        (CalendarUnit::Year, "UTC", DAY_US, 335 * DAY_US),
        // The 1st of February 2096 is a Wednesday.
        (CalendarUnit::Week, "UTC", DAY_US, 5 * DAY_US),
        (
            CalendarUnit::Day,
            "-09:30",
            DAY_US,
            DAY_US + 9 * HOUR_US + HOUR_US / 2,
        ),
        // The clocks of Berlin go forward on the 25th of March, and those of Lord Howe back by half
        // an hour on the 1st of April, if their rules of 2026 still hold.
        (
            CalendarUnit::Day,
            "Europe/Berlin",
            53 * DAY_US,
            54 * DAY_US - 2 * HOUR_US,
        ),
        (
            CalendarUnit::Month,
            "Europe/Berlin",
            40 * DAY_US,
            60 * DAY_US - 2 * HOUR_US,
        ),
        (
            CalendarUnit::Day,
            "Australia/Lord_Howe",
            60 * DAY_US,
            60 * DAY_US + 13 * HOUR_US + HOUR_US / 2,
        ),
        // Cuba puts the clock forward at midnight: the 11th of March begins at 01:00.
        (
            CalendarUnit::Day,
            "America/Havana",
            39 * DAY_US - 1,
            39 * DAY_US + 5 * HOUR_US,
        ),
        (
            CalendarUnit::Day,
            "America/Havana",
            39 * DAY_US + 5 * HOUR_US,
            40 * DAY_US + 4 * HOUR_US,
        ),
    ] {
        a_period_ends(&policy(3, unit, zone), FEBRUARY_US + at, FEBRUARY_US + end);
    }
}

/// Shows on both stores that three units are spent in a period that ends at a time, and no more.
fn a_period_ends(set: &PolicySet, at: u64, end: u64) {
    for subject in [
        &mut InMemory::new() as &mut dyn Subject,
        &mut InRedis::new(),
    ] {
        subject.set_now(at);
        assert_eq!(drain(subject, set), 3, "{set:?}");
        let denied = subject.check(set, &key(), 1);
        assert_eq!(micros(denied.retry_after()), end - at, "{set:?} at {at}");
        assert_eq!(
            denied.strictest().expect("a state").reset_after(),
            Duration::from_micros(end - at)
        );
        let stored = subject.stored(set.iter().next().expect("a policy"), &key());
        assert_eq!(
            stored.expect("a state").expires_ms,
            end / 1_000 + 1,
            "{set:?}: the key expires with its period"
        );
        subject.advance(end - at - 1);
        assert!(
            subject.check(set, &key(), 1).is_denied(),
            "{set:?}: one microsecond early"
        );
        subject.advance(1);
        assert_eq!(
            remaining(&subject.peek(set, &key())),
            3,
            "{set:?}: nothing is carried over"
        );
    }
}

/// Returns a time in UTC, such as `2096-01-17 09:30`, in microseconds since the Unix epoch.
fn utc_us(text: &str) -> u64 {
    let part = |range: std::ops::Range<usize>| text[range].parse::<i64>().expect("a number");
    let (year, month, day) = (part(0..4), part(5..7), part(8..10));
    // The days of the Gregorian calendar, in years that begin with March.
    let (year, month) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let days =
        365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 719_469;
    let minutes = 60 * (24 * days + part(11..13)) + part(14..16);
    60_000_000 * u64::try_from(minutes).expect("a time after 1970")
}

#[test]
fn a_period_begins_with_its_anchor_on_every_store() {
    use CalendarUnit::{Day, Month, Week, Year};
    for (every, unit, zone, anchor, at, end) in [
        // Lisbon has summer time from the 25th of March to the 28th of October 2096, if its rules of
        // 2026 still hold.
        (
            1,
            Month,
            "Europe/Lisbon",
            "2096-01-17T09:30",
            "2096-02-17 09:29",
            "2096-02-17 09:30",
        ),
        (
            1,
            Month,
            "Europe/Lisbon",
            "2096-01-17T09:30",
            "2096-02-17 09:30",
            "2096-03-17 09:30",
        ),
        (
            1,
            Month,
            "Europe/Lisbon",
            "2096-01-17T09:30",
            "2096-03-17 09:30",
            "2096-04-17 08:30",
        ),
        (
            1,
            Month,
            "Europe/Lisbon",
            "2096-01-17T09:30",
            "2096-10-20 00:00",
            "2096-11-17 09:30",
        ),
        // An anchor that lies ahead has the same periods.
        (
            1,
            Month,
            "Europe/Lisbon",
            "2101-05-17T09:30",
            "2096-02-17 09:30",
            "2096-03-17 09:30",
        ),
        // A day that a month does not have is its last one, and the next month has it again.
        (
            1,
            Month,
            "UTC",
            "2097-01-31T09:30",
            "2097-02-01 00:00",
            "2097-02-28 09:30",
        ),
        (
            1,
            Month,
            "UTC",
            "2097-01-31T09:30",
            "2097-02-28 09:30",
            "2097-03-31 09:30",
        ),
        (
            1,
            Month,
            "UTC",
            "2097-01-31T09:30",
            "2097-03-31 09:30",
            "2097-04-30 09:30",
        ),
        (
            1,
            Month,
            "UTC",
            "2096-01-31T09:30",
            "2096-02-01 00:00",
            "2096-02-29 09:30",
        ),
        (
            1,
            Year,
            "UTC",
            "2096-02-29T12:00",
            "2098-01-01 00:00",
            "2098-02-28 12:00",
        ),
        (
            1,
            Year,
            "UTC",
            "2096-02-29T12:00",
            "2103-03-01 00:00",
            "2104-02-29 12:00",
        ),
        // Every 30 days from the day of signing, every quarter, and every second week.
        (
            30,
            Day,
            "UTC",
            "2097-01-17",
            "2097-01-17 00:00",
            "2097-02-16 00:00",
        ),
        (
            30,
            Day,
            "UTC",
            "2097-01-17",
            "2097-02-16 00:00",
            "2097-03-18 00:00",
        ),
        (
            30,
            Day,
            "Europe/Lisbon",
            "2096-03-17T09:30",
            "2096-03-20 00:00",
            "2096-04-16 08:30",
        ),
        (
            3,
            Month,
            "UTC",
            "2096-11-30",
            "2097-01-01 00:00",
            "2097-02-28 00:00",
        ),
        (
            3,
            Month,
            "UTC",
            "2096-11-30",
            "2097-02-28 00:00",
            "2097-05-30 00:00",
        ),
        (
            2,
            Week,
            "UTC",
            "2097-01-14T18:00",
            "2097-01-20 00:00",
            "2097-01-28 18:00",
        ),
        // Half past one that does not exist is half past two, and of two the first one counts.
        (
            1,
            Day,
            "Europe/Lisbon",
            "2096-01-17T01:30",
            "2096-03-24 12:00",
            "2096-03-25 01:30",
        ),
        (
            1,
            Day,
            "Europe/Lisbon",
            "2096-01-17T01:30",
            "2096-03-25 01:30",
            "2096-03-26 00:30",
        ),
        (
            1,
            Day,
            "Europe/Lisbon",
            "2096-01-17T01:30",
            "2096-10-28 00:29",
            "2096-10-28 00:30",
        ),
        (
            1,
            Day,
            "Europe/Lisbon",
            "2096-01-17T01:30",
            "2096-10-28 01:15",
            "2096-10-29 01:30",
        ),
    ] {
        a_period_ends(
            &anchored(3, every, unit, zone, anchor),
            utc_us(at),
            utc_us(end),
        );
    }
}

#[test]
fn the_laws_of_a_window_hold_in_every_calendar() {
    on_both(|subject, dice, set| {
        let amount = set.iter().next().expect("a policy").quota().amount();
        // 2. The remaining units pass, and no more. 6. A cost equals as many units.
        let spent = dice.below(amount + 1);
        assert!(subject.check(set, &key(), spent).is_allowed());
        assert_eq!(remaining(&subject.peek(set, &key())), amount - spent);
        assert_eq!(drain(subject, set), amount - spent);
        // 5. A denial leaves no trace.
        let policy = set.iter().next().expect("a policy");
        let before = subject.stored(policy, &key());
        let denied = subject.check(set, &key(), 1);
        assert_eq!(subject.stored(policy, &key()), before);
        // 12. A refund gives back what was spent and no more, and never crosses into a newer
        //     period.
        let spent_us = subject.now();
        subject.refund(set, &key(), 1, spent_us);
        assert_eq!(remaining(&subject.peek(set, &key())), 1);
        assert_eq!(drain(subject, set), 1);
        // 3. The time to retry is exact.
        let wait = micros(denied.retry_after());
        subject.advance(wait - 1);
        assert!(subject.check(set, &key(), 1).is_denied());
        subject.advance(1);
        assert!(subject.check(set, &key(), amount).is_allowed());
        subject.refund(set, &key(), amount, spent_us);
        assert!(
            subject.check(set, &key(), 1).is_denied(),
            "the units of the period before are not returned to this one"
        );
        subject.reset(set, &key());
        assert_eq!(remaining(&subject.peek(set, &key())), amount);
    });
}

#[test]
fn law_10_a_clock_that_goes_back_across_the_end_of_a_period_admits_nothing_twice() {
    on_both(|subject, dice, set| {
        let amount = set.iter().next().expect("a policy").quota().amount();
        assert!(subject.check(set, &key(), 1).is_allowed());
        let left = subject
            .peek(set, &key())
            .strictest()
            .expect("a state")
            .reset_after()
            .as_micros() as u64;
        // All units of the next period are spent just after its start. The clock goes back into
        // this one.
        subject.advance(left + dice.below(1_000));
        let next = subject.now();
        assert_eq!(drain(subject, set), amount);
        subject.set_now(next - 2_000);
        let denied = subject.check(set, &key(), 1);
        assert!(denied.is_denied());
        subject.set_now(next);
        assert!(subject.check(set, &key(), 1).is_denied());
        // A clock far ahead costs one burst, and a wait of one period at most.
        subject.advance(5_000 * DAY_US);
        drain(subject, set);
        subject.set_now(next);
        let wait = micros(subject.check(set, &key(), 1).retry_after());
        let most = period_us(set) + period_us(set) / 20 + 2 * DAY_US;
        assert!(wait <= most, "{wait}");
        subject.advance(wait);
        assert!(subject.check(set, &key(), 1).is_allowed());
    });
}

#[test]
fn law_11_another_unit_zone_or_anchor_is_in_force_at_once() {
    on_both(|subject, dice, set| {
        drain(subject, set);
        let other = drawn(dice, 30);
        // At most the units of the old calendar count, and the new amount is usable at once.
        assert!(subject.check(&other, &key(), 1).is_allowed());
        assert!(drain(subject, &other) <= 29);
        let wait = micros(subject.check(&other, &key(), 1).retry_after());
        let most = period_us(&other) + period_us(&other) / 20 + 2 * DAY_US;
        assert!(wait <= most, "{other:?}: {wait}");
        subject.advance(wait);
        assert!(subject.check(&other, &key(), 30).is_allowed());
    });
}

/// Returns the end of the period of a window that is current at a time.
fn end_of(set: &PolicySet, now_us: u64) -> u64 {
    let mut alone = InMemory::new();
    alone.set_now(now_us);
    let spent = alone.check(set, &key(), 1);
    let left = spent.strictest().expect("a state").reset_after();
    now_us + left.as_micros() as u64
}

#[test]
fn law_11_what_was_spent_counts_when_an_anchor_moves() {
    on_both(|subject, dice, old| {
        let amount = 20;
        let (old, new) = (drawn_like(old, amount), drawn(dice, amount));
        let spent = dice.below(amount + 1);
        assert!(subject.check(&old, &key(), spent).is_allowed());
        let old_end = end_of(&old, subject.now());
        subject.set_now(subject.now() + dice.below(old_end - subject.now()));
        // Both periods are current, so what was spent in the one counts in the other.
        assert_eq!(drain(subject, &new), amount - spent);
        subject.set_now(end_of(&new, subject.now()));
        assert_eq!(drain(subject, &new), amount);
    });
}

fn drawn_like(set: &PolicySet, amount: u64) -> PolicySet {
    let policy = set.iter().next().expect("a policy");
    let quota = Quota::new(amount, policy.quota().period());
    policy.with_quota(quota).expect("a policy").into()
}

/// Replicas may learn at different times that an anchor has moved.
#[test]
fn law_11_between_two_starts_of_any_anchor_at_most_one_quota_is_admitted() {
    let crowded = AtomicU64::new(0);
    on_both(|subject, dice, _| {
        let amount = 1 + dice.below(20);
        let sets: Vec<_> = (0..2 + dice.below(2))
            .map(|_| drawn(dice, amount))
            .collect();
        let shortest = sets.iter().map(period_us).min().expect("a set");
        let (mut end, mut admitted) = (0, 0);
        for _ in 0..60 {
            if subject.now() >= end {
                let ends = sets.iter().map(|set| end_of(set, subject.now()));
                (end, admitted) = (ends.min().expect("a set"), 0);
            }
            let (set, cost) = (dice.pick(&sets), 1 + dice.below(amount));
            if subject.check(&set, &key(), cost).is_allowed() {
                admitted += cost;
            }
            assert!(admitted <= amount, "{admitted} of {amount}: {sets:?}");
            crowded.fetch_add(u64::from(admitted == amount), Ordering::Relaxed);
            subject.advance(dice.below(shortest / 6));
        }
    });
    let least = 3 * stream::part_of(300);
    assert!(crowded.into_inner() > least, "the bound was reached");
}

#[test]
fn what_cannot_be_anchored_is_refused_with_name_and_value() {
    let anchor: Anchor = "2026-01-17T09:30".parse().expect("an anchor");
    let day = Policy::calendar_window("plan", 5, CalendarUnit::Day, TimeZone::UTC);
    let refused = |policy: Result<Policy, tollgate::Error>| policy.unwrap_err().to_string();
    assert_eq!(
        refused(Policy::token_bucket("rate", Quota::per_second(5)).with_anchor(anchor)),
        "policy anchor must be that of a calendar window, got 2026-01-17T09:30 in policy rate of token_bucket"
    );
    let units = "policy quota period must be a multiple of its calendar unit: 1 day, 7 days, 30 days (month) or 365 days (year)";
    let hours = Quota::new(5, Duration::from_secs(36 * 3_600));
    let anchored = day.with_anchor(anchor).expect("a policy");
    assert_eq!(
        refused(anchored.with_quota(hours)),
        format!("{units}, got 5 per 129600s in policy plan")
    );
    let days = Quota::new(5, Duration::from_secs(30 * 86_400));
    assert!(refused(day.with_quota(days)).starts_with("policy quota period must be that of its"));
    let text = anchored.with_quota(days).expect("a policy").to_string();
    assert_eq!(
        text,
        "plan=5/30d, calendar_window(day, UTC, 2026-01-17T09:30)"
    );
    assert_eq!(text.parse::<Policy>().expect("a policy").to_string(), text);
    for text in [
        "",
        "2026",
        "2026-02-29",
        "2026-13-01",
        "2026-01-17T24:00",
        "2026-01-17T09:30Z",
        "2026-01-17 09:30",
        "2026-1-17",
        "0026-01-17",
        "2200-01-01",
        "2026-01-17T09:30+01:00",
    ] {
        let error = text.parse::<Anchor>().unwrap_err().to_string();
        let expected = "anchor must be a local date of 1900 to 2199, with or without a time, as in 2026-01-17T09:30, got";
        assert_eq!(error, format!("{expected} {text:?}"));
    }
}

/// The first day of a month and the month begin at the same time.
#[test]
fn law_09_a_state_of_another_unit_with_the_same_start_expires_with_its_own_period() {
    let (day, month) = (
        policy(5, CalendarUnit::Day, "UTC"),
        policy(5, CalendarUnit::Month, "UTC"),
    );
    for subject in [
        &mut InMemory::new() as &mut dyn Subject,
        &mut InRedis::new(),
    ] {
        subject.set_now(FEBRUARY_US + HOUR_US);
        assert!(subject.check(&day, &key(), 1).is_allowed());
        assert!(subject.check(&month, &key(), 1).is_allowed());
        let stored = subject
            .stored(month.iter().next().expect("a policy"), &key())
            .expect("a state");
        assert_eq!(stored.expires_ms, (FEBRUARY_US + 29 * DAY_US) / 1_000 + 1);
        assert_eq!(remaining(&subject.peek(&month, &key())), 3);
    }
}

/// The server's clock decides: a process tells it the periods around its own clock, which may be a
/// period off.
#[test]
fn a_process_whose_clock_is_a_period_off_gets_the_same_decisions() {
    let mut redis = InRedis::new();
    for seed in 0..stream::part_of(200) {
        redis.run(&["FLUSHALL"]);
        let (mut dice, mut exact) = (Dice::new(seed), InMemory::new());
        let amount = 1 + dice.below(5);
        let set = drawn(&mut dice, amount);
        let script = Script::new(set.clone());
        redis.load(script.text());
        let nominal = period_us(&set);
        let mut now = FEBRUARY_US + dice.below(400 * DAY_US);
        for _ in 0..40 {
            now += dice.below(nominal / 2);
            exact.set_now(now);
            // A period may be shorter than the nominal one by two days and an hour.
            let off = dice.below(nominal - nominal / 12);
            let seen = if dice.below(2) == 0 {
                now - off
            } else {
                now + off
            };
            let expected = exact.check(&set, &key(), 1);
            let reply = redis.run(&script.check_seen(&key(), Cost::ONE, now, seen));
            let found = script
                .decision(Cost::ONE, &integers(&reply))
                .expect("a decision");
            assert_eq!(
                format!("{found:?}"),
                format!("{expected:?}"),
                "seed {seed}, {set:?}, off by {off}"
            );
        }
    }
}

/// With a clock that is further off, a limit holds all the same, and every key expires.
#[test]
fn a_process_whose_clock_is_years_off_is_still_limited() {
    let mut redis = InRedis::new();
    for off in [
        -9_000 * DAY_US as i64,
        -800 * DAY_US as i64,
        800 * DAY_US as i64,
        9_000 * DAY_US as i64,
    ] {
        for unit in CalendarUnit::ALL {
            redis.run(&["FLUSHALL"]);
            let set = policy(3, unit, "Europe/Berlin");
            let script = Script::new(set.clone());
            redis.load(script.text());
            let seen = FEBRUARY_US.checked_add_signed(off).expect("a time");
            let mut check = || {
                let reply = redis.run(&script.check_seen(&key(), Cost::ONE, FEBRUARY_US, seen));
                script
                    .decision(Cost::ONE, &integers(&reply))
                    .expect("a decision")
            };
            let admitted = (0..10).filter(|_| check().is_allowed()).count();
            assert_eq!(admitted, 3, "{unit}, off by {off}");
            let wait = micros(check().retry_after());
            assert!(wait <= 366 * DAY_US, "{unit}: {wait}");
            let stored = redis
                .stored(set.iter().next().expect("a policy"), &key())
                .expect("a state");
            assert!(stored.expires_ms > FEBRUARY_US / 1_000);
        }
    }
}

/// The way of an application: a policy set with another algorithm, over a store with the server's
/// clock.
#[tokio::test]
async fn a_limiter_over_redis_counts_in_the_current_period_of_the_servers_clock() {
    let redis = InRedis::new();
    let store = RedisStore::connect(&redis.server.url())
        .await
        .expect("a store");
    let year = Policy::calendar_window("year", 5, CalendarUnit::Year, TimeZone::UTC);
    let limiter = patient_limiter(
        store,
        [
            year.clone(),
            Policy::token_bucket("burst", Quota::per_second(1_000)),
        ],
    );
    let exact = Limiter::new(MemoryStore::new(), year);
    let decision = decided_at(&limiter, "acme", Cost::new(2)).await;
    let _ = decided_at(&exact, "acme", Cost::new(2)).await;
    let expected = exact
        .peek("acme")
        .await
        .expect("a state")
        .state("year")
        .expect("a policy")
        .reset_after();
    let found = decision.state("year").expect("a policy").reset_after();
    assert!(
        found.abs_diff(expected) < Duration::from_secs(60),
        "{found:?} {expected:?}"
    );
    assert_eq!(decision.state("year").expect("a policy").remaining(), 3);

    let checks = (0..8).map(|_| limiter.check("acme").into_future());
    let mut admitted = 0;
    for check in checks.collect::<Vec<_>>() {
        admitted += u64::from(check.await.expect("a decision").is_allowed());
    }
    assert_eq!(admitted, 3);
    limiter
        .refund("acme", Cost::new(2))
        .of(&decision)
        .await
        .expect("a refund");
    assert_eq!(
        limiter
            .peek("acme")
            .await
            .expect("a state")
            .state("year")
            .expect("a policy")
            .remaining(),
        2
    );
    limiter.reset("acme").await.expect("a reset");
    assert_eq!(
        limiter
            .peek("acme")
            .await
            .expect("a state")
            .state("year")
            .expect("a policy")
            .remaining(),
        5
    );
}
