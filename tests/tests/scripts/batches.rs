//! A batch is worth the same checks one by one: for every algorithm, for sets, for equal keys.

mod subject;

use std::time::Duration;

use subject::{
    Dice, InMemory, InRedis, Subject, looks,
    policies::{self, ALGORITHMS},
    stored,
    stream::told,
};
use tollgate::{Cost, Key, Limiter, Outage, Policy, Quota, RedisStore, testing::Script};
use tollgate_tests::RedisServer;

#[test]
fn a_batch_decides_as_the_same_checks_one_by_one() {
    let mut redis = InRedis::new();
    let mut checks = 0;
    for &algorithm in ALGORITHMS {
        for seed in 0..40 {
            redis.run(&["FLUSHALL".to_owned()]);
            let mut dice = Dice::new(seed);
            let mut oracle = InMemory::new();
            let mut set = policies::set(&mut dice, algorithm, 4);
            for round in 0..60 {
                if dice.below(20) == 0 {
                    set = policies::set(&mut dice, algorithm, 4);
                }
                let script = Script::new(set.clone());
                redis.load(script.batch_text());
                let quota = set.iter().next().expect("a policy").quota();
                let period = quota.period().as_micros() as u64;
                let step = dice.pick(&[0, 1, period / u64::from(quota.amount()), period, dice.clone().below(period)]);
                let back = if dice.below(10) == 0 { 2 * step.min(1_000_000_000) } else { 0 };
                oracle.set_now((oracle.now() + step - back).min(subject::START_US + 1_000_000_000_000_000));
                let least = set.iter().map(|policy| policy.quota().burst()).min().expect("a policy");
                let cost = dice.pick(&[0, 1, 1, 1, least, 1 + dice.clone().below(u64::from(least)) as u32]);
                let most = dice.pick(&[1, 1, 4, 30]);
                let keys: Vec<(Key, usize)> = (0..10_u64)
                    .filter(|_| dice.below(2) == 0)
                    .map(|key| (Key::from(key), 1))
                    .collect::<Vec<_>>()
                    .into_iter()
                    .map(|(key, _)| (key, 1 + dice.below(most) as usize))
                    .collect();
                if keys.is_empty() {
                    continue;
                }
                let reply = redis.run(&script.batch(&keys, Cost::new(cost), Some(oracle.now())));
                let place = || format!("{algorithm:?} seed {seed} round {round} cost {cost} {set:?}");
                assert!(!reply.is_error(), "{}: {}", place(), reply.text());
                let decisions = script.batch_decisions(&keys, Cost::new(cost), reply.bytes()).expect("decisions");
                for ((key, count), decisions) in keys.iter().zip(decisions) {
                    assert_eq!(decisions.len(), *count);
                    for (at, decision) in decisions.iter().enumerate() {
                        let expected = oracle.check(&set, key, cost);
                        assert_eq!(told(decision), told(&expected), "{} check {at} of {count}", place());
                        assert_eq!(decision.delay(), expected.delay(), "{}", place());
                        checks += 1;
                    }
                    for (policy, name) in set.iter().zip(script.keys(key)) {
                        let [value, expires] = looks(policy, name);
                        let held = stored(&redis.run(&value), &redis.run(&expires));
                        assert_eq!(held, oracle.stored(policy, key), "{}", place());
                    }
                }
            }
        }
    }
    println!("{checks} checks agree");
}

