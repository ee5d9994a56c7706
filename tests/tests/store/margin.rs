//! The margin for delays on the way from a limiter to a server that counts arrivals.

use std::time::Duration;

use tollgate::{Cost, Limiter, MemoryStore, Policy, Quota, store::Clock};
use tollgate_test_support::{Dice, decided_at};

const AMOUNT: u64 = 20;
const PERIOD: Duration = Duration::from_millis(1_000);
const MARGIN: Duration = Duration::from_millis(30);

/// Returns when each unit leaves a queue under `quota`, in microseconds. The callers ask at random
/// times, for `cost` units.
async fn departures(quota: Quota, cost: u64, dice: &mut Dice) -> Vec<u64> {
    let clock = Clock::manual(1_000_000_000);
    let store = MemoryStore::builder().clock(clock.clone()).build();
    let limiter = Limiter::new(store, Policy::leaky_bucket("queue", quota));
    let (mut now, mut departures) = (0, Vec::new());
    while departures.len() < 500 {
        let decision = decided_at(&limiter, "hot", Cost::new(cost)).await;
        if decision.is_allowed() {
            let at = now + decision.delay().as_micros() as u64;
            departures.extend((0..cost).map(|_| at));
        }
        let pause = Duration::from_micros(dice.below(60_000));
        now += pause.as_micros() as u64;
        clock.advance(pause);
    }
    departures
}

/// Returns how many of these times lie in one period at most.
fn most_in_a_period(mut times: Vec<u64>) -> usize {
    times.sort_unstable();
    let in_period = |from: usize| {
        times[from..].partition_point(|time| *time < times[from] + PERIOD.as_micros() as u64)
    };
    (0..times.len()).map(in_period).max().unwrap_or(0)
}

/// Delays every unit by a random time up to `most`, and each `AMOUNT`th by the whole of it.
fn delayed(departures: &[u64], most: Duration, dice: &mut Dice) -> Vec<u64> {
    let most = most.as_micros() as u64;
    let delay = |(at, time): (u64, &u64)| {
        time + if at % AMOUNT == 0 {
            most
        } else {
            dice.below(most + 1).min(most / 8)
        }
    };
    (0..).zip(departures).map(delay).collect()
}

#[tokio::test]
async fn units_that_are_delayed_by_the_margin_at_most_do_not_exceed_the_amount_in_any_period() {
    let quota = Quota::new(AMOUNT, PERIOD);
    for seed in 0..50 {
        let mut dice = Dice::new(seed);
        let departures = departures(quota.with_margin(MARGIN), 1, &mut dice).await;
        let arrivals = delayed(&departures, MARGIN, &mut dice);
        assert!(most_in_a_period(arrivals) <= AMOUNT as usize, "seed {seed}");
    }
}

#[tokio::test]
async fn without_a_margin_delayed_units_exceed_the_amount() {
    let mut dice = Dice::new(1);
    let departures = departures(Quota::new(AMOUNT, PERIOD), 1, &mut dice).await;
    assert_eq!(most_in_a_period(departures.clone()), AMOUNT as usize);
    assert!(most_in_a_period(delayed(&departures, MARGIN, &mut dice)) > AMOUNT as usize);
}

#[tokio::test]
async fn requests_of_several_units_exceed_the_amount_by_less_than_their_cost() {
    let quota = Quota::new(AMOUNT, PERIOD).with_margin(MARGIN);
    for cost in [2, 4, 9, 13, AMOUNT - 1, AMOUNT] {
        let mut most = 0;
        for seed in 0..20 {
            let mut dice = Dice::new(seed);
            let departures = departures(quota, cost, &mut dice).await;
            let late = dice.below(MARGIN.as_micros() as u64 + 1);
            // The first request of each burst is late, and the last one is not.
            let arrivals = departures
                .iter()
                .enumerate()
                .map(|(at, time)| time + if at % 2 == 0 { late } else { 0 });
            most = most.max(most_in_a_period(arrivals.collect()));
        }
        assert!(most <= (AMOUNT + cost - 1) as usize, "cost {cost}: {most}");
        assert!(
            most > AMOUNT as usize || AMOUNT.is_multiple_of(cost),
            "cost {cost} never exceeds the amount: {most}"
        );
    }
}
