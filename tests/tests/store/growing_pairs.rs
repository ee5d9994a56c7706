//! Reservations that grow where they meet leases, permits and rules: scenes drawn by chance, whose sums are exact.
//! `growing.rs` has streams alone, on every store, with cascades, priorities and outages.

use std::time::Duration;

use tollgate::{
    Lease, Limiter, LimiterHandle, MemoryStore, Policy, PolicySet, Quota, Store,
    permits::{Concurrency, ConcurrencyLimiter, Permit},
    reservation::{GrowingReservation, Growth, GrowthError},
};
use tollgate_rules::{Code, Descriptor, Format, Plan, RuleLimiter, RuleSet, Rules};
use tollgate_test_support::{Deployment, Dice, Kind, PATIENCE, patient_limiter};
use tollgate_tests::wait;

use crate::suite::run;

/// So long a period that nothing returns during a test.
const YEAR: Duration = Duration::from_secs(365 * 86_400);

/// The streams of a scene: those that are open, and what all have counted.
#[derive(Default)]
struct Streams {
    open: Vec<GrowingReservation>,
    all: Vec<Growth>,
    estimates: u64,
}

impl Streams {
    /// Begins a stream of this estimate. Returns whether it was admitted.
    async fn begin(&mut self, limiter: &Limiter, key: &'static str, dice: &mut Dice) -> bool {
        let estimate = dice.below(20);
        let stream = limiter.reserve(key, estimate).growing(8 + dice.below(60));
        self.enter(stream.await.expect("a decision"), estimate)
    }

    fn enter(&mut self, stream: GrowingReservation, estimate: u64) -> bool {
        let is_allowed = stream.is_allowed();
        if is_allowed {
            self.estimates += estimate;
            self.all.push(stream.growth().clone());
            self.open.push(stream);
        }
        is_allowed
    }

    /// Counts units of one stream, which is seldom one that has ended. Returns whether they were reserved.
    async fn take(&self, dice: &mut Dice, units: u64) -> bool {
        let growth = match self.open.len() as u64 {
            open if open > 0 && dice.below(4) > 0 => {
                self.open[dice.below(open) as usize].growth().clone()
            }
            _ => dice.pick(&self.all),
        };
        match growth.take(units).await {
            Ok(()) => true,
            Err(GrowthError::Denied(_) | GrowthError::Settled) => false,
            Err(error) => panic!("{error}"),
        }
    }

    /// Ends one stream: by a commit, or as a client that hangs up.
    async fn end(&mut self, dice: &mut Dice) -> usize {
        let at = dice.below(self.open.len() as u64) as usize;
        let stream = self.open.swap_remove(at);
        if dice.below(2) == 0 {
            stream.commit().await.expect("settled");
        }
        at
    }

    /// Returns the estimates and what is reserved: what the streams have spent at most.
    fn reserved(&self) -> u64 {
        self.estimates + self.all.iter().map(Growth::reserved).sum::<u64>()
    }

    /// Returns the estimates and what was counted: what is spent when all have ended.
    fn charged(&self) -> u64 {
        self.estimates + self.all.iter().map(Growth::counted).sum::<u64>()
    }
}

async fn spent(limiter: &Limiter, key: &'static str) -> u64 {
    let peek = limiter.peek(key).await.expect("the store decides");
    peek.states().next().expect("a state").spent()
}

/// Streams of two processes grow under the policy of which both lease units for checks.
async fn beside_leases(deployment: &Deployment) {
    const AMOUNT: u64 = 12_000;
    let lease = Lease::new().generation(Duration::from_secs(60));
    let policy = Policy::fixed_window("tokens", Quota::new(AMOUNT, YEAR)).leased(lease);
    let mut stores = Vec::new();
    for _ in 0..2 {
        let store = deployment.builder("growing").deny_cache_cap(Duration::ZERO);
        stores.push(store.connect().await.expect("a store"));
    }
    let limiters: Vec<_> = stores
        .iter()
        .map(|store| patient_limiter(store.clone(), policy.clone()))
        .collect();
    let (mut dice, mut streams) = (Dice::new(7), Streams::default());
    let (mut checked, mut leased, mut denied) = (0, 0, 0);
    for step in 0..600 {
        let limiter = dice.pick(&limiters);
        match dice.below(8) {
            0 => denied += u64::from(!streams.begin(&limiter, "hot", &mut dice).await),
            1 if streams.open.len() > 4 => {
                streams.end(&mut dice).await;
            }
            2..=4 if !streams.all.is_empty() => {
                let units = 1 + dice.below(40);
                denied += u64::from(!streams.take(&mut dice, units).await);
            }
            _ => {
                for _ in 0..50 {
                    let check = limiter.check("hot").await.expect("a decision");
                    checked += u64::from(check.is_allowed());
                    leased += u64::from(check.is_leased());
                }
            }
        }
        let reserved = streams.reserved();
        assert!(
            checked + reserved <= AMOUNT,
            "step {step}: {checked} and {reserved}"
        );
    }
    assert!(
        leased > 1_000 && denied > 10,
        "{leased} leased, {denied} denied"
    );
    assert!(streams.charged() > 500, "{}", streams.charged());
    drop(std::mem::take(&mut streams.open));
    for store in &stores {
        store.release_leases().await.expect("the units go back");
    }
    let sum = checked + streams.charged();
    wait::until_async(format!("{sum} to be spent"), PATIENCE, async || {
        spent(&limiters[0], "hot").await == sum
    })
    .await;
}

