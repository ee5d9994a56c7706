//! The service of a scenario: a real layer around a service that does what the request says.

use std::{
    convert::Infallible,
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use http::{Request, Response, StatusCode, request::Parts, response};
use tollgate::{
    Cost, Costs, Decision, Enforcement, Limiter, LimiterHandle, Outage, PolicySet, Priority, Store,
    limiter::Selection,
    reservation::{ReservationId, Settlement},
    store::{Check, CheckFuture, Clock, StoreFuture},
    test_util::FaultyStore,
};
use tollgate_test_support::PATIENCE;
use tollgate_tests::wait;
use tollgate_tower::{
    HandlerLimiter, LimiterSource, Meter, RateLimitBuilder, RateLimitLayer, RequestLimiter,
    TieredLimiters,
    body::guard_response,
    key::{BoxedKey, Header, KeyExtractor, Networks},
};
use tower::{Layer, ServiceExt, service_fn, util::BoxCloneService};

use super::{
    rules::request_rules,
    scenario::{
        BLOCKED, Caller, CostOption, EXEMPT, HOST, OTHER, Options, Scenario, Settle, Source, Step,
    },
};

/// The addresses of clients: not listed, allowed and denied.
pub(super) const ADDRESSES: [IpAddr; 3] = [
    IpAddr::V4(std::net::Ipv4Addr::new(203, 0, 113, 5)),
    IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1)),
    IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 7)),
];

/// A service with a layer, and the limiters and switches of the scenario.
pub(super) struct Subject {
    service: BoxCloneService<Request<()>, response::Parts, Infallible>,
    clock: Clock,
    /// Tells whether the clock goes on while a request waits.
    moves: bool,
    is_called: Arc<AtomicBool>,
    faulty: FaultyStore<Calls>,
    calls: Calls,
    /// The limiters of the two sets, which see an outage, and those that do not.
    pub(super) limiters: [Limiter; 2],
    pub(super) healthy: [Limiter; 2],
}

/// Holds what a client has seen.
pub(super) struct Seen {
    pub(super) response: response::Parts,
    pub(super) is_called: bool,
    pub(super) waited: Duration,
}

impl Subject {
    pub(super) fn new(scenario: &Scenario, store: Arc<dyn Store>, clock: Clock) -> Self {
        let options = scenario.options.clone();
        let calls = Calls {
            store,
            counts_checks: options.settle == Settle::ChargeAfter,
            under_way: Arc::default(),
        };
        let faulty = FaultyStore::new(calls.clone());
        // Without an outage, a store in the process is used as such.
        let is_healthy = !scenario.steps.iter().any(|step| step.is_away);
        let used: Arc<dyn Store> = if is_healthy {
            Arc::new(calls.clone())
        } else {
            Arc::new(faulty.clone())
        };
        let limiters = |store: Arc<dyn Store>, outage| {
            let limiter = |set: usize| {
                let builder = Limiter::builder(store.clone())
                    .policies(PolicySet::from(scenario.sets[set].clone()));
                builder
                    .on_outage(outage)
                    .deadline(PATIENCE)
                    .outage_clock(clock.clone())
                    .build()
            };
            [0, 1].map(limiter)
        };
        let healthy = limiters(calls.store.clone(), Outage::Closed);
        let [first, _] = limiters(used.clone(), options.outage);
        let other = first.with_policies(scenario.sets[1].clone());
        let limiters = [first, other];
        let is_called = Arc::new(AtomicBool::new(false));
        let work = Work {
            options: options.clone(),
            clock: clock.clone(),
            is_called: is_called.clone(),
        };
        let service = service(
            &options,
            source(scenario, &limiters, used),
            &limiters[0],
            work,
        );
        Self {
            moves: !scenario.is_in_redis,
            service,
            clock,
            is_called,
            faulty,
            calls,
            limiters,
            healthy,
        }
    }

    /// Sends a request, and waits until all that it has left to do in the background is done.
    pub(super) async fn send(&self, step: &Step, key: Option<String>) -> Seen {
        let before = self.calls.under_way();
        if step.is_away {
            self.faulty.fail();
        } else {
            self.faulty.recover();
        }
        self.is_called.store(false, Ordering::Relaxed);
        let mut request = Request::builder().extension(step.clone());
        if let Some(key) = key {
            request = request.header("x-key", key);
        }
        if step.tier == OTHER {
            request = request.header("x-host", HOST);
        }
        let mut sent = std::pin::pin!(
            self.service
                .clone()
                .oneshot(request.body(()).expect("a request"))
        );
        let mut waited = Duration::ZERO;
        let Ok(response) = loop {
            const TICK: Duration = Duration::from_millis(1);
            tokio::select! {
                biased;
                () = tokio::time::sleep(TICK), if self.moves => {
                    self.clock.advance(TICK);
                    waited += TICK;
                }
                response = &mut sent => break response,
            }
        };
        wait::until_async("the calls in the background", PATIENCE, async || {
            self.calls.under_way() <= before
        })
        .await;
        Seen {
            response,
            is_called: self.is_called.load(Ordering::Relaxed),
            waited,
        }
    }
}

