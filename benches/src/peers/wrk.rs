//! wrk: a browser's worth of connections.

use std::{
    env, fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{keys, machine};

/// The binary.
pub(crate) fn find() -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).map(|folder| folder.join("wrk")).find(|file| file.is_file())
}

/// What one run saw.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    pub(crate) per_second: f64,
    pub(crate) p99_us: f64,
    pub(crate) requests: u64,
    /// Answers other than 2xx and 3xx.
    pub(crate) refused: u64,
}

/// Writes the script by which each request names one of so many callers in `x-api-key`.
pub(crate) fn write_script(folder: &Path, callers: usize) -> PathBuf {
    let path = folder.join(format!("{callers}.lua"));
    let first = keys::key(0);
    let width = first.len() - "customer:".len();
    let script = format!(
        "local requests = {{}}\n\
         init = function()\n  \
           for caller = 0, {callers} - 1 do\n    \
             local key = string.format('customer:%0{width}d', caller)\n    \
             requests[caller] = wrk.format('GET', '/', {{ ['x-api-key'] = key }})\n  \
           end\n\
         end\n\
         request = function()\n  \
           return requests[math.random(0, {callers} - 1)]\n\
         end\n"
    );
    fs::write(&path, script).expect("a script can be written");
    path
}

/// 64 connections of one thread, on the core of the servers, for whole seconds.
///
/// # Panics
///
/// When it does not run, or sees errors other than answers.
pub(crate) fn run(server: SocketAddr, script: &Path, seconds: u64) -> Run {
    let mut command = Command::new(find().expect("looked for before"));
    command.args(["-t", "1", "-c", "64", "--latency", "-d", &format!("{seconds}s"), "-s"]).arg(script);
    command.arg(format!("http://{server}/"));
    // Started there, it stays there; this thread only waits.
    let output = machine::on_the_server_core(|| command.output()).expect("wrk starts");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && !said.contains("Socket errors"), "wrk: {said}");
    read(&said).unwrap_or_else(|| panic!("wrk said: {said}"))
}

fn read(said: &str) -> Option<Run> {
    let after = |label: &str| said.lines().find_map(|line| line.trim().strip_prefix(label)).map(str::trim);
    let requests = said.lines().find_map(|line| line.trim().split_once(" requests in "))?;
    Some(Run {
        per_second: after("Requests/sec:")?.parse().ok()?,
        p99_us: micros(after("99%")?)?,
        requests: requests.0.parse().ok()?,
        refused: after("Non-2xx or 3xx responses:").map_or(Some(0), |it| it.parse().ok())?,
    })
}

/// `812.00us`, `1.03ms`, `1.20s`.
fn micros(text: &str) -> Option<f64> {
    let units = [("us", 1.0), ("ms", 1e3), ("s", 1e6)];
    units.iter().find_map(|(unit, factor)| Some(text.strip_suffix(unit)?.parse::<f64>().ok()? * factor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_wrk_says_is_understood() {
        let said = "Running 1s test @ http://127.0.0.1:1/\n  Latency Distribution\n     50%  350.00us\n     99%    1.25ms\n  \
                    157346 requests in 1.10s, 18.91MB read\n  Non-2xx or 3xx responses: 12\nRequests/sec: 143020.15\n";
        let run = read(said).expect("a report");
        assert_eq!((run.requests, run.refused, run.p99_us, run.per_second), (157_346, 12, 1_250.0, 143_020.15));
    }
}
