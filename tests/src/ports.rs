//! Finds free ports on 127.0.0.1.

use std::{
    env,
    net::{Ipv4Addr, TcpListener},
    ops::Range,
    process,
    sync::{
        LazyLock,
        atomic::{AtomicU32, Ordering},
    },
    time::{SystemTime, UNIX_EPOCH},
};

/// Below the range the kernel takes ports for outgoing connections from (32768 and up on Linux), so
/// that a server that is down for a moment finds its port again; and low enough that a cluster
/// node's second port, 10000 above, exists.
const ALL: Range<u32> = 20_000..30_000;

/// The variable by which `cargo xtask test` gives programs that run side by side ports of their
/// own: `20000-25000`.
const VARIABLE: &str = "TEST_PORTS";

static RANGE: LazyLock<Range<u32>> =
    LazyLock::new(|| env::var(VARIABLE).map_or(ALL, |text| parse(&text)));

/// Every process starts elsewhere, so that two of them rarely try the same port.
static NEXT: LazyLock<AtomicU32> = LazyLock::new(|| {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |now| now.subsec_nanos());
    AtomicU32::new(now ^ process::id().wrapping_mul(7919))
});

/// Returns a port on which nobody listens. The process gets all other ports before it gets the same
/// one again.
///
/// Another process may take it before the caller does. A caller whose server does not start tries
/// another port.
///
/// # Panics
///
/// When all ports are taken.
#[must_use]
pub fn free() -> u16 {
    let count = RANGE.end - RANGE.start;
    (0..count)
        .filter_map(|_| {
            let port = RANGE.start + NEXT.fetch_add(1, Ordering::Relaxed) % count;
            u16::try_from(port).ok()
        })
        .find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok())
        .unwrap_or_else(|| panic!("no port of {:?} is free", *RANGE))
}

fn parse(text: &str) -> Range<u32> {
    let ends = text
        .split_once('-')
        .and_then(|(start, end)| Some(start.parse().ok()?..end.parse().ok()?));
    let range = ends.unwrap_or_else(|| panic!("{VARIABLE} is no range of ports: {text}"));
    assert!(
        ALL.start <= range.start && range.start < range.end && range.end <= ALL.end,
        "{VARIABLE} is {text}"
    );
    range
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
    fn a_range_is_read_and_others_than_a_part_of_the_ports_are_refused() {
        assert_eq!(parse("20000-25000"), 20_000..25_000);
        for wrong in [
            "",
            "20000",
            "25000-20000",
            "20000-20000",
            "80-25000",
            "20000-60000",
        ] {
            assert!(
                std::panic::catch_unwind(|| parse(wrong)).is_err(),
                "{wrong}"
            );
        }
        assert!(RANGE.contains(&u32::from(free())));
    }

    #[test]
    fn a_port_somebody_listens_on_is_not_handed_out() {
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, free())).expect("it was free");
        let port = taken.local_addr().expect("it is bound").port();
        assert!((0..100).all(|_| free() != port));
    }
}
