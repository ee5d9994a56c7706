//! Measures the memory of policy sets: the scripts belong to the list of algorithms, and not to the
//! set.

use allocation_counter::AllocationInfo;
use tollgate::{
    Algorithm, Limiter, MemoryStore, Outage, Policy, PolicySet, Quota,
    store::Clock,
    tenants::TenantLimiters,
    test_util::FaultyStore,
    testing::{shape, shapes},
};
use tollgate_test_support::{calls::Script, connected_store};
use tollgate_tests::RedisServer;

use super::alone;

const SETS: usize = 1_000_000;

#[test]
fn a_million_sets_of_one_shape_hold_its_scripts_once() {
    let _alone = alone();
    assert_eq!(shapes(), 0);
    let mut kept = Vec::new();
    let mut texts = Vec::new();
    for at in 0..SETS {
        let policy = Policy::try_new(
            format!("tenant-{at}"),
            Algorithm::TokenBucket,
            Quota::per_second(1 + at as u64),
        );
        let script = Script::new(policy.expect("a policy"));
        let text = script.text().as_ptr() as usize;
        if at % 100 == 0 {
            kept.push(script);
            texts.push(text);
        }
    }
    assert_eq!(shapes(), 1);
    texts.dedup();
    assert_eq!(texts.len(), 1, "each set has a text of its own");
    drop(kept);
    assert_eq!(shapes(), 0);
}

/// A hostile configuration cannot fill the memory with scripts: those of a list that no set uses
/// are dropped.
#[test]
fn a_shape_ends_with_the_last_set_that_uses_it() {
    let _alone = alone();
    let quota = Quota::per_minute(5);
    let all = tollgate::testing::ALGORITHMS;
    let policy = |at: usize, algorithm| {
        Policy::try_new(format!("p{at}"), algorithm, quota).expect("a policy")
    };
    let mut most = 0;
    for first in all {
        for second in all {
            for third in all {
                let set = [policy(0, first), policy(1, second), policy(2, third)];
                let set = PolicySet::try_new(set).expect("a set");
                let script = Script::new(set.clone());
                assert!(!script.text().is_empty());
                let copy = set.clone();
                drop(set);
                drop(script);
                assert_eq!(shapes(), 1, "a copy of the set still uses the shape");
                most = most.max(shapes());
                drop(copy);
                assert_eq!(shapes(), 0);
            }
        }
    }
    assert_eq!(most, 1);
}

#[test]
fn two_lists_of_algorithms_have_one_shape_exactly_when_they_are_equal() {
    let _alone = alone();
    let all = tollgate::testing::ALGORITHMS;
    let mut lists: Vec<Vec<Algorithm>> = all.map(|first| vec![first]).into();
    lists.extend(
        all.iter()
            .flat_map(|&first| all.map(|next| vec![first, next])),
    );
    lists.push(all[..8].to_vec());
    lists.extend(all.map(|algorithm| vec![algorithm; 8]));
    lists.push(vec![Algorithm::SlidingBuckets { buckets: 60 }]);
    let set = |list: &Vec<Algorithm>| {
        let policy = |(at, &algorithm): (usize, &Algorithm)| {
            Policy::try_new(format!("p{at}"), algorithm, Quota::per_minute(5)).expect("a policy")
        };
        let set = PolicySet::try_new(list.iter().enumerate().map(policy)).expect("a set");
        let _ = shape(&set);
        set
    };
    let kept: Vec<_> = lists.iter().chain(&lists).map(set).collect();
    assert_eq!(
        shapes(),
        lists.len() - 1,
        "any number of buckets has one shape"
    );
    drop(kept);
    assert_eq!(shapes(), 0);
}

/// Returns the bytes that are in use, with the most that an allocator adds to each allocation of
/// whole words: 8 bytes for its size, and 8 to a multiple of 16.
fn with_allocator(info: &AllocationInfo) -> i64 {
    info.bytes_current + 16 * info.count_current
}

#[test]
fn a_tenant_with_a_quota_of_its_own_takes_less_than_230_bytes() {
    let _alone = alone();
    let named = Policy::try_new(
        "a-name-of-the-longest-kind-that-there-may-be",
        Algorithm::TokenBucket,
        Quota::per_day(1),
    );
    for policy in [
        Policy::token_bucket("api", Quota::per_second(10)),
        named.expect("a policy"),
    ] {
        // The shape and its scripts belong to all tenants.
        let first = Script::new(policy.clone());
        assert!(!first.text().is_empty());
        let mut tenant = None;
        let made = allocation_counter::measure(|| {
            let own = policy.with_quota(Quota::per_second(77)).expect("a policy");
            let script = Script::new(own);
            assert!(!script.text().is_empty());
            tenant = Some(script);
        });
        assert_eq!(made.count_current, 2, "a policy and a set: {made:?}");
        assert!((1..230).contains(&with_allocator(&made)), "{made:?}");
        assert_eq!(
            made.bytes_max, made.bytes_current as u64,
            "nothing else is allocated in between"
        );
        drop(tenant);
    }
}

