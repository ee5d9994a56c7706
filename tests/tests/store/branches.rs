//! Keys with branches, as an application uses them.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use tollgate::{
    Cost, Costs, ErrorKind, Key, Limiter, MemoryStore, Policy, PolicySet, Quota,
    limiter::DeniedKeys, store::Clock,
};
use tollgate_test_support::{
    connected_store, decided, decided_at, patient_limiter, remaining_of_each,
};
use tollgate_tests::RedisServer;

const ADDRESS: Policy = Policy::fixed_window("address", Quota::per_day(5));
const API_KEY: Policy = Policy::fixed_window("api-key", Quota::per_day(100)).at_branch(2);

fn key(address: &'static str, api_key: &'static str) -> Key {
    Key::new(address).with_branch(api_key)
}

/// Returns a limiter over an address and an API key on each store.
async fn limiters(server: &RedisServer) -> [Limiter; 2] {
    let redis = connected_store(server.url()).await;
    [
        patient_limiter(redis, [ADDRESS, API_KEY]),
        patient_limiter(MemoryStore::new(), [ADDRESS, API_KEY]),
    ]
}

#[tokio::test]
async fn branches_in_any_slots_are_decided_together_at_one_server_and_in_process() {
    let server = RedisServer::start();
    for limiter in limiters(&server).await {
        assert!(limiter.can_decide(&key("a", "x")));
        let costs = |tokens: u64| Costs::new(Cost::ONE).with("api-key", tokens);
        let decision = decided_at(&limiter, key("a", "x"), costs(60)).await;
        assert!(decision.is_allowed());
        assert_eq!(remaining_of_each(&limiter, key("a", "x")).await, [4, 40]);
        let denied = decided_at(&limiter, key("a", "x"), costs(41)).await;
        assert_eq!(
            denied
                .strictest()
                .map(|state| state.policy().name().to_owned())
                .as_deref(),
            Some("api-key")
        );
        assert_eq!(
            remaining_of_each(&limiter, key("a", "x")).await,
            [4, 40],
            "neither branch is charged"
        );
        limiter
            .refund(
                key("a", "x"),
                Costs::new(Cost::ZERO).with("api-key", 50_u64),
            )
            .of(&decision)
            .await
            .unwrap();
        assert_eq!(
            remaining_of_each(&limiter, key("a", "y")).await,
            [4, 100],
            "the address is that of both keys"
        );
        assert_eq!(remaining_of_each(&limiter, key("b", "x")).await, [5, 90]);
        limiter.reset(key("a", "x")).await.expect("a reset");
        assert_eq!(remaining_of_each(&limiter, key("a", "x")).await, [5, 100]);
    }
}

#[tokio::test]
async fn a_key_without_the_branch_of_a_policy_is_an_error_and_is_not_sent() {
    let server = RedisServer::start();
    for limiter in limiters(&server).await {
        let before = server.calls("evalsha") + server.calls("eval");
        let errors = [
            limiter.check("a").await.expect_err("no decision"),
            limiter.refund("a", Cost::ONE).await.expect_err("no refund"),
            limiter
                .check("a")
                .wait(Duration::from_secs(9))
                .await
                .expect_err("no wait"),
        ];
        for error in errors {
            assert_eq!(error.kind(), ErrorKind::KeyLevels);
            assert_eq!(
                error.to_string(),
                "policy api-key meters branch 2 of a key, got a key of 1"
            );
        }
        assert_eq!(server.calls("evalsha") + server.calls("eval"), before);
        // A reset of the address leaves the API key, which has no branch here.
        assert!(decided(&limiter, key("a", "x")).await.is_allowed());
        limiter.reset("a").await.expect("a reset");
        assert_eq!(remaining_of_each(&limiter, key("a", "x")).await, [5, 99]);
    }
}

