//! Reservations that grow, on every store: a model of streams in several processes, with hang-ups,
//! kills, lost answers and quotas that change, whose sums are exact; and each outcome by hand.

use std::{sync::Arc, time::Duration};

use tollgate::{
    Algorithm, Cost, Costs, ErrorKind, Key, Limiter, LimiterHandle, MemoryStore, Outage, Policy,
    PolicySet, Priority, Quota, Store,
    reservation::{GrowingReservation, Growth, GrowthError, ReservationId, Settlement},
    store::{Clock, KeyValueStore},
    test_util::FaultyStore,
    testing::ALGORITHMS,
};
use tollgate_postgres::{Durability, PostgresStore};
use tollgate_test_support::{
    Deployment, Dice, Kind, LosingStore, Map, PATIENCE, POSTGRES, START_US, new_table,
    patient_limiter,
};
use tollgate_tests::wait;

use crate::suite::run;

/// So long a period that nothing returns during a test.
const YEAR: Duration = Duration::from_secs(365 * 86_400);

const REQUESTS: Policy = Policy::fixed_window("requests", Quota::new(100_000, YEAR));
const TOKENS: Policy = Policy::fixed_window("tokens", Quota::new(AMOUNT, YEAR));
/// So few that streams are denied.
const AMOUNT: u64 = 600;
pub(crate) const MANY: Policy = Policy::fixed_window("tokens", Quota::new(4_000, YEAR));

/// The way in which a scene draws its streams.
#[derive(Clone, Copy, Debug)]
struct Scene {
    seed: u64,
    kind: Costing,
    /// One of so many calls is lost; 0 for none.
    loses: u64,
    kills: bool,
    /// The quotas change while streams grow.
    changes: bool,
    /// The times to live end while streams grow.
    ends: bool,
}

#[derive(Clone, Copy, Debug)]
enum Costing {
    Plain,
    /// A plan, then credits, then a pool, with requests beside them.
    Cascade,
    Ranked,
}

impl Costing {
    fn policies(self, tokens: &Policy) -> PolicySet {
        let window = |name, amount| Policy::fixed_window(name, Quota::new(amount, YEAR));
        match self {
            Self::Plain | Self::Ranked => [REQUESTS, tokens.clone()].into(),
            Self::Cascade => [
                REQUESTS,
                window("plan", AMOUNT / 4),
                window("credits", AMOUNT / 4),
                window("pool", AMOUNT / 2).at_level(1),
            ]
            .into(),
        }
    }

    fn costs(self, requests: u64, tokens: u64) -> Costs {
        let named = || Costs::from([("requests", requests), ("tokens", tokens)]);
        match self {
            Self::Plain => named(),
            Self::Ranked => named().with_priority(Priority::NORMAL),
            Self::Cascade => Costs::cascading(tokens).with("requests", requests),
        }
    }
}

/// A stream, as the test remembers it.
struct Stream {
    growth: Growth,
    /// `None` when it has ended.
    held: Option<GrowingReservation>,
    prompt: u64,
    end: End,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Open,
    Settled,
    Cancelled,
    Killed,
}

impl Stream {
    /// Returns the requests and the tokens that the store has charged at the end.
    fn charged(&self) -> (u64, u64) {
        let (counted, reserved) = (self.growth.counted(), self.growth.reserved());
        match self.end {
            End::Open | End::Killed => (1, self.prompt + reserved),
            End::Settled => (1, self.prompt + counted),
            End::Cancelled => (0, counted),
        }
    }
}

/// Returns the requests and the tokens that are spent.
pub(crate) async fn spent(limiter: &Limiter) -> (u64, u64) {
    let state = limiter.peek(key()).await.expect("the store decides");
    let each: Vec<u64> = state.states().map(|state| state.spent()).collect();
    (each[0], each[1..].iter().sum())
}

pub(crate) fn key() -> Key {
    Key::new("acme").child("ann")
}

