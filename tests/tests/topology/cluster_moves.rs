//! `RedisStore` in a Redis Cluster whose slots move, and whose masters are replaced as planned.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, LazyLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::sync::{Mutex, MutexGuard};
use tollgate::{
    Cost, ErrorKind, Key, Limiter, Outage, Policy, PolicySet, Quota, RedisStore, redis::RedisSource,
};
use tollgate_test_support::{
    PATIENCE, decided, patient_limiter, remaining_of_each as remaining, stream,
};
use tollgate_tests::{RedisCluster, RedisServer, wait};

pub(super) static CLUSTER: LazyLock<RedisCluster> = LazyLock::new(RedisCluster::start);

/// The slots of the cluster are moved by one test at a time.
static MOVES: Mutex<()> = Mutex::const_new(());

/// Takes the right to move slots, once all servers agree on the owners.
pub(super) async fn moves() -> MutexGuard<'static, ()> {
    let held = MOVES.lock().await;
    CLUSTER.wait_until_whole();
    held
}

pub(super) async fn limiter(prefix: &str, policies: impl Into<PolicySet>) -> Limiter {
    let store = RedisStore::builder(RedisSource::cluster(CLUSTER.urls()))
        .prefix(prefix)
        .connect_timeout(PATIENCE)
        .deny_cache_cap(Duration::ZERO);
    patient_limiter(store.connect().await.expect("a store"), policies)
}

/// Returns a key of the first server, its slot, that server and another one.
pub(super) fn a_key(text: &str) -> (Key, u16, &'static RedisServer, &'static RedisServer) {
    let masters = CLUSTER.masters();
    (0..)
        .find_map(|at| {
            let key = Key::new(format!("{text} {at}"));
            let slot = CLUSTER.slot(key.encoded());
            (CLUSTER.owner(slot, masters[0]).port() == masters[0].port())
                .then_some((key, slot, masters[0], masters[1]))
        })
        .expect("a key")
}

