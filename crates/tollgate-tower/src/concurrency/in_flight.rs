use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use http::{Response, request::Parts};
use http_body::Body;
use tollgate::{Acquired, Error};

use super::held::{HeldPermit, PermitBody, Watch};
use crate::headers::HeaderUpdate;

pub(super) type AcquireFuture = Pin<Box<dyn Future<Output = Result<Acquired, Error>> + Send>>;

/// Holds what belongs to a request while the service works on it.
pub(super) struct InFlight {
    /// `None` for a request that is exempt.
    pub(super) permit: Option<HeldPermit>,
    pub(super) watch: Option<Watch>,
    pub(super) headers: HeaderUpdate,
    /// The head of a request whose permit is watched.
    pub(super) request: Option<Box<Parts>>,
}

impl InFlight {
    /// Stands for a request that is exempt.
    pub(super) const EXEMPT: Self = Self { permit: None, watch: None, headers: HeaderUpdate::EMPTY, request: None };

    /// Adds the headers to a response, and gives the permit to its body.
    pub(super) fn complete<B: Body>(&mut self, mut response: Response<B>) -> Response<PermitBody<B>> {
        self.headers.add_to(response.headers_mut());
        match self.permit.take() {
            Some(permit) => PermitBody::guard(response, permit, self.watch.take()),
            None => response.map(PermitBody::unguarded),
        }
    }

    /// Gives the permit of a request back whose service returned an error.
    pub(super) fn fail(&mut self) {
        (self.permit, self.watch) = (None, None);
    }

    /// Returns the head of the request once its permit is lost.
    pub(super) fn poll_lost(&mut self, cx: &mut Context<'_>) -> Poll<Box<Parts>> {
        if let Some(watch) = &mut self.watch
            && watch.poll_lost(cx).is_ready()
        {
            self.watch = None;
            if let Some(request) = self.request.take() {
                return Poll::Ready(request);
            }
        }
        Poll::Pending
    }
}