/// Runs streams of two processes in random order, and compares what the store has charged with what
/// was reserved and counted.
async fn streams(store: Arc<dyn Store>, tokens: &Policy, scene: Scene) {
    let mut dice = Dice::new(scene.seed);
    let policies = scene.kind.policies(tokens);
    let stores: Vec<_> = (0..2)
        .map(|at| LosingStore::new(Arc::clone(&store), scene.seed ^ at, scene.loses))
        .map(|store| {
            if scene.ends {
                store.keeping(PATIENCE * 100)
            } else {
                store
            }
        })
        .collect();
    let limiters: Vec<_> = stores
        .iter()
        .map(|store| patient_limiter(store.clone(), policies.clone()))
        .collect();
    let plain = patient_limiter(store, policies.clone());
    // A window under a wide quota says what it has counted, also beyond the quota of the streams.
    let wide = tokens.clone().with_quota(Quota::new(10 * AMOUNT, YEAR));
    let wide = plain.with_policies(scene.kind.policies(&wide.expect("a quota")));
    let is_window = tokens.algorithm() == Algorithm::FixedWindow;
    let handles: Vec<_> = limiters.iter().cloned().map(LimiterHandle::new).collect();
    let mut all: Vec<Stream> = Vec::new();
    let (mut denials, mut ended) = (0, 0);
    let time_to_live = Duration::from_millis(if scene.ends { 40 } else { 600_000 });
    for step in 0..150 {
        let open: Vec<usize> = (0..all.len())
            .filter(|&at| all[at].end == End::Open)
            .collect();
        let die = dice.below(if scene.changes { 13 } else { 12 });
        let at = (!open.is_empty()).then(|| dice.pick(&open));
        match (die, at) {
            (0..=2, _) | (_, None) => {
                let (process, prompt) = (dice.below(2) as usize, dice.below(20));
                let slice = scene.kind.costs(0, 8 + dice.below(56));
                let id = ReservationId::random();
                // A request that gets no answer is sent again under its id.
                let stream = loop {
                    let stream = limiters[process]
                        .reserve(key(), scene.kind.costs(1, prompt))
                        .id(id.clone())
                        .time_to_live(time_to_live)
                        .growing(slice.clone())
                        .following(&handles[process]);
                    match stream.await {
                        Ok(stream) => break stream,
                        Err(error) => assert!(scene.loses > 0, "{error}"),
                    }
                };
                if stream.is_allowed() {
                    all.push(Stream {
                        growth: stream.growth().clone(),
                        held: Some(stream),
                        prompt,
                        end: End::Open,
                    });
                } else {
                    denials += 1;
                }
            }
            (3..=8, Some(at)) => {
                let (growth, units) = (&all[at].growth, 1 + dice.below(30));
                let counted = growth.counted();
                let outcome = growth.take(units).await;
                let taken = if outcome.is_ok() { units } else { 0 };
                assert_eq!(growth.counted(), counted + taken, "step {step}");
                match outcome {
                    Ok(()) => {}
                    Err(GrowthError::Denied(_)) => denials += 1,
                    Err(error) => assert!(scene.loses > 0, "{error}"),
                }
            }
            (9, Some(at)) => {
                let held = all[at].held.take().expect("it is open");
                drop(held);
                all[at].end = End::Settled;
            }
            (10, Some(at)) => {
                let held = all[at].held.take().expect("it is open");
                // A commit that is lost is repeated.
                all[at].end = match dice.below(2) {
                    0 => held.commit().await.map_or(End::Settled, |_| End::Settled),
                    // The estimate was settled when the time to live of its slice ended.
                    _ if held.cancel().await.ok() == Some(Settlement::AlreadySettled) => {
                        End::Settled
                    }
                    _ => End::Cancelled,
                };
                assert!(matches!(
                    all[at].growth.take(1).await,
                    Err(GrowthError::Settled)
                ));
            }
            (11, Some(at)) if scene.kills => {
                // Its process has died: nobody settles it.
                std::mem::forget(all[at].held.take().expect("it is open"));
                all[at].end = End::Killed;
            }
            (11, Some(at)) if scene.ends => {
                let growth = &all[at].growth;
                ended += u64::from(growth.left() > 0);
                wait::until_async("nothing to be left", PATIENCE, async || growth.left() == 0)
                    .await;
            }
            (12, _) => {
                let amount = AMOUNT / 2 + dice.below(AMOUNT / 2);
                let lower = tokens.clone().with_quota(Quota::new(amount, YEAR));
                let policies = scene.kind.policies(&lower.expect("a quota"));
                for handle in &handles {
                    handle.replace_policies(policies.clone());
                }
            }
            _ => {}
        }
        if step % 10 == 0 {
            // Whatever was lost: nothing is counted that the store has not charged.
            let (_, spent) = spent(if is_window { &wide } else { &plain }).await;
            let counted: u64 = all.iter().map(|stream| stream.growth.counted()).sum();
            assert!(counted <= spent && spent <= AMOUNT, "{counted} of {spent}");
        }
    }
    stores.iter().for_each(LosingStore::recover);
    for stream in &mut all {
        if let Some(held) = stream.held.take() {
            drop(held);
            stream.end = End::Settled;
        }
    }
    let sums = || {
        all.iter().fold((0, 0), |sum, stream| {
            let (requests, tokens) = stream.charged();
            (sum.0 + requests, sum.1 + tokens)
        })
    };
    wait::until_async(
        format!("{scene:?}, {tokens:?}: what is spent to be {:?}", sums()),
        PATIENCE,
        async || spent(&plain).await == sums(),
    )
    .await;
    assert!(all.len() > 5, "{scene:?}: {} streams", all.len());
    assert!(denials > 0 || scene.loses > 0, "{scene:?}: no denial");
    assert!(ended > 0 || !scene.ends, "{scene:?}: nothing ended");
}

