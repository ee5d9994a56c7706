//! Draws roll-outs with late, stalled and dead replicas, on a server that loses its data, is away, and
//! whose clock is set. A roll-out must never be complete too early, and must be complete in the end.

use std::{collections::BTreeMap, ops::Range, time::Duration};

use tollgate::store::{ReplicaReport, ReportedRules, RulesDigest, RulesInForce};

use super::{Reason, Replica, ReplicaSnapshot, RolloutWatch, SETTLE};

const OLD: [u8; 8] = [1; 8];
const NEW: [u8; 8] = [2; 8];

/// Draws numbers (SplitMix64).
struct Draw(u64);

impl Draw {
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn of(&mut self, range: Range<u64>) -> u64 {
        range.start + self.bits() % (range.end - range.start)
    }

    fn one_in(&mut self, many: u64) -> bool {
        self.of(0..many) == 0
    }
}

fn reported(digest: [u8; 8]) -> ReportedRules {
    let rules = RulesInForce::new("rules");
    rules.enforce(RulesDigest::new(digest));
    rules.reported()
}

/// A replica of a schedule. All times are milliseconds from the beginning.
struct Running {
    starts: u64,
    /// The time at which it puts the new rules in force, unless it stands still then.
    loads: u64,
    /// It stands still in this time.
    stalls: Range<u64>,
    dies: u64,
    number: u64,
    /// The time of its next report.
    reports: u64,
    /// The report on its way: when it arrives, and what it says.
    sent: Option<(u64, u64, [u8; 8])>,
    /// The time at which a report arrived last.
    arrived: Option<u64>,
    /// The command has seen a report of it.
    was_seen: bool,
}

impl Running {
    fn draw(draw: &mut Draw) -> Self {
        // Half of them run before the roll-out begins.
        let starts = if draw.one_in(2) {
            0
        } else {
            draw.of(0..40_000)
        };
        let stalls = match draw.of(0..4) {
            0 => {
                let from = draw.of(0..40_000);
                from..from + draw.of(1_000..60_000)
            }
            _ => 0..0,
        };
        let loads = match draw.of(0..4) {
            0 => draw.of(20_000..70_000),
            1 => starts,
            _ => draw.of(5_000..15_000),
        };
        let loads = loads.max(starts);
        Self {
            starts,
            // A replica that comes back loads a moment later.
            loads: if stalls.contains(&loads) {
                stalls.end + draw.of(50..3_000)
            } else {
                loads
            },
            stalls,
            dies: if draw.one_in(4) {
                draw.of(0..60_000)
            } else {
                u64::MAX
            },
            number: 0,
            reports: starts,
            sent: None,
            arrived: None,
            was_seen: false,
        }
    }

    fn lives(&self, now: u64) -> bool {
        (self.starts..self.dies).contains(&now)
    }

    fn digest(&self, now: u64) -> [u8; 8] {
        if now >= self.loads { NEW } else { OLD }
    }

    /// Returns whether the command must not be complete while this replica has the old rules: it runs
    /// long enough to have reported, or was seen and is not gone.
    fn counts(&self, now: u64, gone: u64) -> bool {
        let settle = SETTLE.as_millis() as u64;
        let begin = now.saturating_sub(settle);
        let ran = self.starts <= begin && (self.stalls.end <= begin || self.stalls.start > now);
        let is_present = self.arrived.is_none_or(|arrived| now - arrived < gone);
        self.lives(now) && is_present && (ran || self.was_seen)
    }
}

struct World {
    draw: Draw,
    replicas: Vec<Running>,
    /// The reports that the server has: the time of each by its clock, its number and its digest.
    server: BTreeMap<usize, (u64, u64, [u8; 8])>,
    /// The milliseconds by which its clock is ahead.
    clock: u64,
    away: Vec<Range<u64>>,
    flushes: Vec<u64>,
    sets: Vec<(u64, u64)>,
}

const HOUR: u64 = 3_600_000;

impl World {
    fn draw(seed: u64) -> Self {
        let mut draw = Draw(seed);
        let replicas = (0..draw.of(1..7))
            .map(|_| Running::draw(&mut draw))
            .collect();
        let away = (0..draw.of(0..3)).map(|_| {
            let from = draw.of(0..60_000);
            from..from + draw.of(100..12_000)
        });
        let away = away.collect();
        let flushes = (0..draw.of(0..3)).map(|_| draw.of(0..60_000)).collect();
        let set = |draw: &mut Draw| (draw.of(0..60_000), draw.of(0..3) * HOUR);
        let sets = (0..draw.of(0..3)).map(|_| set(&mut draw)).collect();
        Self {
            draw,
            replicas,
            server: BTreeMap::new(),
            clock: HOUR,
            away,
            flushes,
            sets,
        }
    }