/// Counts the calls of EVALSHA, EVAL and ASKING.
fn script_calls(server: &RedisServer) -> (u64, u64, u64) {
    (
        server.calls("evalsha"),
        server.calls("eval"),
        server.calls("asking"),
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn moving_slots_cause_no_error_and_every_check_is_charged_once() {
    let _held = moves().await;
    const AMOUNT: u64 = 1_000_000;
    let most = stream::part_of(5_000) as usize;
    let one = limiter(
        "load",
        Policy::window_from_first_hit("one", Quota::per_day(AMOUNT)),
    )
    .await;
    let set = [
        Policy::token_bucket("two", Quota::new(AMOUNT, Duration::from_secs(1_000_000))),
        Policy::sliding_log("three", Quota::per_day(1_000)),
    ];
    let set = limiter("load", set).await;
    // The keys of the set exist before the move: checks of new ones wait for its end.
    for key in 0..400_u64 {
        let _ = set.check((1_u64, key)).await.expect("a decision");
    }
    let is_over = Arc::new(AtomicBool::new(false));
    let tasks: Vec<_> = (0..4_u64)
        .map(|task| {
            let (one, set, is_over) = (one.clone(), set.clone(), Arc::clone(&is_over));
            tokio::spawn(async move {
                let mut admitted = BTreeMap::<(u64, u64), u64>::new();
                let mut at = task;
                while !is_over.load(Ordering::Relaxed) {
                    at += 7;
                    let (kind, key) = if at % 8 == 0 {
                        (1, at / 8 % 400)
                    } else {
                        (0, at % 2_000)
                    };
                    let decision = match kind {
                        1 => set.check((kind, key)).await,
                        _ => one.check((kind, key)).await,
                    };
                    let decision = decision.expect("no error surfaces");
                    *admitted.entry((kind, key)).or_default() += u64::from(decision.is_allowed());
                }
                admitted
            })
        })
        .collect();
    let moving = tokio::task::spawn_blocking(move || {
        let masters = CLUSTER.masters();
        let (from, to) = (masters[0], masters[1]);
        let slots: Vec<u16> = CLUSTER.slots_of(from).into_iter().take(most).collect();
        CLUSTER.move_slots(slots.iter().copied(), from, to);
        CLUSTER.move_slots(slots.iter().copied(), to, from);
        slots.len()
    });
    let moved = moving.await.expect("the moves");
    is_over.store(true, Ordering::Relaxed);
    let mut admitted = BTreeMap::<(u64, u64), u64>::new();
    for task in tasks {
        for (key, count) in task.await.expect("a task") {
            *admitted.entry(key).or_default() += count;
        }
    }
    for (&(kind, key), &count) in &admitted {
        match kind {
            0 => assert_eq!(remaining(&one, (kind, key)).await, [AMOUNT - count]),
            _ => assert_eq!(
                remaining(&set, (kind, key)).await[1],
                1_000_u64.saturating_sub(count + 1),
                "{key}"
            ),
        }
    }
    assert!(moved >= most && !admitted.is_empty());
    let (keys, expires) = CLUSTER.keys_and_expires();
    assert!(keys > 0 && keys == expires, "{keys} keys, {expires} expire");
}

#[tokio::test]
async fn a_new_key_of_a_moving_slot_is_decided_at_the_new_server() {
    let _held = moves().await;
    let limiter = limiter("ask", Policy::interval_bucket("ask", Quota::per_day(10))).await;
    let (key, slot, from, to) = a_key("ask");
    for server in [from, to] {
        server.command(&["SCRIPT", "FLUSH"]);
    }
    CLUSTER.begin_move(slot, from, to);
    let (sha, body, asking) = script_calls(to);
    for spent in 1..=3 {
        assert!(decided(&limiter, key.clone()).await.is_allowed());
        assert_eq!(remaining(&limiter, key.clone()).await, [10 - spent]);
    }
    // The first check sends its script by its body, and the first peek does so when the hash is not
    // known. The others send the hash; each after its own ASKING.
    let (later_sha, later_body, later_asking) = script_calls(to);
    assert_eq!(
        (later_sha - sha, later_body - body, later_asking - asking),
        (5, 2, 7)
    );
    limiter
        .refund(key.clone(), Cost::new(2))
        .await
        .expect("a refund");
    assert_eq!(remaining(&limiter, key.clone()).await, [9]);
    limiter.reset(key.clone()).await.expect("a reset");
    assert_eq!(remaining(&limiter, key.clone()).await, [10]);
    let _ = limiter.check(key.clone()).await.expect("a decision");
    CLUSTER.end_move(slot, from, to);
    assert_eq!(remaining(&limiter, key.clone()).await, [9]);
    CLUSTER.move_slots([slot], to, from);
    assert_eq!(remaining(&limiter, key.clone()).await, [9]);
    // Once more with many checks at once: those of one key are batched at the new server too.
    CLUSTER.begin_move(slot, from, to);
    CLUSTER.move_keys(slot, from, to);
    let tasks: Vec<_> = (0..50)
        .map(|_| tokio::spawn(limiter.check(key.clone()).into_future()))
        .collect();
    let mut admitted = 0;
    for task in tasks {
        admitted += u64::from(
            task.await
                .expect("a task")
                .expect("a decision")
                .is_allowed(),
        );
    }
    assert_eq!(admitted, 9);
    CLUSTER.end_move(slot, from, to);
    assert_eq!(remaining(&limiter, key).await, [0]);
}

#[tokio::test]
async fn a_set_whose_keys_are_on_both_servers_waits_for_the_end_of_the_move() {
    let _held = moves().await;
    let policies = [
        Policy::window_from_first_hit("a", Quota::per_day(10)),
        Policy::window_from_first_hit("b", Quota::per_day(10)),
    ];
    let limiter = limiter("both", policies).await;
    let (key, slot, from, to) = a_key("both");
    let _ = limiter.check(key.clone()).await.expect("a decision");
    CLUSTER.begin_move(slot, from, to);
    let keys = from.command(&["CLUSTER", "GETKEYSINSLOT", &slot.to_string(), "10"]);
    let one = keys
        .items()
        .iter()
        .map(|key| key.text())
        .find(|key| key.contains(":a:"))
        .expect("the key of a");
    let port = to.port().to_string();
    assert_eq!(
        from.command(&["MIGRATE", "127.0.0.1", &port, &one, "0", "60000"])
            .text(),
        "OK"
    );
    let refused = |server: &RedisServer| {
        let stats = server.info("errorstats");
        stats.get("errorstat_TRYAGAIN").map_or(0, |count| {
            count.trim_start_matches("count=").parse().expect("a count")
        })
    };
    let before: u64 = refused(from);
    let waiting = tokio::spawn(limiter.check(key.clone()).into_future());
    wait::until_async("the check to be refused twice", PATIENCE, async || {
        refused(from) >= before + 2
    })
    .await;
    assert!(!waiting.is_finished());
    CLUSTER.move_keys(slot, from, to);
    let decision = waiting.await.expect("a task").expect("a decision");
    assert_eq!(
        decision
            .states()
            .map(|state| state.remaining())
            .collect::<Vec<_>>(),
        [8, 8]
    );
    CLUSTER.end_move(slot, from, to);
    assert_eq!(remaining(&limiter, key).await, [8, 8]);
    CLUSTER.move_slots([slot], to, from);
}

#[tokio::test]
async fn a_check_whose_deadline_passes_during_a_move_is_not_charged() {
    let _held = moves().await;
    let policies = [
        Policy::window_from_first_hit("a", Quota::per_day(10)),
        Policy::window_from_first_hit("b", Quota::per_day(10)),
    ];
    let patient = limiter("tired", policies.clone()).await;
    let store = RedisStore::builder(RedisSource::cluster(CLUSTER.urls()))
        .prefix("tired")
        .connect_timeout(PATIENCE)
        .connect()
        .await
        .expect("a store");
    let hasty = Limiter::builder(store.clone())
        .policies(policies)
        .deadline(Duration::from_millis(300))
        .on_outage(Outage::Open)
        .build();
    let (key, slot, from, to) = a_key("tired");
    CLUSTER.begin_move(slot, from, to);
    // Both keys are new: the old server redirects to the new one, which answers TRYAGAIN until the
    // end of the move.
    for _ in 0..3 {
        let decision = hasty.check(key.clone()).await.expect("open");
        // After two seconds nobody waits for the move any more.
        let late = [ErrorKind::Timeout, ErrorKind::Unavailable];
        assert!(decision.degraded().is_some_and(|kind| late.contains(&kind)));
    }
    assert!(store.is_available(), "a move is no outage");
    CLUSTER.end_move(slot, from, to);
    assert_eq!(remaining(&patient, key).await, [10, 10]);
    CLUSTER.move_slots([slot], to, from);
}

/// The slot map of the store is wrong for hundreds of slots at once.
#[tokio::test]
async fn many_redirects_cost_one_trip_each_and_few_requests_for_the_slots() {
    let _held = moves().await;
    let limiter = limiter(
        "storm",
        Policy::window_from_first_hit("storm", Quota::per_day(100)),
    )
    .await;
    for key in 0..2_000_u64 {
        let _ = limiter.check(key).await.expect("a decision");
    }
    // Sixty slots that have keys go from each server to the next one.
    let slots: Vec<u16> = (0..2_000_u64)
        .map(|key| CLUSTER.slot(Key::from(key).encoded()))
        .collect();
    let (masters, with_keys) = (CLUSTER.masters(), BTreeSet::from_iter(&slots));
    let mut wrong = BTreeSet::new();
    let of_each = masters.iter().map(|from| {
        let its = CLUSTER.slots_of(from).into_iter();
        its.filter(|slot| with_keys.contains(slot))
            .take(60)
            .collect::<Vec<_>>()
    });
    for (at, slots) in of_each.collect::<Vec<_>>().into_iter().enumerate() {
        wrong.extend(slots.iter().copied());
        CLUSTER.move_slots(slots, masters[at], masters[(at + 1) % 3]);
    }
    let looks = || -> u64 {
        let nodes = CLUSTER.nodes().iter();
        nodes.map(|node| node.calls("cluster|slots")).sum()
    };
    let (looks_before, moved, began) = (looks(), moved_errors(), Instant::now());
    let tasks: Vec<_> = (0..2_000_u64)
        .map(|key| tokio::spawn(limiter.check(key).into_future()))
        .collect();
    for task in tasks {
        let decision = task.await.expect("a task").expect("no error surfaces");
        assert_eq!(decision.states().next().expect("a state").remaining(), 98);
    }
    // At least 50 ms pass after each look, and a second server is asked no earlier.
    let most = 2 * (began.elapsed().as_millis() as u64 / 50 + 2);
    let (looked, redirected) = (looks() - looks_before, moved_errors() - moved);
    let wrong = slots.iter().filter(|slot| wrong.contains(*slot)).count() as u64;
    assert!(redirected > 0 && wrong > 100);
    // The servers learn of moved slots with a delay, so that their own redirects may be old.
    assert!(
        redirected <= 2 * wrong,
        "{redirected} redirects for {wrong} keys"
    );
    assert!(looked <= most, "{looked} looks, at most {most} are allowed");
}

#[tokio::test]
async fn a_redirect_is_remembered_also_by_a_user_who_may_not_read_the_slots() {
    let _held = moves().await;
    let allow = |rights: &[&str]| {
        for node in CLUSTER.nodes() {
            assert_eq!(
                node.command(&[&["ACL", "SETUSER", "blind"], rights].concat())
                    .text(),
                "OK"
            );
        }
    };
    allow(&["on", "nopass", "~*", "+@all"]);
    let urls = CLUSTER
        .nodes()
        .iter()
        .map(|node| format!("redis://blind:any@{}", node.addr()));
    let store = RedisStore::builder(RedisSource::cluster(urls))
        .prefix("blind")
        .connect_timeout(PATIENCE)
        .deny_cache_cap(Duration::ZERO)
        .connect()
        .await
        .expect("a store");
    allow(&["-cluster|slots"]);
    let policy = Policy::window_from_first_hit("blind", Quota::per_day(100));
    let limiter = patient_limiter(store, policy);
    let (key, slot, from, to) = a_key("blind");
    let _ = limiter.check(key.clone()).await.expect("a decision");
    CLUSTER.move_slots([slot], from, to);
    let moved = moved_errors();
    for spent in 2..=20 {
        assert!(decided(&limiter, key.clone()).await.is_allowed());
        assert_eq!(remaining(&limiter, key.clone()).await, [100 - spent]);
    }
    assert_eq!(
        moved_errors() - moved,
        1,
        "one check is redirected, the others go to the new server"
    );
    CLUSTER.move_slots([slot], to, from);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_planned_failover_causes_no_error() {
    let _held = moves().await;
    let limiter = limiter(
        "planned",
        Policy::window_from_first_hit("planned", Quota::per_day(1_000_000)),
    )
    .await;
    let (is_over, asked) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU64::new(0)),
    );
    let tasks: Vec<_> = (0..4_u64)
        .map(|task| {
            let (limiter, is_over, asked) =
                (limiter.clone(), Arc::clone(&is_over), Arc::clone(&asked));
            tokio::spawn(async move {
                let mut admitted = vec![0_u64; 30];
                let mut at = task as usize;
                while !is_over.load(Ordering::Relaxed) {
                    at = (at + 7) % admitted.len();
                    let decision = limiter.check(at as u64).await.expect("no error surfaces");
                    admitted[at] += u64::from(decision.is_allowed());
                    asked.fetch_add(1, Ordering::Relaxed);
                }
                admitted
            })
        })
        .collect();
    let moving = tokio::task::spawn_blocking(move || {
        let some_checks = || {
            let before = asked.load(Ordering::Relaxed);
            wait::until("checks", PATIENCE, || {
                asked.load(Ordering::Relaxed) > before + 500
            });
        };
        some_checks();
        let replica = CLUSTER
            .nodes()
            .iter()
            .find(|node| node.info("replication")["role"] == "slave")
            .expect("a replica");
        assert_eq!(replica.command(&["CLUSTER", "FAILOVER"]).text(), "OK");
        let role = || replica.info("replication")["role"].clone();
        wait::until("the replica to be a master", PATIENCE, || {
            role() == "master"
        });
        some_checks();
        CLUSTER.wait_until_whole();
    });
    moving.await.expect("the failover");
    is_over.store(true, Ordering::Relaxed);
    let mut admitted = vec![0_u64; 30];
    for task in tasks {
        for (sum, count) in admitted.iter_mut().zip(task.await.expect("a task")) {
            *sum += count;
        }
    }
    for (key, &count) in admitted.iter().enumerate() {
        assert_eq!(
            remaining(&limiter, key as u64).await,
            [1_000_000 - count],
            "no charge is lost or doubled"
        );
    }
}

fn moved_errors() -> u64 {
    let count = |node: &RedisServer| {
        let stats = node.info("errorstats");
        stats.get("errorstat_MOVED").map_or(0, |count| {
            count.trim_start_matches("count=").parse().expect("a count")
        })
    };
    CLUSTER.nodes().iter().map(count).sum()
}
