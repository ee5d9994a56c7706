//! The processes with the same limits count themselves.

use std::{
    collections::HashMap,
    fmt::Display,
    num::NonZeroU32,
    slice,
    sync::{
        LazyLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use redis::{Cmd, Value};
use tokio::time::Instant;

use crate::{
    Error, ErrorKind, Key,
    clock::micros,
    lock::Lock,
    random,
    redis::{backend::Backend, protocol::Script, server::Server},
    store::{Deadline, ReplicaCount, ReplicaGroup, WeakReplicaCount, answer_by},
};

/// The most groups of a store. One call counts all of them. Limits beyond have one group together.
const MAX_GROUPS: usize = 32;

/// The numbers of processes that limiters want, one for each group.
pub(in crate::redis) struct ReplicaCounter {
    /// Each is alive as long as a limiter wants it.
    counts: Lock<Vec<(ReplicaGroup, WeakReplicaCount)>>,
    /// The time of the last call in microseconds, 0 before the first one.
    round_trip_us: AtomicU64,
}

impl ReplicaCounter {
    pub(in crate::redis) fn new() -> Self {
        Self {
            counts: Lock::default(),
            round_trip_us: AtomicU64::new(0),
        }
    }

    /// Returns the number of a group, which is wanted from now on, and whether it was not wanted
    /// before.
    pub(in crate::redis) fn count(&self, group: ReplicaGroup) -> (ReplicaCount, bool) {
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
    pub(in crate::redis) fn groups(&self) -> Vec<ReplicaGroup> {
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
    pub(in crate::redis) fn round_trip(&self) -> Option<Duration> {
        let micros = self.round_trip_us.load(Ordering::Relaxed);
        (micros > 0).then(|| Duration::from_micros(micros))
    }

    /// Returns the greatest of the last numbers that limiters want.
    pub(in crate::redis) fn last(&self) -> Option<NonZeroU32> {
        wanted(&mut self.counts.lock())
            .iter()
            .filter_map(|(_, count)| count.get())
            .max()
    }
}

/// Returns the numbers that limiters want, and forgets all others.
fn wanted(counts: &mut Vec<(ReplicaGroup, WeakReplicaCount)>) -> Vec<(ReplicaGroup, ReplicaCount)> {
    let mut wanted = Vec::new();
    counts.retain(|(group, count)| {
        let count = count.upgrade();
        let is_wanted = count.is_some();
        wanted.extend(count.map(|count| (*group, count)));
        is_wanted
    });
    wanted
}

/// The middle of the pause between two calls.
pub(in crate::redis) const INTERVAL: Duration = Duration::from_secs(2);

/// The middles of the first pauses. Processes that start together, or come back together, soon know
/// each other.
const FIRST: [Duration; 3] = [
    Duration::from_millis(250),
    Duration::from_millis(500),
    Duration::from_secs(1),
];

/// The time after which a silent process is not counted any more: four calls.
pub(in crate::redis) const LAPSE_US: u64 = 8_000_000;

/// The time that one call may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(1);

/// The subject in the hash tag, so that all sets of a prefix lie in one slot. A state has a policy
/// and a version behind it, so no state has the same key.
pub(in crate::redis) static SUBJECT: LazyLock<Key> = LazyLock::new(|| Key::new("replicas"));

/// The name of this process. All its stores use the same, so it counts once.
static PROCESS: LazyLock<String> = LazyLock::new(random::name);

/// Returns the key of the set of processes of a group, or of another set beside it. `subject`
/// stands in its hash tag.
pub(in crate::redis) fn key_text(server: &Server, subject: &Key, group: impl Display) -> Vec<u8> {
    [
        server.prefix().as_bytes(),
        b":{",
        subject.as_bytes(),
        b"}:",
        group.to_string().as_bytes(),
    ]
    .concat()
}

/// Adds the keys of the groups, and the arguments of a call by `process`.
pub(in crate::redis) fn add_call(
    server: &Server,
    subject: &Key,
    groups: impl IntoIterator<Item = ReplicaGroup>,
    process: &str,
    command: &mut Cmd,
) {
    for group in groups {
        command.arg(key_text(server, subject, group));
    }
    add_time(server, command);
    command.arg(process).arg(LAPSE_US);
}

/// Adds the time for a server that forbids its clock, and nothing for any other.
pub(in crate::redis) fn add_time(server: &Server, command: &mut Cmd) {
    match server.clock() {
        Some(clock) => command.arg(clock.now_us()),
        None => command.arg(""),
    };
}

/// Counts the processes of each group, one call after the other.
pub(in crate::redis) struct GroupCounter {
    began: Instant,
    windows: HashMap<ReplicaGroup, Window>,
    /// The pauses that are left of the first ones.
    first: slice::Iter<'static, Duration>,
    complaints: Complaints,
}

/// Remembers which kind of error was logged last, until a call succeeds.
#[derive(Default)]
pub(in crate::redis) struct Complaints(Option<ErrorKind>);

impl Complaints {
    /// Returns whether an error has to be logged.
    pub(in crate::redis) fn is_new(&mut self, error: &Error) -> bool {
        self.0.replace(error.kind()) != Some(error.kind())
    }

    pub(in crate::redis) fn forget(&mut self) {
        self.0 = None;
    }
}

impl GroupCounter {
    pub(in crate::redis) fn new() -> Self {
        Self {
            began: Instant::now(),
            windows: HashMap::new(),
            first: FIRST.iter(),
            complaints: Complaints::default(),
        }
    }

    /// Makes this process known in these groups, and sets their numbers. Returns the pause until
    /// the next call, and `None` when there is no group.
    pub(in crate::redis) async fn count(
        &mut self,
        backend: &Backend,
        counter: &ReplicaCounter,
        groups: &[ReplicaGroup],
    ) -> Option<Duration> {
        self.windows.retain(|group, _| groups.contains(group));
        if groups.is_empty() {
            return None;
        }
        if self.windows.len() < groups.len() {
            self.first = FIRST.iter();
        }
        let called = Instant::now();
        let pause = match call(backend, groups).await {
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
                self.windows.values_mut().for_each(Window::failed);
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

/// Runs a script of housekeeping at the server of the sets, while that server is asked.
pub(in crate::redis) async fn run(
    backend: &Backend,
    script: &Script,
    keys: usize,
    fill: impl Fn(&Server, &mut Cmd),
) -> Result<Value, Error> {
    if let Some(refusal) = backend.refusal(&SUBJECT, None) {
        return Err(refusal);
    }
    answer_by(
        Some(Deadline::after(CALL_TIMEOUT)),
        backend.run(&SUBJECT, None, script, keys, fill),
    )
    .await
}

/// Makes this process known in each group, and returns the numbers of processes.
async fn call(backend: &Backend, groups: &[ReplicaGroup]) -> Result<Vec<NonZeroU32>, Error> {
    let reply = run(
        backend,
        Script::replicas(),
        groups.len(),
        |server, command| {
            add_call(server, &SUBJECT, groups.iter().copied(), &PROCESS, command);
        },
    );
    let number = |value| match value {
        Value::Int(number) => u32::try_from(number).ok().and_then(NonZeroU32::new),
        _ => None,
    };
    match reply.await? {
        Value::Array(numbers) if numbers.len() == groups.len() => {
            numbers.into_iter().map(number).collect()
        }
        _ => None,
    }
    .ok_or_else(|| {
        Error::new(
            ErrorKind::Protocol,
            "redis sent a number of replicas that is not valid",
        )
    })
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
pub(in crate::redis) fn is_away(kind: ErrorKind) -> bool {
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
struct Window {
    current: Option<NonZeroU32>,
    /// Since when each count was smaller than the current one, and the greatest of them.
    smaller: Option<(Duration, NonZeroU32)>,
}

/// The time after which a smaller count is believed.
const HOLD: Duration = Duration::from_secs(5);

impl Window {
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

    fn counted(window: &mut Window, counts: &[(u64, u32)]) -> Vec<u32> {
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
        let mut window = Window::default();
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
        let mut window = Window::default();
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
        let mut window = Window::default();
        assert_eq!(counted(&mut window, &[(0, 8), (1_000, 1)]), [8, 8]);
        window.failed();
        assert_eq!(counted(&mut window, &[(60_000, 1), (62_000, 8)]), [8, 8]);
    }
}
