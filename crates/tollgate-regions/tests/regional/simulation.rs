//! The rules over minutes of virtual time: three regions, 80 ms from their home, with losses, cuts,
//! loads that move, and processes that lease. The bound is counted without the rules.

use std::collections::BTreeMap;

use smallvec::smallvec;
use tollgate_regions::rules::{Ask, Call, Grant, Home, Lease, Meter, Purse, Report, Stamp, Terms};
use tollgate_remote::lease::{self, HeldUnits};

/// A round trip to the home, in microseconds.
const TRIP_US: u64 = 80_000;

const REGIONS: usize = 3;

const SECOND_US: u64 = 1_000_000;

/// The start: the beginning of a second.
const START_US: u64 = 1_700_000_000 * SECOND_US;

/// An event at a time.
enum Event {
    /// A check arrives in a region, or asks once more: when it was made, and at which process.
    Check(usize, Option<(u64, usize)>),
    /// A call arrives at the home.
    Arrive(usize, Call),
    /// An answer arrives in a region.
    Answer(usize, Call, Grant),
    /// A call has got no answer.
    Late(usize, Call),
    /// A process dies, with all that it holds. It may be the one that carries the call of its region.
    Death(usize),
}

/// Says what happens to a simulated limit.
struct Scene {
    terms: Terms,
    /// The checks in a second of each region, at a second.
    load: fn(u64) -> [u64; REGIONS],
    seconds: u64,
    /// The calls and answers of a hundred that are lost.
    loss: u64,
    /// The seconds in which a region gets another reign: its server fails over.
    reigns: Option<u64>,
    /// The seconds in which the home gets another reign, with a clock that is ahead.
    home_reigns: Option<u64>,
    /// The processes of a region, which lease. Without any, each check goes to the purse.
    processes: usize,
    /// The longest time for which a process holds units without a trip.
    longest_us: u64,
    /// The processes of all regions that die in a second. Others begin in their place.
    deaths: u64,
    /// Changes what a process believes of a lease.
    mistake: Option<fn(&Terms, &mut Lease)>,
}

/// A process of a region, and its clock, which is faster or slower than that of the others.
#[derive(Default)]
struct Process {
    held: HeldUnits,
    /// The time of its last trip, by its clock.
    called_us: u64,
    drift_ppm: i64,
}

impl Process {
    /// Returns the time by its own clock.
    fn now_us(&self, now_us: u64) -> u64 {
        let passed = (now_us - START_US) as i64;
        (now_us as i64 + passed * self.drift_ppm / 1_000_000) as u64
    }

    /// Returns whether it gives back what it holds, because its last trip is so long ago.
    fn is_stale(&self, now_us: u64, longest_us: u64) -> bool {
        self.now_us(now_us) - self.called_us >= longest_us
    }

    /// Takes the reports that go with its next trip.
    fn reports(&mut self, now_us: u64, longest_us: u64) -> smallvec::SmallVec<[Report; 2]> {
        let (here_us, is_stale) = (self.now_us(now_us), self.is_stale(now_us, longest_us));
        self.called_us = here_us;
        let reports = self.held.take_reports(here_us, is_stale);
        let report = |report: lease::Report| {
            let lease::Stamp { birth, generation } = report.stamps[0];
            Report {
                stamp: Stamp { birth, generation },
                spent: report.spent,
                returned: report.returned,
            }
        };
        reports.into_iter().map(report).collect()
    }

    /// Takes units that were leased. The trip left at `sent_us`.
    fn take(&mut self, sent_us: u64, lease: Lease) {
        if lease.units == 0 {
            return;
        }
        let Stamp { birth, generation } = lease.stamp;
        let grant = lease::Grant {
            stamps: smallvec![lease::Stamp { birth, generation }],
            units: lease.units,
            life_us: lease.life_us,
        };
        self.held.add(self.now_us(sent_us), grant);
    }
}

/// The counts of a run.
#[derive(Debug, Default)]
struct Seen {
    admitted: u64,
    asked: u64,
    /// Admitted units above the bound, at the worst time.
    above: u64,
    /// The most calls of the home in a second by one region, those that were sent again left out.
    most_calls: u64,
    /// The admitted units of each region.
    each: [u64; REGIONS],
    /// The checks that processes decided by units that they held.
    trips_saved: u64,
    /// The units that were held by processes when they died.
    died: u64,
    /// The units that the home grants a new region when all others were idle for a minute.
    afterwards: u64,
}

