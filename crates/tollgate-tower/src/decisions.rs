use std::sync::Arc;

use http::Extensions;
use tollgate::{Decision, PolicyState};

/// What the layers around a service decided on a request, the outermost first.
///
/// Layers that are told to [expose](crate::RateLimitBuilder::expose_decisions) put it into the
/// extensions of the request, for the service, and of the response, for layers outside: a trace,
/// an access log. With the feature `axum` it is an extractor.
///
/// ```
/// use axum::{Router, routing::get};
/// use tollgate::{Limiter, MemoryStore, Policy, Quota};
/// use tollgate_tower::{Decisions, RateLimitLayer, key::Global};
///
/// let limiter = Limiter::new(MemoryStore::new(), Policy::fixed_window("daily", Quota::per_day(1000)));
/// let layer = RateLimitLayer::builder(limiter, Global).expose_decisions(true).build();
///
/// async fn report(decisions: Decisions) -> String {
///     match decisions.state("daily") {
///         Some(state) => format!("{} more today", state.remaining()),
///         None => "as many as you like".to_owned(),
///     }
/// }
///
/// let router: Router = Router::new().route("/", get(report).layer(layer));
/// # let _ = router;
/// ```
#[derive(Clone, Debug)]
pub struct Decisions(Arc<[Decision]>);

impl Decisions {
    /// The decisions, the outermost layer's first.
    #[must_use]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Decision> + DoubleEndedIterator {
        self.0.iter()
    }

    /// The state of the policy of this name.
    #[must_use]
    pub fn state(&self, name: &str) -> Option<PolicyState<'_>> {
        self.iter().find_map(|decision| decision.state(name))
    }

    /// Adds a decision to those of the layers outside.
    pub(crate) fn add(decision: &Decision, extensions: &mut Extensions) -> Self {
        let decisions = Self(match extensions.get::<Self>() {
            Some(Self(outside)) => outside.iter().chain([decision]).cloned().collect(),
            None => [decision.clone()].into(),
        });
        extensions.insert(decisions.clone());
        decisions
    }

    /// Tells layers outside, unless a layer inside, which knows of these too, has done so.
    pub(crate) fn tell(self, extensions: &mut Extensions) {
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

        async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, Self::Rejection> {
            Ok(parts.extensions.get().cloned())
        }
    }
}
