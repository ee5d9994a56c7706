//! Lockouts under attack, on both stores: guesses from many addresses, guesses at many accounts,
//! floods of keys.

use std::{num::NonZeroUsize, sync::Arc, time::Duration};

use tollgate::{Cost, Decision, Key, Limiter, MemoryStore, Policy, Quota, Store, store::Clock};
use tollgate_rules::{Descriptor, Format, RuleLimiter, RuleSet, Rules};
use tollgate_test_support::{PATIENCE, connected_store, decided, decided_at, patient_limiter};
use tollgate_tests::RedisServer;

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);

/// Locks an account after five failures, from whichever addresses, and an address after ten, at
/// whichever accounts.
const ACCOUNT: Policy = Policy::lockout("account", Quota::per_hour(5), MINUTE, HOUR);
const ADDRESS: Policy = Policy::lockout("address", Quota::per_hour(10), MINUTE, HOUR).at_branch(2);

/// Returns both stores, the second one on the server.
async fn stores(server: &RedisServer) -> [Arc<dyn Store>; 2] {
    let memory = MemoryStore::builder()
        .clock(Clock::manual(1_000_000_000))
        .build();
    [
        Arc::new(memory),
        Arc::new(connected_store(server.url()).await),
    ]
}

/// Fails once.
async fn guess(limiter: &Limiter, account: &str, address: u32) -> Decision {
    let key = Key::new(account.to_owned()).with_branch(format!("192.0.2.{address}"));
    limiter.check(key).await.expect("a decision")
}

#[tokio::test]
async fn guesses_from_many_addresses_lock_the_account_for_all_of_them_and_denied_ones_do_not_prolong_it()
 {
    let server = RedisServer::start();
    for store in stores(&server).await {
        let limiter = patient_limiter(store, [ACCOUNT, ADDRESS]);
        for address in 0..5 {
            assert!(guess(&limiter, "ann", address).await.is_allowed());
        }
        let mut wait = MINUTE;
        for address in 0..200 {
            let denied = guess(&limiter, "ann", address).await;
            assert!(denied.state("account").expect("a policy").is_exceeded());
            let next = denied.retry_after().expect("a wait");
            assert!(
                next <= wait && next > Duration::ZERO,
                "{next:?} after {wait:?}"
            );
            wait = next;
        }
        // The addresses were charged their one guess that passed.
        let left = guess(&limiter, "bob", 0)
            .await
            .state("address")
            .expect("a policy")
            .remaining();
        assert_eq!(left, 8);
    }
}

#[tokio::test]
async fn one_address_that_guesses_at_many_accounts_is_locked_and_their_owners_are_not() {
    let server = RedisServer::start();
    for store in stores(&server).await {
        let limiter = patient_limiter(store, [ACCOUNT, ADDRESS]);
        for account in 0..10 {
            assert!(
                guess(&limiter, &format!("user-{account}"), 7)
                    .await
                    .is_allowed()
            );
        }
        for account in 0..20 {
            let denied = guess(&limiter, &format!("user-{account}"), 7).await;
            assert!(
                denied.is_denied() && denied.retry_after() <= Some(MINUTE),
                "{denied:?}"
            );
        }
        let owner = guess(&limiter, "user-3", 8).await;
        assert!(owner.is_allowed());
        assert_eq!(
            owner.state("account").expect("a policy").remaining(),
            3,
            "one guess of the attacker counts"
        );
    }
}

/// A cost that jumps over the amount counts as the last failure, and what is under way in a locked
/// key counts for nothing.
#[tokio::test]
async fn attempts_at_once_lock_as_attempts_in_turn() {
    let server = RedisServer::start();
    for store in stores(&server).await {
        let limiter = patient_limiter(store, ACCOUNT);
        let attempts = (0..50).map(|_| {
            let limiter = limiter.clone();
            tokio::spawn(async move { limiter.check("ann").await.expect("a decision") })
        });
        let attempts: Vec<_> = attempts.collect();
        let mut allowed = 0;
        for attempt in attempts {
            let decision = attempt.await.expect("no panic");
            allowed += usize::from(decision.is_allowed());
            assert!(
                decision.is_allowed() || decision.retry_after() <= Some(MINUTE),
                "{decision:?}"
            );
        }
        assert_eq!(allowed, 5);
    }
}

#[tokio::test]
async fn a_flood_of_keys_ends_no_lockout_and_each_of_its_states_expires() {
    // In process: states are removed, those that spent the least first.
    let store = MemoryStore::builder()
        .max_keys(NonZeroUsize::new(1_000).expect("not zero"))
        .build();
    let limiter = Limiter::new(store, ACCOUNT);
    let _ = decided_at(&limiter, "victim", Cost::new(5)).await;
    for key in 0..100_000_u64 {
        assert!(limiter.check(key).await.expect("a decision").is_allowed());
    }
    assert!(decided(&limiter, "victim").await.is_denied());

    let server = RedisServer::start();
    let limiter = patient_limiter(connected_store(server.url()).await, ACCOUNT);
    let _ = decided_at(&limiter, "victim", Cost::new(5)).await;
    for key in 0..500_u64 {
        assert!(decided(&limiter, format!("user-{key}")).await.is_allowed());
        assert!(decided(&limiter, "victim").await.is_denied());
    }
    let (keys, expiring) = server.keys_and_expires();
    assert_eq!(keys, expiring);
    // A failure is forgotten with its window, which is shorter than what a lockout is remembered
    // for.
    let life = |key: &str| {
        let names = server.command(&["KEYS", &format!("tollgate:{{{key}}}:*")]);
        let [name] = names.items() else {
            panic!("one state: {names:?}")
        };
        server.command(&["PTTL", &name.text()]).int()
    };
    let most = HOUR.as_millis() as i64 + 1;
    assert!((1..=most).contains(&life("user-7")), "{}", life("user-7"));
    assert!(
        (most - 1..=most + MINUTE.as_millis() as i64).contains(&life("victim")),
        "{}",
        life("victim")
    );
}

#[tokio::test]
async fn a_file_of_rules_locks_out_alike_on_both_stores() {
    let text = "{domain: d, descriptors: [{key: account, rate_limit: {quota: 3/h, algorithm: 'lockout(1m, 1h)'}}]}";
    let server = RedisServer::start();
    for store in stores(&server).await {
        let rules = Rules::new(RuleSet::parse(text, Format::Yaml).expect("rules"));
        let limiter = RuleLimiter::builder(rules, store)
            .deadline(PATIENCE)
            .build();
        let check = async |account: &str| {
            limiter
                .check("d", &[Descriptor::from([("account", account)])], 1)
                .await
                .expect("a decision")
        };
        for _ in 0..3 {
            assert!(check("ann").await.is_allowed());
        }
        let denied = check("ann").await;
        let wait = denied.retry_after().expect("a wait");
        assert!(denied.is_denied() && wait <= MINUTE, "{wait:?}");
        assert!(check("bob").await.is_allowed());
    }
}
