//! Starts the Redis server of a section on its own core, and reads its usage.

use std::{collections::BTreeMap, time::Duration};

use tollgate_tests::RedisServer;

use crate::machine;

/// Runs a server that only one section uses.
#[derive(Debug)]
pub(crate) struct Server(RedisServer);

/// Stores the resources that a server has used since it started.
#[derive(Clone, Debug, Default)]
pub(crate) struct Usage {
    /// Processor time of the whole process.
    pub(crate) cpu: Duration,
    /// Calls of each command, and the microseconds inside it.
    commands: BTreeMap<String, (u64, u64)>,
}

impl Server {
    pub(crate) fn start() -> Self {
        Self(machine::on_the_server_core(RedisServer::start))
    }

    /// Starts a server that loads `module`. The module needs the libraries in the folder
    /// `libraries`.
    pub(crate) fn with_module(module: &str, libraries: &str) -> Self {
        let server = RedisServer::builder()
            .arg("--loadmodule", module)
            .env("LD_LIBRARY_PATH", libraries);
        Self(machine::on_the_server_core(|| server.start()))
    }

    pub(crate) fn url(&self) -> String {
        self.0.url()
    }

    pub(crate) fn port(&self) -> u16 {
        self.0.port()
    }

    /// Sends one command, and returns its reply. The reply can be an error.
    pub(crate) fn command<A: AsRef<[u8]>>(&self, words: &[A]) -> tollgate_tests::Reply {
        self.0.command(words)
    }

    /// Sends commands in one pipeline, and returns their replies.
    ///
    /// # Panics
    ///
    /// When the server refuses one of the commands.
    pub(crate) fn all(&self, commands: &[Vec<Vec<u8>>]) -> Vec<tollgate_tests::Reply> {
        let replies = self.0.pipeline(commands);
        if let Some(refusal) = replies.iter().find(|reply| reply.is_error()) {
            panic!("the server refused: {}", refusal.text());
        }
        replies
    }

    /// Loads a script into the server, and returns its SHA-1.
    pub(crate) fn load(&self, script: &str) -> String {
        let reply = self.command(&["SCRIPT", "LOAD", script]);
        assert!(!reply.is_error(), "{}", reply.text());
        reply.text()
    }

    /// Deletes all keys. Scripts stay loaded.
    pub(crate) fn flush(&self) {
        self.command(&["FLUSHALL"]);
    }

    /// Reads the usage of the server so far.
    pub(crate) fn usage(&self) -> Usage {
        let cpu = self.0.info("cpu");
        let seconds = |name: &str| {
            cpu.get(name)
                .and_then(|it| it.parse::<f64>().ok())
                .unwrap_or(0.0)
        };
        let commands = self.0.info("commandstats");
        let commands = commands.iter().filter_map(|(name, stat)| {
            let number = |field: &str| {
                stat.split(',').find_map(|pair| {
                    pair.strip_prefix(field)?
                        .strip_prefix('=')?
                        .parse::<u64>()
                        .ok()
                })
            };
            Some((
                name.strip_prefix("cmdstat_")?.to_owned(),
                (number("calls")?, number("usec")?),
            ))
        });
        Usage {
            cpu: Duration::from_secs_f64(seconds("used_cpu_sys") + seconds("used_cpu_user")),
            commands: commands.collect(),
        }
    }
}

impl Usage {
    /// Returns the difference to an earlier usage.
    pub(crate) fn since(&self, before: &Self) -> Self {
        let less = |(name, &(calls, usec)): (&String, &(u64, u64))| {
            let (calls_before, usec_before) =
                before.commands.get(name).copied().unwrap_or_default();
            (name.clone(), (calls - calls_before, usec - usec_before))
        };
        Self {
            cpu: self.cpu.saturating_sub(before.cpu),
            commands: self.commands.iter().map(less).collect(),
        }
    }

    /// Returns how often a command was called.
    pub(crate) fn calls(&self, command: &str) -> u64 {
        self.commands.get(command).map_or(0, |(calls, _)| *calls)
    }

    /// Returns the microseconds inside a command. They include the commands that a script called.
    pub(crate) fn micros(&self, command: &str) -> u64 {
        self.commands.get(command).map_or(0, |(_, usec)| *usec)
    }

    /// Returns how many commands the scripts called.
    pub(crate) fn calls_inside(&self) -> u64 {
        let outside = [
            "evalsha",
            "eval",
            "info",
            "ping",
            "script|load",
            "flushall",
            "config|get",
            "memory|usage",
        ];
        self.commands
            .iter()
            .filter(|(name, _)| !outside.contains(&name.as_str()))
            .map(|(_, (calls, _))| calls)
            .sum()
    }
}