/// Runs every scene on a store.
async fn every_scene<S: Store>(store: impl AsyncFn() -> S) {
    for (seed, kind) in (0..).zip([Costing::Plain, Costing::Cascade, Costing::Ranked]) {
        for (loses, kills, changes, ends) in [
            (0, true, false, false),
            (0, true, true, false),
            (5, false, false, false),
            (5, false, true, false),
            (0, false, true, true),
        ] {
            let scene = Scene {
                seed: seed * 7 + loses,
                kind,
                loses,
                kills,
                changes: changes && !matches!(kind, Costing::Cascade),
                ends,
            };
            streams(Arc::new(store().await), &TOKENS, scene).await;
        }
    }
}

#[tokio::test]
async fn nothing_is_counted_that_was_not_reserved_and_the_rest_comes_back() {
    every_scene(async || MemoryStore::new()).await;
}

#[tokio::test]
async fn nothing_is_counted_that_was_not_reserved_and_the_rest_comes_back_under_every_algorithm() {
    for (seed, algorithm) in (0..).zip(ALGORITHMS) {
        if matches!(
            algorithm,
            Algorithm::LeakyBucket | Algorithm::Lockout { .. }
        ) {
            continue;
        }
        let tokens = Policy::try_new("tokens", algorithm, Quota::new(AMOUNT, YEAR));
        let tokens = tokens.expect("a policy");
        for (loses, kills, ends) in [(0, true, false), (5, false, false), (0, false, true)] {
            let scene = Scene {
                seed,
                kind: Costing::Plain,
                loses,
                kills,
                changes: false,
                ends,
            };
            streams(Arc::new(MemoryStore::new()), &tokens, scene).await;
        }
    }
}

#[tokio::test]
async fn nothing_is_counted_that_was_not_reserved_and_the_rest_comes_back_over_a_map() {
    every_scene(async || {
        let map = Map::new(Clock::manual(START_US)).with_conflicts(4);
        KeyValueStore::new(map)
    })
    .await;
}

