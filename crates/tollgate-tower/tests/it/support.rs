//! Policies, stores, services and recorders that the tests share.

use std::{
    convert::Infallible,
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, LazyLock, Mutex},
    time::{Duration, SystemTime},
};

use axum::Router;
use http::{Request, Response, StatusCode};
use tokio::net::TcpListener;
use tollgate::{
    Decision, Limiter, MemoryStore, Outage, Policy, Quota, Store,
    store::{Check, CheckFuture, Clock, StoreFuture},
    test_util::FaultyStore,
};
use tollgate_tower::{HeaderFormat, ResetFormat};
use tower::{Layer, Service, ServiceExt, service_fn};
use tracing::{Event, Metadata, Subscriber, field::Visit, span};

pub(crate) const ONE: Policy = Policy::token_bucket("one", Quota::per_minute(1));
pub(crate) const TWO: Policy = Policy::token_bucket("two", Quota::per_minute(2));
pub(crate) const HOURLY: Policy = Policy::window_from_first_hit("hourly", Quota::per_hour(3));

pub(crate) const HEADER_FORMATS: [HeaderFormat; 12] = [
    HeaderFormat::Ietf08,
    HeaderFormat::Ietf07,
    HeaderFormat::Ietf06,
    HeaderFormat::Envoy03,
    HeaderFormat::Legacy {
        reset: ResetFormat::Seconds,
    },
    HeaderFormat::GitHub,
    HeaderFormat::Spring,
    HeaderFormat::RetryAfter,
    HeaderFormat::TowerGovernor,
    HeaderFormat::OpenAi,
    HeaderFormat::Anthropic,
    HeaderFormat::None,
];

/// Creates a store in the process whose clock stands still.
pub(crate) fn still() -> MemoryStore {
    MemoryStore::builder()
        .clock(Clock::manual(1_000_000_000))
        .build()
}

/// Delays the results of another store, on the clock of tokio.
#[derive(Clone, Debug)]
pub(crate) struct Late<S>(pub(crate) S);

impl<S> Late<S> {
    const DELAY: Duration = Duration::from_millis(5);

    fn delay<T: Send + Unpin + 'static>(result: StoreFuture<T>) -> StoreFuture<T> {
        StoreFuture::pending(async {
            tokio::time::sleep(Self::DELAY).await;
            result.await
        })
    }
}

impl<S: Store> Store for Late<S> {
    fn check(&self, check: Check<'_>) -> CheckFuture {
        Self::delay(self.0.check(check))
    }

    fn refund(&self, check: Check<'_>, decision: Option<&Decision>) -> StoreFuture<()> {
        Self::delay(self.0.refund(check, decision))
    }

    fn reset(&self, check: Check<'_>) -> StoreFuture<()> {
        Self::delay(self.0.reset(check))
    }
}

/// Creates a store in the process that follows the clock of tokio, which the tests pause.
pub(crate) fn tokio_clock_store() -> MemoryStore {
    MemoryStore::builder().clock(Clock::tokio()).build()
}

/// Keeps a paused clock of tokio from moving by itself, while tasks wait for sockets.
pub(crate) struct StoppedClock {
    _running: std::sync::mpsc::Sender<()>,
}

impl StoppedClock {
    pub(crate) fn start() -> Self {
        let (sender, receiver) = std::sync::mpsc::channel();
        // The clock does not advance while a blocking task runs.
        tokio::task::spawn_blocking(move || receiver.recv());
        Self { _running: sender }
    }

    #[allow(clippy::unused_self, reason = "only a clock that was stopped is moved")]
    pub(crate) async fn advance(&self, duration: Duration) {
        tokio::time::advance(duration).await;
    }
}

/// Creates a limiter during an outage of its store.
pub(crate) fn unavailable(outage: Outage) -> Limiter {
    let store = FaultyStore::default();
    store.fail();
    Limiter::builder(store)
        .policies(TWO)
        .on_outage(outage)
        .build()
}

/// Spends units that are there.
pub(crate) async fn spend(limiter: &Limiter, key: &'static str, units: u64) {
    let decision = limiter.check(key).cost(units).await.unwrap();
    assert!(decision.is_allowed());
}

/// Returns the remaining units of a key under a policy.
pub(crate) async fn remaining(limiter: &Limiter, key: &'static str, policy: &str) -> u64 {
    limiter
        .peek(key)
        .await
        .unwrap()
        .state(policy)
        .unwrap()
        .remaining()
}

/// Responds with 200 and a text.
pub(crate) fn hello()
-> impl Service<Request<()>, Response = Response<String>, Error = Infallible, Future: Send> + Clone
{
    service_fn(|_: Request<()>| async { Ok(Response::new("hello".to_owned())) })
}

pub(crate) type BoxedService =
    tower::util::BoxCloneService<Request<()>, Response<String>, Infallible>;

