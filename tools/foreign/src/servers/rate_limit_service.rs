//! The program `tollgate-envoy`, which Envoy asks.

use std::{env, fs, net::SocketAddr, process::Command};

use tempfile::TempDir;
use tollgate_tests::Process;

/// A running service. Dropping the value ends it.
#[derive(Debug)]
pub(crate) struct RateLimitService {
    process: Process,
    _directory: TempDir,
}

impl RateLimitService {
    /// Starts the program with these rules and options, and waits until it serves.
    ///
    /// # Panics
    ///
    /// When it does not start. The message contains its output.
    pub(crate) fn start(rules: &str, options: &[&str]) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        let path = directory.path().join("rules.yaml");
        fs::write(&path, rules).expect("the directory is ours");
        let this = env::current_exe().expect("this program has a path");
        let mut command = Command::new(this.with_file_name("tollgate-envoy"));
        // Variables of the caller must not change the settings.
        command.env_clear().arg("--rules").arg(&path);
        for part in ["--host", "--grpc-host", "--debug-host"] {
            command.args([part, "127.0.0.1"]);
        }
        for part in ["--port", "--grpc-port", "--debug-port"] {
            command.args([part, "0"]);
        }
        command.args(["--use-prometheus", "--prometheus-addr", "127.0.0.1:0"]).args(options);
        Self { process: Process::start(command, "gRPC: "), _directory: directory }
    }

    /// Returns where gRPC is served.
    pub(crate) fn grpc(&self) -> SocketAddr {
        self.place("gRPC").parse().expect("the program prints an address")
    }

    /// Returns where a page is served.
    pub(crate) fn place(&self, part: &str) -> String {
        let output = self.process.output();
        let found = output.lines().find_map(|line| line.strip_prefix(part)?.strip_prefix(": "));
        found.unwrap_or_else(|| panic!("the place of {part} is not in: {output}")).to_owned()
    }
}
