//! Runs wrk, which sends HTTP requests over many connections.

use std::{
    env, fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{keys, machine};

/// Finds the binary on `PATH`.
pub(crate) fn find() -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .map(|folder| folder.join("wrk"))
        .find(|file| file.is_file())
}

/// Stores the results of one run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    pub(crate) per_second: f64,
    pub(crate) p99_us: f64,
    pub(crate) requests: u64,
    /// Responses with a status other than 2xx and 3xx.
    pub(crate) refused: u64,
}

/// Writes a script for wrk. Each request sends the key of one of `callers` callers in `x-api-key`,
/// chosen at random.
pub(crate) fn write_script(folder: &Path, callers: usize) -> PathBuf {
    let path = folder.join(format!("{callers}.lua"));
    let first = keys::key(0);
    let width = first.len() - "customer:".len();
    let script = format!(
        "
local requests = {{}}
init = function()
  for caller = 0, {callers} - 1 do
    local key = string.format('customer:%0{width}d', caller)
    requests[caller] = wrk.format('GET', '/', {{ ['x-api-key'] = key }})
  end
end
request = function()
  return requests[math.random(0, {callers} - 1)]
end"
    );
    fs::write(&path, script).expect("a script can be written");
    path
}

/// Runs wrk for whole seconds, with one thread on the server core. On a machine that stood still for
/// all of them, it runs again.
///
/// # Panics
///
/// When wrk fails, or reports errors of its sockets.
pub(crate) fn run(server: SocketAddr, script: &Path, connections: usize, seconds: u64) -> Run {
    loop {
        let run = run_once(server, script, connections, seconds);
        if run.requests > 0 {
            return run;
        }
    }
}

fn run_once(server: SocketAddr, script: &Path, connections: usize, seconds: u64) -> Run {
    let mut command = Command::new(find().expect("wrk is installed"));
    command
        .args(["-t", "1", "--latency", "-c", &connections.to_string()])
        .args(["-d", &format!("{seconds}s"), "-s"])
        .arg(script);
    command.arg(format!("http://{server}/"));
    // A process stays on the core on which it was started. This thread only waits.
    let output = machine::on_the_server_core(|| command.output()).expect("wrk starts");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && !said.contains("Socket errors"),
        "wrk: {said}"
    );
    read(&said).unwrap_or_else(|| panic!("no figures in the output of wrk: {said}"))
}

fn read(said: &str) -> Option<Run> {
    let after = |label: &str| {
        said.lines()
            .find_map(|line| line.trim().strip_prefix(label))
            .map(str::trim)
    };
    let requests = said
        .lines()
        .find_map(|line| line.trim().split_once(" requests in "))?;
    Some(Run {
        per_second: after("Requests/sec:")?.parse().ok()?,
        p99_us: micros(after("99%")?)?,
        requests: requests.0.parse().ok()?,
        refused: after("Non-2xx or 3xx responses:").map_or(Some(0), |it| it.parse().ok())?,
    })
}

/// Converts `812.00us`, `1.03ms` or `1.20s` to microseconds.
fn micros(text: &str) -> Option<f64> {
    let units = [("us", 1.0), ("ms", 1e3), ("s", 1e6)];
    units
        .iter()
        .find_map(|(unit, factor)| Some(text.strip_suffix(unit)?.parse::<f64>().ok()? * factor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_of_wrk_is_read() {
        let said = "Running 1s test @ http://127.0.0.1:1/\n  Latency Distribution\n     50%  350.00us\n     99%    1.25ms\n  \
                    157346 requests in 1.10s, 18.91MB read\n  Non-2xx or 3xx responses: 12\nRequests/sec: 143020.15\n";
        let run = read(said).expect("a report");
        assert_eq!(
            (run.requests, run.refused, run.p99_us, run.per_second),
            (157_346, 12, 1_250.0, 143_020.15)
        );
    }
}