/// Counts the calls of a store that a response does not wait for.
#[derive(Clone)]
struct Calls {
    store: Arc<dyn Store>,
    /// Tells whether a response is followed by a check.
    counts_checks: bool,
    /// Each call under way has a clone.
    under_way: Arc<()>,
}

impl Calls {
    fn under_way(&self) -> usize {
        Arc::strong_count(&self.under_way)
    }

    fn count<T: Send + Unpin + 'static>(&self, call: StoreFuture<T>) -> StoreFuture<T> {
        let under_way = self.under_way.clone();
        StoreFuture::pending(async move {
            let result = call.await;
            drop(under_way);
            result
        })
    }
}

impl Store for Calls {
    fn check(&self, check: Check<'_>) -> CheckFuture {
        let call = self.store.check(check);
        if self.counts_checks {
            self.count(call)
        } else {
            call
        }
    }

    fn refund(&self, check: Check<'_>, decision: Option<&Decision>) -> StoreFuture<()> {
        self.count(self.store.refund(check, decision))
    }

    fn reset(&self, check: Check<'_>) -> StoreFuture<()> {
        self.store.reset(check)
    }

    fn commit(&self, check: Check<'_>, id: &ReservationId) -> StoreFuture<Settlement> {
        self.count(self.store.commit(check, id))
    }

    fn inner(&self) -> Option<&dyn Store> {
        Some(&*self.store)
    }
}

/// Says what the service does.
#[derive(Clone)]
struct Work {
    options: Options,
    clock: Clock,
    is_called: Arc<AtomicBool>,
}

impl Work {
    async fn work(self, parts: Parts) -> Response<String> {
        self.is_called.store(true, Ordering::Relaxed);
        let step = step(&parts).clone();
        let mut response = Response::new(String::new());
        *response.status_mut() = StatusCode::from_u16(step.status).expect("a status");
        if self.options.charges_more {
            // A handler with `Extension<RequestLimiter>` answers so.
            let Some(limiter) = parts.extensions.get::<RequestLimiter>() else {
                return missing();
            };
            if step.more > 0 {
                let result = limiter.check(Cost::new(step.more)).await;
                let _ = limiter.admits(&result);
            }
        }
        if self.options.settle == Settle::Reserve {
            let Some(meter) = parts.extensions.get::<Meter>() else {
                return missing();
            };
            if meter
                .counter("a0")
                .or_else(|| meter.counter("b0"))
                .is_none()
            {
                return missing();
            }
            meter.set(step.last);
        }
        self.clock.advance(step.works);
        response.extensions_mut().insert(step);
        response
    }
}

fn missing() -> Response<String> {
    let mut response = Response::new(String::new());
    *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
    response
}

fn step(parts: &Parts) -> &Step {
    parts.extensions.get().expect("each request has its step")
}

fn source(scenario: &Scenario, limiters: &[Limiter; 2], store: Arc<dyn Store>) -> LimiterSource {
    let [first, other] = limiters.clone();
    match scenario.options.source {
        Source::Rules => request_rules(scenario, store).into(),
        Source::Fixed => first.into(),
        Source::Handle => LimiterHandle::new(first).into(),
        Source::Tiers => TieredLimiters::new(first)
            .tier(OTHER, other)
            .exempt(EXEMPT)
            .by(|parts| Some(step(parts).tier).filter(|tier| *tier > 0))
            .into(),
        Source::Function => {
            LimiterSource::from_fn(first, move |parts: &Parts| match step(parts).tier {
                OTHER => Selection::Policies(other.policies().clone()),
                EXEMPT => Selection::Exempt,
                BLOCKED => Selection::Blocked,
                _ => Selection::Default,
            })
        }
    }
}

/// Returns the costs of a request, of which the first policy has its own.
fn costs_of(option: CostOption, parts: &Parts, selects: bool) -> Costs {
    let first = if selects && step(parts).tier == OTHER {
        "b0"
    } else {
        "a0"
    };
    match option {
        CostOption::Unset => Cost::ONE.into(),
        CostOption::OfRequest => Cost::new(step(parts).cost).into(),
        CostOption::Each => Costs::new(Cost::ONE).with(first, step(parts).cost),
    }
}

