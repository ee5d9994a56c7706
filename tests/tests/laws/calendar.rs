//! Calendar windows: local days, weeks, months and years, on both stores.

use std::time::Duration;

use tollgate::{
    Algorithm, CalendarUnit, Cost, Key, Limiter, MemoryStore, Outage, Policy, PolicySet, Quota,
    RedisStore, TimeZone, store::Clock,
};
use tollgate_test_support::{
    Dice, InMemory, InRedis, Subject, calls::Script, decided_at, integers, patient_limiter,
    policies,
};

use crate::{drain, key, micros, remaining};

const HOUR_US: u64 = 3_600_000_000;

const DAY_US: u64 = 24 * HOUR_US;

/// 2096-02-01 00:00:00 UTC. 2096 is a leap year.
const FEBRUARY_US: u64 = 3_978_892_800_000_000;

fn policy(amount: u64, unit: CalendarUnit, zone: &str) -> PolicySet {
    let zone = zone.parse::<TimeZone>().expect("a zone");
    let quota = Quota::new(amount, unit.nominal());
    Policy::try_new("p", Algorithm::CalendarWindow { unit, zone }, quota)
        .expect("a policy")
        .into()
}

/// Tries a law with drawn calendars on both stores, more often in process, where a try is cheap.
fn on_both(law: impl Fn(&mut dyn Subject, &mut Dice, &PolicySet)) {
    let mut redis = InRedis::new();
    for seed in 0..300 {
        let draw = |dice: &mut Dice| {
            let Algorithm::CalendarWindow { unit, zone } = policies::calendar(dice) else {
                unreachable!()
            };
            policy(1 + dice.below(20), unit, &zone.to_string())
        };
        let start = |dice: &mut Dice| FEBRUARY_US + dice.below(400 * DAY_US);
        let mut dice = Dice::new(seed);
        let (set, mut memory) = (draw(&mut dice), InMemory::new());
        memory.set_now(start(&mut dice));
        law(&mut memory, &mut dice, &set);
        if seed < 60 {
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
    ] {
        let set = policy(3, unit, zone);
        for subject in [
            &mut InMemory::new() as &mut dyn Subject,
            &mut InRedis::new(),
        ] {
            subject.set_now(FEBRUARY_US + at);
            assert_eq!(drain(subject, &set), 3, "{unit} {zone}");
            let denied = subject.check(&set, &key(), 1);
            assert_eq!(micros(denied.retry_after()), end - at, "{unit} {zone} {at}");
            assert_eq!(
                denied.strictest().expect("a state").reset_after(),
                Duration::from_micros(end - at)
            );
            let expires_ms = subject
                .stored(set.iter().next().expect("a policy"), &key())
                .expect("a state")
                .expires_ms;
            assert_eq!(
                expires_ms,
                (FEBRUARY_US + end) / 1_000 + 1,
                "{unit} {zone}: the key expires with its period"
            );
            subject.advance(end - at - 1);
            assert!(
                subject.check(&set, &key(), 1).is_denied(),
                "{unit} {zone}: one microsecond early"
            );
            subject.advance(1);
            assert_eq!(
                remaining(&subject.peek(&set, &key())),
                3,
                "{unit} {zone}: nothing is carried over"
            );
        }
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
        assert!(wait <= 366 * DAY_US + 2 * HOUR_US, "{wait}");
        subject.advance(wait);
        assert!(subject.check(set, &key(), 1).is_allowed());
    });
}

#[test]
fn law_11_another_unit_or_zone_is_in_force_at_once() {
    on_both(|subject, dice, set| {
        let calendar = policies::calendar(dice);
        let Algorithm::CalendarWindow { unit, zone } = calendar else {
            unreachable!()
        };
        drain(subject, set);
        let other = policy(30, unit, &zone.to_string());
        // At most the units of the old calendar count, and the new amount is usable at once.
        assert!(subject.check(&other, &key(), 1).is_allowed());
        assert!(drain(subject, &other) <= 29);
        let wait = micros(subject.check(&other, &key(), 1).retry_after());
        assert!(
            wait <= unit.nominal().as_micros() as u64 + 2 * DAY_US,
            "{unit} {zone}: {wait}"
        );
        subject.advance(wait);
        assert!(subject.check(&other, &key(), 30).is_allowed());
    });
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
    for seed in 0..200 {
        redis.run(&["FLUSHALL"]);
        let (mut dice, mut exact) = (Dice::new(seed), InMemory::new());
        let Algorithm::CalendarWindow { unit, zone } = policies::calendar(&mut dice) else {
            unreachable!()
        };
        let set = policy(1 + dice.below(5), unit, &zone.to_string());
        let script = Script::new(set.clone());
        redis.load(script.text());
        let nominal = unit.nominal().as_micros() as u64;
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
                "seed {seed}, {unit} {zone}, off by {off}"
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

#[tokio::test]
async fn an_outage_limits_a_replica_to_its_share_of_the_period() {
    let clock = Clock::manual(FEBRUARY_US);
    let month = Policy::calendar_window("month", 12, CalendarUnit::Month, TimeZone::UTC);
    let store = RedisStore::builder("redis://127.0.0.1:1")
        .clock(clock)
        .build()
        .expect("a store");
    let limiter = Limiter::builder(store)
        .policies(month)
        .on_outage(Outage::local(4))
        .build();
    let mut admitted = 0;
    for _ in 0..6 {
        let decision = limiter
            .check_key(&Key::new("acme"))
            .await
            .expect("a decision");
        assert!(decision.is_degraded());
        admitted += u64::from(decision.is_allowed());
    }
    assert_eq!(admitted, 3);
}
