//! Servers that answer and refuse to decide: each refusal is an outage of its own kind.

use std::collections::BTreeMap;

use tollgate::{ErrorKind, Limiter, Outage, Policy, Quota};
use tollgate_test_support::{PATIENCE, connected_store};
use tollgate_tests::{RedisServer, RefusingState, refusing_state, wait};

const HOURLY: Policy = Policy::token_bucket("hourly", Quota::per_hour(5_000));

/// A limiter that returns errors in an outage, and one that decides by itself.
struct Pair {
    closed: Limiter,
    local: Limiter,
    counted: BTreeMap<&'static str, u32>,
}

impl Pair {
    async fn new(server: &RedisServer) -> Self {
        let store = connected_store(server.url()).await;
        let build = |outage| {
            Limiter::builder(store.clone())
                .policies(HOURLY)
                .deadline(PATIENCE)
                .on_outage(outage)
                .build()
        };
        let pair = Self {
            closed: build(Outage::Closed),
            local: build(Outage::default()),
            counted: BTreeMap::new(),
        };
        assert!(
            !pair
                .local
                .check("acme")
                .await
                .expect("a decision")
                .is_degraded()
        );
        pair
    }

    async fn refuses(&mut self, server: &RedisServer, state: RefusingState, message: &str) {
        let reason = state.reason;
        state.enter(server);
        wait::until_async(reason, PATIENCE, async || {
            self.closed
                .check("acme")
                .await
                .is_err_and(|error| error.kind().as_str() == reason)
        })
        .await;
        let error = self.closed.check("acme").await.expect_err("no decision");
        assert!(error.kind().is_unavailable());
        assert_eq!(error.kind().as_str(), reason);
        // A server that refuses the connection is named before it.
        assert!(error.to_string().ends_with(message), "{error}");
        let decision = self
            .local
            .check("acme")
            .await
            .expect("the local share decides");
        assert_eq!(decision.degraded(), Some(error.kind()));
        *self
            .counted
            .entry(
                decision
                    .degraded()
                    .map(ErrorKind::as_str)
                    .expect("degraded"),
            )
            .or_default() += 1;
        assert_eq!(self.counted.get(reason), Some(&1), "{:?}", self.counted);
    }

    async fn recovers(&self, server: &RedisServer, state: RefusingState) {
        state.leave(server);
        wait::until_async("the store decides again", PATIENCE, async || {
            self.closed.check("acme").await.is_ok()
        })
        .await;
    }
}

#[tokio::test]
async fn out_of_memory() {
    let server = RefusingState::server();
    let mut pair = Pair::new(&server).await;
    pair.refuses(
        &server,
        refusing_state::OUT_OF_MEMORY,
        "redis is out of memory (OOM)",
    )
    .await;
    pair.recovers(&server, refusing_state::OUT_OF_MEMORY).await;
}

#[tokio::test]
async fn too_few_replicas() {
    let server = RefusingState::server();
    let mut pair = Pair::new(&server).await;
    pair.refuses(
        &server,
        refusing_state::TOO_FEW_REPLICAS,
        "redis has too few replicas to write (NOREPLICAS)",
    )
    .await;
    pair.recovers(&server, refusing_state::TOO_FEW_REPLICAS)
        .await;
}

#[tokio::test]
async fn a_replica_and_one_that_lost_its_master() {
    let server = RefusingState::server();
    let mut pair = Pair::new(&server).await;
    pair.refuses(
        &server,
        refusing_state::READ_ONLY,
        "the redis server is a replica (READONLY)",
    )
    .await;
    pair.refuses(
        &server,
        refusing_state::MASTER_DOWN,
        "the redis replica lost its master (MASTERDOWN)",
    )
    .await;
    pair.recovers(&server, refusing_state::MASTER_DOWN).await;
}

#[tokio::test]
async fn saving_fails() {
    let server = RefusingState::server();
    let mut pair = Pair::new(&server).await;
    pair.refuses(
        &server,
        refusing_state::SAVING_FAILS,
        "redis refuses writes because it cannot persist (MISCONF)",
    )
    .await;
    pair.recovers(&server, refusing_state::SAVING_FAILS).await;
}

#[tokio::test]
async fn busy_with_another_script() {
    let server = RefusingState::server();
    let mut pair = Pair::new(&server).await;
    pair.refuses(
        &server,
        refusing_state::BUSY,
        "redis is busy with a script (BUSY)",
    )
    .await;
    pair.recovers(&server, refusing_state::BUSY).await;
}

#[tokio::test]
async fn loading_its_data() {
    let server = RefusingState::server();
    let mut pair = Pair::new(&server).await;
    pair.refuses(
        &server,
        refusing_state::LOADING,
        "redis is loading its data (LOADING)",
    )
    .await;
    pair.recovers(&server, refusing_state::LOADING).await;
}

#[tokio::test]
async fn too_many_clients() {
    let server = RefusingState::server();
    let mut pair = Pair::new(&server).await;
    pair.refuses(
        &server,
        refusing_state::TOO_MANY_CLIENTS,
        "redis accepts no more clients",
    )
    .await;
    pair.recovers(&server, refusing_state::TOO_MANY_CLIENTS)
        .await;
}