    fn is_away(&self, now: u64) -> bool {
        self.away.iter().any(|away| away.contains(&now))
    }

    /// Lets one millisecond pass.
    fn pass(&mut self, now: u64) {
        if self.flushes.contains(&now) {
            self.server.clear();
        }
        if let Some((_, clock)) = self.sets.iter().find(|(at, _)| *at == now) {
            self.clock = *clock;
        }
        let (is_away, time) = (self.is_away(now), now + self.clock);
        let kept = ReplicaReport::KEPT.as_millis() as u64;
        for (at, replica) in self.replicas.iter_mut().enumerate() {
            // What is on its way arrives, even when the replica is dead by then.
            let arrives = replica.sent.take_if(|sent| sent.0 <= now);
            if let Some((_, number, digest)) = arrives.filter(|_| !is_away) {
                self.server.insert(at, (time, number, digest));
                self.server
                    .retain(|_, report| time.abs_diff(report.0) < kept);
                replica.arrived = Some(now);
            }
            if !replica.lives(now) || replica.stalls.contains(&now) || now < replica.reports {
                continue;
            }
            replica.number += 1;
            let took = self.draw.of(1..1_000);
            let digest = replica.digest(now);
            replica.sent = Some((now + took, replica.number, digest));
            replica.reports = now + took + self.draw.of(1_600..2_400);
        }
    }

    fn snapshot(&mut self, now: u64) -> ReplicaSnapshot {
        let time = now + self.clock;
        let replicas = self.server.iter().map(|(at, (came, number, digest))| {
            let mut report = ReplicaReport::new("host", *at as u32);
            (report.process, report.number) = (at.to_string(), *number);
            report.rules = vec![reported(*digest)];
            let silent = Duration::from_millis(time.saturating_sub(*came));
            Replica::new(report, silent)
        });
        let mut snapshot = ReplicaSnapshot::default();
        snapshot.replicas = replicas.collect();
        snapshot.now_us = time * 1_000;
        for at in self.server.keys() {
            self.replicas[*at].was_seen = true;
        }
        snapshot
    }

    /// Returns whether a replica that counts has the old rules.
    fn is_early(&self, now: u64, gone: u64) -> bool {
        let is_old = |replica: &Running| replica.counts(now, gone) && replica.digest(now) == OLD;
        self.replicas.iter().any(is_old)
    }
}

/// The rule that everybody writes first: complete when all that are there enforce the rules.
fn looks_complete(snapshot: &ReplicaSnapshot) -> bool {
    let new = |replica: &Replica| replica.report.rules[0].digest == Some(RulesDigest::new(NEW));
    let mut present = snapshot
        .replicas
        .iter()
        .filter(|replica| !replica.is_silent());
    present.clone().count() > 0 && present.all(new)
}

/// Returns when the roll-out was complete, and whether the simple rule would have been too early.
fn roll_out(seed: u64) -> (Option<u64>, bool) {
    let mut world = World::draw(seed);
    let mut rollout = RolloutWatch::new(RulesDigest::new(NEW));
    let gone = rollout.gone.as_millis() as u64;
    let (mut looks, mut is_simple_early, mut is_simple_done) =
        (world.draw.of(0..10_000), false, false);
    for now in 0..240_000 {
        world.pass(now);
        if now < looks {
            continue;
        }
        looks = now + world.draw.of(300..1_200);
        if world.is_away(now) {
            rollout.interrupted();
            continue;
        }
        let snapshot = world.snapshot(now);
        if !is_simple_done && looks_complete(&snapshot) {
            is_simple_done = true;
            is_simple_early = world.is_early(now, gone);
        }
        if rollout
            .look(&snapshot, Duration::from_millis(now))
            .is_complete
        {
            assert!(
                !world.is_early(now, gone),
                "too early: seed {seed}, {now} ms"
            );
            return (Some(now), is_simple_early);
        }
    }
    // Nobody is left, or all that are left have the new rules since long ago.
    let is_left = world
        .replicas
        .iter()
        .any(|replica| replica.dies == u64::MAX);
    assert!(!is_left, "never complete: seed {seed}");
    (None, is_simple_early)
}

