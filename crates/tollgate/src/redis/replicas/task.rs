use std::{
    collections::HashMap,
    num::NonZeroU32,
    sync::{Arc, LazyLock, Weak},
    time::Duration,
};

use redis::{Cmd, Value};
use tokio::{
    runtime::Handle,
    sync::Notify,
    time::{Instant, timeout},
};

use super::{counter::Counts, window::Window};
use crate::{
    Deadline, Error, ErrorKind, Key, ReplicaGroup, random,
    redis::{backend::Backend, protocol::Script, server::Server},
    store::answer_by,
};

/// The middle of the pause between two calls.
const INTERVAL: Duration = Duration::from_secs(2);

/// The middles of the first pauses. Processes that start together, or come back together, soon know each other.
const FIRST: [Duration; 3] = [Duration::from_millis(250), Duration::from_millis(500), Duration::from_secs(1)];

/// The time after which a silent process is not counted any more: four calls.
const LAPSE_US: u64 = 8_000_000;

/// The time that one call may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(1);

/// The subject in the hash tag, so that all sets of a prefix lie in one slot. A state has a policy and a version behind it,
/// so no state has the same key.
static SUBJECT: LazyLock<Key> = LazyLock::new(|| Key::new("replicas"));

/// The name of this process. All its stores use the same, so it counts once.
static PROCESS: LazyLock<String> = LazyLock::new(random::name);

/// Returns the key of the set of processes of a group. `subject` stands in its hash tag.
pub(in crate::redis) fn key_text(server: &Server, subject: &Key, group: ReplicaGroup) -> Vec<u8> {
    [server.prefix().as_bytes(), b":{", subject.as_bytes(), b"}:", group.to_string().as_bytes()].concat()
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
    match server.clock() {
        Some(clock) => command.arg(clock.now_us()),
        None => command.arg(""),
    };
    command.arg(process).arg(LAPSE_US);
}

/// Starts the task that counts, unless it runs or no limiter wants a number. Without a runtime, the next check does.
pub(in crate::redis) fn start<S: Counts>(store: &Arc<S>) {
    let Ok(runtime) = Handle::try_current() else { return };
    if store.counter().begin_task() {
        let changed = Arc::clone(&store.counter().changed);
        runtime.spawn(CountTask { store: Arc::downgrade(store), changed, is_over: false }.run());
    }
}

/// Counts the processes of each group as long as a limiter wants a number and the store is in use.
struct CountTask<S: Counts> {
    store: Weak<S>,
    changed: Arc<Notify>,
    is_over: bool,
}

impl<S: Counts> CountTask<S> {
    async fn run(mut self) {
        let (began, mut windows) = (Instant::now(), HashMap::<ReplicaGroup, Window>::new());
        let (mut first, mut reported) = (FIRST.iter(), None);
        loop {
            let Some(store) = self.store.upgrade() else { return };
            let wanted = store.counter().wanted();
            if wanted.is_empty() {
                self.is_over = true;
                return;
            }
            windows.retain(|group, _| wanted.iter().any(|(wanted, _)| wanted == group));
            if windows.len() < wanted.len() {
                first = FIRST.iter();
            }
            let called = Instant::now();
            let groups: Vec<_> = wanted.iter().map(|(group, _)| *group).collect();
            let pause = match call(store.backend(), &groups).await {
                Ok(counts) => {
                    #[cfg(feature = "metrics")]
                    store.counter().took(called.elapsed());
                    for ((group, count), counted) in wanted.iter().zip(counts) {
                        count.set(windows.entry(*group).or_default().counted(counted, called - began));
                    }
                    reported = None;
                    *first.next().unwrap_or(&INTERVAL)
                }
                Err(error) => {
                    windows.values_mut().for_each(Window::failed);
                    if reported != Some(error.kind()) {
                        report(&error, store.counter().last());
                        reported = Some(error.kind());
                    }
                    first = FIRST.iter();
                    INTERVAL
                }
            };
            drop((store, wanted));
            let _ = timeout(pause.mul_f64(0.8 + 0.4 * fastrand::f64()), self.changed.notified()).await;
        }
    }
}

impl<S: Counts> Drop for CountTask<S> {
    /// Lets another task count when the runtime was shut down.
    fn drop(&mut self) {
        if !self.is_over
            && let Some(store) = self.store.upgrade()
        {
            store.counter().lost_task();
        }
    }
}

/// Makes this process known in each group, and returns the numbers of processes.
async fn call(backend: &Backend, groups: &[ReplicaGroup]) -> Result<Vec<NonZeroU32>, Error> {
    if let Some(refusal) = backend.refusal(&SUBJECT) {
        return Err(refusal);
    }
    let reply = backend.run(&SUBJECT, None, Script::replicas(), groups.len(), |server, command| {
        add_call(server, &SUBJECT, groups.iter().copied(), &PROCESS, command);
    });
    let number = |value| match value {
        Value::Int(number) => u32::try_from(number).ok().and_then(NonZeroU32::new),
        _ => None,
    };
    match answer_by(Some(Deadline::after(CALL_TIMEOUT)), reply).await? {
        Value::Array(numbers) if numbers.len() == groups.len() => numbers.into_iter().map(number).collect(),
        _ => None,
    }
    .ok_or_else(|| Error::new(ErrorKind::Protocol, "redis sent a number of replicas that is not valid"))
}

/// Logs a failed call. A server that is away is an outage, which each limiter logs.
fn report(error: &Error, replicas: Option<NonZeroU32>) {
    match error.kind() {
        ErrorKind::PermissionDenied => tracing::warn!(
            code = "TOLLGATE-ACL",
            ?replicas,
            "the replicas cannot count themselves, so an outage divides by the last number; grant +zadd \
             +zremrangebyscore +zcard +pexpire on the keys of the prefix, or set `Outage::local`"
        ),
        ErrorKind::OutOfMemory
        | ErrorKind::WritesDisabled
        | ErrorKind::TooFewReplicas
        | ErrorKind::WrongType
        | ErrorKind::CrossSlot
        | ErrorKind::ClusterMismatch
        | ErrorKind::Protocol => {
            tracing::warn!(%error, ?replicas, "the replicas cannot count themselves, so an outage divides by the last number");
        }
        _ => tracing::debug!(%error, ?replicas, "the replicas could not count themselves"),
    }
}
