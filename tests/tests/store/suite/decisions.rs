//! Decisions of a store.

use std::{collections::BTreeSet, future::poll_fn, pin::Pin, task::Poll, time::Duration};

use tollgate::{
    Algorithm, Cost, Costs, Decision, Key, Limiter, MemoryStore, Policy, PolicySet, Priority,
    Quota, Store,
    reservation::ReservationId,
    store::{Check, CheckFuture, Clock},
    testing::ALGORITHMS,
};
use tollgate_test_support::{
    Deployment, Dice, START_US, decided, decided_at, patient_limiter, policies, remaining,
    remaining_of_each,
    stream::{Figures, figures, states},
};

/// The commands that run a script.
pub(crate) const SCRIPTS: &[&str] = &["evalsha", "eval"];

/// A policy per algorithm, each with a name of its own.
pub(crate) fn each_algorithm(quota: Quota) -> Vec<Policy> {
    let policy =
        |(at, algorithm): (usize, Algorithm)| Policy::try_new(format!("p{at}"), algorithm, quota);
    ALGORITHMS
        .into_iter()
        .enumerate()
        .map(policy)
        .collect::<Result<_, _>>()
        .expect("the quota is valid for all")
}

/// Returns sets of eight policies at most, in which each algorithm is.
fn sets_of_each_algorithm(quota: Quota) -> Vec<PolicySet> {
    let set = |policies: &[Policy]| PolicySet::try_new(policies.iter().cloned()).expect("a set");
    each_algorithm(quota).rchunks(8).map(set).collect()
}

pub(super) async fn decisions_are_those_of_the_in_process_store(deployment: &Deployment) {
    let clock = Clock::manual(START_US);
    let redis = deployment
        .builder("agree")
        .clock(clock.clone())
        .connect()
        .await
        .expect("a store");
    let memory = MemoryStore::builder().clock(clock.clone()).build();
    for (seed, algorithm) in (0..).zip(ALGORITHMS) {
        let mut dice = Dice::new(seed);
        for most in [1, 4] {
            let set = policies::set(&mut dice, algorithm, most);
            // The order of the checks holds also while the server does not know the scripts.
            deployment.on_every_master(&["SCRIPT", "FLUSH"]);
            agree(&set, &redis, &memory, &clock, &mut dice, |dice| {
                Key::from((most, seed, dice.below(40)))
            })
            .await;
        }
    }
    for master in deployment.masters() {
        assert!(master.calls("evalsha") > 0, "every master takes part");
    }
    deployment.assert_every_key_expires();
}

/// Sends fifteen crowds of checks of such keys, some of them the same, and compares every answer.
pub(crate) async fn agree(
    set: &PolicySet,
    store: &impl Store,
    memory: &MemoryStore,
    clock: &Clock,
    dice: &mut Dice,
    key: impl Fn(&mut Dice) -> Key,
) {
    let least = set
        .iter()
        .map(|policy| policy.quota().burst())
        .min()
        .expect("a set has a policy");
    let period_us = set
        .iter()
        .next()
        .expect("a set has a policy")
        .quota()
        .period()
        .as_micros() as u64;
    for _ in 0..15 {
        clock.set(
            clock.now_us()
                + dice
                    .pick(&[0, 1, period_us / 2, period_us])
                    .min(100_000_000_000_000),
        );
        let checks: Vec<(Key, Cost)> = (0..60)
            .map(|_| (key(dice), Cost::new(dice.pick(&[0, 1, 1, 1, least]))))
            .collect();
        let decisions = in_order(
            checks
                .iter()
                .map(|(key, cost)| store.check(Check::new(set, key, *cost)))
                .collect(),
        )
        .await;
        for ((key, cost), decision) in checks.iter().zip(decisions) {
            let expected = memory
                .check(Check::new(set, key, *cost))
                .await
                .expect("a decision");
            assert_eq!(figures(&decision), figures(&expected), "{cost:?} {set:?}");
        }
    }
}

/// Draws the priority, the cost and the kind of each call by themselves, so that every combination
/// of them is asked for.
pub(super) async fn calls_of_every_rank_are_answered_as_in_process(deployment: &Deployment) {
    let clock = Clock::manual(START_US);
    let redis = deployment
        .builder("ranks")
        .clock(clock.clone())
        .connect()
        .await
        .expect("a store");
    ranks_agree(&redis, &clock).await;
}

