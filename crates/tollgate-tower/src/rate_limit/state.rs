//! Answers a caller how much of its quotas is left.
//! Numbers in the header fields of other responses are written in `headers/`.

use std::{
    convert::Infallible,
    fmt::Write as _,
    future::Future,
    ops::ControlFlow::{Break, Continue},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::SystemTime,
};

use http::{HeaderValue, Method, Request, Response, StatusCode, header, request::Parts};
use tollgate_core::{
    Error, ErrorKind,
    limiter::{Limited, PolicyState},
};
use tower_service::Service;

use crate::{
    headers::{ResetFormat, number_value, wait_began},
    key::KeyExtractor,
    rate_limit::{
        joint::JointCheck,
        layer::{LayerState, RateLimitLayer},
        limits::Steps,
        request::StepVerdict,
        source::Target,
    },
    rejection::{Reason, Respond},
};

/// A service that reports to a caller how much of its quotas is left, as JSON, in the form of
/// `/rate_limit` of GitHub's API. It spends nothing.
///
/// [`RateLimitLayer::state_service`] creates it with the limiters and the key extractor of the
/// layer. Put it on a route outside of the layer. `B` is the body type of its responses.
///
/// ```
/// use axum::{Router, body::{Body, to_bytes}, routing::get};
/// use http::Request;
/// use tollgate::{Limiter, MemoryStore, Policy, Quota};
/// use tollgate_tower::{RateLimitLayer, key::Header};
/// use tower::ServiceExt;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let limiter = Limiter::new(MemoryStore::new(), Policy::window_from_first_hit("core", Quota::per_hour(5_000)));
/// let layer = RateLimitLayer::new(limiter, Header::new("x-api-key"));
/// let state = layer.state_service::<Body>();
/// let app: Router = Router::new()
///     .route("/", get(|| async { "hello" }))
///     .route_layer(layer)
///     .route_service("/rate_limit", state);
///
/// let get = |path| Request::get(path).header("x-api-key", "acme").body(Body::empty()).unwrap();
/// app.clone().oneshot(get("/")).await.unwrap();
/// let response = app.oneshot(get("/rate_limit")).await.unwrap();
/// assert_eq!(response.headers()["cache-control"], "no-store");
/// let json = to_bytes(response.into_body(), 1_000).await.unwrap();
/// assert!(json.starts_with(br#"{"resources":{"core":{"limit":5000,"used":1,"remaining":4999,"reset":"#));
/// # }
/// ```
///
/// # The response
///
/// ```json
/// {
///   "resources": {"core": {"limit": 5000, "used": 1, "remaining": 4999, "reset": 1767225600, "start": 1767222000}},
///   "rate": {"limit": 5000, "used": 1, "remaining": 4999, "reset": 1767225600, "start": 1767222000}
/// }
/// ```
///
/// Each policy is a resource, with the numbers of
/// [`HeaderFormat::GitHub`](crate::HeaderFormat::GitHub): the limit is the burst, and the reset is
/// the time at which there are more units, in seconds since the Unix epoch. The start is the begin
/// of the [period](PolicyState::period) whose units are counted: a policy without periods, such as a
/// bucket, has none. `rate` is the policy with the smallest part left. Of two policies with the same
/// name, only the one with fewer units left is a resource.
///
/// - A [hidden](tollgate_core::Policy::hidden) policy is no resource.
/// - A [leased](tollgate_core::Policy::leased) policy shows the state of the store: units that replicas
///   hold count as used.
/// - A [lockout](tollgate_core::Policy::lockout) shows the failures that are left. During a lockout none
///   is left, and the reset is the end of the lockout.
/// - Concurrent requests are no units, so a [`ConcurrencyLayer`](crate::ConcurrencyLayer) shows
///   nothing.
/// - A caller that is exempt, or [outside of the enforced
///   share](crate::RateLimitBuilder::enforcement), has no resources and no `rate`.
///
/// `GET`, `HEAD` and `OPTIONS` are allowed: the response to other methods is 405. The service
/// rejects a request that the layer would reject without a check, with the same
/// [responder](crate::rejection): for example with 400 when the key is missing. In an outage of the
/// store it responds with 503, whatever the [`Outage`](tollgate_core::Outage) of the limiter is. A
/// [decider](crate::LimiterSource::from_decider) decides a [look](crate::JointCheck::is_look), at a
/// cost of zero.
///
/// Requests to the service are not limited, and each one calls the store once. Put a limit around
/// the service where that matters.
pub struct StateService<B> {
    layers: Arc<[Look<B>]>,
}

