//! The example whose plans renew at a time of the customer.

use std::{
    net::SocketAddr,
    time::{SystemTime, UNIX_EPOCH},
};

use tollgate_tests::{Process, RedisServer, machine, ports};

use crate::{STANDSTILL, http};

const DAY: u64 = 86_400;

/// Returns the number behind a text in an answer.
fn number(answer: &str, before: &str) -> u64 {
    let (_, rest) = answer.split_once(before).expect("the text");
    let digits = rest.chars().take_while(char::is_ascii_digit);
    digits.collect::<String>().parse().expect("a number")
}

fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.expect("a time after 1970").as_secs()
}

#[test]
fn a_plan_renews_when_its_customer_signed_and_a_move_renews_nothing() {
    machine::undisturbed(STANDSTILL, renewals);
}

fn renewals() {
    let redis = RedisServer::start();
    for url in [None, Some(redis.url())] {
        let address = SocketAddr::from(([127, 0, 0, 1], ports::free()));
        let mut command = Process::example("renewals");
        command.env("LISTEN", address.to_string());
        if let Some(url) = &url {
            command.env("REDIS_URL", url);
        }
        let mut process = Process::start(command, "Try");
        let get =
            |path: &str, api_key: &str| http::send(address, "GET", path, &[("X-Api-Key", api_key)]);
        let sign = |signed: u64| {
            let path = format!("/customers/bob?signed={signed}");
            http::send(address, "PUT", &path, &[]).0
        };

        let signed = now() - 10 * DAY;
        assert_eq!(sign(signed), 204);
        let (status, answer) = get("/", "bob");
        assert_eq!(
            (status, number(&answer, "ratelimit: \"plan\";r=")),
            (200, 2),
            "{answer}"
        );
        // What a client reads in the field, and on the usage page.
        let until = |signed: u64| (signed + 30 * DAY).saturating_sub(now());
        let told = number(&answer, "r=2;t=");
        assert!(told.abs_diff(until(signed)) < 60, "{told}: {answer}");
        let (_, usage) = get("/rate_limit", "bob");
        assert!(
            number(&usage, "\"reset\":").abs_diff(signed + 30 * DAY) < 60,
            "{usage}"
        );

        assert_eq!(
            [get("/", "bob").0, get("/", "bob").0, get("/", "bob").0],
            [200, 200, 429]
        );
        // He signs again. The new period is in force, and what he has spent counts in it.
        let signed = now() - DAY;
        assert_eq!(sign(signed), 204);
        let (status, answer) = get("/", "bob");
        assert_eq!(status, 429, "{answer}");
        let told = number(&answer, "retry-after: ");
        assert!(told.abs_diff(until(signed)) < 60, "{told}: {answer}");

        let (status, usage) = get("/rate_limit", "ann");
        assert_eq!((status, number(&usage, "\"limit\":")), (200, 3), "{usage}");
        assert_eq!(
            [sign(u64::MAX), sign(9_999_999_999)],
            [400, 400],
            "years that no anchor has"
        );
        assert!(process.terminate().success());
    }
}