impl Scene {
    fn new(load: fn(u64) -> [u64; REGIONS]) -> Self {
        Self {
            terms: bucket(1_000),
            load,
            seconds: 30,
            loss: 0,
            reigns: None,
            home_reigns: None,
            processes: 0,
            longest_us: 300_000,
            deaths: 0,
            mistake: None,
        }
    }

    /// Runs the scene. Nothing is counted as asked or admitted in the first five seconds, but all of it
    /// for the bound.
    fn run(&self, seed: u64) -> Seen {
        let mut dice = fastrand::Rng::with_seed(seed);
        let (mut home, mut purses) = (Home::default(), [(); REGIONS].map(|()| Purse::default()));
        let process = |at: usize| Process {
            held: HeldUnits::default(),
            called_us: 0,
            drift_ppm: [0, -900, 900][at % 3],
        };
        let mut processes: Vec<_> = (0..REGIONS * self.processes).map(process).collect();
        let mut events: BTreeMap<(u64, u64), Event> = BTreeMap::new();
        let mut order = 0;
        let mut add = |events: &mut BTreeMap<_, _>, at_us, event| {
            order += 1;
            events.insert((at_us, order), event);
        };
        for second in 0..self.seconds {
            for (region, checks) in (self.load)(second).into_iter().enumerate() {
                for _ in 0..checks {
                    let at_us = START_US + second * SECOND_US + dice.u64(0..SECOND_US);
                    add(&mut events, at_us, Event::Check(region, None));
                }
            }
            for _ in 0..self.deaths {
                let at_us = START_US + second * SECOND_US + dice.u64(0..SECOND_US);
                add(
                    &mut events,
                    at_us,
                    Event::Death(dice.usize(0..processes.len())),
                );
            }
        }
        let (mut seen, mut bound) = (Seen::default(), Bound::default());
        let mut calls = [0; REGIONS];
        // The last call of each region that nobody carries any more.
        let mut dropped = [0; REGIONS];
        let mut second = 0;
        while let Some(((now_us, _), event)) = events.pop_first() {
            let passed = (now_us - START_US) / SECOND_US;
            if passed != second {
                (second, calls) = (passed, [0; REGIONS]);
            }
            let reign = |every: Option<u64>| every.map_or(1, |every| 1 + passed / every);
            let is_lost = |dice: &mut fastrand::Rng| dice.u64(0..100) < self.loss;
            match event {
                Event::Arrive(region, call)
                | Event::Answer(region, call, _)
                | Event::Late(region, call)
                    if call.number <= dropped[region] => {}
                Event::Check(region, made) => {
                    let (made_us, at) = made.unwrap_or_else(|| {
                        let of_region = 0..self.processes.max(1);
                        (now_us, region * self.processes + dice.usize(of_region))
                    });
                    let mut process = processes.get_mut(at);
                    if let Some(process) = &mut process {
                        let here_us = process.now_us(now_us);
                        if !process.is_stale(now_us, self.longest_us)
                            && process.held.spend(here_us, now_us, 1).is_some()
                        {
                            let counts = u64::from(passed >= 5);
                            seen.asked += counts;
                            seen.admitted += counts;
                            seen.each[region] += counts;
                            seen.trips_saved += 1;
                            bound.admit(&self.terms, now_us);
                            continue;
                        }
                    }
                    let purse = &mut purses[region];
                    purse.open(reign(self.reigns), now_us);
                    // Of 0.15 s, as a process that knows its share, and knows it late.
                    let known = (now_us - START_US).saturating_sub(SECOND_US / 2) / SECOND_US;
                    let want = (self.load)(known)[region] * 3 / 20;
                    let ask = Ask {
                        cost: 1,
                        is_first: made.is_none(),
                        trip_us: TRIP_US,
                        most: self.terms.most,
                        want: want.checked_div(self.processes as u64).unwrap_or(0),
                        reports: process
                            .as_mut()
                            .map(|process| process.reports(now_us, self.longest_us))
                            .unwrap_or_default(),
                    };
                    let mut checked = purse.check(&ask);
                    if let Some(mistake) = self.mistake {
                        mistake(&self.terms, &mut checked.lease);
                    }
                    // Of the answers to processes some are lost, too.
                    if let Some(process) = process
                        && !is_lost(&mut dice)
                    {
                        process.take(now_us, checked.lease);
                    }
                    if let Some(call) = checked.call {
                        calls[region] += 1;
                        seen.most_calls = seen.most_calls.max(calls[region]);
                        let late = Event::Late(region, call.clone());
                        add(&mut events, now_us + TRIP_US * 5 / 4, late);
                        if !is_lost(&mut dice) {
                            add(
                                &mut events,
                                now_us + TRIP_US / 2,
                                Event::Arrive(region, call),
                            );
                        }
                    }
                    let is_patient = now_us <= made_us + 6 * TRIP_US;
                    if !checked.is_admitted && checked.is_awaited && is_patient {
                        let again_us = now_us + (checked.retry_us + TRIP_US / 8).min(TRIP_US);
                        add(
                            &mut events,
                            again_us,
                            Event::Check(region, Some((made_us, at))),
                        );
                        continue;
                    }
                    let counts = u64::from(passed >= 5);
                    seen.asked += counts;
                    if checked.is_admitted {
                        seen.admitted += counts;
                        seen.each[region] += counts;
                        bound.admit(&self.terms, now_us);
                    }
                }
                Event::Arrive(region, call) => {
                    let reign = reign(self.home_reigns);
                    // Each server has another clock.
                    let clock_us = now_us + (reign - 1) * 3 * SECOND_US;
                    let birth = dice.u64(1..1 << 50);
                    let of = region as u64;
                    let grant = home.serve(&self.terms, (clock_us, reign), birth, of, &call);
                    if !is_lost(&mut dice) {
                        let answer = Event::Answer(region, call, grant);
                        add(&mut events, now_us + TRIP_US / 2, answer);
                    }
                }
                Event::Answer(region, call, grant) => {
                    let purse = &mut purses[region];
                    purse.open(reign(self.reigns), now_us);
                    purse.deposit(&call.deposit(grant));
                }
                Event::Death(at) => {
                    let region = at / self.processes;
                    seen.died += processes[at].held.held(processes[at].now_us(now_us));
                    processes[at] = process(at);
                    if dice.bool() {
                        dropped[region] = purses[region].number;
                    }
                }
                Event::Late(region, call) => {
                    let is_open = purses[region].since_us > 0;
                    let is_young = now_us < call.since_us + self.terms.length_us / 2;
                    if is_open && purses[region].number == call.number && is_young {
                        let late = Event::Late(region, call.clone());
                        add(&mut events, now_us + TRIP_US * 5 / 4, late);
                        if !is_lost(&mut dice) {
                            add(
                                &mut events,
                                now_us + TRIP_US / 2,
                                Event::Arrive(region, call),
                            );
                        }
                    }
                }
            }
        }
        seen.above = bound.above;
        let idle_us = START_US + (self.seconds + 60) * SECOND_US;
        let call = Call {
            reign: 1,
            number: idle_us,
            since_us: idle_us,
            want: self.terms.burst,
            held: 0,
            reports: smallvec![],
        };
        let (at, new) = ((idle_us, 1), REGIONS as u64);
        seen.afterwards = home.serve(&self.terms, at, 1, new, &call).units;
        seen
    }
}

