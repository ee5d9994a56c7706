//! A console about limiters of the process.

use axum::Router;
use http::StatusCode;
use serde_json::json;
use tollgate::{Enforcement, Limiter, MemoryStore, Policy, Quota, limiter::DeniedKeys};
use tollgate_console::{Console, LocalLimiters};

use super::{HOSTILE, ann, answer, assert_refused, get, post, send, text};

struct Local {
    api: Limiter,
    share: Enforcement,
    router: Router,
}

/// Returns a console about `api`, with ten units an hour, and `search`, whose share can be set.
fn local() -> Local {
    let denied_keys = DeniedKeys::new(10);
    let api = Limiter::builder(MemoryStore::new())
        .policies(Policy::fixed_window("api", Quota::per_hour(10)))
        .denied_keys(denied_keys.clone())
        .build();
    let search = Limiter::in_memory(Policy::token_bucket("search", Quota::per_hour(5)));
    let share = Enforcement::share(50);
    let limiters = LocalLimiters::new().with(&api).with_share(&search, &share);
    let console = Console::builder(limiters)
        .denied_keys(denied_keys)
        .build(ann);
    Local {
        api,
        share,
        router: console.router(),
    }
}

#[tokio::test]
async fn a_key_is_looked_at_and_made_fresh_by_an_author() {
    let Local { api, router, .. } = local();
    for _ in 0..12 {
        let _ = api.check("acme").await.unwrap();
    }
    let peeked = answer(
        &router,
        post("/api/peek", &json!({"key": "acme", "cost": 3})),
    )
    .await;
    // The other limiter is named, because a cost was asked for.
    let [state, other] = &peeked["states"].as_array().unwrap()[..] else {
        panic!("{peeked}");
    };
    assert_eq!(
        (&state["policy"], &state["spent"]),
        (&json!("api"), &json!(10))
    );
    assert_eq!(
        (&state["limit"], &state["quota"]),
        (&json!(10), &json!("10/hour"))
    );
    assert!(state["fits_after_us"].as_u64().unwrap() > 0, "{state}");
    assert_eq!(other["fits_after_us"], 0);

    let removed = answer(&router, post("/api/reset", &json!({"key": "acme"}))).await;
    assert_eq!(removed["states"][0]["spent"], 10);
    assert!(api.check("acme").await.unwrap().is_allowed());

    let status = answer(&router, get("/api/status")).await;
    assert_eq!(status["author"], "ann");
    assert_eq!(status["source"]["kind"], "process");
    assert_eq!(status["replicas"], json!(null));
    assert_eq!(status["denied"]["total"], 2);
    assert_eq!(status["denied"]["keys"][0]["denials"], 2);
    let action = &status["actions"][0];
    assert_eq!(
        (&action["author"], &action["action"]),
        (&json!("ann"), &json!("reset"))
    );
    // The key is a digest in the list of denied keys, and in that of actions.
    assert!(!status.to_string().contains("acme"), "{status}");
}

#[tokio::test]
async fn a_cost_above_the_limit_never_fits_and_is_refused_by_its_field() {
    let Local { router, .. } = local();
    let peek = |body| post("/api/peek", &body);
    assert_refused(
        &router,
        peek(json!({"key": "acme", "cost": 11})),
        400,
        "cost",
    )
    .await;
}

#[tokio::test]
async fn a_share_is_set_and_withdrawn() {
    let Local { share, router, .. } = local();
    let set = |share| post("/api/share", &json!({"limiter": "search", "share": share}));
    let limiters = answer(&router, set(json!("25%"))).await;
    assert_eq!(share.percent(), 25);
    assert_eq!(limiters["limiters"][1]["enforced"], json!([25]));
    assert_eq!(limiters["limiters"][1]["operator"], "25%");
    let limiters = answer(&router, set(json!(null))).await;
    assert_eq!(share.percent(), 50);
    assert_eq!(limiters["limiters"][1]["operator"], json!(null));
    let status = answer(&router, get("/api/status")).await;
    assert_eq!(status["actions"].as_array().unwrap().len(), 2);
    assert_eq!(status["actions"][1]["outcome"], "enforced for 25%");
}

#[tokio::test]
async fn input_that_is_wrong_is_refused_by_its_name() {
    let Local { router, .. } = local();
    let share = |limiter: &str, share: &str| {
        post("/api/share", &json!({"limiter": limiter, "share": share}))
    };
    for (request, words) in [
        (share("api", "5%"), "limiter api takes no share"),
        (share("search", "101%"), "share"),
        (share("search", "<img src=x>"), "share"),
        (
            post("/api/share", &json!({"limiter": "search"})),
            "missing field `share`",
        ),
        (
            post("/api/peek", &json!({"key": ""})),
            "key must have 1 to 4096 bytes, got 0",
        ),
        (
            post("/api/peek", &json!({"key": "a".repeat(4_097)})),
            "got 4097",
        ),
        (
            post("/api/peek", &json!({"key": "a", "cost": -1})),
            "invalid value",
        ),
        (
            post("/api/peek", &json!({"key": "a", "cots": 1})),
            "unknown field `cots`",
        ),
        (
            post("/api/peek", &json!({"cost": 1})),
            "missing field `key`",
        ),
        (post("/api/reset", &json!({"key": ["a"]})), "invalid type"),
        (
            get("/api/keys?by=name"),
            "by must be spent or share, got \"name\"",
        ),
        (get("/api/keys?number=0"), "number must be 1 to 200"),
        (get("/api/keys?numbre=1"), "there is no field \"numbre\""),
    ] {
        assert_refused(&router, request, 400, words).await;
    }
    for (limiter, words) in [
        (
            "other",
            "there is no limiter \"other\", expected api, search",
        ),
        ("<b>", "there is no limiter \"<b>\""),
    ] {
        assert_refused(&router, share(limiter, "5%"), 404, words).await;
    }
    let large = post("/api/peek", &json!({"key": "a".repeat(20_000)}));
    assert_refused(&router, large, 413, "at most 16384 bytes").await;
    assert_refused(&router, get("/api/keys"), 501, "lists no keys").await;
    assert_refused(&router, get("/other"), 404, "\"/other\"").await;
    assert_refused(&router, get("/api/reset"), 405, "takes no GET").await;
    let status = answer(&router, get("/api/status")).await;
    assert_eq!(status["actions"], json!([]), "nothing was done");
}

#[tokio::test]
async fn a_hostile_key_is_a_text_and_the_page_runs_its_own_script_alone() {
    let Local { api, router, .. } = local();
    let _ = api.check(HOSTILE).await.unwrap();
    let peeked = answer(&router, post("/api/peek", &json!({"key": HOSTILE}))).await;
    assert_eq!(peeked["states"][0]["subject"], HOSTILE);

    let page = send(&router, get("/")).await;
    assert_eq!(page.status(), StatusCode::OK);
    let policy = page.headers()["content-security-policy"].to_str().unwrap();
    for part in [
        "default-src 'none'",
        "script-src 'sha256-",
        "style-src 'sha256-",
        "connect-src 'self'",
        "frame-ancestors 'none'",
    ] {
        assert!(policy.contains(part), "{part}: {policy}");
    }
    assert!(!policy.contains("unsafe"), "{policy}");
    assert_eq!(page.headers()["x-frame-options"], "DENY");
    assert!(
        !text(page).await.contains("onerror"),
        "the page has no value of a key"
    );
}