async fn on_redis(deployment: &Deployment) {
    let scenes = std::sync::atomic::AtomicU64::new(0);
    every_scene(async || {
        let scene = scenes.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let builder = deployment.builder(&format!("growing{scene}"));
        builder.connect().await.expect("a store")
    })
    .await;
}

#[tokio::test]
async fn nothing_is_counted_that_was_not_reserved_and_the_rest_comes_back_in_redis() {
    run(Kind::Server, "", on_redis).await;
}

#[tokio::test]
async fn nothing_is_counted_that_was_not_reserved_and_the_rest_comes_back_in_a_cluster() {
    run(Kind::Cluster, "", on_redis).await;
}

#[tokio::test]
async fn nothing_is_counted_that_was_not_reserved_and_the_rest_comes_back_in_valkey() {
    run(Kind::Valkey, "growing::valkey", on_redis).await;
}

#[tokio::test]
async fn nothing_is_counted_that_was_not_reserved_and_the_rest_comes_back_in_postgres() {
    every_scene(async || {
        let builder = PostgresStore::builder(POSTGRES.url());
        let builder = builder.table(new_table()).create(Durability::Unlogged);
        builder.connect().await.expect("a store")
    })
    .await;
}

fn limiter_of(tokens: Policy) -> (Limiter, Clock) {
    let clock = Clock::manual(START_US);
    let store = MemoryStore::builder().clock(clock.clone()).build();
    (Limiter::new(store, tokens), clock)
}

async fn grown(limiter: &Limiter, slice: u64) -> GrowingReservation {
    let stream = limiter.reserve("acme", Cost::ZERO).growing(slice).await;
    stream.expect("a decision")
}

async fn left(limiter: &Limiter) -> u64 {
    let state = limiter.peek("acme").await.expect("the store decides");
    state.state("tokens").expect("a state").remaining()
}

#[tokio::test]
async fn a_slice_comes_back_at_its_own_time_and_a_window_that_ended_keeps_its_own() {
    let policy = Policy::fixed_window("tokens", Quota::per_minute(1_000));
    let (limiter, clock) = limiter_of(policy);
    let stream = grown(&limiter, 100).await;
    stream.growth().take(90).await.expect("reserved");
    clock.advance(Duration::from_secs(60));
    // Ten are left of the slice of the window that has ended, and eighty of this one.
    stream.growth().take(30).await.expect("reserved");
    assert_eq!(left(&limiter).await, 900);
    stream.commit().await.expect("settled");
    assert_eq!(left(&limiter).await, 980);

    // An hour later, a bucket takes back all of the slice that it gave just now.
    let (limiter, clock) = limiter_of(Policy::token_bucket("tokens", Quota::per_minute(1_000)));
    let stream = grown(&limiter, 100).await;
    stream.growth().take(100).await.expect("reserved");
    clock.advance(Duration::from_secs(3_600));
    stream.growth().take(1).await.expect("reserved");
    assert_eq!(left(&limiter).await, 900);
    drop(stream);
    assert_eq!(left(&limiter).await, 999);
}

#[tokio::test]
async fn each_slice_follows_the_handle_and_is_cut_to_a_lowered_burst() {
    let of = |name, amount| Policy::fixed_window(name, Quota::per_minute(amount));
    let (limiter, clock) = limiter_of(of("tokens", 1_000));
    let limiter = limiter.with_policies([of("tokens", 1_000), of("words", 1_000)]);
    let handle = LimiterHandle::new(limiter.clone());
    let stream = limiter.reserve("acme", 0).growing(100).following(&handle);
    let stream = stream.await.expect("a decision");
    let growth = stream.growth();
    growth.take(100).await.expect("reserved");
    handle.replace_policies([of("tokens", 1_000), of("words", 60)]);
    let denied = growth.take(1).await;
    assert!(matches!(denied, Err(GrowthError::Denied(_))), "{denied:?}");

    // The next window has sixty words, and a slice is charged them and a hundred tokens.
    clock.advance(Duration::from_secs(60));
    growth.take(1).await.expect("a slice that is cut");
    assert_eq!((growth.reserved(), left(&limiter).await), (160, 900));
    growth.take(59).await.expect("the rest of the slice");
    assert!(!growth.try_take(1), "no word is left");
    stream.commit().await.expect("settled");
    assert_eq!(left(&limiter).await, 940);
}

