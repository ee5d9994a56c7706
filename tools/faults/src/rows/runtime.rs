//! Runtimes that end, tasks that panic, workers that are blocked.

use std::{
    fs, panic,
    time::{Duration, Instant},
};

use tollgate::{Limiter, MemoryStore, Outage, RedisStore};
use tollgate_tests::RedisServer;
use tower::{Layer, ServiceExt};

use crate::{
    findings::Findings,
    load::{LARGE, Load, decides, degraded, limiter, millis, quantile, ready, until},
    pace::Pace,
};

pub(super) async fn ends(pace: Pace) -> Findings {
    let mut findings = Findings::default();
    let (server, _, large) = ready().await;
    let before = open();
    ended(&mut findings, &server, pace).await;
    panics(&mut findings, &large, pace).await;
    blocked(&mut findings, &large, pace).await;
    decides(&large, "acme").await;
    until("the connections that were", async || open() <= before).await;
    findings
        .count(
            "connections and files that leaked",
            open().saturating_sub(before) as f64,
        )
        .at_most(0.0);
    findings.keys(server.keys_and_expires());
    findings
}

/// Ends the runtime of a store while checks are pending, and goes on in another one.
async fn ended(findings: &mut Findings, server: &RedisServer, pace: Pace) {
    let mut longest = Duration::ZERO;
    for _ in 0..pace.of(20, 5) {
        let store = RedisStore::open(server.url_at(server.addr())).expect("a store");
        let large = limiter(&store, LARGE, Outage::default());
        let used = large.clone();
        let end = tokio::task::spawn_blocking(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(2)
                .enable_all()
                .build();
            let runtime = runtime.expect("a runtime");
            runtime.block_on(async {
                decides(&used, "acme").await;
                drop(Load::start(&used, 16, ["acme".into()]));
                tokio::time::sleep(Duration::from_millis(50)).await;
            });
            drop(runtime);
            Instant::now()
        });
        let end = end.await.expect("it ends");
        longest = longest.max(decides(&large, "acme").await - end);
    }
    let asked = "from the end of a runtime to the first decision in another";
    findings.ms(asked, millis(longest)).at_most(200.0);
}

/// Makes handlers panic behind the layer and tasks panic during checks, which must not affect
/// others.
async fn panics(findings: &mut Findings, large: &Limiter, pace: Pace) {
    let load = Load::start(large, 8, ["acme".into()]);
    let mut unwound = 0;
    let memory = Limiter::new(MemoryStore::new(), LARGE);
    for at in 0..pace.of(5_000_u32, 500) {
        let limiter = if at % 2 == 0 {
            large.clone()
        } else {
            memory.clone()
        };
        let task = tokio::spawn(async move {
            // Without the message, which would be printed thousands of times.
            let handler = tower::service_fn(|_: http::Request<()>| async {
                panic::resume_unwind(Box::new("a handler"))
                    as Result<http::Response<String>, std::convert::Infallible>
            });
            let layer =
                tollgate_tower::RateLimitLayer::new(limiter.clone(), tollgate_tower::key::Global);
            if at % 4 < 2 {
                return drop(layer.layer(handler).oneshot(http::Request::new(())).await);
            }
            tokio::select! {
                biased;
                decision = limiter.check("acme") => drop(decision),
                () = super::calls::turns(at % 8) => {}
            }
            panic::resume_unwind(Box::new("a task"));
        });
        unwound += u32::from(task.await.is_err_and(|error| error.is_panic()));
    }
    let samples = load.end().await;
    let without = degraded(&samples);
    findings
        .count(
            format!("checks of others without the store, {unwound} panics"),
            without,
        )
        .at_most(0.0);
    let decided = memory.check("acme").await.is_ok()
        && large.check("acme").await.is_ok_and(|it| !it.is_degraded());
    findings
        .count(
            "stores of 2 that do not decide after that",
            f64::from(!decided),
        )
        .at_most(0.0);
}

/// Blocks one worker of two for half a second.
async fn blocked(findings: &mut Findings, large: &Limiter, pace: Pace) {
    let mut samples = Vec::new();
    let mut added = Duration::ZERO;
    for _ in 0..pace.of(10, 3) {
        let load = Load::start(large, 8, ["acme".into()]);
        let blocking = tokio::spawn(async {
            std::thread::sleep(Duration::from_millis(500));
            Instant::now()
        });
        let free = blocking.await.expect("a task");
        added = added.max(decides(large, "acme").await - free);
        samples.extend(load.end().await);
    }
    let refused = samples.iter().filter(|sample| !sample.is_allowed).count() as f64;
    findings
        .count(
            "a worker of two is blocked: checks without an answer",
            refused,
        )
        .at_most(0.0);
    findings.ms("the same: check time, p99.9", quantile(&samples, 0.999));
    let asked = "the same: from its end to the next decision by the store, longest";
    // The probes slow down, because they are answered meanwhile and checks are not.
    findings.ms(asked, millis(added)).at_most(1_200.0);
}

fn open() -> usize {
    fs::read_dir("/proc/self/fd").expect("linux tells").count()
}
