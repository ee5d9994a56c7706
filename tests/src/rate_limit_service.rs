//! The program `tollgate-envoy`, which Envoy asks.

use std::{fs, io, net::SocketAddr, path::PathBuf, process::Command};

use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::{Process, process};

/// A running service. Dropping the value ends it.
///
/// The program lies in the build of the one that starts it: build both with one command.
#[derive(Debug)]
pub struct RateLimitService {
    process: Process,
    _directory: TempDir,
}

impl RateLimitService {
    /// Starts the program with these rules and options, and waits until it serves.
    ///
    /// # Panics
    ///
    /// When it does not start. The message contains its output.
    #[must_use]
    pub fn start(rules: &str, options: &[&str]) -> Self {
        Self::start_as(Command::new(program()), rules, options)
    }

    /// Starts the program with these rules, options and descriptors.
    ///
    /// # Panics
    ///
    /// When it does not start. The message contains its output.
    #[must_use]
    pub fn start_with_descriptors(rules: &str, options: &[&str], descriptors: u32) -> Self {
        let mut shell = Command::new("sh");
        shell
            .args(["-c", &format!("ulimit -n {descriptors}; exec \"$@\""), "sh"])
            .arg(program());
        Self::start_as(shell, rules, options)
    }

    fn start_as(command: Command, rules: &str, options: &[&str]) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        let path = directory.path().join("rules.yaml");
        fs::write(&path, rules).expect("the directory is ours");
        let path = path
            .to_str()
            .expect("a temporary directory has a plain path")
            .to_owned();
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
        command
            .args(["--use-prometheus", "--prometheus-addr", "127.0.0.1:0"])
            .args(options);
        Self {
            process: Process::start(command, "gRPC: "),
            _directory: directory,
        }
    }

    /// Returns its process, for its output and its number.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Returns the number of its process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Returns where gRPC is served.
    ///
    /// # Panics
    ///
    /// When it is not served at an address.
    #[must_use]
    pub fn grpc(&self) -> SocketAddr {
        self.place("gRPC")
    }

    /// Returns where a page is served.
    ///
    /// # Panics
    ///
    /// When the program has not printed the address.
    #[must_use]
    pub fn place(&self, part: &str) -> SocketAddr {
        let output = self.process.output();
        let found = output
            .lines()
            .find_map(|line| line.strip_prefix(part)?.strip_prefix(": ")?.parse().ok());
        found.unwrap_or_else(|| panic!("the address of {part} is not in: {output}"))
    }

    /// Returns a counter of the debug pages, such as `ratelimit_server.accept_error`. One that is
    /// not shown is 0.
    ///
    /// # Panics
    ///
    /// When the page cannot be read.
    pub async fn counter(&self, name: &str) -> u64 {
        let page = get(self.place("debug pages"), "/stats")
            .await
            .expect("the page is served");
        let value = page
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        value.map_or(0, |value| value.parse().expect("a counter is a number"))
    }
}

/// Asks for a page over HTTP/1.1, and returns the whole answer.
///
/// # Errors
///
/// When the server cannot be reached, or ends the connection with a reset.
pub async fn get(server: SocketAddr, path: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(server).await?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

/// Opens connections of HTTP/2 that make no call.
///
/// # Errors
///
/// When a connection cannot be opened.
pub async fn idle_connections(server: SocketAddr, count: usize) -> io::Result<Vec<TcpStream>> {
    // The preface, and a frame of settings without settings.
    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    let mut all = Vec::new();
    for _ in 0..count {
        let mut stream = TcpStream::connect(server).await?;
        stream.write_all(PREFACE).await?;
        all.push(stream);
    }
    Ok(all)
}

fn program() -> PathBuf {
    process::built().join("tollgate-envoy")
}