/// Makes calls of every rank on a store and in process, and compares every answer.
pub(crate) async fn ranks_agree<S: Store + Clone>(store: &S, clock: &Clock) {
    let memory = MemoryStore::builder().clock(clock.clone()).build();
    for (seed, algorithm) in (0..).zip(ALGORITHMS) {
        let mut dice = Dice::new(seed);
        for most in [1, 4] {
            let set = policies::set(&mut dice, algorithm, most);
            let period_us = set
                .iter()
                .next()
                .expect("a set has a policy")
                .quota()
                .period()
                .as_micros() as u64;
            let least = set
                .iter()
                .map(|policy| policy.quota().burst())
                .min()
                .expect("a set has a policy");
            let [store, memory] = [
                patient_limiter(store.clone(), set.clone()),
                patient_limiter(memory.clone(), set.clone()),
            ];
            for step in 0..40 {
                clock.set(
                    clock.now_us()
                        + dice
                            .pick(&[0, 0, 1, period_us / 7, period_us])
                            .min(1_000_000_000_000),
                );
                let key = Key::from((most, seed, dice.below(2)));
                let any = 1 + dice.below(100) as u8;
                let priority = Priority::percent(dice.pick(&[100, 90, 60, any]));
                let share = priority.units_of(least);
                let part = dice.below(share + 1);
                let cost = dice.pick(&[0, 1, 1, 1, share, share + 1, part]).min(2_000);
                let costs = Costs::new(Cost::new(cost)).with_priority(priority);
                // A caller at no cost would wait for its turn in a queue, on a clock that stands
                // still.
                let call = if cost == 0 {
                    dice.pick(&[0, 2, 3])
                } else {
                    dice.below(4)
                };
                let answer = answer_to(&store, call, &key, &costs, step).await;
                let expected = answer_to(&memory, call, &key, &costs, step).await;
                assert_eq!(answer, expected, "call {call} {costs:?} {set:?}");
            }
        }
    }
}

/// Makes a call of one kind, and returns its figures or its error.
async fn answer_to(
    limiter: &Limiter,
    call: u64,
    key: &Key,
    costs: &Costs,
    step: u64,
) -> Result<Figures, String> {
    let id = ReservationId::try_new(step.to_string()).expect("an id");
    let decided = match call {
        0 => limiter.check(key).cost(costs.clone()).await,
        1 => {
            limiter
                .check(key)
                .cost(costs.clone())
                .wait(Duration::ZERO)
                .await
        }
        2 => limiter
            .reserve(key.clone(), costs.clone())
            .id(id)
            .await
            .map(|held| held.decision().clone()),
        _ => {
            let look = limiter
                .peek(key)
                .cost(costs.clone())
                .await
                .map_err(|error| error.to_string())?;
            return Ok((look.retry_after().is_none(), states(look.states())));
        }
    };
    decided
        .map(|decision| figures(&decision))
        .map_err(|error| error.to_string())
}

