//! The metrics of limiters and stores, without any layer. The end of an outage: see
//! `outage_log.rs`.

use std::{
    future::{Future, poll_fn},
    task::Poll,
    time::Duration,
};

use tollgate::{
    Algorithm, Cost, Lease, Limiter, MemoryStore, Outage, Policy, Quota, RedisStore,
    permits::{Concurrency, ConcurrencyLimiter},
    store::{Clock, Exception, ExceptionChange},
    tenants::TenantLimiters,
};
use tollgate_test_support::{
    PATIENCE, connected_store,
    permits::{closed_permits, take_permit},
};
use tollgate_tests::{RedisServer, Series, wait};

const TWO: Policy = Policy::token_bucket("two", Quota::per_hour(2));
const HOURLY: Policy = Policy::fixed_window("hourly", Quota::per_hour(100));

async fn check(limiter: &Limiter, key: &str) -> bool {
    limiter.check(key).await.expect("a decision").is_degraded()
}

/// Each decision counts once for each policy whose quota was that of an exception, whether it admits or
/// denies. Peeks and other keys do not count, nor does what is decided after the end.
#[test]
fn decisions_by_an_exception_are_counted_by_limiter_and_policy() {
    Series::record(async |snapshotter| {
        let clock = Clock::manual(1);
        let store = MemoryStore::builder().clock(clock.clone()).build();
        let limiter = Limiter::builder(store)
            .policies([TWO, HOURLY])
            .name("jobs")
            .published()
            .build();
        let change = ExceptionChange::Quota(Quota::per_hour(3));
        let granted = Exception::new("two", "acme", change, Duration::from_secs(60));
        let granted = granted.by("ann").because("a test");
        limiter.grant_exception(granted).await.expect("a grant");
        for key in ["acme", "acme", "acme", "acme", "other"] {
            check(&limiter, key).await;
        }
        let _ = limiter.peek("acme").await.expect("a state");
        clock.advance(Duration::from_secs(60));
        check(&limiter, "acme").await;
        let series = Series::described(&snapshotter);
        series.assert_counts(
            "
            tollgate_exceptions_used_total limiter=jobs policy=two 4
            tollgate_checks_total limiter=jobs outcome=allowed 4
            tollgate_checks_total limiter=jobs outcome=denied 2
            ",
        );
        let used = series.0.keys().filter(|name| name.contains("exceptions"));
        assert_eq!(used.count(), 1, "no series of another policy");
    });
}

#[test]
fn checks_in_process_are_counted_by_the_name_of_the_limiter() {
    Series::record(async |snapshotter| {
        let named = Limiter::builder(MemoryStore::new())
            .policies([TWO, HOURLY])
            .name("jobs")
            .build();
        let unnamed = Limiter::new(MemoryStore::new(), [TWO, HOURLY]);
        for _ in 0..3 {
            check(&named, "acme").await;
        }
        let _ = named.peek("acme").await.expect("a state");
        let _ = named
            .check("acme")
            .cost(Cost::new(3))
            .await
            .expect_err("the cost never fits");
        check(&unnamed, "acme").await;
        let series = Series::described(&snapshotter);
        series.assert_counts(
            "
            tollgate_checks_total limiter=jobs outcome=allowed 2
            tollgate_checks_total limiter=jobs outcome=denied 1
            tollgate_checks_total limiter=jobs outcome=failed 1
            tollgate_denials_total limiter=jobs policy=two 1
            tollgate_denials_total limiter=jobs policy=hourly 0
            tollgate_errors_total limiter=jobs reason=cost 1
            tollgate_checks_total limiter=two+hourly outcome=allowed 1
            ",
        );
        assert_eq!(
            series.0.len(),
            6 + 5,
            "no durations in process: {:?}",
            series.0.keys()
        );
    });
}

#[test]
fn denials_are_counted_by_the_policies_that_decided_and_their_names_are_bounded() {
    Series::record(async |snapshotter| {
        let limiter = Limiter::builder(MemoryStore::new())
            .policies([TWO, HOURLY])
            .name("calls")
            .build();
        check(&limiter, "acme").await;
        let tenant = |at| {
            Policy::try_new(
                format!("tenant-{at}"),
                Algorithm::TokenBucket,
                Quota::per_day(1),
            )
        };
        // The names stand at another place of the set, and the others are new.
        let mut others = vec![limiter.with_policies([HOURLY, TWO])];
        others.extend((0..100).map(|at| limiter.with_policies(tenant(at).expect("a policy"))));
        for limiter in &others {
            for _ in 0..3 {
                check(limiter, "acme").await;
            }
        }
        let series = Series::described(&snapshotter);
        let denials = |policy: &str| {
            series.count(&format!(
                "tollgate_denials_total limiter=calls policy={policy}"
            ))
        };
        assert_eq!((denials("two"), denials("hourly")), (2, 0));
        assert_eq!((denials("tenant-0"), denials("tenant-61")), (2, 2));
        assert_eq!(denials("other"), 2 * (100 - 62));
        assert_eq!(
            series
                .0
                .keys()
                .filter(|name| name.starts_with("tollgate_denials_total"))
                .count(),
            64 + 1
        );
    });
}