/// Counts admissions against the bound of a bucket, or those of a window.
#[derive(Default)]
struct Bound {
    level: u64,
    at: u64,
    above: u64,
}

impl Bound {
    fn admit(&mut self, terms: &Terms, now_us: u64) {
        let most = match terms.meter {
            Meter::Bucket { amount, period_us } => {
                self.level = self
                    .level
                    .saturating_sub((now_us - self.at).saturating_mul(amount))
                    + period_us;
                self.at = now_us;
                terms.burst * period_us
            }
            Meter::Window { period_us } => {
                if now_us / period_us != self.at {
                    (self.at, self.level) = (now_us / period_us, 0);
                }
                self.level += 1;
                terms.burst
            }
        };
        self.above = self.above.max(self.level.saturating_sub(most));
    }
}

/// A bucket of so many units a second, with a burst of a second.
fn bucket(per_second: u64) -> Terms {
    Terms {
        meter: Meter::Bucket {
            amount: per_second,
            period_us: SECOND_US,
        },
        burst: per_second,
        length_us: 5 * SECOND_US,
        most: per_second / 2,
    }
}

/// Returns the used part of what the limit allows, or of what was asked for if that is less.
fn used(seen: &Seen, per_second: u64, seconds: u64) -> f64 {
    let allowed = per_second * (seconds - 5);
    seen.admitted as f64 / seen.asked.min(allowed) as f64
}