#[tokio::test]
async fn streams_grow_beside_leased_checks_of_their_policy_and_no_unit_is_spent_twice() {
    run(Kind::Server, "", beside_leases).await;
}

#[tokio::test]
async fn streams_grow_beside_leased_checks_in_a_cluster() {
    run(Kind::Cluster, "", beside_leases).await;
}

/// Streams that hold a permit while they grow.
async fn with_permits(store: impl Store + Clone) {
    const RUNNING: u32 = 4;
    const AMOUNT: u64 = 2_000;
    let tokens = Policy::fixed_window("tokens", Quota::new(AMOUNT, YEAR));
    let limiter = patient_limiter(store.clone(), tokens);
    let running = Concurrency::new("running", RUNNING).exact();
    let running = ConcurrencyLimiter::new(store, running);
    let (mut dice, mut streams) = (Dice::new(11), Streams::default());
    let mut permits: Vec<Permit> = Vec::new();
    let (mut full, mut denied) = (0, 0);
    for step in 0..400 {
        match dice.below(6) {
            0 | 1 => {
                let held = permits.len();
                let permit = running.acquire("acme").await.expect("an answer");
                let Ok(permit) = permit else {
                    // A permit that is given back in the background may be under way.
                    assert!(held > 0, "step {step}");
                    full += 1;
                    continue;
                };
                assert!(held < RUNNING as usize, "step {step}");
                if streams.begin(&limiter, "acme", &mut dice).await {
                    permits.push(permit);
                } else {
                    denied += 1; // The permit goes back.
                }
            }
            2 if streams.open.len() > 1 => {
                let at = streams.end(&mut dice).await;
                drop(permits.swap_remove(at));
            }
            _ if !streams.all.is_empty() => {
                let units = 1 + dice.below(20);
                denied += u64::from(!streams.take(&mut dice, units).await);
            }
            _ => {}
        }
        assert!(streams.reserved() <= AMOUNT, "step {step}");
    }
    assert!(full > 5 && denied > 5, "{full} and {denied}");
    drop((std::mem::take(&mut streams.open), permits));
    let sum = streams.charged();
    wait::until_async(format!("{sum} to be spent"), PATIENCE, async || {
        spent(&limiter, "acme").await == sum
    })
    .await;
    // All permits are free again.
    wait::until_async("every permit to be free", PATIENCE, async || {
        let mut held = Vec::new();
        for _ in 0..RUNNING {
            held.extend(running.acquire("acme").await.expect("an answer"));
        }
        held.len() == RUNNING as usize
    })
    .await;
}

#[tokio::test]
async fn streams_hold_permits_while_they_grow_and_both_come_back() {
    with_permits(MemoryStore::new()).await;
}

#[tokio::test]
async fn streams_hold_permits_while_they_grow_and_both_come_back_in_redis() {
    run(Kind::Server, "", async |deployment| {
        let store = deployment.builder("growing").connect().await;
        with_permits(store.expect("a store")).await;
    })
    .await;
}

/// Returns the policies of the only rule.
fn policies_of(rules: &Rules) -> PolicySet {
    let set = rules.current();
    let rule = set.rules().next().expect("a rule");
    rule.policies().expect("it counts").clone()
}

/// Streams whose limits come from rules, which are replaced while the streams grow.
async fn under_rules(store: impl Store + Clone) {
    const MOST: u64 = 3_000;
    let rules_of = |amount: u64| {
        let text = format!(
            "{{domain: d, descriptors: [{{key: tenant, rate_limit: {{name: tokens, algorithm: window_from_first_hit, quota: {amount}/d}}}}]}}"
        );
        RuleSet::parse(&text, Format::Yaml).expect("rules")
    };
    let rules = Rules::new(rules_of(MOST));
    let plain = patient_limiter(store, policies_of(&rules));
    let handle = LimiterHandle::new(plain.clone());
    let (mut dice, mut streams) = (Dice::new(13), Streams::default());
    let (mut amount, mut denied, mut beyond) = (MOST, 0, 0);
    for step in 0..400 {
        match dice.below(8) {
            0 => {
                let estimate = dice.below(20);
                let stream = handle.load().reserve("acme", estimate);
                let stream = stream.growing(8 + dice.below(60)).following(&handle);
                let stream = stream.await.expect("a decision");
                denied += u64::from(!streams.enter(stream, estimate));
            }
            1 if streams.open.len() > 4 => {
                streams.end(&mut dice).await;
            }
            2 => {
                amount = 200 + dice.below(MOST - 200);
                rules.replace(rules_of(amount));
                handle.replace_policies(policies_of(&rules));
            }
            _ if !streams.all.is_empty() => {
                let before: u64 = streams.all.iter().map(Growth::reserved).sum();
                let units = 1 + dice.below(20);
                denied += u64::from(!streams.take(&mut dice, units).await);
                let after: u64 = streams.all.iter().map(Growth::reserved).sum();
                if after > before {
                    // A further slice is charged by the rules of now.
                    beyond += u64::from(spent(&plain, "acme").await > amount);
                }
            }
            _ => {}
        }
        assert!(streams.reserved() <= MOST, "step {step}");
    }
    assert_eq!(beyond, 0, "slices under a lowered limit that had no room");
    assert!(denied > 5 && streams.charged() > 500, "{denied}");
    drop(std::mem::take(&mut streams.open));
    let sum = streams.charged();
    wait::until_async(format!("{sum} to be spent"), PATIENCE, async || {
        spent(&plain, "acme").await == sum
    })
    .await;
}