/// Sends one request through a layer around [`hello`].
pub(crate) async fn send<L>(layer: &L, request: Request<()>) -> Response<String>
where
    L: Layer<BoxedService>,
    L::Service: Service<Request<()>, Response = Response<String>, Error = Infallible>,
{
    let Ok(response) = layer
        .layer(BoxedService::new(hello()))
        .oneshot(request)
        .await;
    response
}

/// Returns the statuses of `count` requests in a row.
pub(crate) async fn statuses<L>(layer: &L, count: usize) -> Vec<StatusCode>
where
    L: Layer<BoxedService>,
    L::Service: Service<Request<()>, Response = Response<String>, Error = Infallible>,
{
    let mut statuses = Vec::new();
    for _ in 0..count {
        statuses.push(send(layer, request()).await.status());
    }
    statuses
}

/// Returns the time of day in seconds.
pub(crate) fn second() -> u64 {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .expect("a time after 1970")
        .as_secs()
}

/// Returns what `work` returns in one tenth of a second of the system clock. Some header formats
/// show the time of a reset by that clock in whole seconds: it stays the same meanwhile when the
/// reset is a whole number of tenths away.
pub(crate) async fn in_one_tenth<T>(mut work: impl AsyncFnMut() -> T) -> T {
    let tenth = || {
        SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap()
            .as_millis()
            / 100
    };
    loop {
        let began = tenth();
        let done = work().await;
        if tenth() == began {
            return done;
        }
    }
}

pub(crate) fn request() -> Request<()> {
    Request::new(())
}

/// Returns a request with one header.
pub(crate) fn request_with(name: &str, value: &str) -> Request<()> {
    Request::builder().header(name, value).body(()).unwrap()
}

/// Returns the value of a header that must not have more than one line.
pub(crate) fn header<'a, B>(response: &'a Response<B>, name: &str) -> Option<&'a str> {
    let mut lines = response.headers().get_all(name).iter();
    let line = lines.next()?;
    assert!(lines.next().is_none(), "{name} has more than one line");
    Some(line.to_str().unwrap())
}

/// Listens on a free port.
pub(crate) async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// Serves a router on a free port, with the addresses of the peers.
pub(crate) async fn serve(router: Router) -> SocketAddr {
    let (listener, address) = listen().await;
    let service = router.into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async move { axum::serve(listener, service).await });
    address
}

/// Stores the fields of all log events.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("tollgate")
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        struct Line(String);
        impl Visit for Line {
            fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
                self.0 += &format!(" {}={value:?}", field.name());
            }
        }
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

/// Returns the log lines with this text that `work` has written.
pub(crate) async fn logged(text: &str, work: impl Future<Output = ()>) -> Vec<String> {
    // A second subscriber that stays alive. With a single one, a thread without it could disable
    // the event for all threads.
    static SECOND: LazyLock<tracing::Dispatch> =
        LazyLock::new(|| tracing::Dispatch::new(Log::default()));
    LazyLock::force(&SECOND);
    let log = Log::default();
    let guard = tracing::subscriber::set_default(log.clone());
    work.await;
    drop(guard);
    let lines = log.0.lock().unwrap();
    lines
        .iter()
        .filter(|line| line.contains(text))
        .cloned()
        .collect()
}

#[cfg(feature = "metrics")]
pub(crate) mod recorder {
    use std::collections::BTreeMap;

    use metrics_util::debugging::{DebugValue, DebuggingRecorder};

    /// Stores all time series of a test by their names and labels.
    pub(crate) struct Series(pub(crate) BTreeMap<String, DebugValue>);

    impl Series {
        /// Runs `work` with a recorder of its own.
        pub(crate) fn of(work: impl Future<Output = ()>) -> Self {
            let recorder = DebuggingRecorder::new();
            let snapshotter = recorder.snapshotter();
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_time()
                .build()
                .unwrap();
            metrics::with_local_recorder(&recorder, || runtime.block_on(work));
            let series = snapshotter
                .snapshot()
                .into_vec()
                .into_iter()
                .map(|(key, _, _, value)| {
                    let labels: Vec<_> = key
                        .key()
                        .labels()
                        .map(|label| format!("{}={}", label.key(), label.value()))
                        .collect();
                    (format!("{} {}", key.key().name(), labels.join(" ")), value)
                });
            Self(series.collect())
        }

        /// Returns the value of a counter.
        pub(crate) fn count(&self, name: &str) -> u64 {
            match self.0.get(name) {
                Some(DebugValue::Counter(count)) => *count,
                other => panic!("{name}: {other:?} in {:?}", self.0.keys()),
            }
        }

        /// Asserts the values of counters: a line for each, with its name, its labels and its value.
        pub(crate) fn assert_counts(&self, expected: &str) {
            for line in expected
                .lines()
                .map(str::trim)
                .filter(|line| !line.is_empty())
            {
                let (name, value) = line.rsplit_once(' ').unwrap();
                assert_eq!(self.count(name).to_string(), value, "{name}");
            }
        }
    }
}
