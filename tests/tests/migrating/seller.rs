//! An annotation "100 a minute per seller": a counter for each seller, whose window opens with the
//! first call.

use std::collections::HashMap;

use tollgate::{Policy, Quota};
use tollgate_test_support::Dice;

use super::{SECOND, START, in_process_by_key};

const MINUTE: u64 = 60 * SECOND;
const SELLERS: [&str; 3] = ["anna", "bert", "carla"];

/// Counts calls in windows. `start` returns the start of the window that a call opens.
fn counted(start: fn(u64) -> u64) -> impl FnMut(u64, &str) -> bool {
    let mut windows: HashMap<String, (u64, u32)> = HashMap::new();
    move |now, seller| {
        let (opened, calls) = windows.entry(seller.to_owned()).or_insert((start(now), 0));
        if now - *opened >= MINUTE {
            (*opened, *calls) = (start(now), 0);
        }
        *calls += 1;
        *calls <= 100
    }
}

#[test]
fn each_seller_is_admitted_as_by_a_counter_from_the_first_call_or_of_the_minute() {
    let from_first_call = Policy::window_from_first_hit("seller", Quota::per_minute(100));
    let of_the_minute = Policy::fixed_window("seller", Quota::per_minute(100));
    for (policy, start) in [
        (from_first_call, (|now| now) as fn(u64) -> u64),
        (of_the_minute, |now| now - now % MINUTE),
    ] {
        let (mut theirs, mut ours) = (counted(start), in_process_by_key(policy));
        let mut dice = Dice::new(7);
        let (mut now, mut admitted, mut calls) = (START, 0, 0);
        for _ in 0..20_000 {
            now += dice.pick(&[0, 1, SECOND / 10, SECOND / 10, SECOND, 20 * SECOND])
                * u64::from(dice.below(32) == 0);
            let seller = dice.pick(&SELLERS);
            let expected = theirs(now, seller);
            assert_eq!(ours(now - START, seller), expected, "{seller} at {now} µs");
            (admitted, calls) = (admitted + u32::from(expected), calls + 1);
        }
        assert!(admitted > 300 && admitted < calls, "{admitted} of {calls}");
    }
}