#[tokio::test]
async fn streams_follow_rules_that_are_replaced_while_they_grow() {
    under_rules(MemoryStore::new()).await;
}

#[tokio::test]
async fn streams_follow_rules_that_are_replaced_while_they_grow_in_redis() {
    run(Kind::Server, "", async |deployment| {
        let store = deployment.builder("growing").connect().await;
        under_rules(store.expect("a store")).await;
    })
    .await;
}

/// Streams that grow on two rules at once in two processes, beside checks of the same rules.
async fn by_rule_limiters(stores: [impl Store; 2]) {
    const TOKENS: u64 = 2_000;
    let rules = RuleSet::parse(
        "{domain: d, descriptors: [
            {key: calls, rate_limit: {name: calls, algorithm: window_from_first_hit, quota: 60/d}},
            {key: tokens, rate_limit: {name: tokens, algorithm: window_from_first_hit, quota: 2000/d}}]}",
        Format::Yaml,
    );
    let set = std::sync::Arc::new(rules.expect("rules"));
    let limiters = stores.map(|store| {
        let limiter = RuleLimiter::builder(Rules::new(std::sync::Arc::clone(&set)), store);
        limiter.deadline(PATIENCE).build()
    });
    let units = |calls: u64, tokens: u64| {
        let calls = Descriptor::from([("calls", "acme")]).with_hits(calls);
        [
            calls,
            Descriptor::from([("tokens", "acme")]).with_hits(tokens),
        ]
    };
    let left = async || {
        let request = units(0, 0);
        let plan = set.plan("d", &request, 1).expect("a plan");
        let look = limiters[0].peek_plan(&plan).await.expect("an answer");
        let left = |at: usize| look.verdict().statuses()[at].remaining();
        (60 - left(0), TOKENS - left(1))
    };
    let (mut dice, mut streams) = (Dice::new(17), Streams::default());
    let (mut calls, mut checked, mut denied) = (0, 0, 0);
    for step in 0..400 {
        let limiter = &limiters[dice.below(2) as usize];
        match dice.below(8) {
            0 => {
                let estimate = dice.below(20);
                let (request, slice) = (units(1, estimate), units(0, 8 + dice.below(60)));
                let plan = |units| -> Plan<'_> { set.plan("d", units, 1).expect("a plan") };
                let grown = limiter.grow_plan(&plan(&request), &plan(&slice)).await;
                let (decision, stream) = grown.expect("a decision");
                assert_eq!(decision.is_allowed(), stream.is_some(), "step {step}");
                match stream {
                    Some(stream) => {
                        calls += 1;
                        streams.enter(stream, estimate);
                    }
                    None => denied += 1,
                }
            }
            1 if streams.open.len() > 4 => {
                streams.end(&mut dice).await;
            }
            2 => {
                let cost = 1 + dice.below(10);
                let check = limiter.check("d", &units(0, cost)[1..], 1).await;
                let is_allowed = check.expect("a decision").verdict().code() == Code::Ok;
                checked += if is_allowed { cost } else { 0 };
            }
            _ if !streams.all.is_empty() => {
                let units = 1 + dice.below(20);
                denied += u64::from(!streams.take(&mut dice, units).await);
            }
            _ => {}
        }
        assert!(checked + streams.reserved() <= TOKENS, "step {step}");
    }
    assert!(denied > 5 && checked > 50, "{denied} and {checked}");
    assert!(streams.charged() > 500, "{}", streams.charged());
    drop(std::mem::take(&mut streams.open));
    let sums = (calls, checked + streams.charged());
    wait::until_async(format!("{sums:?} to be spent"), PATIENCE, async || {
        left().await == sums
    })
    .await;
}

#[tokio::test]
async fn streams_grow_on_two_rules_beside_checks_and_no_unit_is_spent_twice() {
    let store = MemoryStore::new();
    by_rule_limiters([store.clone(), store]).await;
}

#[tokio::test]
async fn streams_grow_on_two_rules_beside_checks_in_redis() {
    run(Kind::Server, "", async |deployment| {
        let store = async || deployment.builder("growing").connect().await;
        let stores = [store().await, store().await];
        by_rule_limiters(stores.map(|store| store.expect("a store"))).await;
    })
    .await;
}
