//! `RedisStore` in a Redis Cluster that uses TLS only and requires client certificates.

use std::time::Duration;

use tollgate::{
    Limiter, Policy, Quota, RedisStore,
    redis::{RedisSource, RedisStoreBuilder},
};
use tollgate_test_support::{PATIENCE, patient_limiter};
use tollgate_tests::{Authority, RedisCluster};

/// So many keys that every master holds some.
const KEYS: u64 = 40;

/// Spends one unit of every key, and checks how many are left.
async fn spend(limiter: &Limiter, left: u64) {
    for key in 0..KEYS {
        let decision = limiter.check(key).await.expect("a decision");
        assert!(
            decision.states().all(|state| state.remaining() == left),
            "{key}: {decision:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_masters_are_reached_over_tls_also_after_slots_moved() {
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    let cluster = RedisCluster::start_tls(&ours);
    // One seed: the store finds the TLS ports of the others.
    let seed = || {
        RedisStore::builder(RedisSource::cluster(&cluster.tls_urls()[..1]))
            .connect_timeout(PATIENCE)
    };
    let signed = ours.sign();
    let trusting = |builder: RedisStoreBuilder| builder.root_certificates(ours.pem());
    let shown =
        || trusting(seed()).client_certificate(signed.certificate.as_str(), signed.key.as_str());
    let store = shown().connect().await.expect("a store");
    let policies = [
        Policy::token_bucket("p", Quota::per_day(10)),
        Policy::sliding_log("log", Quota::per_day(10)),
    ];
    let limiter = patient_limiter(store, policies);
    spend(&limiter, 9).await;
    let masters = cluster.masters();
    assert_eq!(masters.len(), 3);
    assert!(
        masters
            .iter()
            .all(|master| master.calls("evalsha") + master.calls("eval") > 0),
        "all masters take part"
    );
    let (keys, expires) = cluster.keys_and_expires();
    assert_eq!((keys, expires), (2 * KEYS, 2 * KEYS));

    // The slots of one server that hold keys move to another.
    let (from, to) = (masters[0], masters[1]);
    let slots = cluster.slots_of(from);
    let slots = tokio::task::block_in_place(|| {
        let with_keys = |slot: &u16| {
            from.command(&["CLUSTER", "COUNTKEYSINSLOT", &slot.to_string()])
                .int()
                > 0
        };
        let slots: Vec<u16> = slots.into_iter().filter(with_keys).collect();
        cluster.move_slots(slots.iter().copied(), from, to);
        slots
    });
    assert!(!slots.is_empty());
    spend(&limiter, 8).await;

    // Without the right certificates no connection is made.
    let stranger = theirs.sign();
    for (what, builder) in [
        ("no certificate", trusting(seed())),
        (
            "a stranger's",
            trusting(seed()).client_certificate(stranger.certificate, stranger.key),
        ),
        ("another authority", seed().root_certificates(theirs.pem())),
        (
            "no TLS",
            RedisStore::builder(RedisSource::cluster(
                cluster.tls_urls()[..1]
                    .iter()
                    .map(|url| url.replace("rediss", "redis")),
            )),
        ),
    ] {
        let store = builder
            .connect_timeout(Duration::from_secs(2))
            .build()
            .expect("a store");
        let error = tokio::time::timeout(PATIENCE, store.ping())
            .await
            .expect("an answer")
            .expect_err(what);
        assert!(
            ["tls", "connection", "timeout"].contains(&error.kind().as_str()),
            "{what}: {} {error}",
            error.kind().as_str()
        );
    }
}
