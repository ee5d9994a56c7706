//! Runs redis-benchmark, which measures how fast a server carries out single calls.

use std::{env, path::PathBuf, process::Command};

use crate::server::{Server, Usage};

/// Finds the binary, beside that of the server or on `PATH`.
pub(crate) fn find() -> Option<PathBuf> {
    let server = tollgate_tests::server::find_binary();
    let beside = server.parent().map(PathBuf::from);
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = beside.into_iter().chain(env::split_paths(&path));
    let names =
        |folder: PathBuf| ["redis-benchmark", "valkey-benchmark"].map(|name| folder.join(name));
    let mut files = folders.flat_map(names);
    files.find(|file| file.is_file())
}

/// Stores the results of one run, and the usage of the server during the run.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) per_second: f64,
    pub(crate) calls: u64,
    pub(crate) usage: Usage,
}

impl Run {
    /// Returns the processor time of the server per call in microseconds, including its work for
    /// sockets.
    pub(crate) fn cpu_us(&self) -> f64 {
        self.usage.cpu.as_secs_f64() * 1e6 / self.calls as f64
    }

    /// Returns the time inside the script per call in microseconds, as the server reports it.
    pub(crate) fn inside_us(&self) -> f64 {
        self.usage.micros("evalsha") as f64 / self.calls as f64
    }
}

/// Sends `words` over 50 connections, with `pipeline` calls in flight on each.
///
/// # Panics
///
/// When redis-benchmark fails, or makes fewer calls than requested: then there is no figure to
/// compare with.
pub(crate) fn run(
    server: &Server,
    pipeline: u32,
    calls: u64,
    keys: usize,
    words: &[String],
) -> Run {
    let binary = find().expect("redis-benchmark is installed");
    let before = server.usage();
    let numbers = [
        server.port().to_string(),
        calls.to_string(),
        pipeline.to_string(),
        keys.to_string(),
    ];
    let [port, count, pipeline, keys] = &numbers;
    let output = Command::new(binary)
        .args([
            "-h",
            "127.0.0.1",
            "-p",
            port,
            "-c",
            "50",
            "-n",
            count,
            "-P",
            pipeline,
            "-r",
            keys,
            "--csv",
        ])
        .args(words)
        .output()
        .expect("redis-benchmark starts");
    let usage = server.usage().since(&before);
    let said = String::from_utf8_lossy(&output.stdout);
    let made = usage.calls("evalsha");
    // redis-benchmark rounds up to whole pipelines, so it can make more calls than requested.
    assert!(
        output.status.success() && made >= calls,
        "redis-benchmark made {made} of {calls} calls: {said}"
    );
    Run {
        per_second: per_second(&said).expect("the output of redis-benchmark has a rate"),
        calls: made,
        usage,
    }
}

/// Reads the rate from the last line: `"test","rps","avg_latency_ms",…` and five more columns.
///
/// The columns are counted from the end, because the name of the test can contain commas.
fn per_second(csv: &str) -> Option<f64> {
    csv.lines().last()?.rsplit("\",\"").nth(6)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_read_whatever_the_name_of_the_test_contains() {
        let csv = "\"test\",\"rps\",\"avg_latency_ms\",\"min\",\"p50\",\"p95\",\"p99\",\"max\"\n\
                   \"SET a,b \"\",\"\" c\",\"1000000.00\",\"0.1\",\"0.1\",\"0.1\",\"0.1\",\"0.1\",\"0.2\"\n";
        assert_eq!(per_second(csv), Some(1_000_000.0));
    }
}
