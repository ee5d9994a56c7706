//! The permits that replicas hold, as the server stores them.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use tollgate_tests::RedisServer;

/// The key of the permits of the policy `jobs` for the tenant `acme`, with the default prefix.
pub const PERMITS_KEY: &str = "tollgate:{acme}:jobs:p1";

/// The permits of one replica, as the server stores them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The permits that the replica holds.
    pub held: u32,
    /// The number of the last call of the replica.
    pub number: u64,
}

/// Returns the replicas that hold permits of [`PERMITS_KEY`] at the server.
///
/// # Panics
///
/// When the state is not one of permits.
#[must_use]
pub fn holders(server: &RedisServer) -> Vec<Holder> {
    let reply = server.command(&["GET", PERMITS_KEY]);
    if reply.is_nil() {
        return Vec::new();
    }
    let holders = reply.bytes()[8..].as_chunks::<40>().0;
    holders
        .iter()
        .map(|bytes| Holder {
            held: u32::from_le_bytes(bytes[8..12].try_into().expect("four bytes")),
            number: f64::from_le_bytes(bytes[16..24].try_into().expect("eight bytes")) as u64,
        })
        .collect()
}

/// Returns how many permits of [`PERMITS_KEY`] all replicas hold at the server.
#[must_use]
pub fn held_by_all(server: &RedisServer) -> u32 {
    holders(server).iter().map(|holder| holder.held).sum()
}

/// Runs a function, and returns the most permits that the server counts meanwhile.
///
/// # Panics
///
/// When the function panics, or the server goes away meanwhile.
pub fn most_held_while(server: &RedisServer, run: impl FnOnce()) -> u32 {
    struct Ends<'a>(&'a AtomicBool);
    impl Drop for Ends<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let looking = scope.spawn(|| {
            let mut most = 0;
            while !is_over.load(Ordering::SeqCst) {
                most = most.max(held_by_all(server));
                thread::sleep(Duration::from_millis(1));
            }
            most
        });
        {
            let _ends = Ends(&is_over);
            run();
        }
        looking.join().expect("the server answers")
    })
}
