//! Two processes that share their limits at one Redis.

use std::{env, process::Command};

use serde_json::json;
use tollgate_tests::{Process, RedisServer};

use crate::{case::Line, clients::Clients, servers::replica};

pub(crate) fn run(clients: &Clients, is_quick: bool) -> Vec<Line> {
    let redis = RedisServer::start();
    let replicas: Vec<_> = (0..2).map(|_| start(&redis.url())).collect();
    let addresses: Vec<_> = replicas.iter().map(address).collect();
    let seconds = if is_quick { 5 } else { 60 };
    clients.run(
        "replicas.py",
        &json!({"replicas": addresses, "seconds": seconds}),
    )
}

fn start(url: &str) -> Process {
    let mut command = Command::new(env::current_exe().expect("this program has a path"));
    command.args([replica::PART, url]);
    Process::start(command, "Listening on")
}

fn address(replica: &Process) -> String {
    replica
        .ready_line()
        .trim_start_matches("Listening on ")
        .to_owned()
}
