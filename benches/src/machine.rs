//! Assigns processes to cores, reads processor time, and describes the machine.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Lists the packages whose versions the report shows. The versions come from the lock file of this
/// build.
const SHOWN: [&str; 13] = [
    "redis",
    "deadpool-redis",
    "tokio",
    "governor",
    "tower_governor",
    "tower-rate-tier",
    "tower-rate-limiter",
    "throttle-kit",
    "tower-rate-limit-redis",
    "tower-rate-limit-fred",
    "axum",
    "hyper",
    "tonic",
];

/// Runs `start` on the server core, so that the process it starts stays there.
///
/// If there is only one core, or if threads cannot be bound to a core, all processes share the
/// cores.
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

/// Runs `start`, so that the threads that it starts may run on every core.
pub(crate) fn on_every_core<T>(start: impl FnOnce() -> T) -> T {
    #[cfg(target_os = "linux")]
    if let Some(allowed) = allowed() {
        // If the system refuses, the threads share the client core.
        let _ = rustix::thread::sched_setaffinity(None, allowed);
    }
    let started = start();
    stay_on_the_client_core();
    started
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
    static CORES: std::sync::OnceLock<Option<(usize, usize)>> = std::sync::OnceLock::new();
    let find = || {
        let set = allowed()?;
        let mut allowed = (0..rustix::thread::CpuSet::MAX_CPU).filter(|&core| set.is_set(core));
        Some((allowed.next()?, allowed.next()?))
    };
    CORES.get_or_init(find).as_ref()
}

/// Returns the cores that this process could use when it started.
#[cfg(target_os = "linux")]
fn allowed() -> Option<&'static rustix::thread::CpuSet> {
    static ALLOWED: std::sync::OnceLock<Option<rustix::thread::CpuSet>> =
        std::sync::OnceLock::new();
    ALLOWED
        .get_or_init(|| rustix::thread::sched_getaffinity(None).ok())
        .as_ref()
}

#[cfg(not(target_os = "linux"))]
fn cores() -> Option<&'static (usize, usize)> {
    None
}

/// Returns the resident memory of this process in bytes. Returns `None` if the system does not
/// report it.
pub(crate) fn resident() -> Option<usize> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: usize = statm.split(' ').nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size())
}

/// Describes the processor, system, compiler, servers and peers in two sentences.
pub(crate) fn describe() -> String {
    let mut parts = tollgate_tests::machine::describe();
    parts.extend(
        SHOWN
            .iter()
            .filter_map(|name| Some(format!("{name} {}", locked(name)?))),
    );
    let pinned = match cores() {
        Some(_) => "The server runs on one core, the client on another.",
        None => "The server and the client share the available cores.",
    };
    format!("{}. {pinned}", parts.join(", "))
}

/// Returns the newest version of a package, which is Tollgate's. Peers use older ones of `redis`.
fn locked(name: &str) -> Option<&'static str> {
    const LOCK: &str = include_str!("../../Cargo.lock");
    let (_, package) = LOCK.rsplit_once(&format!("name = \"{name}\"\nversion = \""))?;
    Some(package.split_once('"')?.0)
}