/// Adds what a layer knows of a caller, or returns the response of the layer to a request that it
/// rejects. A closure, so that the service does not carry the type parameters of the layer.
type Look<B> =
    Arc<dyn for<'a> Fn(&'a mut Parts, &'a mut Resources) -> Looking<'a, B> + Send + Sync>;

/// Ends when the stores have answered.
type Looking<'a, B> = Pin<Box<dyn Future<Output = Result<(), Response<B>>> + Send + 'a>>;

impl<K: KeyExtractor, R> RateLimitLayer<K, R> {
    /// Returns a service that reports to a caller how much of the quotas of this layer is left.
    #[must_use]
    pub fn state_service<B>(&self) -> StateService<B>
    where
        R: Respond<B>,
        B: Send + 'static,
    {
        StateService {
            layers: Arc::new([self.look()]),
        }
    }

    fn look<B>(&self) -> Look<B>
    where
        R: Respond<B>,
        B: Send + 'static,
    {
        let state = Arc::clone(&self.state);
        Arc::new(move |parts, resources| {
            let state = Arc::clone(&state);
            Box::pin(async move { state.add_states(parts, resources).await })
        })
    }
}

impl<B> StateService<B> {
    /// Adds the policies of another layer, for routes with [stacked layers](crate::guide::layers).
    /// If one of the layers rejects the request, the response is the rejection of the first one.
    ///
    /// ```
    /// use axum::body::{Body, to_bytes};
    /// use http::Request;
    /// use tollgate::{Limiter, MemoryStore, Policy, Quota};
    /// use tollgate_tower::{RateLimitLayer, key::{Global, Header}};
    /// use tower::ServiceExt;
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// let store = MemoryStore::new();
    /// let all = RateLimitLayer::new(Limiter::new(store.clone(), Policy::fixed_window("all", Quota::per_day(9))), Global);
    /// let mine = Limiter::new(store, Policy::fixed_window("mine", Quota::per_day(2)));
    /// let service = all.state_service::<Body>().and(&RateLimitLayer::new(mine, Header::new("x-api-key")));
    ///
    /// let request = Request::get("/").header("x-api-key", "acme").body(()).unwrap();
    /// let json = to_bytes(service.oneshot(request).await.unwrap().into_body(), 1_000).await.unwrap();
    /// assert!(json.starts_with(br#"{"resources":{"all":{"limit":9,"used":0,"remaining":9,"#));
    /// # }
    /// ```
    #[must_use]
    pub fn and<K: KeyExtractor, R: Respond<B>>(self, layer: &RateLimitLayer<K, R>) -> Self
    where
        B: Send + 'static,
    {
        Self {
            layers: self.layers.iter().cloned().chain([layer.look()]).collect(),
        }
    }
}

const METHODS: HeaderValue = HeaderValue::from_static("GET, HEAD, OPTIONS");

impl<ReqBody, B> Service<Request<ReqBody>> for StateService<B>
where
    B: From<String> + Send + 'static,
{
    type Response = Response<B>;
    type Error = Infallible;
    type Future = StateFuture<B>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<ReqBody>) -> StateFuture<B> {
        let (layers, (mut parts, _)) = (Arc::clone(&self.layers), request.into_parts());
        StateFuture(Box::pin(async move {
            let mut response = match parts.method {
                Method::GET | Method::HEAD => answer(&layers, &mut parts).await,
                Method::OPTIONS => without_body(StatusCode::NO_CONTENT),
                _ => without_body(StatusCode::METHOD_NOT_ALLOWED),
            };
            response
                .headers_mut()
                .entry(header::CACHE_CONTROL)
                .or_insert(HeaderValue::from_static("no-store"));
            response
        }))
    }
}

