//! States in which a server answers and refuses to decide.

use std::{thread, time::Duration};

use crate::{server::RedisServer, wait};

const LIMIT: Duration = Duration::from_secs(60);

/// A state in which a server answers and refuses to decide.
#[derive(Clone, Copy, Debug)]
pub struct RefusingState {
    /// The word of the error kind.
    pub reason: &'static str,
    enter: fn(&RedisServer),
    leave: fn(&RedisServer),
}

/// All states.
pub const ALL: &[RefusingState] = &[
    OUT_OF_MEMORY,
    TOO_FEW_REPLICAS,
    READ_ONLY,
    MASTER_DOWN,
    SAVING_FAILS,
    BUSY,
    LOADING,
    TOO_MANY_CLIENTS,
];

/// There is no memory for one more key.
pub const OUT_OF_MEMORY: RefusingState = RefusingState {
    reason: "oom",
    enter: |server| set(server, "maxmemory", "1"),
    leave: |server| set(server, "maxmemory", "0"),
};

/// The server requires a replica and has none.
pub const TOO_FEW_REPLICAS: RefusingState = RefusingState {
    reason: "noreplicas",
    enter: |server| set(server, "min-replicas-to-write", "1"),
    leave: |server| set(server, "min-replicas-to-write", "0"),
};

/// The server is a replica.
pub const READ_ONLY: RefusingState = RefusingState {
    reason: "readonly",
    enter: |server| follow(server, &["127.0.0.1", "1"]),
    leave: lead,
};

/// The server is a replica that lost its master and serves no stale data.
pub const MASTER_DOWN: RefusingState = RefusingState {
    reason: "masterdown",
    enter: |server| {
        follow(server, &["127.0.0.1", "1"]);
        set(server, "replica-serve-stale-data", "no");
    },
    leave: |server| {
        lead(server);
        set(server, "replica-serve-stale-data", "yes");
    },
};

/// The server cannot write its dump.
pub const SAVING_FAILS: RefusingState = RefusingState {
    reason: "misconf",
    enter: |server| {
        // The dump is written to another file and cannot replace a directory.
        let dump = server.directory().join("dump.rdb");
        std::fs::create_dir(&dump).expect("it is our directory");
        std::fs::write(dump.join("taken"), "").expect("it is our directory");
        set(server, "save", "3600 1");
        server.command(&["BGSAVE"]);
        wait::until("saving to fail", LIMIT, || {
            server.info("persistence")["rdb_last_bgsave_status"] == "err"
        });
    },
    leave: |server| set(server, "save", ""),
};

/// The server runs an endless script of another client.
pub const BUSY: RefusingState = RefusingState {
    reason: "busy",
    enter: |server| {
        set(server, "lua-time-limit", "50");
        let mut other = server.client();
        thread::spawn(move || other.command(&["EVAL", "while true do end", "0"]).map(drop));
    },
    leave: |server| {
        wait::until("the script to be killed", LIMIT, || {
            !server.command(&["SCRIPT", "KILL"]).is_error()
        });
    },
};

/// The server loads its data, for more than ten seconds. Leaving this state empties it.
pub const LOADING: RefusingState = RefusingState {
    reason: "loading",
    enter: |server| {
        server.command(&["DEBUG", "POPULATE", "10000", "filler", "100"]);
        // In microseconds per key: 10 s in all.
        set(server, "key-load-delay", "1000");
        let mut other = server.client();
        thread::spawn(move || other.command(&["DEBUG", "RELOAD"]).map(drop));
    },
    leave: RedisServer::restart,
};

/// The server has as many clients as it allows. The one that is left sends the commands of this
/// module.
pub const TOO_MANY_CLIENTS: RefusingState = RefusingState {
    reason: "maxclients",
    enter: |server| {
        set(server, "maxclients", "1");
        server.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    },
    leave: |server| set(server, "maxclients", "100"),
};

impl RefusingState {
    /// Starts a server that can enter all of these states.
    #[must_use]
    pub fn server() -> RedisServer {
        RedisServer::builder()
            .arg_since_7("--enable-debug-command", "yes")
            .arg_since_7("--loading-process-events-interval-bytes", "1024")
            .start()
    }

    /// Makes the server enter the state, which may take a moment.
    ///
    /// # Panics
    ///
    /// When the server refuses.
    pub fn enter(&self, server: &RedisServer) {
        (self.enter)(server);
    }

    /// Makes the server leave the state.
    ///
    /// # Panics
    ///
    /// When the server refuses.
    pub fn leave(&self, server: &RedisServer) {
        (self.leave)(server);
    }
}

fn set(server: &RedisServer, name: &str, value: &str) {
    let reply = server.command(&["CONFIG", "SET", name, value]);
    assert!(!reply.is_error(), "{name} {value}: {}", reply.text());
}

fn follow(server: &RedisServer, master: &[&str]) {
    let reply = server.command(&[&["REPLICAOF"], master].concat());
    assert!(!reply.is_error(), "{}", reply.text());
}

fn lead(server: &RedisServer) {
    follow(server, &["NO", "ONE"]);
}