#[tokio::test]
async fn entries_are_those_of_the_branch_of_the_log() {
    let server = RedisServer::start();
    let redis = connected_store(server.url()).await;
    let policies = || {
        [
            ADDRESS,
            Policy::sliding_log("log-in", Quota::per_day(9)).at_branch(2),
        ]
    };
    for limiter in [
        patient_limiter(redis, policies()),
        patient_limiter(MemoryStore::new(), policies()),
    ] {
        for (address, tag) in [("a", "one"), ("b", "two")] {
            let decision = limiter
                .check(key(address, "ann"))
                .tag(tag)
                .await
                .expect("a decision");
            assert!(decision.is_allowed());
        }
        let entries = limiter.entries(key("c", "ann"), 10).await.expect("entries");
        assert_eq!(
            entries.iter().map(|entry| entry.tag()).collect::<Vec<_>>(),
            [b"two", b"one"]
        );
        assert!(
            limiter
                .entries(key("a", "bob"), 10)
                .await
                .expect("entries")
                .is_empty()
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_waits_for_the_branch_that_is_spent() {
    let bucket = |name, amount| Policy::token_bucket(name, Quota::per_second(amount));
    let store = MemoryStore::builder().clock(Clock::tokio()).build();
    let limiter = Limiter::new(store, [bucket("fast", 10), bucket("slow", 1).at_branch(2)]);
    let wait = async |key: Key| {
        let start = tokio::time::Instant::now();
        let decision = limiter
            .check(key)
            .wait(Duration::from_secs(5))
            .await
            .expect("a decision");
        assert!(decision.is_allowed());
        start.elapsed().as_millis()
    };
    assert_eq!(
        (wait(key("a", "x")).await, wait(key("a", "y")).await),
        (0, 0)
    );
    assert_eq!(wait(key("b", "x")).await, 1_000);
}

#[tokio::test]
async fn the_branch_that_denies_is_counted_as_denied() {
    let denied_keys = DeniedKeys::with_plain_keys(10);
    let builder = Limiter::builder(MemoryStore::new()).policies([ADDRESS, API_KEY]);
    let limiter = builder.denied_keys(denied_keys.clone()).build();
    for _ in 0..8 {
        let _ = limiter.check(key("a", "x")).await.expect("a decision");
    }
    let top = denied_keys.top(10);
    assert_eq!((top.len(), top[0].name(), top[0].denials()), (1, "a", 3));
}

/// Threads with overlapping branches take their locks in one order.
#[test]
fn threads_spend_exactly_the_quota_of_each_branch() {
    const AMOUNT: u64 = 5_000;
    const PARTS: u64 = 7;
    let policy =
        |name, branch| Policy::fixed_window(name, Quota::per_day(AMOUNT)).at_branch(branch);
    let limiter = Limiter::new(
        MemoryStore::new(),
        PolicySet::from([1, 2, 3].map(|branch| policy(NAMES[branch - 1], branch as u8))),
    );
    let spent: Arc<[[AtomicU64; PARTS as usize]; 3]> = Arc::default();
    let threads: Vec<_> = (0..4_u64)
        .map(|thread| {
            let (limiter, spent) = (limiter.clone(), Arc::clone(&spent));
            thread::spawn(move || {
                for at in 0..20_000_u64 {
                    let parts = [
                        at % PARTS,
                        (at / 3 + thread) % PARTS,
                        (at / 5 + 2 * thread) % PARTS,
                    ];
                    let key = Key::from(parts[0])
                        .with_branch(parts[1])
                        .with_branch(parts[2]);
                    let decision = limiter
                        .check(key)
                        .into_future()
                        .into_ready()
                        .expect("in process")
                        .expect("a decision");
                    if decision.is_allowed() {
                        for (branch, part) in parts.into_iter().enumerate() {
                            spent[branch][part as usize].fetch_add(1, Ordering::Relaxed);
                        }
                    }
                }
            })
        })
        .collect();
    threads
        .into_iter()
        .for_each(|thread| thread.join().expect("a thread"));
    for part in 0..PARTS {
        let key = Key::from(part).with_branch(part).with_branch(part);
        let state = limiter
            .check(key)
            .cost(Cost::ZERO)
            .into_future()
            .into_ready()
            .expect("in process")
            .expect("a state");
        for (branch, state) in state.states().enumerate() {
            let spent = spent[branch][part as usize].load(Ordering::Relaxed);
            assert_eq!(
                state.remaining(),
                AMOUNT - spent,
                "branch {branch} of {part}"
            );
        }
    }
    let total: u64 = spent[0]
        .iter()
        .map(|spent| spent.load(Ordering::Relaxed))
        .sum();
    assert!(
        total > AMOUNT * PARTS / 2 && total <= AMOUNT * PARTS,
        "{total} admitted"
    );
}

const NAMES: [&str; 3] = ["first", "second", "third"];
