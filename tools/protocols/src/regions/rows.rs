//! The settings that are explored: those that take seconds by the tests, all of them by
//! `cargo xtask model`.

use super::{
    protocol::Durability::{Drain, Replicas},
    world::Setting,
};
use crate::table::Row;

/// Three units of a period, two of which a region asks for, and messages are lost.
const LOSSY: Setting = Setting::ONE_UNIT.units(3, 2).calls(3).last(3).losses(1);

/// Lists the rows. Those with a number of states are short.
pub const ROWS: [Row<Setting>; 16] = [
    short(
        "lost",
        "messages are lost, two leases, 2 × 2 processes",
        LOSSY.processes(2).leases(2),
        1_151_726,
    ),
    short(
        "repeated",
        "messages are repeated and lost, 2 × 2 processes",
        LOSSY.processes(2).last(2).repeats(1),
        161_867,
    ),
    short(
        "home",
        "the home fails over, the old one lives, clocks ± 2, grants wait for the copy",
        Setting::ONE_UNIT
            .units(2, 2)
            .calls(2)
            .last(4)
            .durability(Replicas)
            .home_failures(1)
            .old_lives()
            .skew(2),
        292_479,
    ),
    short(
        "clock",
        "a region's clock steps twice",
        Setting::ONE_UNIT
            .units(2, 2)
            .calls(3)
            .last(4)
            .clock_steps(2),
        898_752,
    ),
    short(
        "returns",
        "units are returned",
        LOSSY.losses(0).last(4).leases(1).returns(1),
        729_793,
    ),
    short(
        "periods",
        "generations of two ticks, periods of one, losses, returns, a lease",
        LOSSY.calls(2).last(5).times(2, 1).leases(1).returns(1),
        303_187,
    ),
    short(
        "region",
        "a region fails over, calls are repeated, 2 × 2 processes, five units",
        Setting::ONE_UNIT
            .units(5, 3)
            .processes(2)
            .calls(2)
            .last(2)
            .region_failures(1)
            .repeats(1),
        312_030,
    ),
    short(
        "drain",
        "another server is the home, drained, clocks ± 2",
        Setting::ONE_UNIT
            .calls(2)
            .last(4)
            .durability(Drain)
            .home_failures(1)
            .skew(2),
        59_354,
    ),
    long(
        "repeated-long",
        "messages are repeated and lost, 2 × 2 processes, one more tick",
        LOSSY.processes(2).last(4).repeats(1),
        None,
    ),
    long(
        "home-long",
        "as `home`, with three calls",
        Setting::ONE_UNIT
            .units(2, 2)
            .calls(3)
            .last(4)
            .durability(Replicas)
            .home_failures(1)
            .old_lives()
            .skew(2),
        None,
    ),
    long(
        "periods-long",
        "as `periods`, with three calls",
        LOSSY.last(5).times(2, 1).leases(1).returns(1),
        None,
    ),
    long(
        "region-long",
        "as `region`, with a lost message and one more tick",
        Setting::ONE_UNIT
            .units(5, 3)
            .processes(2)
            .calls(2)
            .last(3)
            .losses(1)
            .region_failures(1)
            .repeats(1),
        None,
    ),
    long(
        "split",
        "a region fails over, the old server lives, clocks ± 2, a lease",
        LOSSY.leases(1).region_failures(1).old_lives().skew(2),
        Some(14),
    ),
    long(
        "twice",
        "a region fails over twice, messages are repeated",
        LOSSY.repeats(1).region_failures(2).old_lives(),
        Some(12),
    ),
    long(
        "both",
        "a region and the home fail over, clocks ± 2, grants wait for the copy",
        LOSSY
            .durability(Replicas)
            .region_failures(1)
            .home_failures(1)
            .skew(2),
        Some(13),
    ),
    long(
        "drain-long",
        "another server is the home, drained, clocks ± 2, more calls",
        LOSSY.last(6).durability(Drain).home_failures(1).skew(2),
        Some(16),
    ),
];

/// All faults at once, with more calls than can be explored: for random walks.
const WALK: Setting = Setting::ONE_UNIT
    .units(4, 2)
    .processes(2)
    .calls(12)
    .last(8)
    .durability(Replicas)
    .losses(2)
    .leases(4)
    .repeats(2)
    .region_failures(2)
    .home_failures(1)
    .clock_steps(2)
    .crashes(1)
    .returns(2)
    .skew(2)
    .old_lives();

impl Setting {
    /// Returns the setting of random walks with some of its faults, drawn by the bits of a number.
    #[must_use]
    pub fn some_faults(bits: u64) -> Self {
        let mut setting = WALK;
        let left = &mut setting.budget;
        let faults = [
            &mut left.losses,
            &mut left.leases,
            &mut left.repeats,
            &mut left.region_failures,
            &mut left.home_failures,
            &mut left.clock_steps,
            &mut left.crashes,
            &mut left.returns,
        ];
        for (bit, fault) in faults.into_iter().enumerate() {
            if bits >> bit & 1 == 0 {
                *fault = 0;
            }
        }
        // Three to six units.
        setting.units(3 + (bits >> 8 & 3) as u16, 2)
    }
}

const fn short(
    name: &'static str,
    says: &'static str,
    setting: Setting,
    states: usize,
) -> Row<Setting> {
    Row {
        name,
        says,
        setting,
        depth: None,
        states: Some(states),
    }
}

const fn long(
    name: &'static str,
    says: &'static str,
    setting: Setting,
    depth: Option<usize>,
) -> Row<Setting> {
    Row {
        name,
        says,
        setting,
        depth,
        states: None,
    }
}