/// Everything at once: hot keys, single keys, several sets, several costs, from many tasks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mixed_checks_from_many_tasks_spend_exactly_what_is_there() {
    let server = RedisServer::start();
    let store = RedisStore::connect(server.url()).await.expect("a store");
    let hourly = |name, amount| Policy::token_bucket(name, Quota::per_hour(amount));
    let daily = Policy::fixed_window("daily", Quota::per_day(500));
    let limiter = |policies: Vec<Policy>| {
        Limiter::builder(store.clone())
            .policies(policies)
            .on_outage(Outage::Closed)
            .deadline(Duration::from_secs(20))
            .build()
    };
    let limiters =
        [limiter(vec![hourly("a", 300)]), limiter(vec![hourly("b", 400), daily.clone()]), limiter(vec![daily])];
    let before = server.calls("evalsha") + server.calls("eval");
    let tasks: Vec<_> = (0..3_000_u32)
        .map(|at| {
            let limiter = limiters[at as usize % 3].clone();
            let cost = Cost::new(1 + at % 2);
            tokio::spawn(async move {
                let key = if at % 5 == 0 { "hot".to_owned() } else { format!("key {}", at % 7) };
                let decision = limiter.check_cost(key.as_str(), cost).await.expect("a decision");
                (key, at % 3, if decision.is_allowed() { cost.units() } else { 0 })
            })
        })
        .collect();
    let mut spent = std::collections::BTreeMap::<_, u32>::new();
    for task in tasks {
        let (key, limiter, units) = task.await.expect("a task");
        *spent.entry((key, limiter)).or_default() += units;
    }
    for ((key, limiter), units) in &spent {
        let of = |limiter| spent.get(&(key.clone(), limiter)).copied().unwrap_or_default();
        let left = limiters[*limiter as usize].peek(key.as_str()).await.expect("a decision");
        for state in left.states() {
            let expected = match state.policy().name() {
                "a" => 300 - of(0),
                "b" => 400 - of(1),
                _ => 500 - of(1) - of(2),
            };
            assert_eq!(state.remaining(), u64::from(expected), "{key} {limiter} {units} {state:?}");
        }
    }
    let calls = server.calls("evalsha") + server.calls("eval") - before;
    assert!(calls < 3_000, "{calls} calls for 3000 checks: they were gathered");
}

#[tokio::test]
async fn a_caller_that_gives_up_in_the_queue_is_not_charged() {
    let server = RedisServer::start();
    let store = RedisStore::connect(server.url()).await.expect("a store");
    let limiter = Limiter::builder(store)
        .policies(Policy::token_bucket("p", Quota::per_hour(100)))
        .on_outage(Outage::Closed)
        .deadline(Duration::from_secs(20))
        .build();
    let _ = limiter.check("warm").await.expect("a decision");
    // A future that was never polled has asked for nothing.
    drop(limiter.check("acme"));
    let left = limiter.peek("acme").await.expect("a decision").states().next().expect("a state").remaining();
    assert_eq!(left, 100);
}

#[tokio::test]
async fn dropped_futures_leave_the_others_right() {
    let server = RedisServer::start();
    let store = RedisStore::connect(server.url()).await.expect("a store");
    let limiter = Limiter::builder(store)
        .policies(Policy::fixed_window("p", Quota::per_day(1_000_000)))
        .on_outage(Outage::Closed)
        .deadline(Duration::from_secs(20))
        .build();
    for round in 0..50_u64 {
        let tasks: Vec<_> = (0..100_u64)
            .map(|at| {
                let limiter = limiter.clone();
                // Each key is its own cost, so that an answer which went to the wrong caller shows.
                tokio::spawn(async move {
                    let cost = 1 + at as u32;
                    let decision = limiter.check_cost((round, at), Cost::new(cost)).await.expect("a decision");
                    let left = decision.states().next().expect("a state").remaining();
                    assert_eq!(left, 1_000_000 - u64::from(cost));
                })
            })
            .collect();
        tokio::task::yield_now().await;
        for (at, task) in tasks.iter().enumerate() {
            if (at as u64 + round).is_multiple_of(3) {
                task.abort();
            }
        }
        for task in tasks {
            assert!(task.await.map_or_else(|error| error.is_cancelled(), |()| true), "a wrong answer");
        }
    }
    assert!(limiter.check("last").await.is_ok());
}

#[test]
fn a_store_outlives_the_runtime_it_was_first_used_on() {
    let server = RedisServer::start();
    let store = RedisStore::open(server.url()).expect("a store");
    let limiter = Limiter::builder(store)
        .policies(Policy::token_bucket("p", Quota::per_hour(100)))
        .on_outage(Outage::Closed)
        .deadline(Duration::from_secs(20))
        .build();
    for spent in 1..=3 {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let left = runtime.block_on(async {
            // The connection of the last runtime is found to be dead once.
            for _ in 0..2 {
                if let Ok(decision) = limiter.check("acme").await {
                    return decision.states().next().expect("a state").remaining();
                }
            }
            panic!("no decision on runtime {spent}");
        });
        assert_eq!(left, 100 - spent);
    }
}
