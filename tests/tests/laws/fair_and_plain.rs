//! Law 23 in numbers: what customers get with fair shares, beside the same limit without. What each store
//! does with a ceiling stands in `priorities.rs`.

use std::{ops::Range, time::Duration};

use tollgate::{
    Algorithm, Cost, Costs, Customer, Limiter, MemoryStore, Policy, Quota, store::Clock,
};
use tollgate_test_support::{Dice, stream};

/// A customer that asks again and again, for several costs at once.
#[derive(Clone, Copy, Debug)]
struct Asks {
    cost: u64,
    at_once: u64,
    every_us: u64,
    from_us: u64,
}

impl Asks {
    /// Asks for a part of the limit, in thousandths.
    fn rate(quota: Quota, thousandths: u64, cost: u64, at_once: u64) -> Self {
        let units = u128::from(cost * at_once * 1_000) * quota.period().as_micros();
        let every_us = units / u128::from(quota.amount() * thousandths);
        Self {
            cost,
            at_once,
            every_us: (every_us as u64).max(1),
            from_us: 0,
        }
    }

    fn from(self, from_us: u64) -> Self {
        Self { from_us, ..self }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Got {
    asked: u64,
    admitted: u64,
}

impl Got {
    fn denied(self) -> u64 {
        self.asked - self.admitted
    }
}

const BUCKETS: [fn(&'static str, Quota) -> Policy; 3] = [
    Policy::token_bucket,
    Policy::leaky_bucket,
    Policy::interval_bucket,
];

const PERIODS: [(&str, Duration); 4] = [
    ("second", Duration::from_secs(1)),
    ("minute", Duration::from_secs(60)),
    ("hour", Duration::from_secs(3_600)),
    ("day", Duration::from_secs(86_400)),
];

/// Returns what is kept for who comes next while a customer is alone.
fn kept(burst: u64) -> u64 {
    burst * 12 / 100
}

fn full_us(quota: Quota) -> u64 {
    quota.period().as_micros() as u64 * quota.burst() / quota.amount()
}

struct Limit {
    limiter: Limiter,
    is_fair: bool,
}

fn limiter(policy: Policy, clock: &Clock, is_fair: bool) -> Limit {
    let store = MemoryStore::builder().clock(clock.clone()).build();
    let limiter = Limiter::builder(store)
        .policies(policy)
        .outage_clock(clock.clone());
    let limiter = match is_fair {
        true => limiter.fair_shares().build(),
        false => limiter.build(),
    };
    Limit { limiter, is_fair }
}

fn is_allowed(Limit { limiter, is_fair }: &Limit, customer: u64, cost: u64) -> bool {
    let costs = Costs::new(Cost::new(cost));
    let costs = match is_fair {
        true => costs.with_customer(Customer::new(customer)),
        false => costs,
    };
    let check = limiter.check("all").cost(costs).into_future().into_ready();
    let decision = check.expect("in process").expect("a decision");
    decision.is_allowed()
}

/// Returns what each customer asked for and got in a time. More than the bound is never admitted.
fn got(policy: &Policy, is_fair: bool, asks: &[Asks], within_us: Range<u64>) -> Vec<Got> {
    let clock = Clock::manual(0);
    let limiter = limiter(policy.clone(), &clock, is_fair);
    let quota = policy.quota();
    let mut next: Vec<u64> = asks.iter().map(|ask| ask.from_us).collect();
    let mut got = vec![Got::default(); asks.len()];
    let mut all = 0;
    while let Some((at, &now)) = next.iter().enumerate().min_by_key(|(_, now)| **now)
        && now < within_us.end
    {
        clock.set(now);
        let ask = asks[at];
        for _ in 0..ask.at_once {
            let admitted = match is_allowed(&limiter, at as u64, ask.cost) {
                true => ask.cost,
                false => 0,
            };
            all += admitted;
            if within_us.contains(&now) {
                got[at].asked += ask.cost;
                got[at].admitted += admitted;
            }
        }
        let periods = quota.amount() as u128 * u128::from(now) / quota.period().as_micros();
        let accrued = match policy.algorithm() {
            Algorithm::IntervalBucket => periods as u64 + quota.amount(),
            _ => periods as u64,
        };
        assert!(all <= quota.burst() + accrued, "{policy:?}: {all} at {now}");
        next[at] = now + ask.every_us;
    }
    got
}

fn some_policy(dice: &mut Dice) -> Policy {
    let burst = dice.pick(&[10, 16, 50, 100, 333]);
    let bucket = dice.pick(&BUCKETS);
    let (_, period) = dice.pick(&PERIODS);
    let policy = |amount: u64| {
        bucket(
            "service",
            Quota::try_new(amount.max(1), period)
                .and_then(|quota| quota.try_with_burst(burst))
                .expect("a quota"),
        )
    };
    match policy(1).algorithm() {
        Algorithm::IntervalBucket => policy(burst * 2 / dice.pick(&[5, 6, 10, 20])),
        _ => policy(burst * 2 / dice.pick(&[1, 2, 4, 10])),
    }
}

#[test]
fn law_23_a_customer_alone_has_the_limit_with_a_burst_less_what_is_kept() {
    for seed in 0..stream::part_of(2_000) {
        let mut dice = Dice::new(seed);
        let policy = some_policy(&mut dice);
        let quota = policy.quota();
        let most = quota.burst() - kept(quota.burst());
        let less = BUCKETS.map(|bucket| bucket("service", quota.with_burst(most)));
        let less = less
            .into_iter()
            .find(|less| less.algorithm() == policy.algorithm());
        let clock = Clock::manual(0);
        let [fair, less] = [
            limiter(policy.clone(), &clock, true),
            limiter(less.expect("a bucket"), &clock, false),
        ];
        let costs = dice.pick(&[1, 1, 3, most / 4, most]).max(1);
        let pause_us = full_us(quota) / dice.pick(&[1, 7, 30, 200]);
        for _ in 0..400 {
            let cost = 1 + dice.below(costs);
            let [fair, less] = [&fair, &less].map(|limiter| is_allowed(limiter, 7, cost));
            assert_eq!(fair, less, "{policy:?}, seed {seed}");
            if dice.below(3) == 0 {
                clock.advance(Duration::from_micros(dice.below(2 * pause_us)));
            }
        }
    }
}

#[test]
fn law_23_who_is_alone_and_asks_for_all_misses_in_any_span_what_is_kept_of_one_burst() {
    for seed in 0..stream::part_of(500) {
        let mut dice = Dice::new(seed);
        let policy = some_policy(&mut dice);
        let quota = policy.quota();
        let clock = Clock::manual(0);
        let [fair, plain] = [true, false].map(|is_fair| limiter(policy.clone(), &clock, is_fair));
        // What is missing since the instant from which most is missing.
        let (mut missing, mut least, mut most) = (0_i64, 0, 0);
        for _ in 0..300 {
            let [fair, plain] = [&fair, &plain].map(|limiter| {
                let mut passed = 0;
                while is_allowed(limiter, 7, 1) {
                    passed += 1;
                }
                passed
            });
            missing += plain - fair;
            least = least.min(missing);
            most = most.max(missing - least);
            // It asks again before the bucket is full.
            let pause_us = full_us(quota) * dice.pick(&[1, 5, 20, 40]) / 100;
            clock.advance(Duration::from_micros(dice.below(pause_us)));
        }
        let kept = kept(quota.burst()) as i64;
        assert!(most <= kept, "{most} of {kept}: {policy:?}, seed {seed}");
        assert!(missing > 0, "something is kept: {policy:?}, seed {seed}");
    }
}

#[test]
fn law_23_who_asks_for_less_than_its_share_is_denied_no_more_often_than_without() {
    let (mut served, mut tries) = (0, 0);
    for seed in 0..stream::part_of(3_000) {
        let mut dice = Dice::new(seed);
        let policy = some_policy(&mut dice);
        let (quota, full_us) = (policy.quota(), full_us(policy.quota()));
        let others = 1 + dice.below(4);
        let part = kept(quota.burst());
        let cost = 1 + dice.below(part);
        let at_once = 1 + dice.below(part / cost);
        let share = 1_000 / (others + 1);
        let light = Asks::rate(quota, share * (30 + dice.below(61)) / 100, cost, at_once);
        let mut asks = vec![light.from(dice.below(10 * full_us))];
        for _ in 0..others {
            let thousandths = match dice.below(3) {
                0 => 1 + dice.below(share),
                _ => 300 + dice.below(4_000),
            };
            let (cost, from_us) = (1 + dice.below(quota.burst() / 2), dice.below(10 * full_us));
            let cost = dice.pick(&[1, 1, cost]);
            let at_once = 1 + dice.below(quota.burst() / cost);
            let other = Asks::rate(quota, thousandths, cost, dice.pick(&[1, at_once]));
            asks.push(other.from(dice.pick(&[0, from_us])));
        }
        let [fair, plain] =
            [true, false].map(|is_fair| got(&policy, is_fair, &asks, 0..20 * full_us)[0]);
        assert!(
            fair.denied() <= plain.denied(),
            "{fair:?}, without {plain:?}: {policy:?}, {asks:?}, seed {seed}"
        );
        tries += 1;
        served += u64::from(fair.denied() == 0);
    }
    assert!(
        served * 20 >= tries * 19,
        "{served} of {tries} were never denied"
    );
}

/// Returns what a row of the table says of one policy: with fair shares and without, in percent.
fn percents(policy: &Policy, who: &str, how: &str) -> [u64; 2] {
    let (quota, kept) = (policy.quota(), kept(policy.quota().burst()));
    let (cost, at_once) = match how {
        "even" => (1, 1),
        "at once" => (1, kept),
        _ => (kept, 1),
    };
    let asks = |thousandths| Asks::rate(quota, thousandths, cost, at_once);
    // The part of the limit that is a customer's share, in thousandths.
    let (asks, share) = match who {
        // More at once than the others.
        "alone, 60 %" if how == "at once" => {
            let at_once = quota.burst() * 6 / 10;
            (vec![Asks::rate(quota, 600, 1, at_once)], 1_000)
        }
        "alone, 60 %" => (vec![asks(600)], 1_000),
        "alone, 300 %" => (vec![asks(3_000)], 1_000),
        "each of two, 200 %" => (vec![asks(2_000), asks(2_000).from(1)], 500),
        _ => (vec![asks(200), Asks::rate(quota, 5_000, 1, 1)], 500),
    };
    let (full_us, measured) = (full_us(quota), if who.starts_with("each") { 2 } else { 1 });
    [true, false].map(|is_fair| {
        let got = got(policy, is_fair, &asks, 8 * full_us..18 * full_us);
        let percents = got[..measured].iter().map(|got| {
            let most = got.asked.min(quota.burst() * 10 * share / 1_000);
            got.admitted * 100 / most
        });
        percents.min().expect("a customer")
    })
}

#[test]
fn law_23_the_table_of_fair_shares_beside_plain_limits() {
    println!("| who | how | bucket | second | minute | hour | day |");
    println!("| --- | --- | --- | --- | --- | --- | --- |");
    for who in [
        "alone, 60 %",
        "alone, 300 %",
        "each of two, 200 %",
        "20 % beside 500 %",
    ] {
        for how in ["even", "at once", "in one cost"] {
            for bucket in BUCKETS {
                let amount = match bucket("service", Quota::per_second(100)).algorithm() {
                    Algorithm::IntervalBucket => 40,
                    _ => 100,
                };
                let mut name = String::new();
                let cells = PERIODS.map(|(_, period)| {
                    let policy = bucket("service", Quota::new(amount, period).with_burst(100));
                    name = policy.algorithm().to_string();
                    let [fair, plain] = percents(&policy, who, how);
                    let least = if who.starts_with("each") {
                        80
                    } else {
                        plain.min(97)
                    };
                    assert!(
                        fair >= least,
                        "{who}, {how}: {fair} and {plain}, {policy:?}"
                    );
                    if who.starts_with("20 %") {
                        assert!(fair >= 97, "{how}: {fair}, {policy:?}");
                    }
                    format!("{plain} → {fair} %")
                });
                println!("| {who} | {how} | {name} | {} |", cells.join(" | "));
            }
        }
    }
}
