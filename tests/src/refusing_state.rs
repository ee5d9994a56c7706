//! Servers that answer and cannot decide.

use std::{thread, time::Duration};

use crate::{server::RedisServer, wait};

const LIMIT: Duration = Duration::from_secs(20);

/// A way in which a server answers and cannot decide.
#[derive(Clone, Copy, Debug)]
pub struct RefusingState {
    /// The word that errors of this kind are counted by.
    pub reason: &'static str,
    enter: fn(&RedisServer),
    leave: fn(&RedisServer),
}

/// All of them.
pub const ALL: &[RefusingState] =
    &[OUT_OF_MEMORY, TOO_FEW_REPLICAS, READ_ONLY, MASTER_DOWN, SAVING_FAILS, BUSY, LOADING, TOO_MANY_CLIENTS];

/// There is no memory for one more key.
pub const OUT_OF_MEMORY: RefusingState = RefusingState {
    reason: "oom",
    enter: |server| set(server, "maxmemory", "1"),
    leave: |server| set(server, "maxmemory", "0"),
};

/// It wants a replica and has none.
pub const TOO_FEW_REPLICAS: RefusingState = RefusingState {
    reason: "noreplicas",
    enter: |server| set(server, "min-replicas-to-write", "1"),
    leave: |server| set(server, "min-replicas-to-write", "0"),
};

/// It is a replica.
pub const READ_ONLY: RefusingState =
    RefusingState { reason: "readonly", enter: |server| follow(server, &["127.0.0.1", "1"]), leave: lead };

/// It is a replica, lost its master and shows nothing old.
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

/// It cannot write its dump.
pub const SAVING_FAILS: RefusingState = RefusingState {
    reason: "misconf",
    enter: |server| {
        // The dump is written beside, and cannot take the place of a directory.
        let dump = server.directory().join("dump.rdb");
        std::fs::create_dir(&dump).expect("it is our directory");
        std::fs::write(dump.join("taken"), "").expect("it is our directory");
        set(server, "save", "3600 1");
        server.command(&["BGSAVE"]);
        wait::until("saving to fail", LIMIT, || server.info("persistence")["rdb_last_bgsave_status"] == "err");
    },
    leave: |server| set(server, "save", ""),
};

/// It runs somebody else's script, without end.
pub const BUSY: RefusingState = RefusingState {
    reason: "busy",
    enter: |server| {
        set(server, "busy-reply-threshold", "50");
        let mut other = server.client();
        thread::spawn(move || other.command(&["EVAL", "while true do end", "0"]).map(drop));
    },
    leave: |server| wait::until("the script to be killed", LIMIT, || !server.command(&["SCRIPT", "KILL"]).is_error()),
};

/// It loads its data, for ten seconds and more; it forgets all when that is relieved.
pub const LOADING: RefusingState = RefusingState {
    reason: "loading",
    enter: |server| {
        server.command(&["DEBUG", "POPULATE", "10000", "filler", "100"]);
        // Of the key: 10 s in all. It is told while it loads, and told to make haste at the end.
        set(server, "key-load-delay", "1000");
        let mut other = server.client();
        thread::spawn(move || other.command(&["DEBUG", "RELOAD"]).map(drop));
    },
    leave: RedisServer::restart,
};

/// It has all the clients it may have: the one left gives these commands.
pub const TOO_MANY_CLIENTS: RefusingState = RefusingState {
    reason: "maxclients",
    enter: |server| {
        set(server, "maxclients", "1");
        server.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    },
    leave: |server| set(server, "maxclients", "100"),
};

impl RefusingState {
    /// A server that all of this can be done to.
    #[must_use]
    pub fn server() -> RedisServer {
        RedisServer::builder()
            .arg("--enable-debug-command", "yes")
            .arg("--loading-process-events-interval-bytes", "1024")
            .start()
    }

    /// Makes the server state; that may take it a moment.
    ///
    /// # Panics
    ///
    /// When the server refuses.
    pub fn enter(&self, server: &RedisServer) {
        (self.enter)(server);
    }

    /// Makes the server fit again.
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