const TENANTS: u64 = 100_000;

/// 20 000 limiters with a store in reserve each took 176 MB.
#[test]
fn a_hundred_thousand_tenants_with_quotas_of_their_own_share_one_limiter() {
    let _alone = alone();
    let store = MemoryStore::builder().clock(Clock::manual(0)).build();
    let away = FaultyStore::new(store);
    let api = Policy::token_bucket("api", Quota::per_day(10));
    let limiter = Limiter::builder(away.clone())
        .policies(api.clone())
        .on_outage(Outage::local(2))
        .build();
    let check_all = |tenants: &[Limiter]| {
        for (at, tenant) in (0_u64..).zip(tenants) {
            let decision = tenant
                .check(at)
                .into_future()
                .into_ready()
                .expect("an answer at once")
                .expect("a decision");
            assert_eq!(decision.policies().len(), 1);
        }
    };
    let mut tenants = Vec::with_capacity(TENANTS as usize);
    let per_tenant =
        |work: &mut dyn FnMut()| allocation_counter::measure(work).bytes_current / TENANTS as i64;
    let made = per_tenant(&mut || {
        tenants.extend((0..TENANTS).map(|at| {
            limiter.with_policies(
                api.with_quota(Quota::per_day(1_000 + at))
                    .expect("a policy"),
            )
        }));
    });
    let in_use = per_tenant(&mut || check_all(&tenants));
    away.fail();
    let in_outage = per_tenant(&mut || check_all(&tenants));
    let size = size_of::<Limiter>();
    assert_eq!(size, 2 * size_of::<usize>());
    assert!((1..230).contains(&(size as i64 + made)), "{made} bytes");
    assert!((1..200).contains(&in_use), "{in_use} bytes");
    assert!((1..400).contains(&in_outage), "{in_outage} bytes");
    // All of them have one script.
    let scripts: Vec<_> = tenants
        .iter()
        .step_by(1_000)
        .map(|tenant| Script::new(tenant.policies().clone()))
        .collect();
    assert!(scripts.iter().all(|script| !script.text().is_empty()));
    assert_eq!(shapes(), 1);
}

#[test]
fn a_hundred_thousand_cached_tenants_take_less_than_half_a_kilobyte_each() {
    let _alone = alone();
    let api = Policy::token_bucket("api", Quota::per_day(10));
    let limiter = Limiter::new(MemoryStore::new(), api.clone());
    let fetch =
        move |tenant: u64| std::future::ready(api.with_quota(Quota::per_day(1_000 + tenant)));
    let tenants = TenantLimiters::builder(limiter, fetch)
        .max_entries(TENANTS as usize)
        .build();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime");
    let fetch_all = |from: u64| {
        let fetched = allocation_counter::measure(|| {
            runtime.block_on(async {
                for tenant in from..from + TENANTS {
                    assert!(
                        tenants
                            .limiter_for(&tenant)
                            .await
                            .expect("limits")
                            .into_limiter()
                            .is_some()
                    );
                }
            });
        });
        fetched.bytes_current / TENANTS as i64
    };
    let first = fetch_all(0);
    // The cache also remembers for a while which tenants it has dropped.
    let further = [1, 2, 3].map(|round| fetch_all(round * TENANTS));
    assert!((200..512).contains(&first), "{first} bytes");
    assert!(
        further[0] < 100 && further[2] < 16,
        "{further:?} bytes: the cache is bounded"
    );
    // The parts of the cache round their sizes up.
    assert!(
        tenants.cached() <= TENANTS as usize + 256,
        "{} tenants",
        tenants.cached()
    );
}

/// The store that decides in an outage is created in the first one.
#[tokio::test]
async fn a_limiter_with_a_policy_of_its_own_takes_less_than_two_kilobytes() {
    let server = RedisServer::start();
    let store = connected_store(server.url()).await;
    let _alone = alone();
    let limiter = |name| {
        Limiter::new(
            store.clone(),
            Policy::token_bucket(name, Quota::per_hour(7)),
        )
    };
    let _first = limiter("first");
    let mut second = None;
    let made = allocation_counter::measure(|| second = Some(limiter("second")));
    assert!(with_allocator(&made) < 2_048, "{made:?}");
    assert!(second.is_some());
}