#[tokio::test]
async fn each_slice_has_the_time_to_live_of_the_reservation() {
    let (limiter, clock) = limiter_of(MANY);
    let stream = limiter.reserve("acme", 0);
    let stream = stream.time_to_live(Duration::from_secs(5)).growing(100);
    let stream = stream.await.expect("a decision");
    stream.growth().take(101).await.expect("two slices");
    clock.advance(Duration::from_secs(6));
    assert_eq!(stream.commit().await.expect("a no-op"), Settlement::Lapsed);
    assert_eq!(left(&limiter).await, 4_000 - 200);
}

#[tokio::test]
async fn a_denied_slice_changes_nothing_and_what_is_left_of_the_present_one_may_be_used() {
    let (limiter, clock) = limiter_of(Policy::window_from_first_hit(
        "tokens",
        Quota::per_minute(250),
    ));
    let stream = grown(&limiter, 100).await;
    let growth = stream.growth().clone();
    growth.take(190).await.expect("two slices");
    let denied = growth.take(11).await.expect_err("no third slice");
    assert_eq!(denied.retry_after(), Some(Duration::from_secs(60)));
    assert_eq!(left(&limiter).await, 50);
    growth.take(10).await.expect("left of the second slice");
    assert!(!growth.try_take(1));
    assert_eq!(growth.take_up_to(5), 0);
    clock.advance(Duration::from_secs(60));
    assert!(growth.try_take(1));
    assert_eq!((growth.counted(), growth.reserved()), (201, 300));
    stream.commit().await.expect("settled");
    assert_eq!(left(&limiter).await, 249);
    assert!(!growth.try_take(1));
    assert!(matches!(growth.grow().await, Err(GrowthError::Settled)));
}

#[tokio::test(start_paused = true)]
async fn a_stream_waits_for_its_slice_until_the_window_turns() {
    let store = MemoryStore::builder().clock(Clock::tokio()).build();
    let policy = Policy::window_from_first_hit("tokens", Quota::per_minute(250));
    let limiter = Limiter::new(store, policy);
    let stream = grown(&limiter, 100).await;
    stream.growth().take(200).await.expect("two slices");
    let began = tokio::time::Instant::now();
    let short = stream.growth().take(1).wait(Duration::from_secs(30)).await;
    assert!(matches!(short, Err(GrowthError::Denied(_))));
    assert_eq!(began.elapsed(), Duration::ZERO, "no wait would help");
    let long = stream.growth().take(1).wait(Duration::from_secs(90)).await;
    long.expect("the next window has it");
    assert!(began.elapsed() >= Duration::from_secs(60));
    drop(stream);
    assert_eq!(left(&limiter).await, 249);
}

