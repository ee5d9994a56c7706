//! The example whose limits come from a database.

use std::net::SocketAddr;

use tollgate_tests::{Process, RedisServer, machine, ports};

use crate::{STANDSTILL, http};

/// Sends a request. Returns the status, and the remaining units in the answer.
fn send(address: SocketAddr, method: &str, target: &str, api_key: &str) -> (u16, Option<u64>) {
    let (status, answer) = http::send(address, method, target, &[("X-Api-Key", api_key)]);
    let left = answer
        .split_once("ratelimit: \"requests\";r=")
        .map(|(_, rest)| {
            rest.split(';')
                .next()
                .and_then(|left| left.parse().ok())
                .expect("a number")
        });
    (status, left)
}

#[test]
fn plans_limit_customers_change_at_once_and_outlast_their_database() {
    machine::undisturbed(STANDSTILL, plans);
}

fn plans() {
    let redis = RedisServer::start();
    for url in [None, Some(redis.url())] {
        let address = SocketAddr::from(([127, 0, 0, 1], ports::free()));
        let mut command = Process::example("tenants");
        command.env("LISTEN", address.to_string());
        if let Some(url) = &url {
            command.env("REDIS_URL", url);
        }
        let mut process = Process::start(command, "Try");
        let get = |api_key: &str| send(address, "GET", "/", api_key);
        let put =
            |target: &str| assert_eq!(send(address, "PUT", target, "admin").0, 204, "{target}");

        let small: Vec<_> = (0..4).map(|_| get("small").0).collect();
        assert_eq!(small, [200, 200, 200, 429], "{url:?}");
        assert_eq!(get("large"), (200, Some(999)));
        assert_eq!((get("other").0, get("other").0), (200, 429));

        put("/plans/small?per_minute=1000000");
        let (status, left) = get("small");
        // The four units that were spent stay spent, and less than a minute has passed.
        assert!(
            status == 200 && left.is_some_and(|left| left >= 999_990),
            "{left:?}"
        );

        put("/away?away=true");
        assert_eq!(get("small").0, 200, "a known plan stays in force");
        assert_eq!(
            (get("new").0, get("new").0),
            (200, 429),
            "an unknown one is the default"
        );
        // A plan that is not valid counts as a failure, too.
        put("/plans/broken?per_minute=1000000000000000");
        put("/away?away=false");
        assert_eq!((get("broken").0, get("broken").0), (200, 429));
        // A plan without a request suspends the customer.
        put("/plans/large?per_minute=0");
        assert_eq!((get("large").0, get("large").0), (429, 429));
        assert!(process.terminate().success());
    }
}
