//! Measures the look-up of an address among a hundred thousand networks, at rest and while the
//! lists are exchanged.

use std::{
    hint::black_box,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use tollgate_tower::key::{Network, NetworkVerdict, Networks};

use crate::{
    machine,
    pace::Pace,
    report::{Findings, Table, Target, figure},
    rounds::{Case, alternate},
};

/// The networks of each version of the internet protocol.
const NETWORKS: u32 = 50_000;

/// The addresses that are looked up, in an order without a pattern.
const ADDRESSES: u32 = 1 << 16;

/// The longest time that a look-up may take, in nanoseconds.
const MOST: f64 = 200.0;

pub(crate) fn run(pace: &Pace) -> Findings {
    let lists = Networks::try_new([], networks()).expect("no network is in both lists");
    let (v4, v6) = (addresses(v4_at), addresses(v6_at));
    let cases = vec![
        Case::new("IPv4", |time| per_look_up(time, &lists, &v4)),
        Case::new("IPv6", |time| per_look_up(time, &lists, &v6)),
        Case::new("IPv4, while the lists are exchanged", |time| {
            while_exchanged(time, &lists, &v4)
        }),
        Case::new("IPv6, while the lists are exchanged", |time| {
            while_exchanged(time, &lists, &v6)
        }),
    ];
    let mut findings = Findings::default();
    let about = "One thread looks up addresses among 50 000 networks of each version, half of them in a network. \
                 `Networks::verdict`. *While the lists are exchanged* another thread replaces them again and again.";
    let mut table = Table::new("Networks", about, &["", "ns of CPU per look-up"]);
    for one in alternate(pace.inside, cases) {
        let median = one.median(|&ns| ns);
        findings.goal(
            format!("a look-up among 100 000 networks, {}", one.name),
            Target::AtMost(MOST),
            median,
            " ns",
        );
        table.row([one.name.clone(), figure(median)]);
    }
    findings.tables.push(table);
    findings
}

fn v4_at(at: u32) -> IpAddr {
    Ipv4Addr::from_bits(at << 15).into()
}

fn v6_at(at: u32) -> IpAddr {
    Ipv6Addr::from_bits(0x2001 << 112 | u128::from(at) << 79).into()
}

/// Returns networks with a gap of the same size behind each.
fn networks() -> impl Iterator<Item = Network> {
    let network =
        |address, prefix| Network::try_new(address, prefix).expect("the prefix fits the address");
    (0..NETWORKS).flat_map(move |at| [network(v4_at(2 * at), 17), network(v6_at(2 * at), 49)])
}

/// Returns addresses of which every second one is in a network, in an order in which neighbours are
/// far apart. The host of each is another one.
fn addresses(address: fn(u32) -> IpAddr) -> Vec<IpAddr> {
    let host = |at: u32| at.wrapping_mul(2_654_435_761);
    let with_host = |at: u32, network| match network {
        IpAddr::V4(network) => IpAddr::V4(Ipv4Addr::from_bits(network.to_bits() | host(at) >> 17)),
        IpAddr::V6(network) => IpAddr::V6(Ipv6Addr::from_bits(
            network.to_bits() | u128::from(host(at)) << 45,
        )),
    };
    (0..ADDRESSES)
        .map(|at| with_host(at, address(at.wrapping_mul(40_503) % (2 * NETWORKS))))
        .collect()
}

/// Looks all addresses up again and again, and returns the nanoseconds of processor time per
/// look-up.
fn per_look_up(time: Duration, lists: &Networks, addresses: &[IpAddr]) -> f64 {
    let (mut look_ups, mut denied) = (0_u64, 0_u64);
    let started = machine::thread_cpu();
    loop {
        for address in addresses {
            denied += u64::from(lists.verdict(black_box(*address)) == NetworkVerdict::Denied);
        }
        look_ups += addresses.len() as u64;
        let elapsed = machine::thread_cpu() - started;
        if elapsed >= time {
            let share = denied as f64 / look_ups as f64;
            assert!(
                (0.4..0.6).contains(&share),
                "{share} of the addresses are denied"
            );
            return elapsed.as_nanos() as f64 / look_ups as f64;
        }
    }
}

fn while_exchanged(time: Duration, lists: &Networks, addresses: &[IpAddr]) -> f64 {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                lists
                    .replace([], networks())
                    .expect("no network is in both lists");
            }
        });
        let found = per_look_up(time, lists, addresses);
        is_over.store(true, Ordering::Relaxed);
        found
    })
}
