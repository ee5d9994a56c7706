//! Requests whose units are reserved, committed, looked at, or charged when they have been spent.

use std::time::Duration;

use tollgate::{
    MemoryStore, Outage,
    reservation::{ReservationId, Settlement},
    store::Clock,
    test_util::FaultyStore,
};
use tollgate_rules::{
    Code, Compat, Descriptor, GlobalModes, RuleDecision, RuleLimiter, RuleSet, Rules,
};

use super::{apart::Apart, envoy_rules, rules};

/// Keeps a reservation longer than any test.
const LIFE: Duration = Duration::from_secs(600);

const OK: Code = Code::Ok;
const OVER: Code = Code::OverLimit;

const RULES: &str = "
domain: d
descriptors:
  - {key: day, rate_limit: {unit: day, requests_per_unit: 1000}}
  - {key: hour, rate_limit: {unit: hour, requests_per_unit: 100}}
  - {key: never, rate_limit: {unit: hour, requests_per_unit: 0}}
  - {key: free, rate_limit: {unlimited: true}}
  - {key: shadow, shadow_mode: true, rate_limit: {unit: day, requests_per_unit: 100}}
  - {key: quota, quota_mode: true, rate_limit: {unit: day, requests_per_unit: 100}}
";

fn store() -> MemoryStore {
    MemoryStore::builder()
        .clock(Clock::manual(1_000_000_000))
        .build()
}