const EVEN: [fn(u64) -> [u64; REGIONS]; 3] = [|_| [167; 3], |_| [300; 3], |_| [667; 3]];
const SKEWED: [fn(u64) -> [u64; REGIONS]; 3] =
    [|_| [450, 45, 5], |_| [810, 81, 9], |_| [1_080, 108, 12]];

#[test]
fn even_and_skewed_loads_use_the_limit_and_never_exceed_it() {
    for load in EVEN.into_iter().chain(SKEWED) {
        let seen = Scene::new(load).run(1);
        let part = used(&seen, 1_000, 30);
        assert_eq!(seen.above, 0, "{seen:?}");
        assert!(part >= 0.97, "{part:.3} {seen:?}");
    }
}

/// Returns a load of which nine tenths are in one region, and in another one each five seconds.
fn moving(second: u64, [hot, cold]: [u64; 2]) -> [u64; REGIONS] {
    let mut load = [cold; REGIONS];
    load[(second / 5) as usize % REGIONS] = hot;
    load
}

#[test]
fn a_load_that_moves_each_five_seconds_uses_the_limit() {
    let loads: [fn(u64) -> [u64; REGIONS]; 2] =
        [|at| moving(at, [810, 45]), |at| moving(at, [1_080, 60])];
    for processes in [0, 4, 20] {
        for load in loads {
            let mut scene = Scene::new(load);
            scene.processes = processes;
            let seen = scene.run(2);
            let part = used(&seen, 1_000, 30);
            assert_eq!(seen.above, 0, "{seen:?}");
            assert!(part >= 0.99, "{processes}: {part:.3} {seen:?}");
        }
    }
}

#[test]
fn with_a_tenth_of_calls_and_answers_lost_the_limit_is_used() {
    for load in [EVEN[1], EVEN[2], SKEWED[1], SKEWED[2]] {
        let mut scene = Scene::new(load);
        scene.loss = 10;
        let seen = scene.run(3);
        let part = used(&seen, 1_000, 30);
        assert_eq!(seen.above, 0, "{seen:?}");
        assert!(part >= 0.95, "{part:.3} {seen:?}");
    }
}

#[test]
fn a_hot_region_does_not_starve_the_others() {
    let seen = Scene::new(|_| [3_000, 30, 30]).run(4);
    assert_eq!(seen.above, 0, "{seen:?}");
    assert!(seen.each[1] + seen.each[2] > 300, "{seen:?}");
}

#[test]
fn a_region_calls_the_home_at_most_eleven_times_a_second_however_much_is_asked() {
    let mut scene = Scene::new(|_| [20_000, 20_000, 20_000]);
    (scene.terms, scene.seconds) = (bucket(30_000), 10);
    let seen = scene.run(5);
    assert_eq!(seen.above, 0, "{seen:?}");
    assert!(seen.most_calls <= 11, "{seen:?}");
}

#[test]
fn no_fail_over_of_a_region_or_of_the_home_exceeds_the_bound() {
    for seed in 0..10 {
        let mut scene = Scene::new(|_| [900, 600, 300]);
        (scene.loss, scene.seconds) = (10, 40);
        scene.reigns = (seed % 2 == 0).then_some(3);
        // Its clock is ahead, so the bucket may fill up once more.
        scene.home_reigns = (seed % 3 == 0).then_some(9);
        let seen = scene.run(seed);
        let forward = scene
            .home_reigns
            .map_or(0, |_| scene.terms.burst * SECOND_US);
        assert!(seen.above <= forward, "{seed} {seen:?}");
    }
}

