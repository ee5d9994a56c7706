//! Requests that a handler checks itself: the answers are those of the layer.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use axum::{Router, body::Body, extract::State, response::IntoResponse, routing::post};
use http::{Method, Request, Response, StatusCode, request::Parts};
use tollgate::{Cost, Costs, KeySecret, Limiter, Outage, Policy, Priority, Quota};
use tollgate_tower::{
    Decisions, HandlerLimiter, HeaderFormat, QuotaUnit, RateLimitBuilder, RateLimitLayer, Rejected,
    ResetFormat, Respond,
    key::Global,
    rejection::{Empty, Problem},
    respond_fn,
};
use tower::{Layer, Service, ServiceExt, service_fn};

use crate::support::*;

const MORE_FORMATS: [&[HeaderFormat]; 3] = [
    &[HeaderFormat::Legacy {
        reset: ResetFormat::Epoch,
    }],
    &[
        HeaderFormat::Ietf08,
        HeaderFormat::OpenAi,
        HeaderFormat::Anthropic,
    ],
    &[HeaderFormat::Envoy03, HeaderFormat::OpenAi],
];

fn formats() -> impl Iterator<Item = Vec<HeaderFormat>> {
    HEADER_FORMATS
        .into_iter()
        .map(|format| vec![format])
        .chain(MORE_FORMATS.map(<[_]>::to_vec))
}

/// A service whose handler checks a limiter itself.
fn checked_in_handler(
    limiter: HandlerLimiter<String>,
) -> impl Service<Request<()>, Response = Response<String>, Error = Infallible, Future: Send> + Clone
{
    service_fn(move |request: Request<()>| {
        let limiter = limiter.clone();
        async move {
            let (mut parts, ()) = request.into_parts();
            Ok(match limiter.check(&mut parts, "all").await {
                Ok(admitted) => admitted.complete(Response::new("hello".to_owned())),
                Err(rejected) => rejected.into_response(),
            })
        }
    })
}

/// Returns all that the client receives. The order of the headers is a part of it.
async fn bytes_of<S>(service: S, request: Request<()>) -> String
where
    S: Service<Request<()>, Response = Response<String>, Error = Infallible>,
{
    let Ok(response) = service.oneshot(request).await;
    format!(
        "{:?} {:?} {:?} {}",
        response.status(),
        response.version(),
        response.headers(),
        response.body()
    )
}

/// The states in which a limiter answers differently.
const CASES: [&str; 8] = [
    "fresh",
    "spent",
    "denied",
    "never fits",
    "closed",
    "open",
    "share",
    "levels",
];

async fn limiter(case: &str) -> Limiter {
    match case {
        "closed" => return unavailable(Outage::Closed),
        "open" => return unavailable(Outage::Open),
        "share" => return unavailable(Outage::local(2)),
        "levels" => return Limiter::new(still(), TWO.at_level(2)),
        _ => {}
    }
    let limiter = Limiter::new(
        still(),
        [
            TWO,
            Policy::window_from_first_hit("hour", Quota::per_hour(90)),
        ],
    );
    let spent = match case {
        "spent" => 1,
        "denied" => 2,
        _ => 0,
    };
    let _ = limiter.check("all").cost(Cost::new(spent)).await.unwrap();
    limiter
}

/// Asserts that a handler answers as the layer does, in all cases, to requests of all kinds.
async fn assert_equal_answers<R: Respond<String>>(
    label: &str,
    options: impl Fn(RateLimitBuilder<Global>) -> RateLimitBuilder<Global, R>,
) {
    for case in CASES {
        for is_stacked in [false, true] {
            for (method, accept) in [
                ("GET", "*/*"),
                ("POST", "text/html"),
                ("GET", "image/png"),
                ("HEAD", "*/*"),
                ("CONNECT", "*/*"),
            ] {
                let cost = if case == "never fits" {
                    Cost::new(3)
                } else {
                    Cost::ONE
                };
                let build = |limiter| {
                    options(RateLimitLayer::builder(limiter, Global).cost(move |_| cost)).build()
                };
                let answer = async |in_handler: bool| {
                    let limiter = limiter(case).await;
                    let service = if in_handler {
                        let layer = build(Limiter::new(still(), ONE));
                        BoxedService::new(checked_in_handler(layer.handler_limiter(limiter)))
                    } else {
                        BoxedService::new(build(limiter).layer(hello()))
                    };
                    let method = Method::from_bytes(method.as_bytes()).unwrap();
                    let request = Request::builder()
                        .method(method)
                        .header("accept", accept)
                        .body(())
                        .unwrap();
                    if is_stacked {
                        // The outer layer admits the request, which leaves no unit.
                        let day =
                            Policy::window_from_first_hit("day", Quota::per_day(cost.units()));
                        bytes_of(build(Limiter::new(still(), day)).layer(service), request).await
                    } else {
                        bytes_of(service, request).await
                    }
                };
                // Two formats write instants.
                let (found, expected) =
                    in_one_tenth(async || (answer(true).await, answer(false).await)).await;
                assert_eq!(
                    found, expected,
                    "{label}, {case}, {method} {accept}, stacked: {is_stacked}"
                );
            }
        }
    }
}

