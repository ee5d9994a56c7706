//! `INCR` and `EXPIRE` on a real server whose clock is moved, beside our script on the same server.
#![cfg(target_os = "linux")]

use std::time::Duration;

use tollgate::{Cost, Key, Policy, Quota};
use tollgate_test_support::{Dice, calls::Script, integers};
use tollgate_tests::{RedisServer, WallClock};

const SCRIPT: &str = "
local hits = redis.call('INCR', KEYS[1])
if hits == 1 then redis.call('EXPIRE', KEYS[1], ARGV[2]) end
return hits <= tonumber(ARGV[1]) and 1 or 0";

#[test]
fn a_window_from_the_first_hit_admits_what_incr_and_expire_admit() {
    let clock = WallClock::new();
    let server = RedisServer::builder().clock(&clock).start();
    let mut client = server.client();
    let script = Script::new(Policy::window_from_first_hit("api", Quota::per_hour(5)));
    assert!(
        !client
            .command(&["SCRIPT", "LOAD", script.text()])
            .expect("a reply")
            .is_error()
    );

    let (mut dice, key) = (Dice::new(1), Key::from("client"));
    let (mut now, mut opened, mut admitted, mut windows) = (0_u64, None::<u64>, 0, 0);
    for at in 0..400 {
        // Minutes from an edge: the clock of the server runs on while a slow machine sends the two
        // calls.
        now += dice.pick(&[0, 60, 600, 1_500, 4_000]);
        while opened.is_some_and(|opened| (now - opened).abs_diff(3_600) < 300) {
            now += 60;
        }
        clock.set(Duration::from_secs(2_000_000_000 + now));
        let theirs = client
            .command(&["EVAL", SCRIPT, "1", "hits:client", "5", "3600"])
            .expect("a reply")
            .int()
            == 1;
        let reply = client
            .command(&script.check(&key, Cost::ONE, None))
            .expect("a reply");
        let ours = script
            .decision(Cost::ONE, &integers(&reply))
            .expect("a decision")
            .is_allowed();
        assert_eq!(ours, theirs, "request {at} at {now} s");
        admitted += u32::from(ours);
        if opened.is_none_or(|opened| now - opened >= 3_600) {
            (opened, windows) = (Some(now), windows + 1);
        }
    }
    assert!(
        windows > 20 && admitted < 400 && admitted > 5 * windows / 2,
        "{admitted} admitted in {windows} windows"
    );
}
