//! Calls of every kind to a server that stands still, or answers too late: each counts for the
//! circuit breaker as a check.

use std::time::Duration;

use tokio::time::sleep;
use tollgate::{
    Cost, Decision, Error, ErrorKind, Lease, Limiter, Outage, Policy, Quota, RedisStore,
    permits::{Concurrency, ConcurrencyLimiter},
    redis::RedisSource,
    reservation::ReservationId,
};
use tollgate_test_support::{PATIENCE, patient_limiter};
use tollgate_tests::{RedisServer, server::SLOTS, wait};

use crate::{
    breaker::SHORT,
    paused_server::{HOURLY, PausedServer},
};

/// A call of a limiter to its store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Check,
    Peek,
    LeaseTrip,
    Reserve,
    Commit,
    Refund,
    RefundDecision,
    Reset,
    Entries,
    Permit,
}

impl Call {
    const ALL: [Self; 10] = [
        Self::Check,
        Self::Peek,
        Self::LeaseTrip,
        Self::Reserve,
        Self::Commit,
        Self::Refund,
        Self::RefundDecision,
        Self::Reset,
        Self::Entries,
        Self::Permit,
    ];

    /// Returns whether the call has an effect that does not need the answer, so that a server that
    /// is far gets it too.
    fn has_use_when_late(self) -> bool {
        matches!(
            self,
            Self::Commit | Self::Refund | Self::RefundDecision | Self::Reset
        )
    }
}

/// A caller with a short deadline.
struct Caller {
    limiter: Limiter,
    leased: Limiter,
    log: Limiter,
    permits: ConcurrencyLimiter,
    /// The decision of the server while it answered.
    decision: Decision,
}

impl Caller {
    async fn new(store: &RedisStore) -> Self {
        let build = |policy: Policy, deadline| {
            Limiter::builder(store.clone())
                .policies(policy)
                .deadline(deadline)
                .on_outage(Outage::Closed)
                .build()
        };
        let limiter = build(HOURLY, SHORT);
        Self {
            decision: build(HOURLY, PATIENCE)
                .check("acme")
                .await
                .expect("the server answers"),
            leased: build(
                Policy::token_bucket("leased", Quota::per_hour(1_000)).leased(Lease::new()),
                SHORT,
            ),
            log: build(Policy::sliding_log("log", Quota::per_hour(5)), SHORT),
            permits: limiter.concurrency(Concurrency::new("permits", 5)),
            limiter,
        }
    }

    async fn make(&self, call: Call) -> Result<(), Error> {
        let limiter = &self.limiter;
        match call {
            Call::Check => limiter.check("acme").await.map(drop),
            Call::Peek => limiter.peek("acme").await.map(drop),
            Call::LeaseTrip => self.leased.check("acme").await.map(drop),
            Call::Reserve => limiter.reserve("acme", Cost::ONE).await.map(drop),
            Call::Commit => limiter
                .commit("acme", &ReservationId::random(), Cost::ONE)
                .await
                .map(drop),
            Call::Refund => limiter.refund("acme", Cost::ONE).await,
            Call::RefundDecision => limiter.refund("acme", Cost::ONE).of(&self.decision).await,
            Call::Reset => limiter.reset("acme").await,
            Call::Entries => self.log.entries("acme", 5).await.map(drop),
            Call::Permit => self.permits.acquire("acme").await.map(drop),
        }
    }

    /// Makes calls one after the other, with pauses, and returns the reasons why they fail.
    async fn failures(&self, call: Call, count: usize) -> Vec<&'static str> {
        let mut reasons = Vec::new();
        for _ in 0..count {
            let error = self
                .make(call)
                .await
                .expect_err("the server does not answer in time");
            reasons.push(error.kind().as_str());
            sleep(Duration::from_millis(5)).await;
        }
        reasons
    }
}

