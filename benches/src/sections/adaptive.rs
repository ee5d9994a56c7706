//! Measures limits on requests in flight while the service is ten times as slow as before.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use axum::body::Body;
use http::{Request, Response, StatusCode};
use tokio::{
    runtime::Runtime,
    sync::{Semaphore, mpsc},
    time::{sleep, timeout},
};
use tollgate_tower::adaptive::{AdaptiveLayer, AdaptiveLimiter, Class, Gradient};
use tower::{
    BoxError, Layer, Service, ServiceBuilder, ServiceExt,
    limit::ConcurrencyLimitLayer,
    load_shed::{LoadShedLayer, error::Overloaded},
    util::BoxCloneSyncService,
};
use tower_resilience_adaptive::{AdaptiveLimiterLayer, Gradient2};

use crate::{
    keys::Random,
    load::{self, percentile},
    pace::{Pace, Rounds},
    report::{Findings, Table, Target, figure},
    rounds::{Case, Series, alternate},
};

/// The requests that the service works on at a time, and the time for each. Others wait in it.
const WORKERS: usize = 64;
const SERVICE_MS: u32 = 20;

/// The factor of the service time while the service is slow.
const SLOW: u32 = 10;

/// The requests per second of each class: half of what the service can do, and five times what it
/// can do while it is slow.
const LOAD: [f64; 3] = [150.0, 725.0, 725.0];

/// The time that a client waits for its response.
const PATIENCE: Duration = Duration::from_secs(1);

/// The limits at the start.
const LIMIT: usize = 96;

/// The lowest adaptive limit. The usual load needs 32 requests in flight, so a limit that falls as
/// low has to rise again.
const LOWEST: usize = 8;

type Stack = BoxCloneSyncService<Request<()>, Response<Body>, BoxError>;

/// Stores what became of one request.
struct Sample {
    class: usize,
    due: Duration,
    took: Duration,
    outcome: Outcome,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Good,
    Shed,
    TimedOut,
}

/// Stores the figures of one turn.
struct Turn {
    critical: f64,
    others: f64,
    others_shed: f64,
    critical_p99_ms: f64,
    recovery_s: f64,
}

pub(crate) fn run(pace: &Pace) -> Findings {
    let runtime = load::runtime();
    let rounds = Rounds {
        count: if pace.is_quick { 1 } else { 3 },
        turn: slow_time(pace),
    };
    let runtime = &runtime;
    let cases =
        contestants().map(|(name, build)| Case::new(name, move |time| turn(runtime, build, time)));
    let series = alternate(rounds, cases.into());
    let mut findings = Findings::default();
    let ours = &series[0];
    findings.goal(
        "critical requests answered while the service is slow",
        Target::AtLeast(99.0),
        ours.median(|turn| turn.critical),
        " %",
    );
    findings.goal(
        "others that are told to come back meanwhile, of those without a response",
        Target::AtLeast(99.0),
        ours.median(|turn| turn.others_shed),
        " %",
    );
    findings.goal(
        "time until 95 % of all requests are answered again",
        Target::AtMost(5.0),
        ours.median(|turn| turn.recovery_s),
        " s",
    );
    findings.tables.push(table(pace, &series));
    findings
}

fn slow_time(pace: &Pace) -> Duration {
    if pace.is_quick {
        Duration::from_secs(2)
    } else {
        Duration::from_secs(10)
    }
}