async fn answer<B: From<String>>(layers: &[Look<B>], parts: &mut Parts) -> Response<B> {
    let mut resources = Resources::default();
    for layer in layers {
        if let Err(rejection) = layer(parts, &mut resources).await {
            return rejection;
        }
    }
    let json = resources.json();
    let length = number_value(json.len() as u64);
    let body = if parts.method == Method::HEAD {
        String::new()
    } else {
        json
    };
    let mut response = Response::new(body.into());
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    response
        .headers_mut()
        .insert(header::CONTENT_LENGTH, length);
    response
}

impl<K: KeyExtractor, R> LayerState<K, R> {
    /// Adds the states of the limits that apply to a request.
    async fn add_states<B: Send + 'static>(
        &self,
        parts: &mut Parts,
        resources: &mut Resources,
    ) -> Result<(), Response<B>>
    where
        R: Respond<B>,
    {
        let (limits, steps) = (&self.limits, self.steps());
        let limiter = match steps.select(parts) {
            Continue(Target::Fixed(at)) => limits.fixed[at].limiter.clone(),
            Continue(Target::Lookup(at)) => match limits.lookups[at].limiter_for(parts) {
                Ok(limiter) => match limiter.await {
                    Ok(Limited::By(limiter)) => limiter,
                    Ok(Limited::Exempt) => return Ok(()),
                    Err(error) => {
                        return unknown(steps, &error, limits.is_shadow_without_key(), parts);
                    }
                },
                Err(error) => return rejected(steps.judge_without_key(&error, parts)),
            },
            Continue(Target::Decider(at)) => {
                return add_joint_states(steps, at, parts, resources).await;
            }
            Continue(Target::Exempt) => return Ok(()),
            Break(verdict) => return rejected(verdict),
        };
        let key = match self.key.extract(parts) {
            Ok(Some(key)) => key,
            Ok(None) => return Ok(()),
            Err(error) => return rejected(steps.judge_without_key(&error, parts)),
        };
        if limits.is_shadow(&key) {
            return Ok(());
        }
        match limiter.peek(key).await {
            Ok(state) => {
                let (degraded, at) = (state.degraded(), state.decided_at());
                resources.add_all(steps, degraded, at, state.states(), parts)
            }
            Err(error) => unknown(steps, &error, false, parts),
        }
    }
}

/// Adds the states of several limits, which decide at a cost of zero.
async fn add_joint_states<B: 'static>(
    steps: Steps<'_, B>,
    at: usize,
    parts: &mut Parts,
    resources: &mut Resources,
) -> Result<(), Response<B>> {
    let limits = steps.limits;
    let check = JointCheck::look(limits.options.enforcement.as_ref());
    let decided = match (limits.deciders[at])(parts, check) {
        Ok(decided) => decided.await,
        Err(error) => return rejected(steps.judge_without_key(&error, parts)),
    };
    let mut joint = match decided {
        Ok(Some(joint)) => joint,
        Ok(None) => return Ok(()),
        Err(error) => return unknown(steps, &error, limits.is_shadow_without_key(), parts),
    };
    if let Some((key, reason @ Reason::Forbidden)) = joint.refused() {
        return rejected(steps.undecided(reason, None, limits.is_shadow(key), parts));
    }
    joint.enforce(|key| !limits.is_shadow(key));
    for decision in joint.enforced() {
        let (degraded, at) = (decision.degraded(), decision.decided_at());
        resources.add_all(steps, degraded, at, decision.states(), parts)?;
    }
    Ok(())
}

/// Answers a request whose state is not known.
fn unknown<B: 'static>(
    steps: Steps<'_, B>,
    error: &Error,
    is_shadow: bool,
    parts: &mut Parts,
) -> Result<(), Response<B>> {
    let is_misconfigured = matches!(error.kind(), ErrorKind::KeyLevels | ErrorKind::CrossSlot);
    rejected(steps.without_decision(error, is_misconfigured, None, is_shadow, parts))
}

/// Returns the response of a rejection. A request that is admitted without a check has no limits.
fn rejected<B>(verdict: StepVerdict<B>) -> Result<(), Response<B>> {
    match verdict {
        StepVerdict::Reject(response) => Err(response),
        StepVerdict::Admit(_) | StepVerdict::Wait(_) => Ok(()),
    }
}

