//! Assigns processes to cores, reads processor time, and describes the machine.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Lists the packages whose versions the report shows. The versions come from the lock file of this build.
const SHOWN: [&str; 9] =
    ["redis", "deadpool-redis", "tokio", "governor", "tower_governor", "tower-rate-tier", "axum", "hyper", "tonic"];

/// Runs `start` on the server core, so that the process it starts stays there.
///
/// If there is only one core, or if threads cannot be bound to a core, all processes share the cores.
pub(crate) fn on_the_server_core<T>(start: impl FnOnce() -> T) -> T {
    stay_on(|cores| cores.0);
    let started = start();
    stay_on_the_client_core();
    started
}

/// Binds this thread, and the threads that it starts later, to the client core.
pub(crate) fn stay_on_the_client_core() {
    stay_on(|cores| cores.1);
}

/// Returns the processor time that this process has used, in user and kernel mode.
pub(crate) fn own_cpu() -> Duration {
    spent(ClockId::ProcessCPUTime)
}

/// Returns the processor time that this thread has used, in user and kernel mode.
pub(crate) fn thread_cpu() -> Duration {
    spent(ClockId::ThreadCPUTime)
}

fn spent(clock: ClockId) -> Duration {
    // Processor time is never negative, so the conversion does not fail.
    Duration::try_from(clock_gettime(clock)).unwrap_or_default()
}

#[cfg(target_os = "linux")]
fn stay_on(choose: impl FnOnce((usize, usize)) -> usize) {
    use rustix::thread::{CpuSet, sched_setaffinity};
    if let Some(&cores) = cores() {
        let mut set = CpuSet::new();
        set.set(choose(cores));
        // If the system refuses, the figures are still correct, but noisier.
        let _ = sched_setaffinity(None, &set);
    }
}

#[cfg(not(target_os = "linux"))]
fn stay_on(_: impl FnOnce((usize, usize)) -> usize) {}

/// Returns the first two cores that this process may use: the server core and the client core.
#[cfg(target_os = "linux")]
fn cores() -> Option<&'static (usize, usize)> {
    use rustix::thread::{CpuSet, sched_getaffinity};
    static CORES: std::sync::OnceLock<Option<(usize, usize)>> = std::sync::OnceLock::new();
    let find = || {
        let allowed = sched_getaffinity(None).ok()?;
        let mut allowed = (0..CpuSet::MAX_CPU).filter(|&core| allowed.is_set(core));
        Some((allowed.next()?, allowed.next()?))
    };
    CORES.get_or_init(find).as_ref()
}

#[cfg(not(target_os = "linux"))]
fn cores() -> Option<&'static (usize, usize)> {
    None
}

/// Describes the processor, system, compiler, servers and peers in two sentences.
pub(crate) fn describe() -> String {
    let mut parts = tollgate_tests::machine::describe();
    parts.extend(SHOWN.iter().filter_map(|name| Some(format!("{name} {}", locked(name)?))));
    let pinned = match cores_are_split() {
        true => "The server runs on one core, the client on another.",
        false => "The server and the client share the available cores.",
    };
    format!("{}. {pinned}", parts.join(", "))
}

fn cores_are_split() -> bool {
    cores().is_some()
}

fn locked(name: &str) -> Option<&'static str> {
    const LOCK: &str = include_str!("../../Cargo.lock");
    let mut lines = LOCK.lines().skip_while(|line| *line != format!("name = \"{name}\""));
    lines.nth(1)?.strip_prefix("version = \"")?.strip_suffix('"')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_come_from_the_lock_file() {
        assert!(locked("redis").is_some_and(|version| version.starts_with("1.")));
        assert_eq!(locked("no-such-package"), None);
    }
}