#[test]
fn checks_over_redis_are_counted_and_measured_and_an_outage_shows() {
    Series::record(async |snapshotter| {
        let server = RedisServer::start();
        let store = RedisStore::builder(server.url())
            .deny_cache_cap(PATIENCE)
            .connect()
            .await
            .expect("a store");
        let build = |name: &'static str, outage| {
            Limiter::builder(store.clone())
                .policies(TWO)
                .name(name)
                .deadline(PATIENCE)
                .on_outage(outage)
                .build()
        };
        let (local, closed) = (
            build("local", Outage::default()),
            build("closed", Outage::Closed),
        );
        for _ in 0..5 {
            assert!(!check(&local, "acme").await);
        }
        server.kill();
        for key in ["a", "b", "c"] {
            assert!(check(&local, key).await);
            let _ = closed.check(key).await.expect_err("closed");
        }
        assert!(!check(&local, "acme").await, "a remembered denial");
        let series = Series::described(&snapshotter);
        series.assert_counts(
            "
            tollgate_checks_total limiter=local outcome=allowed 5
            tollgate_checks_total limiter=local outcome=denied 4
            tollgate_denials_total limiter=local policy=two 4
            tollgate_checks_total limiter=closed outcome=failed 3
            ",
        );
        let total = |metric: &str| -> u64 {
            let all = series.0.keys().filter(|name| name.starts_with(metric));
            all.map(|name| series.count(name)).sum()
        };
        assert_eq!(total("tollgate_degraded_total limiter=local reason="), 3);
        assert_eq!(total("tollgate_errors_total limiter=closed reason="), 3);
        assert_eq!(total("tollgate_errors_total limiter=local"), 0);
        // Three decisions of the server and three without it. Remembered denials are not measured.
        let durations = series.durations("tollgate_check_duration_seconds limiter=local");
        assert_eq!(durations.len(), 3 + 3);
        assert!(
            durations
                .iter()
                .all(|seconds| (0.0..PATIENCE.as_secs_f64()).contains(seconds)),
            "{durations:?}"
        );
        series.assert_counts(
            "
            tollgate_outages_total limiter=local 1
            tollgate_outage limiter=local 1
            tollgate_outages_total limiter=closed 1
            tollgate_outage limiter=closed 1
            ",
        );
    });
}

#[test]
fn fetches_of_the_limits_of_tenants_are_counted_and_an_outage_of_their_source_shows() {
    Series::record(async |snapshotter| {
        let default = Limiter::builder(MemoryStore::new())
            .policies(TWO)
            .name("calls")
            .build();
        let tenants = TenantLimiters::builder(default, async |tenant: u64| match tenant {
            0..10 => Ok(HOURLY),
            _ => Err("the database is away"),
        })
        .retry_delay(Duration::ZERO)
        .build();
        let fetch = async |tenant: u64| drop(tenants.limiter_for(&tenant).await.expect("limits"));
        for tenant in [1, 2, 2, 99] {
            fetch(tenant).await;
        }
        let series = Series::described(&snapshotter);
        series.assert_counts(
            "
            tollgate_tenant_fetches_total limiter=calls outcome=succeeded 2
            tollgate_tenant_fetches_total limiter=calls outcome=failed 1
            tollgate_tenants_cached limiter=calls 3
            tollgate_tenant_outage limiter=calls 1
            ",
        );
        wait::until_async("the end of the outage", PATIENCE, async || {
            tenants.invalidate(&1);
            fetch(1).await;
            Series::described(&snapshotter).gauge("tollgate_tenant_outage limiter=calls")
                == Some(0.0)
        })
        .await;
    });
}

