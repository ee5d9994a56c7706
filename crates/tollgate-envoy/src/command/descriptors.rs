//! Fits the number of connections to the descriptors of the process.
//! File descriptors are meant: descriptors of requests are read in `service/descriptors.rs`.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The most connections of a port, however many descriptors there are.
const MOST: u64 = 10_000;

/// Allows as many descriptors as the system does, as programs in Go do. Returns the most
/// connections of a port.
///
/// gRPC and HTTP get a quarter of the descriptors each. The rest is for pages, Redis, files and
/// statsd.
pub(crate) fn connections() -> usize {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: maximum,
            maximum,
        },
    );
    let limit = if raised.is_ok() { maximum } else { current };
    // Without a limit, the bound holds.
    let quarter = limit.map_or(MOST, |limit| limit / 4).clamp(1, MOST);
    usize::try_from(quarter).unwrap_or(usize::MAX)
}
