//! Describes the machine on which figures were measured.

use std::{env::consts, fs, process::Command, thread};

/// Describes processor, cores, system, compiler and server. Unknown parts are left out.
///
/// # Panics
///
/// When there is no server, see [`find_binary`](crate::server::find_binary).
#[must_use]
pub fn describe() -> Vec<String> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let cpuinfo = read("/proc/cpuinfo");
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let cores = thread::available_parallelism().map_or(1, usize::from).max(cpuinfo.matches("processor\t").count());
    let mut parts = vec![
        model.map_or(consts::ARCH, |(_, model)| model).to_owned(),
        format!("{cores} cores"),
        format!("{} {}", consts::OS, read("/proc/sys/kernel/osrelease").trim()),
    ];
    parts.extend(said("rustc", &["--version"]).map(|it| it.split(" (").next().unwrap_or_default().to_owned()));
    let server = crate::server::find_binary();
    parts.extend(said(&server.to_string_lossy(), &["--version"]).map(|it| server_version(&it)));
    parts
}

fn said(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Shortens the version: `Redis server v=7.0.15 sha=…` becomes `Redis server 7.0.15`.
fn server_version(said: &str) -> String {
    said.split(" sha=").next().unwrap_or_default().replace("v=", "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_described_with_its_server() {
        assert_eq!(server_version("Redis server v=7.0.15 sha=0:0 bits=64"), "Redis server 7.0.15");
        let parts = describe();
        assert!(parts.iter().any(|part| part.contains(" server ")), "{parts:?}");
    }
}