#[tokio::test]
async fn a_handler_answers_as_the_layer_in_every_header_format_and_body_format() {
    for formats in formats() {
        let label = format!("{formats:?}");
        assert_equal_answers(&label, |builder| builder.header_formats(formats.clone())).await;
    }
}

#[tokio::test]
async fn the_cases_differ_in_their_status() {
    let mut statuses = Vec::new();
    for case in CASES {
        let layer = RateLimitLayer::builder(Limiter::new(still(), ONE), Global);
        let layer = layer
            .cost(move |_| {
                if case == "never fits" {
                    Cost::new(3)
                } else {
                    Cost::ONE
                }
            })
            .build();
        let Ok(response) = checked_in_handler(layer.handler_limiter(limiter(case).await))
            .oneshot(request())
            .await;
        statuses.push(response.status().as_u16());
    }
    assert_eq!(statuses, [200, 200, 429, 413, 503, 200, 200, 500]);
}

#[tokio::test]
async fn a_handler_answers_as_the_layer_with_every_option_for_headers() {
    assert_equal_answers("exposed", |builder| {
        builder.expose_headers(true).mark_degraded(true)
    })
    .await;
    assert_equal_answers("marked", |builder| builder.mark_degraded(true)).await;
    assert_equal_answers("partition key", |builder| {
        builder.partition_key(KeySecret::new("secret"))
    })
    .await;
    assert_equal_answers("unit", |builder| {
        builder.quota_unit(QuotaUnit::CONTENT_BYTES)
    })
    .await;
    assert_equal_answers("shadow", |builder| builder.shadow(true)).await;
}

#[tokio::test]
async fn a_handler_answers_as_the_layer_with_every_responder() {
    assert_equal_answers("empty", |builder| builder.respond_with(Empty)).await;
    assert_equal_answers("types", |builder| {
        builder.respond_with(Problem::types_at("https://example.com/p"))
    })
    .await;
    let own = |builder: RateLimitBuilder<Global>| {
        builder.respond_with(respond_fn(|rejection| {
            let response = Response::builder()
                .status(StatusCode::IM_A_TEAPOT)
                .header("retry-after", "99");
            response
                .body(rejection.reason().as_str().to_owned())
                .unwrap()
        }))
    };
    assert_equal_answers("own", own).await;
}

fn parts() -> Parts {
    Request::new(()).into_parts().0
}

