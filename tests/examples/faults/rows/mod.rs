//! The rows: what is raised, and what is not, with the reason.

use std::pin::Pin;

use crate::{Pace, report::Findings};

mod access;
mod calls;
mod cluster;
mod network;
pub(crate) mod recovery;
mod sentinel;
mod server;
mod stall;

/// A fault, and how it is raised.
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
    "N5" "connections are killed all the time" network::kills;
    "N7" "replies are cut, slow, garbage, of a wrong type" network::nonsense;
    "N9" "eight processes when the server comes back" recovery::processes;
    "N10" "a pool of two, 500 tasks, calls that are held" stall::pool;
    "S1" "a storm of SCRIPT FLUSH" server::flushes;
    "S2" "somebody else's script does not end (BUSY)" server::busy;
    "S3" "out of memory (OOM)" server::out_of_memory;
    "S4" "an eviction policy is set" server::eviction;
    "S5" "LOADING, MASTERDOWN, MISCONF" server::cannot_decide;
    "S6" "the server is a replica (READONLY)" server::read_only;
    "S7" "too few replicas (NOREPLICAS)" server::too_few_replicas;
    "A1" "the password changes while in use" access::password;
    "A2" "a right is missing" access::rights;
    "A3" "the server has too many clients" access::clients;
    "T1" "TLS that cannot be agreed on" access::tls;
    "C1" "cluster: a master is killed" cluster::killed;
    "C2" "cluster: slots move under load" cluster::moves;
    "C3" "cluster: a master stands still" cluster::stalled;
    "H1" "Sentinel: the master is killed" sentinel::killed;
    "H2" "Sentinel: a planned fail-over" sentinel::planned;
    "H3" "Sentinel: the old master wakes up" sentinel::woken;
    "P1" "futures are dropped at any point" calls::dropped;
    "M1" "many distinct keys, the store away" calls::keys;
};

/// Rows of the catalogue that are not raised here.
pub(crate) const NOT_RAISED: &[(&str, &str, &str)] = &[
    (
        "N4",
        "half-open TCP",
        "needs network namespaces; a server that stays silent and is replaced is a test (`breaker`)",
    ),
    ("N6", "packet loss, capped bandwidth", "needs network namespaces and packet filters"),
    ("N8", "a name that moves", "needs a resolver of its own in a network namespace"),
    ("C4", "all seeds gone, another topology", "not written yet; one living seed of four is a test (`cluster`)"),
    ("H4", "a partition of client and old master", "needs network namespaces"),
    ("K1", "the clock jumps forward", "needs a preloaded clock; the algorithms' tests move the clock they are given"),
    ("K2", "the clock jumps back", "as K1"),
    ("K3", "the caller's clock is off", "as K1; the server's clock decides"),
    ("P2", "the runtime ends, a handler panics", "not written yet; a runtime that ends is a test (`breaker`)"),
    ("P3", "a process is killed with leases", "there are no leases"),
    ("M2", "keys without expiry", "looked at in the rows: line 12 of the scoreboard"),
    ("R1", "bad rules are loaded", "there is no rules file"),
];

/// Measures of the scoreboard that other commands take, or nobody yet.
pub(crate) const ELSEWHERE: &[(u8, &str, &str)] = &[
    (
        1,
        "admissions above the bound",
        "`cargo xtask test`: `laws`, `processes`; every decision of four processes against the functions: `linear`",
    ),
    (2, "scripts against the functions", "`cargo xtask test`: `agreement`, `model`"),
    (3, "the wait that is told is exact", "`cargo xtask test`: `laws`"),
    (13, "bytes for each key in Redis", "`cargo xtask bench memory`"),
    (15, "clock jumps", "needs a preloaded clock"),
    (17, "fuzz: executions of each of 6 targets, crashes", "`cargo xtask fuzz`: 5 000 000, 0; the tests run 20 000"),
    (18, "addresses and forwarding headers", "`cargo xtask test`: tollgate-tower"),
    (19, "series of metrics", "`cargo xtask test`: tollgate-tower"),
    (20, "secrets in logs, metrics, errors and MONITOR", "`cargo xtask test`: `secrets`"),
    (21, "rows on several servers", "one server here, the one named above; `REDIS_SERVER` names another"),
    (22, "seeded mutants", "`cargo xtask test`: `mutations`"),
    (23, "flakes in 20 runs", "not yet"),
    (24, "20 minutes of load", "not yet"),
];
