//! The runs of the page.

mod eight;
mod one;
mod trouble;

use crate::{
    controller::Kind,
    line::Route,
    page::Part,
    process::Client,
    results::Results,
    time::{MS, Nanos, SECOND},
    world::{Server, World},
};

/// The server of most runs: the times that were measured for a token bucket.
const USUAL: Server = Server { call: 10_000, key: 1_700, jitter: 0.2 };

/// The shortest round trip: loopback, with the time that a sleeping core takes to wake.
const NEAR: Nanos = 50_000;

/// Runs everything.
pub(crate) fn all() -> Vec<Part> {
    let mut parts = vec![one::distances(), eight::together(), eight::coming_and_going()];
    parts.extend(trouble::all());
    parts
}

/// Returns a process that asks during the whole run.
fn client(callers: usize, route: Route) -> Client {
    Client { callers, route, from: 0, until: Nanos::MAX }
}

/// Runs clients for some seconds, of which the first one does not count.
fn run(server: Server, clients: Vec<Client>, kind: Kind, seconds: Nanos) -> Results {
    World { server, clients, kind, from: SECOND, until: (1 + seconds) * SECOND }.run()
}

/// Returns the decisions per second that one process could reach.
fn ideal(server: Server, callers: usize, round_trip: Nanos) -> f64 {
    // An empty system: a call with few keys, and the time of the process.
    let empty = round_trip + server.call + server.key + 900;
    let processes = SECOND as f64 / 900.0;
    (callers as f64 * SECOND as f64 / empty as f64).min(server.capacity()).min(processes)
}

/// Formats a round trip in milliseconds.
fn trip(round_trip: Nanos) -> String {
    format!("{}", round_trip as f64 / MS as f64)
}
