//! A permit while a request has it: it goes from the request to the response body, and may be lost
//! on the way.
//! How permits are taken is in `shared.rs`, how they are counted in the core.

use std::{
    convert::Infallible,
    error::Error,
    fmt,
    future::{Future, pending},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use http::Response;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tollgate_core::permits::{ConcurrencyLimiter, Lost, OnLoss, Permit};

use crate::body::{BodyEnd, BodyGuard, GuardedBody, guard_response};

/// The permit of a request. Dropping it gives the permit back, once its [`Watch`] is dropped
/// too.
pub(super) enum HeldPermit {
    Own { _permit: Permit },
    Watched { _permit: Arc<Permit> },
}

/// Waits for the loss of a permit.
pub(super) struct Watch(Pin<Box<dyn Future<Output = Lost> + Send>>);

/// Keeps a permit. It is watched if its loss cancels the request.
pub(super) fn hold(limiter: &ConcurrencyLimiter, permit: Permit) -> (HeldPermit, Option<Watch>) {
    if limiter.policy().loss() != OnLoss::Cancel {
        return (HeldPermit::Own { _permit: permit }, None);
    }
    let permit = Arc::new(permit);
    let watched = Arc::clone(&permit);
    let lost = async move {
        match watched.run(pending::<Infallible>()).await {
            Ok(never) => match never {},
            Err(lost) => lost,
        }
    };
    (
        HeldPermit::Watched { _permit: permit },
        Some(Watch(Box::pin(lost))),
    )
}

impl Watch {
    /// Returns the loss once the permit is lost. It must not be polled again then.
    pub(super) fn poll_lost(&mut self, cx: &mut Context<'_>) -> Poll<Lost> {
        self.0.as_mut().poll(cx)
    }
}

impl BodyGuard for HeldPermit {
    fn on_end(&mut self, _: BodyEnd) {}
}

pin_project! {
    /// A body that holds a permit until it ends, fails or is dropped. Frames pass unchanged.
    ///
    /// If the permit is lost and the limit has the option
    /// [`OnLoss::Cancel`](tollgate_core::permits::OnLoss::Cancel), the inner body is dropped, and this
    /// body fails with [`Lost`](tollgate_core::permits::Lost). Passing a frame allocates nothing.
    pub struct PermitBody<B> {
        // `None` once the permit is lost.
        #[pin]
        body: Option<GuardedBody<B, HeldPermit>>,
        watch: Option<Watch>,
    }
}

impl<B> PermitBody<B> {
    /// Wraps a body without a permit.
    pub(super) fn unguarded(body: B) -> Self {
        Self {
            body: Some(GuardedBody::unguarded(body)),
            watch: None,
        }
    }
}

impl<B: Body> PermitBody<B> {
    /// Gives a permit to the body of a response.
    pub(super) fn guard(
        response: Response<B>,
        permit: HeldPermit,
        watch: Option<Watch>,
    ) -> Response<Self> {
        guard_response(response, permit).map(|body| {
            // An empty body has given the permit back already.
            let watch = watch.filter(|_| body.guard().is_some());
            Self {
                body: Some(body),
                watch,
            }
        })
    }
}

impl<B> Body for PermitBody<B>
where
    B: Body,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    type Data = B::Data;
    type Error = Box<dyn Error + Send + Sync>;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, Self::Error>>> {
        let mut this = self.project();
        if let Some(watch) = this.watch
            && let Poll::Ready(lost) = watch.poll_lost(cx)
        {
            *this.watch = None;
            this.body.set(None);
            return Poll::Ready(Some(Err(lost.into())));
        }
        let Some(mut body) = this.body.as_mut().as_pin_mut() else {
            return Poll::Ready(None);
        };
        let frame = ready!(body.as_mut().poll_frame(cx));
        if body.guard().is_none() {
            *this.watch = None;
        }
        Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(GuardedBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body
            .as_ref()
            .map_or_else(|| SizeHint::with_exact(0), GuardedBody::size_hint)
    }
}

impl<B: From<String>> From<String> for PermitBody<B> {
    /// Creates a body without a permit, for a responder that writes text.
    fn from(text: String) -> Self {
        Self::unguarded(text.into())
    }
}

impl<B: Default> Default for PermitBody<B> {
    /// Creates a body without a permit.
    fn default() -> Self {
        Self::unguarded(B::default())
    }
}

impl<B: fmt::Debug> fmt::Debug for PermitBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PermitBody")
            .field("body", &self.body)
            .finish_non_exhaustive()
    }
}