#[test]
fn a_thousand_roll_outs_are_never_complete_too_early_and_complete_in_the_end() {
    let runs: Vec<_> = (0..1_000).map(roll_out).collect();
    let complete = runs.iter().filter(|run| run.0.is_some()).count();
    let simple = runs.iter().filter(|run| run.1).count();
    // The schedules are such that the simple rule is often wrong.
    assert!(
        complete > 900 && simple > 100,
        "{complete} complete, {simple} too early"
    );
}

fn replica(process: &str, number: u64, digest: [u8; 8]) -> Replica {
    let mut report = ReplicaReport::new(process, 1);
    (report.process, report.number) = (process.to_owned(), number);
    report.rules = vec![reported(digest)];
    Replica::new(report, Duration::ZERO)
}

fn snapshot(replicas: &[Replica]) -> ReplicaSnapshot {
    let mut snapshot = ReplicaSnapshot::default();
    snapshot.replicas = replicas.to_vec();
    snapshot
}

fn reasons(rollout: &mut RolloutWatch, of: &ReplicaSnapshot, at: u64) -> Vec<(String, Reason)> {
    let verdict = rollout.look(of, Duration::from_secs(at));
    assert!(!verdict.is_complete);
    let missing = verdict.missing.into_iter();
    missing
        .map(|missing| (missing.replica, missing.reason))
        .collect()
}

#[test]
fn each_replica_that_is_waited_for_is_named_with_its_reason() {
    let mut rollout = RolloutWatch::new(RulesDigest::new(NEW));
    let mut of = snapshot(&[replica("a", 1, NEW), replica("b", 1, OLD)]);
    of.replicas[1].report.rules[0].refused = Some(Duration::from_secs(1));
    of.unreported.insert("0123456789abcdef".to_owned());
    let other = Reason::Enforces {
        digest: Some(RulesDigest::new(OLD)),
        source: "rules".to_owned(),
        is_refused: true,
    };
    let named = reasons(&mut rollout, &of, 0);
    assert_eq!(
        named,
        [
            ("b (pid 1)".to_owned(), other),
            ("process 01234567".to_owned(), Reason::Unreported)
        ]
    );
    // The server has lost everything, and one of them comes back.
    let of = snapshot(&[replica("a", 5, NEW)]);
    let named = reasons(&mut rollout, &of, 4);
    assert_eq!(named.len(), 2, "{named:?}");
    let named = reasons(&mut rollout, &snapshot(&[replica("a", 9, NEW)]), 9);
    assert_eq!(named[0].1, Reason::Silent(Duration::from_secs(9)));
    // Then they are gone.
    assert_eq!(
        reasons(&mut rollout, &snapshot(&[replica("a", 20, NEW)]), 30),
        []
    );
    // It has to report anew.
    for (at, number, is_complete) in [(33, 20, false), (36, 20, false), (37, 21, true)] {
        let of = snapshot(&[replica("a", number, NEW)]);
        let verdict = rollout.look(&of, Duration::from_secs(at));
        assert_eq!(verdict.is_complete, is_complete, "{at}");
    }
}

#[test]
fn only_rules_of_the_source_and_only_enough_replicas_count() {
    let mut rollout = RolloutWatch::new(RulesDigest::new(NEW));
    rollout.source = Some("rules".to_owned());
    rollout.at_least = 2;
    let mut other = replica("b", 1, OLD);
    "others".clone_into(&mut other.report.rules[0].source);
    let mut without = replica("c", 1, OLD);
    without.report.rules.clear();
    let of = |number| snapshot(&[replica("a", number, NEW), other.clone(), without.clone()]);
    for at in 0..20 {
        let verdict = rollout.look(&of(at), Duration::from_secs(at));
        assert_eq!((verdict.enforcing, verdict.missing.len()), (1, 0));
        assert!(!verdict.is_complete, "one of two");
    }
    rollout.at_least = 1;
    let complete = (20..30).find(|at| rollout.look(&of(*at), Duration::from_secs(*at)).is_complete);
    assert_eq!(complete, Some(26));
}

#[test]
fn a_look_that_was_missed_begins_the_time_anew() {
    let mut rollout = RolloutWatch::new(RulesDigest::new(NEW));
    let mut looked = |at: u64, is_read: bool| {
        if !is_read {
            rollout.interrupted();
            return false;
        }
        let of = snapshot(&[replica("a", at, NEW)]);
        rollout.look(&of, Duration::from_secs(at)).is_complete
    };
    assert!((0..6).all(|at| !looked(at, true)));
    assert!(!looked(6, false));
    assert!((7..13).all(|at| !looked(at, true)));
    // The command stood still.
    assert!((20..26).all(|at| !looked(at, true)));
    assert!(looked(26, true));
}