/// Returns a response that names the methods that the service has.
fn without_body<B: From<String>>(status: StatusCode) -> Response<B> {
    let mut response = Response::new(String::new().into());
    *response.status_mut() = status;
    response.headers_mut().insert(header::ALLOW, METHODS);
    response
}

impl<B> Clone for StateService<B> {
    fn clone(&self) -> Self {
        Self {
            layers: Arc::clone(&self.layers),
        }
    }
}

tollgate_core::debug_fields! { StateService<B>: layers = .layers.len(), .. }

/// Resolves to the response of a [`StateService`].
#[must_use = "futures do nothing unless they are awaited"]
pub struct StateFuture<B>(Pin<Box<dyn Future<Output = Response<B>> + Send>>);

impl<B> Future for StateFuture<B> {
    type Output = Result<Response<B>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(cx).map(Ok)
    }
}

tollgate_core::debug_fields! { StateFuture<B>: .. }

/// The policies of one caller, in the order of the layers.
#[derive(Default)]
struct Resources(Vec<Resource>);

struct Resource {
    policy: String,
    limit: u64,
    remaining: u64,
    /// Seconds since the Unix epoch, and below.
    reset: u64,
    start: Option<u64>,
}

impl Resources {
    /// Adds the policies of a limiter whose store has answered.
    fn add_all<'a, B: 'static>(
        &mut self,
        steps: Steps<'_, B>,
        degraded: Option<ErrorKind>,
        decided_at: Option<SystemTime>,
        states: impl Iterator<Item = PolicyState<'a>>,
        parts: &mut Parts,
    ) -> Result<(), Response<B>> {
        if let Some(kind) = degraded {
            let error = Error::new(kind, "the store did not answer");
            return unknown(steps, &error, false, parts);
        }
        for state in states.filter(|state| !state.policy().is_hidden()) {
            self.add(&state, decided_at);
        }
        Ok(())
    }

    /// Adds a policy, or replaces one of the same name of which more is left.
    fn add(&mut self, state: &PolicyState<'_>, decided_at: Option<SystemTime>) {
        let (policy, remaining) = (state.policy(), state.remaining());
        // By the clock of the reset.
        let start = state.period().zip(decided_at).map(|(period, at)| {
            let passed = at.duration_since(period.start).unwrap_or_default();
            wait_began(decided_at).saturating_sub(passed).as_secs()
        });
        let resource = Resource {
            policy: policy.name().to_owned(),
            limit: policy.quota().burst(),
            remaining,
            reset: ResetFormat::Epoch.value(decided_at, state.next_unit_after()),
            start,
        };
        match self
            .0
            .iter_mut()
            .find(|other| other.policy == resource.policy)
        {
            Some(other) if other.remaining > remaining => *other = resource,
            Some(_) => {}
            None => self.0.push(resource),
        }
    }

    fn json(&self) -> String {
        let mut json = r#"{"resources":{"#.to_owned();
        for (at, resource) in self.0.iter().enumerate() {
            // The name of a policy needs no escapes, and writing to memory cannot fail.
            let _ = write!(
                json,
                r#"{}"{}":"#,
                if at == 0 { "" } else { "," },
                resource.policy
            );
            resource.write(&mut json);
        }
        json.push('}');
        if let Some(rate) = self.0.iter().min_by(|a, b| a.part().total_cmp(&b.part())) {
            json.push_str(r#","rate":"#);
            rate.write(&mut json);
        }
        json.push('}');
        json
    }
}

impl Resource {
    /// Returns the part of the limit that is left.
    fn part(&self) -> f64 {
        self.remaining as f64 / self.limit.max(1) as f64
    }

    fn write(&self, json: &mut String) {
        let Self {
            limit,
            remaining,
            reset,
            start,
            ..
        } = *self;
        let used = limit.saturating_sub(remaining);
        let _ = write!(
            json,
            r#"{{"limit":{limit},"used":{used},"remaining":{remaining},"reset":{reset}"#
        );
        if let Some(start) = start {
            let _ = write!(json, r#","start":{start}"#);
        }
        json.push('}');
    }
}