/// Returns a limiter of each kind: whose steps are one, whose steps are several, and in the mode
/// `envoy`.
fn limiters() -> [(&'static str, RuleLimiter); 3] {
    let on = |set: RuleSet| Rules::new(set);
    [
        ("one step", RuleLimiter::new(on(rules(RULES)), store())),
        (
            "steps apart",
            RuleLimiter::new(on(rules(RULES)), Apart(store())),
        ),
        ("envoy", RuleLimiter::new(on(envoy_rules(RULES)), store())),
    ]
}

fn id(name: &str) -> ReservationId {
    ReservationId::try_new(name).unwrap()
}

/// Returns the descriptors of a request that spends so many units of each.
fn request(keys: &[&'static str], hits: u64) -> Vec<Descriptor<'static>> {
    let descriptor = |key: &&'static str| Descriptor::from([(*key, "x")]).with_hits(hits);
    keys.iter().map(descriptor).collect()
}

async fn reserve(limiter: &RuleLimiter, keys: &[&'static str], hits: u64, name: &str) -> Code {
    let (set, request) = (limiter.rules().current(), request(keys, hits));
    let plan = set.plan("d", &request, 1).unwrap();
    let decision = limiter.reserve_plan(&plan, &id(name), LIFE).await.unwrap();
    decision.verdict().code()
}

async fn commit(limiter: &RuleLimiter, keys: &[&'static str], hits: u64, name: &str) -> Settlement {
    let (set, request) = (limiter.rules().current(), request(keys, hits));
    let plan = set.plan("d", &request, 1).unwrap();
    limiter.commit_plan(&plan, &id(name)).await.unwrap()
}

async fn charge(limiter: &RuleLimiter, keys: &[&'static str], hits: u64) -> RuleDecision {
    let (set, request) = (limiter.rules().current(), request(keys, hits));
    let plan = set.plan("d", &request, 1).unwrap();
    limiter.charge_plan(&plan).await.unwrap()
}

async fn peek(limiter: &RuleLimiter, keys: &[&'static str]) -> RuleDecision {
    let (set, request) = (limiter.rules().current(), request(keys, 1));
    let plan = set.plan("d", &request, 1).unwrap();
    limiter.peek_plan(&plan).await.unwrap()
}

/// Returns what each descriptor has left.
async fn left<const N: usize>(limiter: &RuleLimiter, keys: [&'static str; N]) -> [u64; N] {
    let decision = peek(limiter, &keys).await;
    let statuses = decision.verdict().statuses();
    std::array::from_fn(|at| statuses[at].remaining())
}

#[tokio::test]
async fn a_commit_of_less_gives_the_rest_back_on_each_limit() {
    for (kind, limiter) in limiters() {
        let both = ["day", "hour"];
        assert_eq!(reserve(&limiter, &both, 60, "a").await, OK, "{kind}");
        assert_eq!(left(&limiter, both).await, [940, 40], "{kind}");
        assert_eq!(
            commit(&limiter, &both, 25, "a").await,
            Settlement::Settled,
            "{kind}"
        );
        assert_eq!(left(&limiter, both).await, [975, 75], "{kind}");
        // The same commit comes again.
        let again = commit(&limiter, &both, 25, "a").await;
        assert_eq!(again, Settlement::AlreadySettled, "{kind}");
        assert_eq!(left(&limiter, both).await, [975, 75], "{kind}");
        // Nothing is held under this name.
        assert_eq!(
            commit(&limiter, &both, 25, "b").await,
            Settlement::Lapsed,
            "{kind}"
        );
        assert_eq!(left(&limiter, both).await, [975, 75], "{kind}");
    }
}

#[tokio::test]
async fn a_denied_request_reserves_nothing_on_any_limit() {
    for (kind, limiter) in limiters() {
        let both = ["day", "hour"];
        assert_eq!(reserve(&limiter, &["hour"], 60, "a").await, OK, "{kind}");
        assert_eq!(reserve(&limiter, &both, 60, "b").await, OVER, "{kind}");
        assert_eq!(left(&limiter, both).await, [1_000, 40], "{kind}");
        // A commit of what was denied finds nothing, or what was given back.
        assert_ne!(
            commit(&limiter, &both, 60, "b").await,
            Settlement::Settled,
            "{kind}"
        );
        assert_eq!(left(&limiter, both).await, [1_000, 40], "{kind}");
        assert_eq!(reserve(&limiter, &both, 40, "c").await, OK, "{kind}");
        assert_eq!(left(&limiter, both).await, [960, 0], "{kind}");
    }
}

#[tokio::test]
async fn a_request_that_is_sent_again_and_a_limit_that_is_named_twice_are_reserved_once() {
    for (kind, limiter) in limiters() {
        for _ in 0..2 {
            assert_eq!(
                reserve(&limiter, &["day", "day"], 60, "a").await,
                OK,
                "{kind}"
            );
            assert_eq!(left(&limiter, ["day"]).await, [940], "{kind}");
        }
        let settled = commit(&limiter, &["day", "day"], 10, "a").await;
        assert_eq!(
            (settled, left(&limiter, ["day"]).await),
            (Settlement::Settled, [990]),
            "{kind}"
        );
    }
}

#[tokio::test]
async fn an_estimate_above_a_burst_reserves_the_burst_and_the_commit_owes_the_rest() {
    for (kind, limiter) in limiters() {
        let both = ["day", "hour"];
        assert_eq!(reserve(&limiter, &both, 400, "a").await, OK, "{kind}");
        assert_eq!(left(&limiter, both).await, [600, 0], "{kind}");
        assert_eq!(
            commit(&limiter, &both, 150, "a").await,
            Settlement::Settled,
            "{kind}"
        );
        assert_eq!(left(&limiter, both).await, [850, 0], "{kind}");
        // The limit of the hour is in debt: a unit that is given back does not let one pass.
        assert_eq!(reserve(&limiter, &["hour"], 1, "b").await, OVER, "{kind}");
        assert_eq!(
            reserve(&limiter, &["day"], u64::MAX, "c").await,
            OVER,
            "{kind}"
        );
    }
}

#[tokio::test]
async fn an_estimate_of_nothing_asks_for_a_unit_and_its_commit_charges_what_was_spent() {
    for (kind, limiter) in limiters() {
        assert_eq!(reserve(&limiter, &["hour"], 0, "a").await, OK, "{kind}");
        assert_eq!(
            commit(&limiter, &["hour"], 100, "a").await,
            Settlement::Settled,
            "{kind}"
        );
        assert_eq!(left(&limiter, ["hour"]).await, [0], "{kind}");
        assert_eq!(reserve(&limiter, &["hour"], 0, "b").await, OVER, "{kind}");
        assert_eq!(
            reserve(&limiter, &["hour", "day"], 0, "c").await,
            OVER,
            "{kind}"
        );
        assert_eq!(left(&limiter, ["day"]).await, [1_000], "{kind}");
    }
}

#[tokio::test]
async fn rules_that_do_not_deny_alone_are_reserved_beside_the_others() {
    for (kind, limiter) in limiters() {
        let all = ["day", "shadow", "free", "other"];
        assert_eq!(reserve(&limiter, &all, 70, "a").await, OK, "{kind}");
        assert_eq!(left(&limiter, ["day", "shadow"]).await, [930, 30], "{kind}");
        // The limit on trial denies, and the request passes.
        assert_eq!(reserve(&limiter, &all, 70, "b").await, OK, "{kind}");
        assert_eq!(left(&limiter, ["day", "shadow"]).await, [860, 30], "{kind}");
        assert_eq!(
            commit(&limiter, &all, 20, "b").await,
            Settlement::Settled,
            "{kind}"
        );
        assert_eq!(left(&limiter, ["day", "shadow"]).await, [910, 30], "{kind}");
        // A limit of 0 denies, and the other one gets its units back.
        assert_eq!(
            reserve(&limiter, &["day", "never"], 1, "c").await,
            OVER,
            "{kind}"
        );
        assert_eq!(left(&limiter, ["day"]).await, [910], "{kind}");
        // One of the quotas is enough.
        assert_eq!(reserve(&limiter, &["quota"], 100, "d").await, OK, "{kind}");
        assert_eq!(reserve(&limiter, &["quota"], 1, "e").await, OVER, "{kind}");
    }
}

#[tokio::test]
async fn in_the_shadow_mode_of_all_rules_every_request_passes_and_settles() {
    let limiter = RuleLimiter::builder(Rules::new(rules(RULES)), store())
        .modes(GlobalModes {
            shadow: true,
            quota: false,
        })
        .build();
    assert_eq!(reserve(&limiter, &["hour", "day"], 80, "a").await, OK);
    assert_eq!(reserve(&limiter, &["hour", "day"], 80, "b").await, OK);
    assert_eq!(left(&limiter, ["hour", "day"]).await, [20, 840]);
    assert_eq!(
        commit(&limiter, &["hour", "day"], 30, "b").await,
        Settlement::Settled
    );
    assert_eq!(left(&limiter, ["hour", "day"]).await, [20, 890]);
}

#[tokio::test]
async fn units_that_were_spent_are_charged_also_where_they_do_not_fit() {
    for (kind, limiter) in limiters() {
        let both = ["day", "hour"];
        assert!(charge(&limiter, &both, 70).await.is_allowed(), "{kind}");
        assert_eq!(left(&limiter, both).await, [930, 30], "{kind}");
        let decision = charge(&limiter, &both, 70).await;
        assert!(decision.is_denied(), "{kind}");
        assert_eq!(left(&limiter, both).await, [860, 0], "{kind}");
        // More than the burst of one, and then of both.
        assert!(charge(&limiter, &both, 500).await.is_denied(), "{kind}");
        assert_eq!(left(&limiter, both).await, [360, 0], "{kind}");
        let decision = charge(&limiter, &both, u64::MAX).await;
        let usage = decision.verdict().statuses()[0].usage();
        assert_eq!(
            (usage.over, left(&limiter, both).await),
            (u64::MAX, [0, 0]),
            "{kind}"
        );
        let nothing = charge(&limiter, &["never", "free", "other"], 5).await;
        assert!(nothing.decisions().iter().all(Option::is_none), "{kind}");
    }
}

#[tokio::test]
async fn a_debt_is_paid_by_the_time_that_follows() {
    let clock = Clock::manual(1_000_000_000);
    let on = MemoryStore::builder().clock(clock.clone()).build();
    const BUCKET: &str =
        "{domain: d, descriptors: [{key: k, rate_limit: {quota: 60/min burst 10}}]}";
    let limiter = RuleLimiter::new(Rules::new(rules(BUCKET)), on);
    assert!(charge(&limiter, &["k"], 15).await.is_denied());
    assert!(peek(&limiter, &["k"]).await.is_denied());
    clock.advance(Duration::from_secs(5));
    assert!(peek(&limiter, &["k"]).await.is_denied());
    clock.advance(Duration::from_secs(1));
    assert_eq!(left(&limiter, ["k"]).await, [1]);
}

#[tokio::test]
async fn units_are_given_back_before_others_are_charged() {
    for (kind, limiter) in limiters() {
        assert!(
            charge(&limiter, &["day", "hour"], 80).await.is_allowed(),
            "{kind}"
        );
        let set = limiter.rules().current();
        let request = [
            Descriptor::from([("day", "x")]).with_hits(5),
            Descriptor::from([("hour", "x")]).with_hits(30).refunding(),
        ];
        let plan = set.plan("d", &request, 1).unwrap();
        let decision = limiter.charge_plan(&plan).await.unwrap();
        assert!(decision.is_allowed(), "{kind}");
        assert_eq!(
            decision.verdict().statuses()[1].usage().refunded,
            30,
            "{kind}"
        );
        assert_eq!(left(&limiter, ["day", "hour"]).await, [915, 50], "{kind}");
    }
}

#[tokio::test]
async fn a_look_spends_nothing_and_is_denied_when_a_limit_has_no_unit() {
    for (kind, limiter) in limiters() {
        for _ in 0..3 {
            let decision = peek(&limiter, &["day", "hour", "free"]).await;
            assert!(decision.is_allowed(), "{kind}");
            assert_eq!(decision.verdict().statuses()[1].remaining(), 100, "{kind}");
        }
        let _ = charge(&limiter, &["hour"], 100).await;
        let decision = peek(&limiter, &["day", "hour"]).await;
        let codes: Vec<_> = decision
            .verdict()
            .statuses()
            .iter()
            .map(|one| one.code())
            .collect();
        assert_eq!(
            (decision.is_denied(), codes),
            (true, vec![OK, OVER]),
            "{kind}"
        );
        assert!(peek(&limiter, &["never"]).await.is_denied(), "{kind}");
    }
}

#[tokio::test]
async fn other_rules_do_not_find_what_was_reserved() {
    let limiter = RuleLimiter::new(Rules::new(rules(RULES)), store());
    assert_eq!(reserve(&limiter, &["day", "hour"], 60, "a").await, OK);
    // The quota of a limit changes: it is the same limit.
    let changed = RULES.replace("requests_per_unit: 1000", "requests_per_unit: 2000");
    limiter.rules().replace(rules(&changed));
    assert_eq!(
        commit(&limiter, &["day", "hour"], 10, "a").await,
        Settlement::Settled
    );
    assert_eq!(left(&limiter, ["day", "hour"]).await, [1_990, 90]);

    assert_eq!(reserve(&limiter, &["day", "hour"], 60, "b").await, OK);
    let changed = RULES.replace("key: hour", "key: minute");
    limiter.rules().replace(rules(&changed));
    assert_eq!(
        commit(&limiter, &["day", "hour"], 10, "b").await,
        Settlement::Lapsed
    );
}

#[tokio::test]
async fn in_an_outage_the_rule_decides_and_nothing_stays_held_of_what_failed() {
    const TWO: &str = "
domain: d
descriptors:
  - {key: local, on_outage: local, rate_limit: {unit: day, requests_per_unit: 100}}
  - {key: closed, on_outage: fail, rate_limit: {unit: day, requests_per_unit: 100}}
  - {key: open, on_outage: allow, rate_limit: {unit: day, requests_per_unit: 100}}
";
    let store = FaultyStore::new(store());
    let limiter = RuleLimiter::builder(Rules::new(rules(TWO)), store.clone())
        .on_outage(Outage::default())
        .build();
    store.fail();
    let (set, asked) = (limiter.rules().current(), request(&["local", "closed"], 60));
    let plan = set.plan("d", &asked, 1).unwrap();
    let error = limiter
        .reserve_plan(&plan, &id("a"), LIFE)
        .await
        .unwrap_err();
    assert!(error.kind().is_unavailable(), "{error}");
    // What the other limit held in this process came back: the share has room for all again.
    assert_eq!(reserve(&limiter, &["local"], 100, "b").await, OK);
    assert_eq!(reserve(&limiter, &["local"], 1, "c").await, OVER);
    assert_eq!(reserve(&limiter, &["open"], 60, "d").await, OK);

    store.recover();
    // The reservation of the outage is settled where it is held, and an open one is unknown.
    assert_eq!(
        commit(&limiter, &["local"], 10, "b").await,
        Settlement::Settled
    );
    assert_eq!(
        commit(&limiter, &["open"], 10, "d").await,
        Settlement::Lapsed
    );
}

#[tokio::test]
async fn a_wrong_time_to_live_is_refused() {
    let limiter = RuleLimiter::new(Rules::new(rules(RULES)), store());
    let (set, asked) = (limiter.rules().current(), request(&["day"], 1));
    let plan = set.plan("d", &asked, 1).unwrap();
    assert_eq!(plan.compat(), Compat::Native);
    let refused = limiter.reserve_plan(&plan, &id("a"), Duration::ZERO).await;
    assert!(refused.unwrap_err().to_string().contains("time to live"));
}