/// Sends the checks from one task, in this order, without waiting in between. Returns their
/// decisions.
pub(crate) async fn in_order(mut checks: Vec<CheckFuture>) -> Vec<Decision> {
    let mut decisions: Vec<Option<Decision>> = vec![None; checks.len()];
    poll_fn(|cx| {
        for (check, decision) in checks
            .iter_mut()
            .zip(&mut decisions)
            .filter(|(_, decision)| decision.is_none())
        {
            if let Poll::Ready(decided) = Pin::new(check).poll(cx) {
                *decision = Some(decided.expect("a decision"));
            }
        }
        if decisions.iter().all(Option::is_some) {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
    decisions.into_iter().flatten().collect()
}

pub(super) async fn a_burst_is_admitted_exactly_to_many_tasks(deployment: &Deployment) {
    let store = deployment
        .builder("burst")
        .connect()
        .await
        .expect("a store");
    for policy in each_algorithm(Quota::per_day(100)) {
        let limiter = patient_limiter(store.clone(), policy.clone());
        let tasks: Vec<_> = (0..1_000)
            .map(|_| tokio::spawn(limiter.check("hot").into_future()))
            .collect();
        let mut passed = 0;
        for task in tasks {
            passed += u64::from(
                task.await
                    .expect("a task")
                    .expect("a decision")
                    .is_allowed(),
            );
        }
        assert_eq!(passed, 100, "{policy:?}");
    }
}

pub(super) async fn a_hot_key_is_batched_and_never_above_its_bound(deployment: &Deployment) {
    let store = deployment
        .builder("hot")
        .deny_cache_cap(Duration::ZERO)
        .connect()
        .await
        .expect("a store");
    let hot = patient_limiter(store, Policy::token_bucket("hot", Quota::per_day(3_000)));
    let before = deployment.calls(SCRIPTS);
    let tasks: Vec<_> = (0..100)
        .map(|_| {
            let hot = hot.clone();
            tokio::spawn(async move {
                let mut admitted = 0;
                for _ in 0..100 {
                    admitted += u64::from(hot.check("hot").await.expect("a decision").is_allowed());
                }
                admitted
            })
        })
        .collect();
    let mut admitted = 0;
    for task in tasks {
        admitted += task.await.expect("a task");
    }
    assert_eq!(admitted, 3_000);
    let calls = deployment.calls(SCRIPTS) - before;
    assert!(calls < 10_000, "{calls} calls for 10000 checks");
    deployment.assert_every_key_expires();
}

/// The most checks that their callers send themselves.
const SENT_BY_CALLERS: usize = 16;

pub(super) async fn checks_of_one_key_are_decided_in_the_order_they_came(deployment: &Deployment) {
    let store = deployment
        .builder("order")
        .connect()
        .await
        .expect("a store");
    let log = patient_limiter(store, Policy::sliding_log("log", Quota::per_day(100)));
    let tags: Vec<String> = (0..60).map(|at| format!("number {at}")).collect();
    // The server knows the script from the second round on, until it forgets it.
    for (round, forgets) in [false, false, true].into_iter().enumerate() {
        if forgets {
            deployment.on_every_master(&["SCRIPT", "FLUSH"]);
        }
        let key = round as u64;
        // One task sends all of them, so the order of the checks is the order of the tags.
        let checks = tags
            .iter()
            .map(|tag| log.check(key).tag(tag).into_future())
            .collect();
        assert!(in_order(checks).await.iter().all(Decision::is_allowed));
        let entries = log.entries(key, 100).await.expect("entries");
        let mut logged: Vec<_> = entries
            .iter()
            .rev()
            .map(|entry| String::from_utf8_lossy(entry.tag()).into_owned())
            .collect();
        if forgets {
            // The callers of the first checks send them, and send them once more when the server
            // does not know the script. The checks behind them may be decided in between.
            let queued: Vec<_> = logged
                .iter()
                .filter(|tag| !tags[..SENT_BY_CALLERS].contains(tag))
                .cloned()
                .collect();
            assert_eq!(queued, tags[SENT_BY_CALLERS..]);
            logged.sort_by_key(|tag| tags.iter().position(|known| known == tag));
        }
        assert_eq!(logged, tags, "round {round}");
    }
}

pub(super) async fn one_decision_is_one_call_and_a_denial_writes_nothing(deployment: &Deployment) {
    let store = deployment
        .builder("one")
        .deny_cache_cap(Duration::ZERO)
        .connect()
        .await
        .expect("a store");
    let set = [
        Policy::token_bucket("hourly", Quota::per_hour(5)),
        Policy::fixed_window("daily", Quota::per_day(100)),
        Policy::window_from_first_hit("hit", Quota::per_day(100)),
    ];
    let limiter = patient_limiter(store, set);
    let bodies = deployment.calls(&["eval"]);
    // The first call carries the script.
    assert!(decided(&limiter, "acme").await.is_allowed());
    // Within one window or second, a charge is written in place.
    let written = || deployment.calls(&["set", "setrange"]);
    let (scripts, writes) = (deployment.calls(&["evalsha"]), written());
    for _ in 0..4 {
        assert!(decided(&limiter, "acme").await.is_allowed());
    }
    assert_eq!(deployment.calls(&["evalsha"]), scripts + 4);
    assert_eq!(written(), writes + 3 * 4);
    for _ in 0..10 {
        assert!(limiter.check("acme").await.expect("a decision").is_denied());
    }
    assert_eq!(deployment.calls(&["evalsha"]), scripts + 14);
    assert_eq!(written(), writes + 3 * 4, "a denial wrote");
    assert_eq!(deployment.calls(&["eval"]), bodies + 1);
    assert_eq!(deployment.keys_and_expires(), (3, 3), "every key expires");
}

pub(super) async fn refund_reset_and_entries_reach_the_server_of_the_key(deployment: &Deployment) {
    for (at, set) in sets_of_each_algorithm(Quota::per_day(10))
        .into_iter()
        .enumerate()
    {
        let store = deployment
            .builder(&format!("refund{at}"))
            .connect()
            .await
            .expect("a store");
        let has_log = set
            .iter()
            .any(|policy| policy.algorithm() == Algorithm::SlidingLog);
        let (count, limiter) = (set.len(), patient_limiter(store, set));
        let mut owners = BTreeSet::new();
        for key in 0..30_u64 {
            assert!(
                limiter
                    .check(key)
                    .tag("ann")
                    .await
                    .expect("a decision")
                    .is_allowed()
            );
            let decision = decided_at(&limiter, key, Cost::new(4)).await;
            if has_log {
                let entries = limiter.entries(key, 10).await.expect("entries");
                assert_eq!(entries.len(), 5);
                assert_eq!(entries.last().expect("the oldest entry").tag(), b"ann");
            }
            limiter
                .refund(key, Cost::new(3))
                .of(&decision)
                .await
                .expect("a refund");
            assert_eq!(remaining_of_each(&limiter, key).await, vec![8; count]);
            limiter.refund(key, Cost::new(100)).await.expect("a refund");
            assert_eq!(
                remaining_of_each(&limiter, key).await,
                vec![10; count],
                "a refund gives back what was spent"
            );
            let _ = decided_at(&limiter, key, Cost::new(10)).await;
            limiter.reset(key).await.expect("a reset");
            assert_eq!(remaining_of_each(&limiter, key).await, vec![10; count]);
            owners.insert(deployment.owner(&Key::from(key)).port());
        }
        assert_eq!(
            owners.len(),
            deployment.masters().len(),
            "every master holds some of the keys"
        );
        assert_eq!(deployment.keys_and_expires(), (0, 0));
    }
}

pub(super) async fn foreign_state_counts_as_absent(deployment: &Deployment) {
    let store = deployment
        .builder("foreign")
        .deny_cache_cap(Duration::ZERO)
        .connect()
        .await
        .expect("a store");
    let server = deployment.owner(&Key::from("acme"));
    for policy in each_algorithm(Quota::per_hour(5)) {
        let limiter = patient_limiter(store.clone(), policy.clone());
        let _ = limiter.check("acme").await.expect("a decision");
        let key = server.command(&["KEYS", "*"]).items()[0].text();
        let key = key.as_bytes();
        let plants: [&[&[u8]]; 10] = [
            &[b"SET", key, b""],
            &[b"SET", key, b"7"],
            &[b"SET", key, b"nan"],
            &[b"SET", key, &[0xff; 24]],
            &[b"SET", key, &[0xff; 16]],
            &[b"SET", key, &[0; 24]],
            &[b"SET", key, &[0; 30]],
            &[b"RPUSH", key, b"1", b"2"],
            &[b"HSET", key, b"tokens", b"3"],
            &[b"ZADD", key, b"1", b"a"],
        ];
        for plant in plants {
            server.command(&[&b"DEL"[..], key]);
            assert!(!server.command(plant).is_error());
            assert_eq!(
                remaining(&limiter, "acme").await,
                5,
                "{policy:?} after {plant:?}"
            );
            assert!(decided(&limiter, "acme").await.is_allowed());
            assert_eq!(
                remaining(&limiter, "acme").await,
                4,
                "{policy:?} after {plant:?}"
            );
            assert!(
                server.command(&[&b"PTTL"[..], key]).int() > 0,
                "a planted key heals"
            );
        }
        server.command(&["FLUSHALL"]);
    }
    let stats = server.info("commandstats");
    assert!(
        stats["cmdstat_eval"].contains("failed_calls=0"),
        "{stats:?}"
    );
}

pub(super) async fn replicas_of_the_application_share_one_limit(deployment: &Deployment) {
    let mut passed = 0;
    for replica in 0..5 {
        let store = deployment
            .builder("shared")
            .connect()
            .await
            .expect("a store");
        let limiter = patient_limiter(store, Policy::token_bucket("hourly", Quota::per_hour(5)));
        for _ in 0..=replica {
            passed += u64::from(decided(&limiter, "acme").await.is_allowed());
        }
    }
    assert_eq!(passed, 5);
}

pub(super) async fn stores_with_different_prefixes_do_not_share(deployment: &Deployment) {
    let limiter = async |prefix: &str| {
        let store = deployment.builder(prefix).connect().await.expect("a store");
        patient_limiter(store, Policy::token_bucket("hourly", Quota::per_hour(5)))
    };
    let (one, other) = (limiter("one").await, limiter("other").await);
    let key = || Key::from(("acme", 7_u64));
    let _ = one.check(key()).await.expect("a decision");
    assert_eq!(remaining(&other, key()).await, 5);
    let keys = deployment.owner(&key()).command(&["KEYS", "*"]);
    assert_eq!(keys.items()[0].text(), "one:{acme,#7}:hourly:t1");
}