#[tokio::test]
async fn the_result_of_a_check_that_the_handler_made_is_answered_alike() {
    let layer = RateLimitLayer::new(Limiter::new(still(), ONE), Global);
    let limiter: HandlerLimiter<String> =
        layer.handler_limiter(Limiter::new(still(), [TWO, HOURLY]));
    let mut found = Vec::new();
    for costs in [[1, 3], [1, 0], [1, 0], [3, 0]] {
        let result = limiter
            .limiter()
            .check("ann")
            .cost([("two", costs[0]), ("hourly", costs[1])])
            .await;
        found.push(match limiter.answer(&mut parts(), "ann", &result) {
            Ok(admitted) => admitted.complete(Response::new(String::new())),
            Err(rejected) => rejected.into_response(),
        });
    }
    let statuses: Vec<_> = found
        .iter()
        .map(|response| response.status().as_u16())
        .collect();
    assert_eq!(statuses, [200, 200, 429, 413]);
    assert_eq!(
        header(&found[1], "ratelimit"),
        Some(r#""two";r=0;t=30, "hourly";r=0;t=3600"#)
    );
    assert_eq!(header(&found[2], "retry-after"), Some("30"));
    assert_eq!(
        header(&found[3], "ratelimit-policy"),
        Some(r#""two";q=2;w=60, "hourly";q=3;w=3600"#)
    );
}

#[tokio::test]
async fn the_headers_of_an_admitted_request_are_combined_with_those_of_the_response_and_of_outer_layers()
 {
    let outer = RateLimitLayer::new(Limiter::new(still(), HOURLY), Global);
    let limiter: HandlerLimiter<String> = outer.handler_limiter(Limiter::new(still(), TWO));
    let service = service_fn(move |request: Request<()>| {
        let limiter = limiter.clone();
        async move {
            let (mut parts, ()) = request.into_parts();
            let admitted = limiter.check(&mut parts, "all").await.unwrap();
            let upstream = Response::builder().header("ratelimit", r#""up";r=5"#);
            let upstream = upstream
                .header("ratelimit-policy", r#""up";q=9"#)
                .body(String::new())
                .unwrap();
            Ok::<_, Infallible>(admitted.complete(upstream))
        }
    });
    let Ok(response) = outer.layer(service).oneshot(request()).await;
    assert_eq!(
        header(&response, "ratelimit"),
        Some(r#""up";r=5, "two";r=1;t=30, "hourly";r=2;t=3600"#)
    );
    assert_eq!(
        header(&response, "ratelimit-policy"),
        Some(r#""up";q=9, "two";q=2;w=60, "hourly";q=3;w=3600"#)
    );
}

#[tokio::test]
async fn two_checks_of_one_request_are_as_two_layers() {
    let layer = RateLimitLayer::new(Limiter::new(still(), ONE), Global);
    let hourly: HandlerLimiter<String> = layer.handler_limiter(Limiter::new(
        still(),
        Policy::window_from_first_hit("hour", Quota::per_hour(1)),
    ));
    let spent = Limiter::new(still(), ONE);
    let _ = spent.check("all").await;
    let mut parts = parts();
    let admitted = hourly.check(&mut parts, "all").await.unwrap();
    let rejected = hourly
        .with_limiter(spent)
        .check(&mut parts, "all")
        .await
        .unwrap_err();
    let response = admitted.complete(rejected.into_response());
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(header(&response, "retry-after"), Some("3600"));
    assert_eq!(
        header(&response, "ratelimit"),
        Some(r#""one";r=0;t=60, "hour";r=0;t=3600"#)
    );
    assert!(
        response
            .body()
            .contains("Policy hour: try again in 3600 s."),
        "{}",
        response.body()
    );
}

#[tokio::test]
async fn a_final_cost_is_settled_by_the_response_of_the_handler() {
    let layer = |limiter| {
        let builder = RateLimitLayer::builder(limiter, Global);
        builder
            .charge_after(|status| status == StatusCode::UNAUTHORIZED)
            .build()
    };
    let guesses = Limiter::new(still(), TWO);
    let limiter: HandlerLimiter<String> =
        layer(Limiter::new(still(), ONE)).handler_limiter(guesses.clone());
    let attempt = async |status: StatusCode| {
        let admitted = limiter
            .check(&mut parts(), "ann")
            .await
            .map_err(|rejected| rejected.status())?;
        let response = Response::builder()
            .status(status)
            .body(String::new())
            .unwrap();
        Ok::<_, StatusCode>(admitted.complete(response).status())
    };
    for _ in 0..9 {
        assert_eq!(attempt(StatusCode::OK).await, Ok(StatusCode::OK));
    }
    // Requests that are under way at the same time do not see each other.
    let mut under_way = Vec::new();
    for _ in 0..3 {
        under_way.push(limiter.check(&mut parts(), "ann").await.unwrap());
    }
    for admitted in under_way {
        assert_eq!(
            admitted.complete(Response::new(String::new())).status(),
            StatusCode::OK
        );
    }
    assert_eq!(remaining(&guesses, "ann", "two").await, 2);
    assert_eq!(
        attempt(StatusCode::UNAUTHORIZED).await,
        Ok(StatusCode::UNAUTHORIZED)
    );
    // A request that the handler forgets is charged: its client may have disconnected.
    drop(limiter.check(&mut parts(), "ann").await.unwrap());
    assert_eq!(remaining(&guesses, "ann", "two").await, 0);
    assert_eq!(
        attempt(StatusCode::OK).await,
        Err(StatusCode::TOO_MANY_REQUESTS)
    );
}

#[tokio::test]
async fn costs_of_a_handler_have_the_priority_of_the_request_or_a_lower_one() {
    let layer = RateLimitLayer::builder(Limiter::new(still(), ONE), Global)
        .priority(|_| Priority::NORMAL)
        .build();
    for is_reserved in [false, true] {
        let ten = Limiter::new(still(), Policy::fixed_window("ten", Quota::per_day(10)));
        let limiter: HandlerLimiter<String> = layer.handler_limiter(ten);
        for (costs, expected) in [
            (Priority::BACKGROUND, 6),
            (Priority::CRITICAL, 3),
            (Priority::NORMAL, 0),
        ] {
            let mut admitted = 0;
            for _ in 0..10 {
                let (mut parts, costs) = (parts(), Costs::new(Cost::ONE).with_priority(costs));
                admitted += usize::from(match is_reserved {
                    false => limiter.check_costs(&mut parts, "ann", costs).await.is_ok(),
                    true => limiter.reserve(&mut parts, "ann", costs).await.is_ok(),
                });
            }
            assert_eq!(admitted, expected, "{costs:?}, reserved: {is_reserved}");
        }
    }
}

#[tokio::test]
async fn decisions_of_the_handler_follow_those_of_the_layer() {
    let outer = RateLimitLayer::builder(Limiter::new(still(), HOURLY), Global)
        .expose_decisions(true)
        .build();
    for spent in [0, 2] {
        let two = Limiter::new(still(), TWO);
        let _ = two.check("all").cost(Cost::new(spent)).await.unwrap();
        let service = checked_in_handler(outer.handler_limiter(two));
        let Ok(response) = outer.layer(service).oneshot(request()).await;
        let decisions = response.extensions().get::<Decisions>().unwrap();
        let allowed: Vec<_> = decisions
            .iter()
            .map(tollgate::Decision::is_allowed)
            .collect();
        assert_eq!(allowed, [true, spent == 0]);
    }
}

#[tokio::test]
async fn in_axum_the_question_mark_returns_the_rejection() {
    type Users = HandlerLimiter<Body>;
    static CALLS: AtomicU64 = AtomicU64::new(0);
    async fn handler(
        State(users): State<Users>,
        mut parts: Parts,
        name: String,
    ) -> Result<axum::response::Response, Rejected<Body>> {
        let admitted = users.check(&mut parts, name).await?;
        CALLS.fetch_add(1, Ordering::Relaxed);
        Ok(admitted.complete("hello".into_response()))
    }
    let layer = RateLimitLayer::new(Limiter::new(still(), HOURLY), Global);
    let users: Users = layer.handler_limiter(Limiter::new(still(), ONE));
    let router: Router = Router::new()
        .route("/", post(handler).layer(layer))
        .with_state(users);
    let send = async |name: &'static str| {
        let response = router
            .clone()
            .oneshot(Request::post("/").body(Body::from(name)).unwrap())
            .await
            .unwrap();
        (
            response.status().as_u16(),
            response.headers()["ratelimit"].to_str().unwrap().to_owned(),
        )
    };
    assert_eq!(
        send("ann").await,
        (200, r#""one";r=0;t=60, "hourly";r=2;t=3600"#.to_owned())
    );
    assert_eq!(
        send("ann").await,
        (429, r#""one";r=0;t=60, "hourly";r=1;t=3600"#.to_owned())
    );
    assert_eq!(
        send("bob").await,
        (200, r#""one";r=0;t=60, "hourly";r=0;t=3600"#.to_owned())
    );
    assert_eq!(CALLS.load(Ordering::Relaxed), 2);
}

#[cfg(feature = "metrics")]
#[test]
fn decisions_and_rejections_of_a_handler_are_counted() {
    let series = tollgate_tests::Series::of(async {
        let layer = RateLimitLayer::new(Limiter::new(still(), HOURLY), Global);
        let limiter = Arc::new(layer.handler_limiter::<String>(Limiter::new(still(), ONE)));
        for _ in 0..3 {
            let _ = limiter.check(&mut parts(), "all").await.map(drop);
        }
    });
    series.assert_counts(
        "
        tollgate_decisions_total policy=one outcome=allowed 1
        tollgate_decisions_total policy=one outcome=denied 2
        tollgate_rejections_total reason=denied 2
        ",
    );
}
