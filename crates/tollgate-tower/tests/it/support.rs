//! Policies, stores, services and recorders that the tests share.

use std::{
    convert::Infallible,
    sync::{Arc, LazyLock, Mutex},
    time::Duration,
};

use http::{Request, Response, StatusCode};
use tollgate::{Limiter, Policy, Quota};
use tollgate_tower::{HeaderFormat, ResetFormat};
use tower::{Layer, Service, ServiceExt};
use tracing::{Event, Metadata, Subscriber, field::Visit, span};

pub(crate) use tollgate_tests::http::{
    header, hello, in_one_tenth, listen, request, request_with, second, serve,
};

#[path = "../../../../tests/stores.rs"]
mod stores;

pub(crate) use stores::{Late, TWO, still, tokio_clock_store, unavailable};

pub(crate) const ONE: Policy = Policy::token_bucket("one", Quota::per_minute(1));
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
