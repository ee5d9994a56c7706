//! The list of decisions that layers leave for the handler and for outer layers.
//! Who is let through is decided before; a caller asks from outside by `rate_limit/state.rs`.

use std::sync::Arc;

use http::Extensions;
use tollgate_core::{Decision, limiter::PolicyState};

/// Lists the decisions of all layers around a service, the outermost first.
///
/// A layer with [`expose_decisions`](crate::RateLimitBuilder::expose_decisions) inserts the list
/// into the extensions of the request, for the service, and into those of the response, for outer
/// layers such as an access log. With the feature `axum` it is also an extractor. Without a list,
/// for example when the request is exempt, the extractor answers 500, and `Option<Decisions>` is
/// `None`.
///
/// ```
/// use axum::{Router, body::{Body, to_bytes}, routing::get};
/// use http::Request;
/// use tollgate::{Limiter, MemoryStore, Policy, Quota};
/// use tollgate_tower::{Decisions, RateLimitLayer, key::Global};
/// use tower::ServiceExt;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let limiter = Limiter::new(MemoryStore::new(), Policy::fixed_window("daily", Quota::per_day(1000)));
/// let layer = RateLimitLayer::builder(limiter, Global).expose_decisions(true).build();
///
/// async fn report(decisions: Decisions) -> String {
///     match decisions.state("daily") {
///         Some(state) => format!("{} more today", state.remaining()),
///         None => "no daily limit".to_owned(),
///     }
/// }
///
/// let router: Router = Router::new().route("/", get(report).layer(layer));
/// let response = router.oneshot(Request::get("/").body(Body::empty()).unwrap()).await.unwrap();
/// assert_eq!(to_bytes(response.into_body(), 100).await.unwrap(), "999 more today");
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Decisions(Arc<[Decision]>);

impl Decisions {
    /// Returns the decisions. The decision of the outermost layer is the first.
    #[must_use]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Decision> + DoubleEndedIterator {
        self.0.iter()
    }

    /// Returns the state of the policy with this name, if a layer has checked it.
    #[must_use]
    pub fn state(&self, name: &str) -> Option<PolicyState<'_>> {
        self.iter().find_map(|decision| decision.state(name))
    }

    /// Appends a decision to the list of the outer layers.
    pub(crate) fn append(decision: &Decision, extensions: &mut Extensions) -> Self {
        let decisions = Self(match extensions.get::<Self>() {
            Some(Self(outer)) => outer.iter().chain([decision]).cloned().collect(),
            None => [decision.clone()].into(),
        });
        extensions.insert(decisions.clone());
        decisions
    }

    /// Inserts the decisions into the extensions of a response, unless an inner layer has done so:
    /// its list contains these decisions too.
    pub(crate) fn insert_into(self, extensions: &mut Extensions) {
        if extensions.get::<Self>().is_none() {
            extensions.insert(self);
        }
    }
}

#[cfg(feature = "axum")]
mod extract {
    use axum::extract::{FromRequestParts, OptionalFromRequestParts};
    use http::{StatusCode, request::Parts};

    use super::Decisions;

    impl<S: Sync> FromRequestParts<S> for Decisions {
        type Rejection = (StatusCode, &'static str);

        async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
            parts.extensions.get().cloned().ok_or_else(|| {
                tracing::error!("no rate limit around the handler exposes its decisions, or the request is exempt");
                (StatusCode::INTERNAL_SERVER_ERROR, "no decisions of a rate limit")
            })
        }
    }

    impl<S: Sync> OptionalFromRequestParts<S> for Decisions {
        type Rejection = std::convert::Infallible;

        async fn from_request_parts(
            parts: &mut Parts,
            _: &S,
        ) -> Result<Option<Self>, Self::Rejection> {
            Ok(parts.extensions.get().cloned())
        }
    }
}
