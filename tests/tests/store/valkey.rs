//! The same on Valkey: the binary that `VALKEY_SERVER` names, which `cargo xtask test` sets where there is one.

mod subject;

use std::{
    env,
    io::{Write, stderr},
    path::PathBuf,
    sync::Once,
    time::Duration,
};

use subject::{
    InRedis,
    policies::ALGORITHMS,
    stream::{self, Stream},
};
use tollgate::{Cost, Limiter, Outage, Policy, PolicySet, Quota, RedisStore};
use tollgate_tests::RedisServer;

/// A server, or a line that is seen also when the tests pass.
fn valkey() -> Option<RedisServer> {
    static SAID: Once = Once::new();
    let Some(binary) = env::var_os("VALKEY_SERVER").filter(|chosen| !chosen.is_empty()) else {
        // Written around the capture of a test's output.
        let line = b"\n*** NOTHING IS TESTED ON VALKEY: VALKEY_SERVER names no binary ***\n";
        SAID.call_once(|| stderr().write_all(line).expect("somebody listens"));
        return None;
    };
    let server = RedisServer::builder().binary(PathBuf::from(binary)).start();
    let info = server.info("server");
    assert_eq!(info.get("server_name").map(String::as_str), Some("valkey"), "VALKEY_SERVER names another server");
    println!("valkey {}", info["valkey_version"]);
    Some(server)
}

fn limiter(store: &RedisStore, policies: impl Into<PolicySet>) -> Limiter {
    Limiter::builder(store.clone())
        .policies(policies)
        .deadline(Duration::from_secs(20))
        .on_outage(Outage::Closed)
        .build()
}

async fn remaining(limiter: &Limiter, key: &str) -> Vec<u64> {
    limiter.peek(key).await.expect("a decision").states().map(|state| state.remaining()).collect()
}

#[test]
fn the_scripts_and_the_rust_functions_agree() {
    let Some(server) = valkey() else { return };
    let mut valkey = InRedis::on(server);
    let mut steps = 0;
    for &algorithm in ALGORITHMS {
        // Seeds of its own, that the other servers have not seen.
        for seed in 1_000_000..1_000_003 {
            let compared = stream::compare(&mut valkey, &mut Stream::new(seed, algorithm), str::to_owned);
            if let Err(difference) = compared {
                panic!("{algorithm:?} seed {seed}: {difference}");
            }
            steps += stream::BATCH;
        }
    }
    println!("{steps} steps agree");
}

#[tokio::test]
async fn a_store_decides_refunds_resets_and_lists() {
    let Some(server) = valkey() else { return };
    let store = RedisStore::connect(server.url()).await.expect("a store");
    let policies: Vec<_> = (0..)
        .zip(ALGORITHMS)
        .map(|(at, &algorithm)| Policy::try_new(format!("p{at}"), algorithm, Quota::per_hour(5)).expect("a policy"))
        .collect();
    let limiter = limiter(&store, policies);
    // The first call carries the script.
    assert!(limiter.check_tagged("acme", Cost::ONE, "ann").await.expect("a decision").is_allowed());
    let scripts = server.calls("evalsha");
    let decision = limiter.check_cost("acme", Cost::new(4)).await.expect("a decision");
    assert!(decision.is_allowed());
    let writes = server.calls("set") + server.calls("setrange") + server.calls("lpush");
    assert!(limiter.check("acme").await.expect("a decision").is_denied());
    assert_eq!(server.calls("set") + server.calls("setrange") + server.calls("lpush"), writes, "a denial wrote");
    assert_eq!(server.calls("evalsha"), scripts + 2, "one decision is one call");
    assert_eq!(server.keys_and_expires(), (8, 8), "every key expires");
    assert_eq!(limiter.entries("acme", 9).await.expect("entries").last().expect("an entry").tag(), b"ann");

    limiter.refund_decision("acme", &decision, Cost::new(3)).await.expect("a refund");
    assert_eq!(remaining(&limiter, "acme").await, [3; 8]);
    server.command(&["SCRIPT", "FLUSH"]);
    assert!(limiter.check("acme").await.expect("a decision").is_allowed());
    assert_eq!(remaining(&limiter, "acme").await, [2; 8], "charged once");
    limiter.reset("acme").await.expect("a reset");
    assert_eq!(remaining(&limiter, "acme").await, [5; 8]);
    assert_eq!(server.keys_and_expires(), (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_at_once_are_admitted_exactly_the_burst() {
    let Some(server) = valkey() else { return };
    let store = RedisStore::connect(server.url()).await.expect("a store");
    for &algorithm in ALGORITHMS {
        let policy = Policy::try_new(
            format!("{algorithm:?}").replace(|c: char| !c.is_alphanumeric(), ""),
            algorithm,
            Quota::per_day(100),
        );
        let limiter = limiter(&store, policy.expect("a policy"));
        let tasks: Vec<_> = (0..500)
            .map(|_| {
                let limiter = limiter.clone();
                tokio::spawn(async move { limiter.check("hot").await.expect("a decision").is_allowed() })
            })
            .collect();
        let mut passed = 0;
        for task in tasks {
            passed += u64::from(task.await.expect("a task"));
        }
        assert_eq!(passed, 100, "{algorithm:?}");
    }
}

#[tokio::test]
async fn damaged_and_foreign_state_counts_as_absent() {
    let Some(server) = valkey() else { return };
    let store = RedisStore::connect(server.url()).await.expect("a store");
    for &algorithm in ALGORITHMS {
        let limiter = limiter(&store, Policy::try_new("p", algorithm, Quota::per_hour(5)).expect("a policy"));
        let _ = limiter.check("acme").await.expect("a decision");
        let key = server.command(&["KEYS", "*"]).items()[0].text();
        let plants: [&[&[u8]]; 6] = [
            &[b"SET", key.as_bytes(), b"nan"],
            &[b"SET", key.as_bytes(), &[0xff; 24]],
            &[b"SET", key.as_bytes(), &[0; 30]],
            &[b"RPUSH", key.as_bytes(), b"1", b"2"],
            &[b"HSET", key.as_bytes(), b"tokens", b"3"],
            &[b"ZADD", key.as_bytes(), b"1", b"a"],
        ];
        for plant in plants {
            server.command(&["DEL", &key]);
            assert!(!server.command(plant).is_error());
            assert_eq!(remaining(&limiter, "acme").await, [5], "{algorithm:?} after {plant:?}");
            assert!(limiter.check("acme").await.expect("a decision").is_allowed());
            assert!(server.command(&["PTTL", &key]).int() > 0, "a planted key heals");
        }
        server.command(&["FLUSHALL"]);
    }
}
