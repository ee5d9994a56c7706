//! The program `tollgate-envoy`, which Envoy asks.

use std::{
    env, fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
};

use tempfile::TempDir;
use tollgate_tests::Process;

/// A running service. Dropping the value ends it.
#[derive(Debug)]
pub(crate) struct RateLimitService {
    process: Process,
    directory: TempDir,
}

impl RateLimitService {
    /// Starts the program with these rules and options, and waits until it serves.
    ///
    /// # Panics
    ///
    /// When it does not start. The message contains its output.
    pub(crate) fn start(rules: &str, options: &[&str]) -> Self {
        Self::start_as(Command::new(program()), rules, options)
    }

    /// Starts the program with the files of this directory, in which `current` is a link to that of the rules.
    ///
    /// # Panics
    ///
    /// When it does not start. The message contains its output.
    pub(crate) fn start_at(directory: TempDir, options: &[&str]) -> Self {
        let root = directory.path().join("current");
        let root = root.to_str().expect("a temporary directory has a plain path").to_owned();
        Self::serve(
            Command::new(program()),
            directory,
            &[&["--runtime-root", &root, "--runtime-subdirectory", "ratelimit"], options].concat(),
        )
    }

    /// Starts the program with these rules, options and descriptors.
    ///
    /// # Panics
    ///
    /// When it does not start. The message contains its output.
    pub(crate) fn start_with_descriptors(rules: &str, options: &[&str], descriptors: u32) -> Self {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("ulimit -n {descriptors}; exec \"$@\""), "sh"]).arg(program());
        Self::start_as(shell, rules, options)
    }

    fn start_as(command: Command, rules: &str, options: &[&str]) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        let path = directory.path().join("rules.yaml");
        fs::write(&path, rules).expect("the directory is ours");
        let path = path.to_str().expect("a temporary directory has a plain path").to_owned();
        Self::serve(command, directory, &[&["--rules", &path], options].concat())
    }

    fn serve(mut command: Command, directory: TempDir, options: &[&str]) -> Self {
        // Variables of the caller must not change the settings.
        command.env_clear();
        for part in ["--host", "--grpc-host", "--debug-host"] {
            command.args([part, "127.0.0.1"]);
        }
        for part in ["--port", "--grpc-port", "--debug-port"] {
            command.args([part, "0"]);
        }
        command.args(["--use-prometheus", "--prometheus-addr", "127.0.0.1:0"]).args(options);
        Self { process: Process::start(command, "gRPC: "), directory }
    }

    /// Returns the directory of its files.
    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Returns the number of its process.
    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
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

fn program() -> PathBuf {
    env::current_exe().expect("this program has a path").with_file_name("tollgate-envoy")
}