#[test]
fn a_window_is_never_exceeded_and_used_whole() {
    let mut scene = Scene::new(|_| [2_000, 500, 20]);
    (scene.terms, scene.seconds) = (bucket(1_000), 40);
    scene.terms.meter = Meter::Window {
        period_us: 10 * SECOND_US,
    };
    (scene.terms.burst, scene.terms.most) = (10_000, 5_000);
    let seen = scene.run(7);
    assert_eq!(seen.above, 0, "{seen:?}");
    // The first window is used up before anything is counted.
    assert_eq!(seen.admitted, 30_000, "{seen:?}");
}

/// One region is busy for a while, before the others have used up a window, then idle for longer than
/// units live, and busy to the end. Two others ask for everything.
fn with_pauses(second: u64) -> [u64; REGIONS] {
    let is_busy = (21..23).contains(&second) || second >= 40;
    [900, 600, if is_busy { 400 } else { 0 }]
}

/// A window of ten seconds, of which all units are used. What a process holds for longer than its
/// region is spent beyond it.
fn scene_with_pauses() -> Scene {
    let mut scene = Scene::new(with_pauses);
    (scene.processes, scene.seconds) = (8, 60);
    scene.terms.meter = Meter::Window {
        period_us: 10 * SECOND_US,
    };
    (scene.terms.burst, scene.terms.most) = (10_000, 5_000);
    scene
}

#[test]
fn units_of_processes_lapse_no_later_than_those_of_their_region() {
    for seed in 0..10 {
        let mut scene = scene_with_pauses();
        scene.loss = seed % 2 * 10;
        if seed > 4 {
            // As long as they live.
            scene.longest_us = u64::MAX;
        }
        if seed % 4 > 1 {
            scene.terms = bucket(1_000);
        }
        let seen = scene.run(seed);
        assert_eq!(seen.above, 0, "{seed} {seen:?}");
        assert!(seen.trips_saved > 10_000, "{seen:?}");
    }
}

/// The bound holds whatever processes die, and whenever; and when what they held has lapsed, every unit
/// is free.
#[test]
fn processes_that_die_leave_nothing_above_the_bound_and_all_units_are_free_again() {
    let mut died = 0;
    for seed in 0..6 {
        let mut scene = scene_with_pauses();
        (scene.loss, scene.deaths) = (seed % 2 * 10, 3 + seed % 3 * 10);
        if seed % 4 > 1 {
            scene.terms = bucket(1_000);
        }
        let seen = scene.run(seed);
        assert_eq!(seen.above, 0, "{seed} {seen:?}");
        assert_eq!(seen.afterwards, scene.terms.most, "{seed} {seen:?}");
        assert!(seen.admitted > 5_000, "{seen:?}");
        died += seen.died;
    }
    assert!(died > 300, "{died}");
}

#[test]
fn a_lease_that_outlives_its_slot_is_found() {
    let mistakes: [fn(&Terms, &mut Lease); 2] = [
        |terms, lease| lease.life_us = 4 * terms.length_us,
        |_, lease| lease.life_us *= 3,
    ];
    for mistake in mistakes {
        let mut scene = scene_with_pauses();
        // What goes back earlier shows no mistake.
        (scene.mistake, scene.longest_us) = (Some(mistake), u64::MAX);
        assert!(scene.run(1).above > 0);
    }
}

#[test]
fn a_process_that_takes_every_unit_twice_is_found() {
    let mut scene = Scene::new(EVEN[2]);
    scene.processes = 8;
    scene.mistake = Some(|_, lease| lease.units *= 2);
    assert!(scene.run(1).above > 0);
}

#[test]
fn with_processes_that_lease_the_limit_is_used() {
    for processes in [1, 10, 100] {
        for load in [EVEN[1], EVEN[2], SKEWED[1], SKEWED[2]] {
            let mut scene = Scene::new(load);
            scene.processes = processes;
            let seen = scene.run(8);
            let part = used(&seen, 1_000, 30);
            assert_eq!(seen.above, 0, "{seen:?}");
            assert!(part >= 0.95, "{processes}: {part:.3} {seen:?}");
        }
    }
}