fn builder(options: &Options, source: LimiterSource) -> RateLimitBuilder<BoxedKey> {
    let key = Header::new("x-key");
    let key = if options.or_exempt {
        key.or_exempt().boxed()
    } else {
        key.boxed()
    };
    let mut builder = RateLimitLayer::builder(source, key)
        .header_format(options.format)
        .expose_headers(options.exposes_headers);
    builder = match options.settle {
        Settle::Nothing | Settle::Reserve => builder,
        Settle::ChargeOn => builder.charge_on(|status| status == 401),
        Settle::ChargeAfter => builder.charge_after(|status| status == 401),
        Settle::FinalCost => builder.final_cost(|outcome, _| {
            let response = outcome.response().expect("the service answers");
            response
                .extensions
                .get::<Step>()
                .map_or(Cost::ZERO, |step| Cost::new(step.last))
        }),
        Settle::FinalCosts => builder.final_costs(|outcome, decision| {
            let response = outcome.response().expect("the service answers");
            let last = response
                .extensions
                .get::<Step>()
                .map_or(0, |step| step.last);
            let is_first = decision
                .policies()
                .iter()
                .any(|policy| policy.name() == "a0");
            [(if is_first { "a0" } else { "b0" }, last)]
        }),
    };
    let (cost, selects) = (options.cost, options.selects());
    builder = match cost {
        CostOption::Unset => builder,
        CostOption::OfRequest => builder.cost(|parts| Cost::new(step(parts).cost)),
        CostOption::Each => builder.costs(move |parts| costs_of(cost, parts, selects)),
    };
    if options.has_priority {
        builder = builder.priority(|parts| Priority::percent(step(parts).rank));
    }
    if let Some(percent) = options.enforced {
        builder = if percent == 0 {
            builder.shadow(true)
        } else {
            builder.enforcement(Enforcement::share(percent))
        };
    }
    if options.exempts {
        builder = builder.exempt(|parts| step(parts).is_exempt);
    }
    if options.has_networks {
        let networks = Networks::parse("10.0.0.0/8", "192.0.2.0/24").expect("networks");
        builder = builder.networks(networks, |parts| {
            Ok(ADDRESSES[usize::from(step(parts).network)])
        });
    }
    if let Some(wait) = options.wait {
        builder = builder.wait(wait);
    }
    if options.charges_more {
        builder = builder.expose_request_limiter(None);
    }
    builder
}

fn service(
    options: &Options,
    source: LimiterSource,
    limiter: &Limiter,
    work: Work,
) -> BoxCloneService<Request<()>, response::Parts, Infallible> {
    let (cost, selects) = (options.cost, options.selects());
    let builder = builder(options, source);
    let reserves = options.settle == Settle::Reserve;
    if options.caller == Caller::Handler {
        let limiter = builder.build().handler_limiter::<String>(limiter.clone());
        return BoxCloneService::new(service_fn(move |request: Request<()>| {
            let (limiter, work) = (limiter.clone(), work.clone());
            async move {
                Ok(handle(limiter, work, request, cost, reserves)
                    .await
                    .into_parts()
                    .0)
            }
        }));
    }
    let inner = service_fn(move |request: Request<()>| {
        let work = work.clone();
        async move { Ok::<_, Infallible>(work.work(request.into_parts().0).await) }
    });
    // The body is dropped, which settles a reservation.
    if reserves {
        let layer = builder
            .reserve(move |parts| costs_of(cost, parts, selects))
            .build();
        return BoxCloneService::new(
            layer
                .layer(inner)
                .map_response(|response| response.into_parts().0),
        );
    }
    BoxCloneService::new(
        builder
            .build()
            .layer(inner)
            .map_response(|response| response.into_parts().0),
    )
}

async fn handle(
    limiter: HandlerLimiter<String>,
    work: Work,
    request: Request<()>,
    cost: CostOption,
    reserves: bool,
) -> Response<String> {
    let (mut parts, ()) = request.into_parts();
    let key = parts.headers.get("x-key").map_or(String::new(), |key| {
        key.to_str().unwrap_or_default().to_owned()
    });
    if reserves {
        let estimate = costs_of(cost, &parts, false);
        return match limiter.reserve(&mut parts, key, estimate).await {
            Ok((admitted, reservation)) => {
                let response =
                    guard_response(admitted.complete(work.work(parts).await), reservation);
                response.map(|_| String::new())
            }
            Err(rejected) => rejected.into_response(),
        };
    }
    // Every second request says its costs itself.
    let checked = if cost == CostOption::Unset {
        limiter.check(&mut parts, key).await
    } else {
        let costs = costs_of(cost, &parts, false);
        limiter.check_costs(&mut parts, key, costs).await
    };
    match checked {
        Ok(admitted) => admitted.complete(work.work(parts).await),
        Err(rejected) => rejected.into_response(),
    }
}
