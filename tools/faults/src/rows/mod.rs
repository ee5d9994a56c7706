//! The rows: faults whose cost is a figure. What a fault may not change, whoever measures, is a test.
//!
//! To add one:
//!
//! 1. Write `pub(super) async fn NAME(pace: Pace) -> Findings` in a file of this folder. Start
//!    servers with `tollgate-tests`, wait for conditions, assert what has to hold on every machine,
//!    and report each figure with its target: `findings.at_most(…)`. A scene that a test needs too
//!    belongs into `tests/support`.
//! 2. Enter the row into `ALL`: an identifier, what happens, the function. A row that needs a
//!    network namespace also stands in `ISOLATED`.
//! 3. Run it, short and then in full, also on the newer servers: `cargo xtask faults --quick N1`,
//!    `cargo xtask faults N1`, `cargo xtask faults --server valkey8 N1`.
//! 4. If the row finds a mistake, the mend has a test of its own, in `tests/tests/store` or where
//!    the mistake was.
//! 5. Put its lines into `docs/contributors/results/faults.txt`, and a row into
//!    `docs/contributors/reliability.md`.

use std::pin::Pin;

use crate::findings::Findings;

mod away;
mod crowd;
mod fail_over;
mod growth;
mod network;
mod postgres;

/// The number of repetitions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    pub(crate) is_quick: bool,
}

impl Pace {
    /// Returns one value for a full run, the other for a quick one.
    fn of<T>(self, full: T, quick: T) -> T {
        if self.is_quick { quick } else { full }
    }
}

/// A fault, and the function that raises it.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) id: &'static str,
    pub(crate) fault: &'static str,
    pub(crate) raise: fn(Pace) -> Pin<Box<dyn Future<Output = Findings>>>,
}

macro_rules! rows {
    ($($id:literal $fault:literal $raise:path;)*) => {
        &[$(Row { id: $id, fault: $fault, raise: |pace| Box::pin($raise(pace)) }),*]
    };
}

pub(crate) const ALL: &[Row] = rows! {
    "N1" "the server is not there at the start" away::late;
    "N2" "the server is killed and comes back empty" away::killed;
    "N3" "the server stands still" away::stalled;
    "N4" "the other end of a connection is gone without a word" network::half_open;
    "N5" "connections are killed all the time" away::connections;
    "N6" "packets are lost, the line is narrow" network::loss;
    "N8" "a name moves to another server" network::name;
    "N11" "replies without an end" growth::endless;
    "S1" "the server refuses" away::refusing;
    "C1" "cluster: a master is killed" fail_over::cluster;
    "H1" "Sentinel: the master is killed" fail_over::sentinels;
    "H4" "Sentinel: client and old master are cut off" fail_over::partition;
    "E11" "a flood of fresh keys out of one network" growth::one_network;
    "M1" "many distinct keys, the store away" growth::keys;
    "W20" "waiting callers of two processes share the turns" crowd::shared;
    "D1" "PostgreSQL: the server is killed and comes back" postgres::killed;
    "D2" "PostgreSQL: the primary is killed, its synchronous standby promoted" postgres::promoted;
    "D3" "PostgreSQL: another program locks the table" postgres::locked;
    "D4" "PostgreSQL: an administrator ends all connections" postgres::ended;
    "D5" "PostgreSQL: serialization failures" postgres::conflicts;
    "D7" "PostgreSQL: statement_timeout, in a pool of the application" postgres::cancelled;
    "D8" "PostgreSQL: sessions that rest are ended" postgres::idle;
    "D10" "PostgreSQL: max_connections is reached" postgres::crowded;
};

/// Load for longer than the rows take together.
pub(crate) const SOAK: Row = Row {
    id: "L1",
    fault: "load for a long time",
    raise: |pace| Box::pin(growth::soak(pace)),
};

/// Rows that need namespaces of their own, see
/// [`network_namespace`](tollgate_tests::network_namespace).
pub(crate) const ISOLATED: &[&str] = &["N4", "N6", "N8", "H4"];

/// Takes the URL of a server.
type Part = fn(&str);

/// The parts that this program plays when a row starts it as another process.
pub(crate) const PARTS: &[(&str, Part)] = &[
    (crowd::PROCESS, tollgate_test_support::run_crowd),
    (fail_over::ISOLATED, fail_over::isolated),
];