#[tokio::test]
async fn what_cannot_grow_is_refused_by_its_name() {
    let leaky = Policy::leaky_bucket("pace", Quota::per_second(10));
    let policies = [TOKENS, REQUESTS, leaky];
    let limiter = Limiter::new(MemoryStore::new(), policies);
    let refused = async |estimate: Costs, slice: Costs| {
        let stream = limiter.reserve("acme", estimate).growing(slice).await;
        let error = stream.expect_err("it is refused");
        assert_eq!(error.kind(), ErrorKind::Config);
        error.to_string()
    };
    let costs = |slice: &[(&'static str, u64)]| {
        let none = Costs::new(Cost::ZERO);
        slice
            .iter()
            .fold(none, |costs, &(name, units)| costs.with(name, units))
    };
    let estimate = || Costs::new(Cost::ONE);
    for (slice, words) in [
        (
            costs(&[("pace", 5)]),
            "policy \"pace\" cannot grow: it is a leaky bucket",
        ),
        (costs(&[]), "a slice must have at least one unit, got 0"),
        (
            costs(&[("tokens", 5), ("requests", 6)]),
            "one number of units, got 5, and 6 for policy \"requests\"",
        ),
        (costs(&[("words", 5)]), "costs name policy \"words\""),
        (Costs::cascading(5), "must cascade together"),
    ] {
        let message = refused(estimate(), slice).await;
        assert!(message.contains(words), "{message}");
    }
    let waits = limiter.reserve("acme", 1).wait(Duration::from_secs(1));
    let error = waits
        .growing([("tokens", 5)])
        .await
        .expect_err("it is refused");
    assert!(
        error.to_string().contains("does not wait for turns"),
        "{error}"
    );
    // A policy beside the slice may be any: it is charged once.
    let stream = limiter.reserve("acme", 1).growing([("tokens", 5)]).await;
    assert!(stream.expect("a decision").is_allowed());
}

/// In an outage each slice follows the rule, and what a lost answer has charged comes back.
#[tokio::test(start_paused = true)]
async fn in_an_outage_a_slice_is_held_as_the_outage_says() {
    let store = FaultyStore::default();
    let limiter = |outage| {
        let builder = Limiter::builder(store.clone()).on_outage(outage);
        builder.policies(MANY).build()
    };
    let take = async |stream: &GrowingReservation, tens: u64| {
        for _ in 0..tens {
            stream.growth().take(10).await.expect("reserved");
        }
    };
    let plain = limiter(Outage::Closed);

    // Closed: no slice, and what is left may be used.
    let stream = grown(&plain, 100).await;
    take(&stream, 6).await;
    store.fail();
    let failed = stream.growth().take(50).await;
    assert!(matches!(failed, Err(GrowthError::Failed(_))));
    take(&stream, 4).await;
    store.recover();
    stream.growth().take(50).await.expect("the store is back");
    stream.commit().await.expect("settled");
    assert_eq!(left(&plain).await, 4_000 - 150);

    // Local: the share of this process gives slices, and takes back its own.
    let local = limiter(Outage::local(4));
    let stream = grown(&local, 100).await;
    take(&stream, 8).await;
    store.fail();
    take(&stream, 7).await;
    store.recover();
    take(&stream, 10).await;
    assert_eq!(left(&local).await, 4_000 - 350);
    stream.commit().await.expect("settled");
    assert_eq!(left(&local).await, 4_000 - 300);
    store.fail();
    assert_eq!(left(&local).await, 1_000 - 100);
    let stream = grown(&local, 100).await;
    take(&stream, 3).await;
    assert_eq!(left(&local).await, 1_000 - 200);
    drop(stream);
    assert_eq!(left(&local).await, 1_000 - 130);
    store.recover();

    // Open: what nobody has reserved is admitted, and settles nothing.
    let open = limiter(Outage::Open);
    store.fail();
    let stream = grown(&open, 100).await;
    stream.growth().take(1_000).await.expect("all is admitted");
    store.recover();
    assert_eq!(stream.commit().await.expect("a no-op"), Settlement::Lapsed);
    assert_eq!(left(&open).await, 4_000 - 300);
}

#[tokio::test]
async fn a_slice_that_is_counted_in_full_is_one_call_of_the_store() {
    let store = LosingStore::new(Arc::new(MemoryStore::new()), 1, 0);
    let limiter = patient_limiter(store.clone(), MANY);
    let stream = grown(&limiter, 100).await;
    for _ in 0..1_000 {
        stream.growth().take(1).await.expect("reserved");
    }
    stream.commit().await.expect("settled");
    let (reserved, committed) = store.calls();
    // The next slice is asked for before the last one is spent.
    assert!((10..=11).contains(&reserved), "{reserved}");
    assert_eq!(committed, reserved - 10);
    assert_eq!(left(&limiter).await, 4_000 - 1_000);
}