#[test]
fn permits_are_counted_by_their_outcome_and_gauges_show_those_that_are_held_and_waited_for() {
    Series::record(async |snapshotter| {
        let jobs = ConcurrencyLimiter::new(MemoryStore::new(), Concurrency::new("jobs", 2));
        let first = jobs
            .acquire("acme")
            .await
            .expect("an answer")
            .expect("a permit");
        let second = jobs
            .acquire("acme")
            .await
            .expect("an answer")
            .expect("a permit");
        assert!(jobs.acquire("acme").await.expect("an answer").is_err());
        let patient = jobs.with_wait(PATIENCE);
        let mut waits = Box::pin(patient.acquire("acme"));
        let is_ready = poll_fn(|cx| Poll::Ready(waits.as_mut().poll(cx).is_ready())).await;
        assert!(!is_ready);
        let series = Series::described(&snapshotter);
        series.assert_counts(
            "
            tollgate_permits_total policy=jobs outcome=acquired 2
            tollgate_permits_total policy=jobs outcome=denied 1
            tollgate_permits_total policy=jobs outcome=failed 0
            tollgate_permits_lost_total policy=jobs 0
            tollgate_permits_held policy=jobs 2
            tollgate_permits_waiting policy=jobs 1
            ",
        );
        drop(first);
        let third = waits.await.expect("an answer").expect("a permit");
        // The snapshot has set the gauges to zero.
        Series::described(&snapshotter).assert_counts(
            "
            tollgate_permits_total policy=jobs outcome=acquired 1
            tollgate_permits_held policy=jobs 0
            tollgate_permits_waiting policy=jobs -1
            ",
        );
        drop((second, third));
        assert_eq!(
            Series::described(&snapshotter).gauge("tollgate_permits_held policy=jobs"),
            Some(-2.0)
        );
    });
}

#[test]
fn permits_that_are_lost_and_acquires_that_fail_are_counted() {
    Series::record(async |snapshotter| {
        let server = RedisServer::start();
        let store = connected_store(server.url()).await;
        let policy = Concurrency::new("jobs", 2)
            .exact()
            .with_life(Duration::from_secs(1));
        let jobs = closed_permits(store, policy, PATIENCE);
        let lost = take_permit(&jobs).await.expect("a permit");
        server.kill();
        lost.lost().await;
        assert!(jobs.acquire("acme").await.is_err());
        drop(lost);
        let series = Series::described(&snapshotter);
        series.assert_counts(
            "
            tollgate_permits_total policy=jobs outcome=acquired 1
            tollgate_permits_total policy=jobs outcome=denied 0
            tollgate_permits_total policy=jobs outcome=failed 1
            tollgate_permits_lost_total policy=jobs 1
            tollgate_permits_held policy=jobs 0
            ",
        );
    });
}

#[test]
fn the_state_of_a_store_shows_also_while_nobody_checks() {
    Series::record(async |snapshotter| {
        let server = RedisServer::start();
        let store = RedisStore::builder(server.url())
            .prefix("shop")
            .connect()
            .await
            .expect("a store");
        let limiter = Limiter::builder(store)
            .policies(HOURLY)
            .deadline(Duration::from_secs(2))
            .build();
        check(&limiter, "acme").await;
        wait::until_async("a store that is well", PATIENCE, async || {
            let series = Series::described(&snapshotter);
            let is = |name: &str, value: f64| {
                series.gauge(&format!("tollgate_store_{name} store=shop")) == Some(value)
            };
            is("servers", 1.0)
                && is("connected", 1.0)
                && is("breakers_open", 0.0)
                && is("queued", 0.0)
                && is("replicas", 1.0)
                && series.gauge("tollgate_store_round_trip_seconds store=shop") > Some(0.0)
        })
        .await;
        server.kill();
        // No check follows: the call that counts the replicas meets the dead server.
        wait::until_async("a store whose server is away", PATIENCE, async || {
            let series = Series::described(&snapshotter);
            let is = |name: &str, value: f64| {
                series.gauge(&format!("tollgate_store_{name} store=shop")) == Some(value)
            };
            is("servers", 1.0) && is("connected", 0.0) && is("breakers_open", 1.0)
        })
        .await;
        drop(limiter);
    });
}

#[test]
fn leased_units_are_counted() {
    Series::record(async |snapshotter| {
        let server = RedisServer::start();
        let store = RedisStore::builder(server.url())
            .prefix("shop")
            .connect()
            .await
            .expect("a store");
        let policy = Policy::token_bucket("hot", Quota::per_hour(10_000))
            .leased(Lease::new().generation(PATIENCE));
        let limiter = Limiter::builder(store.clone())
            .policies(policy)
            .deadline(PATIENCE)
            .build();
        let mut leased = 0;
        for _ in 0..600 {
            leased += u64::from(limiter.check("acme").await.expect("a decision").is_leased());
        }
        let count = |series: &Series, name: &str| {
            series.count(&format!("tollgate_lease_{name}_total store=shop"))
        };
        wait::until_async("the counts of the leases", PATIENCE, async || {
            let series = Series::described(&snapshotter);
            let held = series
                .gauge("tollgate_lease_held store=shop")
                .map_or(0, |held| held as u64);
            held > 0
                && count(&series, "trips_saved") == leased
                && count(&series, "granted") == leased + held
        })
        .await;
        store
            .release_leases()
            .await
            .expect("the units are returned");
        wait::until_async("the units to be returned", PATIENCE, async || {
            let series = Series::described(&snapshotter);
            series.gauge("tollgate_lease_held store=shop") == Some(0.0)
                && count(&series, "granted") == leased + count(&series, "returned")
                && count(&series, "lapsed") == 0
        })
        .await;
    });
}