#[tokio::test(start_paused = true)]
async fn three_calls_of_any_kind_pay_their_deadline_and_then_none_waits() {
    for call in Call::ALL {
        let server = PausedServer::start();
        let store = RedisStore::open(server.url()).expect("a store");
        let caller = Caller::new(&store).await;
        server.stall(Duration::from_secs(3_600));
        assert_eq!(
            caller.failures(call, 5).await,
            ["timeout", "timeout", "timeout", "breaker", "breaker"],
            "{call:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn callers_side_by_side_pay_one_deadline_each_and_a_call_with_a_longer_one_ends_with_them() {
    for call in Call::ALL {
        let server = PausedServer::start();
        let store = RedisStore::open(server.url()).expect("a store");
        let caller = Caller::new(&store).await;
        let patient = Limiter::builder(store.clone())
            .policies(HOURLY)
            .on_outage(Outage::Closed)
            .deadline(PATIENCE)
            .build();
        server.stall(Duration::from_secs(3_600));
        let began = tokio::time::Instant::now();
        let (error, ..) = tokio::join!(
            async {
                patient
                    .reset("other")
                    .await
                    .expect_err("the server is silent")
            },
            caller.failures(call, 1),
            caller.failures(call, 1),
            caller.failures(call, 1),
        );
        assert_eq!(
            (error.kind(), store.is_available()),
            (ErrorKind::Timeout, false),
            "{call:?}"
        );
        // The clock is paused: the time is that of the timers.
        assert!(
            began.elapsed() < PATIENCE,
            "{call:?}: {:?}",
            began.elapsed()
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_answers_each_call_too_late_is_far_and_not_away() {
    for call in Call::ALL {
        let server = PausedServer::start();
        let store = RedisStore::open(server.url()).expect("a store");
        let caller = Caller::new(&store).await;
        server.set_round_trip(SHORT * 2 - Duration::from_millis(4));
        let reasons = caller.failures(call, 20).await;
        let (late, rest) = reasons.split_at(
            reasons
                .iter()
                .take_while(|&&reason| reason == "timeout")
                .count(),
        );
        assert!(
            late.len() >= 8 && rest.iter().all(|&reason| reason == "distant"),
            "{call:?}: {reasons:?}"
        );
        assert_eq!(
            rest.is_empty(),
            call.has_use_when_late(),
            "{call:?}: {reasons:?}"
        );
        assert!(store.is_available(), "{call:?}");
    }
}

#[tokio::test]
async fn a_call_that_is_dropped_before_its_deadline_counts_for_nothing() {
    let server = RedisServer::start();
    let store = RedisStore::connect(server.url()).await.expect("a store");
    let patient = Limiter::builder(store.clone())
        .policies(HOURLY)
        .on_outage(Outage::Closed)
        .deadline(PATIENCE)
        .build();
    let caller = Caller {
        limiter: patient,
        ..Caller::new(&store).await
    };
    server.pause();
    for call in Call::ALL
        .into_iter()
        .filter(|call| !matches!(call, Call::LeaseTrip | Call::Entries | Call::Permit))
    {
        for _ in 0..4 {
            tokio::select! {
                biased;
                outcome = caller.make(call) => panic!("{call:?}: {outcome:?}"),
                () = tokio::task::yield_now() => {}
            }
        }
        assert!(store.is_available(), "{call:?}");
    }
    server.resume();
}

#[tokio::test]
async fn a_master_that_stands_still_costs_a_caller_of_any_kind_three_deadlines() {
    let master = RedisServer::builder()
        .arg("--cluster-enabled", "yes")
        .start();
    assert_eq!(master.add_slots(0..SLOTS).text(), "OK");
    for call in Call::ALL {
        assert_eq!(master.command(&["FLUSHALL"]).text(), "OK");
        let store = RedisStore::builder(RedisSource::cluster([master.url_at(master.addr())]))
            .build()
            .expect("a store");
        let patient = patient_limiter(store.clone(), HOURLY);
        wait::until_async("the cluster to decide", PATIENCE, async || {
            patient.check("acme").await.is_ok()
        })
        .await;
        let caller = Caller::new(&store).await;
        master.pause();
        let reasons = caller.failures(call, 5).await;
        master.resume();
        assert_eq!(
            reasons,
            ["timeout", "timeout", "timeout", "breaker", "breaker"],
            "{call:?}"
        );
    }
}
