//! The rows: the faults that are raised, and those that are not, with the reason.
//!
//! To add one:
//!
//! 1. Write `pub(super) async fn NAME(pace: Pace) -> Findings` in a file of this folder. Start
//!    servers with `tollgate-tests`, wait for conditions, and report each figure with its target:
//!    `findings.ms(…).at_most(…)`. A scene that a test needs too belongs into `tests/support`.
//! 2. Enter the row into `ALL`: an identifier, what happens, the function. A row that needs a
//!    network namespace also stands in `ISOLATED`.
//! 3. Run it, short and then in full, also on the newer servers: `cargo xtask faults --quick N1`,
//!    `cargo xtask faults N1`, `cargo xtask faults --server valkey8 N1`.
//! 4. If the row finds a mistake, the mend has a test of its own, in `tests/tests/store` or where
//!    the mistake was.
//! 5. Put its lines into `docs/contributors/results/faults.txt`, and a row into
//!    `docs/contributors/reliability.md`.

use std::pin::Pin;

use crate::{findings::Findings, pace::Pace};

mod access;
mod apart;
mod calls;
mod cluster;
pub(crate) mod crowd;
mod endless;
mod floods;
mod network;
pub(crate) mod outage;
pub(crate) mod permits;
mod postgres;
pub(crate) mod recovery;
mod runtime;
pub(crate) mod sentinel;
mod server;
mod soak;
mod stall;

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
    "N1" "the server is not there at the start" recovery::late;
    "N2" "the server is killed and comes back empty" recovery::killed;
    "N3" "the server stands still" stall::server;
    "N4" "the other end of a connection is gone without a word" apart::half_open;
    "N5" "connections are killed all the time" network::kills;
    "N6" "packets are lost, the line is narrow" apart::loss;
    "N7" "replies are cut, slow, garbage, of a wrong type" network::nonsense;
    "N8" "a name moves to another server" apart::name;
    "N9" "eight processes when the server comes back" recovery::processes;
    "N10" "a pool of two, 500 tasks, calls that are held" stall::pool;
    "N11" "a reply of 2 GB" endless::text;
    "N12" "a line without an end" endless::line;
    "N13" "an error without an end" endless::error;
    "N14" "a big number without an end" endless::big_number;
    "N15" "an array of a billion values" endless::array;
    "N16" "lists in lists without an end" endless::lists;
    "N17" "a map of a billion values" endless::map;
    "N18" "a push of a billion values" endless::push;
    "N19" "a billion attributes" endless::attributes;
    "N20" "answers and pushes that nobody asked for" endless::unasked;
    "S2" "somebody else's script does not end (BUSY)" server::busy;
    "S3" "out of memory (OOM)" server::out_of_memory;
    "S4" "an eviction policy is set" server::eviction;
    "S5" "LOADING, MASTERDOWN, MISCONF" server::cannot_decide;
    "S6" "the server is a replica (READONLY)" server::read_only;
    "S7" "too few replicas (NOREPLICAS)" server::too_few_replicas;
    "A1" "the password changes while in use" access::password;
    "A3" "the server has too many clients" access::clients;
    "T1" "TLS that cannot be agreed on" access::tls;
    "C1" "cluster: a master is killed" cluster::killed;
    "C3" "cluster: a master stands still" cluster::stalled;
    "C4" "cluster: all servers are replaced" cluster::renewed;
    "H1" "Sentinel: the master is killed" sentinel::killed;
    "H2" "Sentinel: a planned fail-over" sentinel::planned;
    "H4" "Sentinel: client and old master are cut off" sentinel::partition;
    "P1" "futures are dropped at any point" calls::dropped;
    "P2" "the runtime ends, tasks panic, a worker is blocked" runtime::ends;
    "E11" "a flood of fresh keys out of one network" floods::one_network;
    "E12" "replicas come and go, the server gone at each number" outage::replicas;
    "M1" "many distinct keys, the store away" calls::keys;
    "W1" "permits: one of three replicas is killed with half of them" permits::killed;
    "W2" "permits: one stands still for longer than their life" permits::stopped;
    "W3" "permits: the server goes away and comes back empty" permits::away;
    "W5" "permits: the server's clock jumps" permits::server_clock;
    "W6" "permits: the replicas' clocks jump" permits::replica_clocks;
    "W17" "permits: the limit is lowered under load" permits::lowered;
    "W18" "permits: an older copy of their state takes over" permits::older_copy;
    "W20" "waiting callers of two processes share the turns" crowd::shared;
    "D1" "PostgreSQL: the server is killed and comes back" postgres::killed;
    "D2" "PostgreSQL: the primary is killed, its synchronous standby promoted" postgres::promoted;
    "D3" "PostgreSQL: another program locks the table" postgres::locked;
    "D4" "PostgreSQL: an administrator ends all connections" postgres::ended;
    "D5" "PostgreSQL: serialization failures" postgres::timeouts;
    "D6" "PostgreSQL: a wrong password, a missing table, a standby …" postgres::refused;
    "D7" "PostgreSQL: statement_timeout, in a pool of the application" postgres::cancelled;
    "D8" "PostgreSQL: sessions that rest are ended" postgres::idle;
    "D9" "PostgreSQL: all connections of a shared pool are in use" postgres::full;
    "D10" "PostgreSQL: max_connections is reached" postgres::crowded;
    "D11" "PostgreSQL: no fault, an hour of changes" postgres::hour;
};

/// Load for longer than the rows take together.
pub(crate) const SOAK: Row = Row {
    id: "L1",
    fault: "load for a long time",
    raise: |pace| Box::pin(soak::load(pace)),
};

/// Rows that need namespaces of their own, see
/// [`network_namespace`](tollgate_tests::network_namespace).
pub(crate) const ISOLATED: &[&str] = &["N4", "N6", "N8", "H4"];
