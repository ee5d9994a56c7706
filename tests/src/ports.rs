//! Finds free ports on 127.0.0.1.

use std::{
    net::{Ipv4Addr, TcpListener},
    process,
    sync::{
        LazyLock,
        atomic::{AtomicU32, Ordering},
    },
    time::{SystemTime, UNIX_EPOCH},
};

/// Below the range the kernel takes ports for outgoing connections from (32768 and up on Linux), so that a server that
/// is down for a moment finds its port again; and low enough that a cluster node's second port, 10000 above, exists.
const FIRST: u32 = 20_000;
const COUNT: u32 = 10_000;

/// Every process starts elsewhere, so that two of them rarely try the same port.
static NEXT: LazyLock<AtomicU32> = LazyLock::new(|| {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.subsec_nanos());
    AtomicU32::new(now ^ process::id().wrapping_mul(7919))
});

/// Returns a port on which nobody listens. The process gets all other ports before it gets the same one again.
///
/// Another process may take it before the caller does. A caller whose server does not start tries another port.
///
/// # Panics
///
/// When all ports are taken.
#[must_use]
pub fn free() -> u16 {
    (0..COUNT)
        .filter_map(|_| {
            let port = FIRST + NEXT.fetch_add(1, Ordering::Relaxed) % COUNT;
            u16::try_from(port).ok()
        })
        .find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok())
        .expect("no port between 20000 and 30000 is free")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn ports_are_not_handed_out_twice() {
        let ports: BTreeSet<u16> = (0..200).map(|_| free()).collect();
        assert_eq!(ports.len(), 200);
    }

    #[test]
    fn a_port_somebody_listens_on_is_not_handed_out() {
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, free())).expect("it was free");
        let port = taken.local_addr().expect("it is bound").port();
        assert!((0..100).all(|_| free() != port));
    }
}
