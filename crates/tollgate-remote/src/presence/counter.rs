//! The processes with the same limits count themselves.
//! The call is made by each store; what a count is for is decided in `limiter/outage/`.

use std::{
    collections::HashMap,
    num::NonZeroU32,
    slice,
    sync::{
        LazyLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;

use super::held::held;
use tollgate_core::{
    Error, ErrorKind, Key,
    raw::{Lock, WeakReplicaCount, micros, random},
    store::{ReplicaCount, ReplicaGroup, ReplicaReport},
};

/// The most groups of a store. One call counts all of them. Limits beyond have one group together.
const MAX_GROUPS: usize = 32;

/// Keeps the numbers of processes that limiters want, one for each group.
pub(crate) struct ReplicaCounter {
    /// Each is alive as long as a limiter wants it.
    counts: Lock<Vec<(ReplicaGroup, WeakReplicaCount)>>,
    /// The time of the last call in microseconds, 0 before the first one.
    round_trip_us: AtomicU64,
}

impl ReplicaCounter {
    pub(crate) fn new() -> Self {
        Self {
            counts: Lock::default(),
            round_trip_us: AtomicU64::new(0),
        }
    }

    /// Returns the number of a group, which is wanted from now on, and whether it was not wanted
    /// before.
    pub(crate) fn count(&self, group: ReplicaGroup) -> (ReplicaCount, bool) {
        let mut counts = self.counts.lock();
        let wanted = wanted(&mut counts);
        let find = |group| {
            wanted
                .iter()
                .find(|(wanted, _)| *wanted == group)
                .map(|(_, count)| count.clone())
        };
        let group = if find(group).is_some() || wanted.len() < MAX_GROUPS {
            group
        } else {
            ReplicaGroup::FURTHER
        };
        if let Some(count) = find(group) {
            return (count, false);
        }
        let count = ReplicaCount::new();
        counts.push((group, count.downgrade()));
        (count, true)
    }

    /// Returns the groups whose numbers limiters want.
    ///
    /// No number is held while the server is waited for, so a limiter that is dropped in that time
    /// leaves its place.
    pub(crate) fn groups(&self) -> Vec<ReplicaGroup> {
        wanted(&mut self.counts.lock())
            .iter()
            .map(|(group, _)| *group)
            .collect()
    }

    /// Sets the number of a group, unless nobody wants it any more.
    fn set(&self, group: ReplicaGroup, number: NonZeroU32) {
        if let Some((_, count)) = wanted(&mut self.counts.lock())
            .iter()
            .find(|(wanted, _)| *wanted == group)
        {
            count.set(number);
        }
    }

    /// Notes how long a call took.
    fn took(&self, round_trip: Duration) {
        self.round_trip_us
            .store(micros(round_trip).max(1), Ordering::Relaxed);
    }

    /// Returns how long the last call took. `None` before the first one.
    pub(crate) fn round_trip(&self) -> Option<Duration> {
        let micros = self.round_trip_us.load(Ordering::Relaxed);
        (micros > 0).then(|| Duration::from_micros(micros))
    }

    /// Returns the greatest of the last numbers that limiters want.
    pub(crate) fn last(&self) -> Option<NonZeroU32> {
        wanted(&mut self.counts.lock())
            .iter()
            .filter_map(|(_, count)| count.get())
            .max()
    }
}

/// Returns the numbers that limiters want, and forgets all others.
fn wanted(counts: &mut Vec<(ReplicaGroup, WeakReplicaCount)>) -> Vec<(ReplicaGroup, ReplicaCount)> {
    held(counts, |(group, count)| Some((*group, count.upgrade()?)))
}

/// The middle of the pause between two calls.
pub(crate) const INTERVAL: Duration = Duration::from_secs(2);

/// The middles of the first pauses. Processes that start together, or come back together, soon know
/// each other.
const FIRST: [Duration; 3] = [
    Duration::from_millis(250),
    Duration::from_millis(500),
    Duration::from_secs(1),
];

/// The time after which a silent process is not counted any more: four calls.
pub const LAPSE_US: u64 = ReplicaReport::LAPSE.as_micros() as u64;

/// The time that one call may take.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(1);

/// The subject in the hash tag, so that all sets of a prefix lie in one slot. A state has a policy
/// and a version behind it, so no state has the same key.
pub static SUBJECT: LazyLock<Key> = LazyLock::new(|| Key::new("replicas"));

/// The name of this process. All its stores use the same, so it counts once.
pub static PROCESS: LazyLock<String> = LazyLock::new(random::name);

/// Counts the processes of each group, one call after the other.
pub(crate) struct GroupCounter {
    began: Instant,
    windows: HashMap<ReplicaGroup, CountFilter>,
    /// The pauses that are left of the first ones.
    first: slice::Iter<'static, Duration>,
    complaints: Complaints,
}

/// Remembers which kind of error was logged last, until a call succeeds.
#[derive(Default)]
pub(crate) struct Complaints(Option<ErrorKind>);

impl Complaints {
    /// Returns whether an error has to be logged.
    pub(crate) fn is_new(&mut self, error: &Error) -> bool {
        self.0.replace(error.kind()) != Some(error.kind())
    }

    pub(crate) fn forget(&mut self) {
        self.0 = None;
    }
}

impl GroupCounter {
    pub(crate) fn new() -> Self {
        Self {
            began: Instant::now(),
            windows: HashMap::new(),
            first: FIRST.iter(),
            complaints: Complaints::default(),
        }
    }

    /// Makes this process known in these groups by a call, and sets their numbers. Returns the pause until
    /// the next call, and `None` when there is no group.
    pub(crate) async fn count(
        &mut self,
        counter: &ReplicaCounter,
        groups: &[ReplicaGroup],
        call: impl Future<Output = Result<Vec<NonZeroU32>, Error>>,
    ) -> Option<Duration> {
        self.windows.retain(|group, _| groups.contains(group));
        if groups.is_empty() {
            return None;
        }
        if self.windows.len() < groups.len() {
            self.first = FIRST.iter();
        }
        let called = Instant::now();
        let pause = match call.await {
            Ok(counts) => {
                counter.took(called.elapsed());
                for (group, counted) in groups.iter().zip(counts) {
                    let number = self
                        .windows
                        .entry(*group)
                        .or_default()
                        .counted(counted, called - self.began);
                    counter.set(*group, number);
                }
                self.complaints.forget();
                *self.first.next().unwrap_or(&INTERVAL)
            }
            Err(error) => {
                self.windows.values_mut().for_each(CountFilter::failed);
                if self.complaints.is_new(&error) {
                    report(&error, counter.last());
                }
                self.first = FIRST.iter();
                INTERVAL
            }
        };
        Some(pause)
    }
}

/// Logs a failed call. A server that is away is an outage, which each limiter logs.
fn report(error: &Error, replicas: Option<NonZeroU32>) {
    let replicas = replicas.map(NonZeroU32::get);
    match error.kind() {
        ErrorKind::PermissionDenied => tracing::warn!(
            code = "TOLLGATE-ACL",
            replicas,
            "the replicas cannot count themselves, so an outage divides by the last number; grant +zadd \
             +zremrangebyscore +zcard +pexpire on the keys of the prefix, or set `Outage::local`"
        ),
        kind if is_away(kind) => {
            tracing::debug!(%error, replicas, "the replicas could not count themselves");
        }
        _ => {
            tracing::warn!(%error, replicas, "the replicas cannot count themselves, so an outage divides by the last number");
        }
    }
}

/// Returns whether a call failed because the server cannot be used now, and not because it refuses
/// the call.
pub(crate) fn is_away(kind: ErrorKind) -> bool {
    !matches!(
        kind,
        ErrorKind::OutOfMemory
            | ErrorKind::WritesDisabled
            | ErrorKind::TooFewReplicas
            | ErrorKind::WrongType
            | ErrorKind::CrossSlot
            | ErrorKind::ClusterMismatch
            | ErrorKind::Protocol
    )
}

/// Follows the counts of a server: up at once, down when a smaller count lasts.
///
/// A server that restarts without data counts from 1 again, until each process has called. An
/// outage in that time would be decided with too large shares.
#[derive(Debug, Default)]
struct CountFilter {
    current: Option<NonZeroU32>,
    /// Since when each count was smaller than the current one, and the greatest of them.
    smaller: Option<(Duration, NonZeroU32)>,
}

/// The time after which a smaller count is believed.
const HOLD: Duration = Duration::from_secs(5);

impl CountFilter {
    /// Takes a count that came at `now`, and returns the count to use.
    fn counted(&mut self, count: NonZeroU32, now: Duration) -> NonZeroU32 {
        let current = match self.current {
            Some(current) if count < current => current,
            Some(_) | None => {
                (self.current, self.smaller) = (Some(count), None);
                return count;
            }
        };
        let (since, most) = self
            .smaller
            .map_or((now, count), |(since, most)| (since, most.max(count)));
        if now.saturating_sub(since) < HOLD {
            self.smaller = Some((since, most));
            return current;
        }
        (self.current, self.smaller) = (Some(most), None);
        most
    }

    /// Notes that a count failed. Smaller counts from before it are not believed.
    fn failed(&mut self) {
        self.smaller = None;
    }
}

#[cfg(test)]
mod window_tests {
    use super::*;

    fn counted(window: &mut CountFilter, counts: &[(u64, u32)]) -> Vec<u32> {
        let count = |number| NonZeroU32::new(number).expect("not zero");
        counts
            .iter()
            .map(|&(ms, number)| {
                window
                    .counted(count(number), Duration::from_millis(ms))
                    .get()
            })
            .collect()
    }

    #[test]
    fn a_greater_count_is_used_at_once_and_a_smaller_one_when_it_lasts() {
        let mut window = CountFilter::default();
        assert_eq!(
            counted(
                &mut window,
                &[(0, 1), (100, 8), (200, 8), (2_000, 3), (4_000, 3)]
            ),
            [1, 8, 8, 8, 8]
        );
        assert_eq!(
            counted(&mut window, &[(6_999, 3), (7_000, 3), (7_001, 2)]),
            [8, 3, 3]
        );
    }

    #[test]
    fn a_server_that_restarted_without_data_does_not_shrink_the_count() {
        let mut window = CountFilter::default();
        assert_eq!(
            counted(
                &mut window,
                &[(0, 8), (10, 1), (500, 4), (2_400, 8), (9_000, 8)]
            ),
            [8, 8, 8, 8, 8]
        );
        // The greatest of the smaller counts is believed, not the last one.
        assert_eq!(
            counted(&mut window, &[(10_000, 1), (12_000, 6), (15_000, 5)]),
            [8, 8, 6]
        );
    }

    #[test]
    fn smaller_counts_on_both_sides_of_an_outage_do_not_add_up() {
        let mut window = CountFilter::default();
        assert_eq!(counted(&mut window, &[(0, 8), (1_000, 1)]), [8, 8]);
        window.failed();
        assert_eq!(counted(&mut window, &[(60_000, 1), (62_000, 8)]), [8, 8]);
    }
}
