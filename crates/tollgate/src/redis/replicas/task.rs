use std::{
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
    Deadline, Error, ErrorKind, Key, ReplicaCount, random,
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

/// The subject in the hash tag, so that the set of a prefix lies in one slot. A state has a policy behind it, so no
/// state has the same key.
static SUBJECT: LazyLock<Key> = LazyLock::new(|| Key::new("replicas"));

/// The name of this process. All its stores use the same, so it counts once.
static PROCESS: LazyLock<String> = LazyLock::new(random::name);

/// Returns the key of the set of processes. `subject` stands in its hash tag.
pub(in crate::redis) fn key_text(server: &Server, subject: &Key) -> Vec<u8> {
    [server.prefix().as_bytes(), b":{", subject.as_bytes(), b"}"].concat()
}

/// Adds the key and the arguments of a call by `process`.
pub(in crate::redis) fn add_call(server: &Server, subject: &Key, process: &str, command: &mut Cmd) {
    command.arg(key_text(server, subject));
    match server.clock() {
        Some(clock) => command.arg(clock.now_us()),
        None => command.arg(""),
    };
    command.arg(process).arg(LAPSE_US);
}

/// Starts the task that counts, unless it runs or no limiter wants the number. Without a runtime, the next check does.
pub(in crate::redis) fn start<S: Counts>(store: &Arc<S>) {
    let Ok(runtime) = Handle::try_current() else { return };
    if store.counter().begin_task() {
        let dropped = Arc::clone(&store.counter().dropped);
        runtime.spawn(CountTask { store: Arc::downgrade(store), dropped, is_over: false }.run());
    }
}

/// Counts the processes of a prefix as long as a limiter wants the number and the store is in use.
struct CountTask<S: Counts> {
    store: Weak<S>,
    dropped: Arc<Notify>,
    is_over: bool,
}

impl<S: Counts> CountTask<S> {
    async fn run(mut self) {
        let (began, mut window) = (Instant::now(), Window::default());
        let (mut first, mut reported) = (FIRST.iter(), None);
        loop {
            let Some(store) = self.store.upgrade() else { return };
            let Some(count) = store.counter().wanted() else {
                self.is_over = true;
                return;
            };
            let called = Instant::now();
            let pause = match call(store.backend()).await {
                Ok(counted) => {
                    #[cfg(feature = "metrics")]
                    store.counter().took(called.elapsed());
                    count.set(window.counted(counted, called - began));
                    reported = None;
                    *first.next().unwrap_or(&INTERVAL)
                }
                Err(error) => {
                    window.failed();
                    if reported != Some(error.kind()) {
                        report(&error, &count);
                        reported = Some(error.kind());
                    }
                    first = FIRST.iter();
                    INTERVAL
                }
            };
            drop((store, count));
            let _ = timeout(pause.mul_f64(0.8 + 0.4 * fastrand::f64()), self.dropped.notified()).await;
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

/// Makes this process known, and returns the number of processes.
async fn call(backend: &Backend) -> Result<NonZeroU32, Error> {
    if let Some(refusal) = backend.refusal(&SUBJECT) {
        return Err(refusal);
    }
    let reply = backend.run(&SUBJECT, None, Script::replicas(), 1, |server, command| {
        add_call(server, &SUBJECT, &PROCESS, command);
    });
    match answer_by(Some(Deadline::after(CALL_TIMEOUT)), reply).await? {
        Value::Int(number) => u32::try_from(number).ok().and_then(NonZeroU32::new),
        _ => None,
    }
    .ok_or_else(|| Error::new(ErrorKind::Protocol, "redis sent a number of replicas that is not valid"))
}

/// Logs a failed call. A server that is away is an outage, which each limiter logs.
fn report(error: &Error, count: &ReplicaCount) {
    let replicas = count.get();
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