fn table(pace: &Pace, series: &[Series<Turn>]) -> Table {
    let about = format!(
        "A service works on {WORKERS} requests at a time, {SERVICE_MS} ms each, and on {SLOW} times as long for {} s. Three \
         classes send {LOAD:?} requests per second, and their clients wait for {} s. `tower` and `tower-resilience` hold \
         requests back in `poll_ready`, so `LoadShed` stands in front of them; they know no classes. A request is answered \
         when its response comes in time.",
        slow_time(pace).as_secs(),
        PATIENCE.as_secs(),
    );
    let heads = [
        "",
        "critical answered %",
        "critical p99 ms",
        "others answered %",
        "others: 503, of the rest %",
        "recovery s",
    ];
    let mut table = Table::new("A service that is slow for some time", about, &heads);
    for one in series {
        table.row([
            one.name.clone(),
            figure(one.median(|turn| turn.critical)),
            figure(one.median(|turn| turn.critical_p99_ms)),
            figure(one.median(|turn| turn.others)),
            figure(one.median(|turn| turn.others_shed)),
            figure(one.median(|turn| turn.recovery_s)),
        ]);
    }
    table
}

type Build = fn(Simulated) -> Stack;

fn contestants() -> [(&'static str, Build); 4] {
    [
        ("tollgate, gradient", tollgate),
        ("tower-resilience, Gradient2, and LoadShed", resilience),
        ("tower::limit::ConcurrencyLimit, and LoadShed", fixed),
        ("no limit", |service| boxed(service.map_err(BoxError::from))),
    ]
}

fn tollgate(service: Simulated) -> Stack {
    let limits = LOWEST as u32..=1000;
    let limiter = AdaptiveLimiter::builder(Gradient::new())
        .limits(limits)
        .initial_limit(LIMIT as u32)
        .build();
    let class =
        |parts: &http::request::Parts| *parts.extensions.get().expect("each request has a class");
    let layer = AdaptiveLayer::builder(limiter).class(class).build();
    boxed(
        layer
            .layer(service)
            .map_response(|response: Response<_>| response.map(Body::new))
            .map_err(BoxError::from),
    )
}

fn resilience(service: Simulated) -> Stack {
    let algorithm = Gradient2::builder()
        .initial_limit(LIMIT)
        .min_limit(LOWEST)
        .max_limit(1000)
        .build();
    let layer = AdaptiveLimiterLayer::new(algorithm.expect("the bounds are in order"));
    boxed(
        ServiceBuilder::new()
            .layer(LoadShedLayer::new())
            .layer(layer)
            .service(service)
            .map_err(Into::into),
    )
}

fn fixed(service: Simulated) -> Stack {
    let layers = ServiceBuilder::new()
        .layer(LoadShedLayer::new())
        .layer(ConcurrencyLimitLayer::new(LIMIT));
    boxed(layers.service(service))
}

fn boxed<S>(service: S) -> Stack
where
    S: Service<Request<()>, Response = Response<Body>, Error = BoxError, Future: Send>
        + Clone
        + Send
        + Sync
        + 'static,
{
    BoxCloneSyncService::new(service)
}

/// Works on a fixed number of requests at a time.
#[derive(Clone)]
struct Simulated {
    workers: Arc<Semaphore>,
    service_ms: Arc<AtomicU32>,
}

impl Service<Request<()>> for Simulated {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = futures_util::future::BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(
        &mut self,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Result<(), Infallible>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        let this = self.clone();
        Box::pin(async move {
            let _worker = this.workers.acquire().await;
            sleep(Duration::from_millis(
                this.service_ms.load(Ordering::Relaxed).into(),
            ))
            .await;
            Ok(Response::new(Body::empty()))
        })
    }
}

/// Runs the service at its usual speed for half of the time, slowly for the whole of it, and at its
/// usual speed again.
fn turn(runtime: &Runtime, build: Build, slow: Duration) -> Turn {
    let simulated = Simulated {
        workers: Arc::new(Semaphore::new(WORKERS)),
        service_ms: Arc::new(AtomicU32::new(SERVICE_MS)),
    };
    let service_ms = Arc::clone(&simulated.service_ms);
    let service = build(simulated);
    let (from, to) = (slow / 2, slow / 2 + slow);
    // Longer than the bound on the recovery.
    let end = to + slow.max(Duration::from_secs(6));
    let samples = runtime.block_on(async move {
        let (sender, mut receiver) = mpsc::unbounded_channel();
        let (began, mut random) = (Instant::now(), Random::new(7));
        let mut due = LOAD.map(|_| Duration::ZERO);
        while began.elapsed() < end {
            let now = began.elapsed();
            let factor = if (from..to).contains(&now) { SLOW } else { 1 };
            service_ms.store(SERVICE_MS * factor, Ordering::Relaxed);
            for (class, due) in due.iter_mut().enumerate() {
                while *due <= now {
                    tokio::spawn(request(service.clone(), class, began, *due, sender.clone()));
                    *due += Duration::from_secs_f64(-(1.0 - random.share()).ln() / LOAD[class]);
                }
            }
            sleep(Duration::from_millis(1)).await;
        }
        drop(sender);
        let mut samples = Vec::new();
        while let Some(sample) = receiver.recv().await {
            samples.push(sample);
        }
        samples
    });
    figures(&samples, from, to, end)
}

async fn request(
    service: Stack,
    class: usize,
    began: Instant,
    due: Duration,
    sender: mpsc::UnboundedSender<Sample>,
) {
    let mut request = Request::new(());
    request.extensions_mut().insert(Class::new(class as u8));
    let outcome = match timeout(PATIENCE, service.oneshot(request)).await {
        Ok(Ok(response)) if response.status() == StatusCode::SERVICE_UNAVAILABLE => Outcome::Shed,
        Ok(Ok(response)) if response.status() == StatusCode::OK => Outcome::Good,
        Ok(Ok(response)) => panic!("the service answers {}", response.status()),
        Ok(Err(error)) if error.is::<Overloaded>() => Outcome::Shed,
        Ok(Err(error)) => panic!("the service fails: {error}"),
        Err(_) => Outcome::TimedOut,
    };
    // The receiver waits for all samples.
    let _ = sender.send(Sample {
        class,
        due,
        took: began.elapsed().saturating_sub(due),
        outcome,
    });
}

fn figures(samples: &[Sample], from: Duration, to: Duration, end: Duration) -> Turn {
    let share = |part: usize, whole: usize| {
        if whole == 0 {
            f64::NAN
        } else {
            100.0 * part as f64 / whole as f64
        }
    };
    let slow = || {
        samples
            .iter()
            .filter(|sample| (from..to).contains(&sample.due))
    };
    let count = |is_critical: bool, outcome: Option<Outcome>| {
        let class = slow().filter(|sample| (sample.class == 0) == is_critical);
        class
            .filter(|sample| outcome.is_none_or(|outcome| outcome == sample.outcome))
            .count()
    };
    let good = |is_critical| count(is_critical, Some(Outcome::Good));
    let critical = slow().filter(|sample| sample.class == 0 && sample.outcome == Outcome::Good);
    let mut latencies: Vec<_> = critical
        .map(|sample| sample.took.as_micros() as u32)
        .collect();
    latencies.sort_unstable();
    let without = count(false, None) - good(false);
    Turn {
        critical: share(good(true), count(true, None)),
        others: share(good(false), count(false, None)),
        others_shed: share(count(false, Some(Outcome::Shed)), without),
        critical_p99_ms: percentile(&latencies, 0.99) / 1e3,
        recovery_s: recovery(samples, to, end),
    }
}

/// Returns the time from the end of the slow phase until all later half seconds answer 95 % of
/// their requests.
fn recovery(samples: &[Sample], to: Duration, end: Duration) -> f64 {
    const STEP: Duration = Duration::from_millis(500);
    let mut recovered = Duration::ZERO;
    let mut at = to;
    while at + STEP <= end {
        let step = || {
            samples
                .iter()
                .filter(|sample| (at..at + STEP).contains(&sample.due))
        };
        let good = step()
            .filter(|sample| sample.outcome == Outcome::Good)
            .count();
        if (good as f64) < 0.95 * step().count() as f64 {
            recovered = at + STEP - to;
        }
        at += STEP;
    }
    recovered.as_secs_f64()
}
