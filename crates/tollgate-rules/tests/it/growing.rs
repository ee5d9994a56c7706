//! Streams of unknown length under rules: what grows, what is refused, and what is charged at the end.
//! Streams drawn by chance, on stores of the process and on servers, are in the program `store` of the tests.

use tollgate::{ErrorKind, MemoryStore, reservation::GrowingReservation};
use tollgate_rules::{Code, Descriptor, GlobalModes, RuleDecision, RuleLimiter, Rules};

use super::{apart::Apart, envoy_rules, rules};

const RULES: &str = "
domain: d
descriptors:
  - {key: calls, rate_limit: {unit: day, requests_per_unit: 10}}
  - {key: tokens, rate_limit: {unit: day, requests_per_unit: 1000}}
  - {key: words, rate_limit: {unit: day, requests_per_unit: 500}}
  - {key: never, rate_limit: {unit: hour, requests_per_unit: 0}}
  - {key: free, rate_limit: {unlimited: true}}
  - {key: shadow, shadow_mode: true, rate_limit: {unit: day, requests_per_unit: 100}}
  - {key: quota, quota_mode: true, rate_limit: {unit: day, requests_per_unit: 100}}
";

/// The units of descriptors, by their keys.
type Units = [(&'static str, u64)];

fn limiter() -> RuleLimiter {
    RuleLimiter::new(Rules::new(rules(RULES)), MemoryStore::new())
}

fn descriptors(units: &Units) -> Vec<Descriptor<'static>> {
    let descriptor =
        |(key, hits): &(&'static str, u64)| Descriptor::from([(*key, "x")]).with_hits(*hits);
    units.iter().map(descriptor).collect()
}

async fn grow(
    limiter: &RuleLimiter,
    request: &Units,
    slice: &Units,
) -> Result<(RuleDecision, Option<GrowingReservation>), tollgate::Error> {
    let set = limiter.rules().current();
    let (request, slice) = (descriptors(request), descriptors(slice));
    let plan = set.plan("d", &request, 1).unwrap();
    let slice = set.plan("d", &slice, 1).unwrap();
    limiter.grow_plan(&plan, &slice).await
}

/// Returns what each descriptor has left.
async fn left<const N: usize>(limiter: &RuleLimiter, keys: [&'static str; N]) -> [u64; N] {
    let (set, request) = (
        limiter.rules().current(),
        descriptors(&keys.map(|key| (key, 0))),
    );
    let plan = set.plan("d", &request, 1).unwrap();
    let decision = limiter.peek_plan(&plan).await.unwrap();
    std::array::from_fn(|at| decision.verdict().statuses()[at].remaining())
}

#[tokio::test]
async fn a_stream_grows_on_the_limits_of_its_slice_and_is_charged_once_on_the_others() {
    let limiter = limiter();
    let all = ["calls", "tokens", "words"];
    let request = [("calls", 1), ("tokens", 12), ("words", 3)];
    let slice = [("calls", 0), ("tokens", 100), ("words", 100)];
    let (decision, stream) = grow(&limiter, &request, &slice).await.unwrap();
    assert_eq!(decision.verdict().code(), Code::Ok);
    assert_eq!(left(&limiter, all).await, [9, 888, 397]);
    let stream = stream.unwrap();
    stream.growth().take(150).await.unwrap();
    assert_eq!(left(&limiter, all).await, [9, 788, 297]);
    stream.commit().await.unwrap();
    assert_eq!(left(&limiter, all).await, [9, 838, 347]);

    // The words are spent first.
    let (_, stream) = grow(&limiter, &request, &slice).await.unwrap();
    let stream = stream.unwrap();
    let mut taken = 0;
    while stream.growth().take(1).await.is_ok() {
        taken += 1;
    }
    assert_eq!(taken, 300);
    drop(stream);
    assert_eq!(left(&limiter, all).await, [8, 526, 44]);

    // Each request counts natively, also in the mode `envoy`.
    let limiter = RuleLimiter::new(Rules::new(envoy_rules(RULES)), MemoryStore::new());
    let (_, stream) = grow(&limiter, &[("words", 3)], &[("words", 100)])
        .await
        .unwrap();
    let stream = stream.unwrap();
    stream.growth().take(400).await.unwrap();
    assert!(stream.growth().take(1).await.is_err());
    drop(stream);
    assert_eq!(left(&limiter, ["words"]).await, [97]);
}

#[tokio::test]
async fn a_request_that_is_denied_or_not_limited_holds_nothing() {
    let limiter = limiter();
    // Too little is left for the first slice.
    let slice = [("calls", 0), ("tokens", 600)];
    let request = [("calls", 1), ("tokens", 0)];
    let (_, held) = grow(&limiter, &request, &slice).await.unwrap();
    let (decision, stream) = grow(&limiter, &request, &slice).await.unwrap();
    assert_eq!(decision.verdict().code(), Code::OverLimit);
    assert!(stream.is_none());
    assert_eq!(left(&limiter, ["calls", "tokens"]).await, [9, 400]);
    held.unwrap().cancel().await.unwrap();
    assert_eq!(left(&limiter, ["calls", "tokens"]).await, [10, 1_000]);

    // A rule beside it denies every request.
    let (decision, stream) = grow(
        &limiter,
        &[("tokens", 5), ("never", 1)],
        &[("tokens", 10), ("never", 0)],
    )
    .await
    .unwrap();
    assert_eq!(decision.verdict().code(), Code::OverLimit);
    assert!(stream.is_none());
    assert_eq!(left(&limiter, ["tokens"]).await, [1_000]);

    for (key, code) in [
        ("free", Code::Ok),
        ("never", Code::OverLimit),
        ("unknown", Code::Ok),
    ] {
        let (decision, stream) = grow(&limiter, &[(key, 1)], &[(key, 10)]).await.unwrap();
        assert_eq!(decision.verdict().code(), code, "{key}");
        assert!(stream.is_none(), "{key}");
    }
}

#[tokio::test]
async fn a_reload_is_in_force_for_the_streams_that_begin_after_it() {
    let limiter = limiter();
    let (_, old) = grow(&limiter, &[("words", 0)], &[("words", 100)])
        .await
        .unwrap();
    limiter.rules().replace(rules(&RULES.replace("500", "200")));
    let (_, new) = grow(&limiter, &[("words", 0)], &[("words", 100)])
        .await
        .unwrap();
    let (old, new) = (old.unwrap(), new.unwrap());
    assert!(new.growth().take(101).await.is_err());
    old.growth().take(300).await.unwrap();
    drop((old, new));
    assert_eq!(left(&limiter, ["words"]).await, [0]);
}

#[tokio::test]
async fn what_does_not_grow_is_refused_by_its_name_and_charges_nothing() {
    let one = limiter();
    let apart = RuleLimiter::new(Rules::new(rules(RULES)), Apart(MemoryStore::new()));
    let modes = GlobalModes {
        shadow: true,
        ..GlobalModes::default()
    };
    let shadow = RuleLimiter::builder(Rules::new(rules(RULES)), MemoryStore::new())
        .modes(modes)
        .build();
    let both = [("tokens", 5), ("words", 5)];
    let cases: [(&RuleLimiter, &Units, &Units, &str); 7] = [
        (
            &one,
            &[("tokens", 5), ("shadow", 5)],
            &[("tokens", 9), ("shadow", 9)],
            r#"rule "d.shadow" does not deny"#,
        ),
        (
            &one,
            &[("quota", 5)],
            &[("quota", 9)],
            r#"rule "d.quota" does not deny"#,
        ),
        (
            &shadow,
            &[("tokens", 5)],
            &[("tokens", 9)],
            r#"rule "d.tokens" does not deny"#,
        ),
        (
            &apart,
            &both,
            &[("tokens", 9), ("words", 9)],
            r#"rules ["d.tokens", "d.words"] are not decided in one step"#,
        ),
        (
            &one,
            &both,
            &[("tokens", 9)],
            "a slice has the descriptors of its plan",
        ),
        (
            &one,
            &[("tokens", 5)],
            &[("words", 9)],
            "a slice has the descriptors of its plan",
        ),
        (
            &one,
            &both,
            &[("tokens", 9), ("words", 8)],
            "a slice must have one number of units",
        ),
    ];
    for (limiter, request, slice, words) in cases {
        let error = grow(limiter, request, slice).await.err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Config, "{words}");
        assert!(error.to_string().contains(words), "{error}");
        assert_eq!(
            left(limiter, ["tokens", "words", "shadow", "quota"]).await,
            [1_000, 500, 100, 100]
        );
    }
    // A store that decides each key alone grows one descriptor.
    let (_, stream) = grow(&apart, &[("tokens", 5)], &[("tokens", 9)])
        .await
        .unwrap();
    stream.unwrap().growth().take(20).await.unwrap();
}
