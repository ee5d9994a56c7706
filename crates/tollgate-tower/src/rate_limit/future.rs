//! Names the future of a [`RateLimit`](crate::RateLimit) service.

use std::{
    fmt,
    future::Future,
    mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use http::{Request, Response, request::Parts};
use pin_project_lite::pin_project;
use tollgate::{CheckFuture, Cost, Costs, Key, LimiterFuture, Reservation, StoreFuture};
use tower_service::Service;

use crate::{
    charge::{Charge, Outcome},
    decisions::Decisions,
    drain::discard,
    headers::HeaderUpdate,
    key::KeyExtractor,
    metrics::LabelIndex,
    rate_limit::{joint::JointFuture, limit::LimitRef, reservation::MeteredReservation, shared::Shared},
    rejection::Respond,
};

// Written by hand, because a named future needs no box: a decision in the process allocates nothing here.
pin_project! {
    /// Resolves to the response of the inner service, or to a rejection.
    ///
    /// A store in the process decides before this future exists. A remote store is checked, and limits are fetched, while
    /// the future is polled. Dropping the future cancels the request. Its charge is not refunded, unless
    /// the layer sets a [final cost](crate::RateLimitBuilder::final_cost).
    #[must_use = "futures do nothing unless polled"]
    pub struct ResponseFuture<S, K, R, B>
    where
        S: Service<Request<B>>,
    {
        #[pin]
        state: State<S, K, R, B, S::Future, S::Response>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<S, K, R, B, F, A> {
        Rejected { response: Option<A> },
        Checking { pending: Option<Box<PendingRequest<S, B>>>, shared: Arc<Shared<K, R>> },
        Calling { #[pin] future: F, admission: Admission },
    }
}

/// Stores a request until the store answers. It is boxed, so that the future stays small when nothing waits.
pub(crate) struct PendingRequest<S, B> {
    pub(crate) step: Step,
    /// The service that was ready when the request arrived.
    pub(crate) ready: S,
    /// The head of the request. Head and body stay apart until the service is called, because joining them copies both.
    pub(crate) parts: Parts,
    pub(crate) body: B,
}

impl<S: Service<Request<B>>, K, R, B> ResponseFuture<S, K, R, B> {
    // Inlined by force: the future is built where the caller needs it, instead of being copied there.
    #[inline(always)]
    pub(crate) fn calling(service: &mut S, request: Request<B>, admission: Admission) -> Self {
        Self { state: State::calling(service, request, admission) }
    }

    pub(crate) fn rejected(response: S::Response) -> Self {
        Self { state: State::Rejected { response: Some(response) } }
    }

    pub(crate) fn checking(pending: PendingRequest<S, B>, shared: Arc<Shared<K, R>>) -> Self {
        Self { state: State::Checking { pending: Some(Box::new(pending)), shared } }
    }
}

impl<S: Service<Request<B>>, K, R, B> State<S, K, R, B, S::Future, S::Response> {
    // Inlined by force, as `ResponseFuture::calling` is.
    #[inline(always)]
    fn calling(service: &mut S, request: Request<B>, mut admission: Admission) -> Self {
        // The future is made where it is stored: one variable for both cases would be one more copy.
        if let Some(charge) = admission.charge() {
            return Self::Calling { future: charge.run(|| service.call(request)), admission };
        }
        Self::Calling { future: service.call(request), admission }
    }
}

impl<S, K, R, ReqBody, ResBody> Future for ResponseFuture<S, K, R, ReqBody>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>>,
    K: KeyExtractor,
    R: Respond<ResBody>,
    ReqBody: 'static,
{
    type Output = Result<S::Response, S::Error>;

    /// # Panics
    ///
    /// Panics when it is polled after it returned the response.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.poll_with(cx, |mut response, admission| {
            if let Some(admission) = admission {
                admission.complete(&mut response);
            }
            response
        })
    }
}

impl<S, K, R, ReqBody, ResBody> ResponseFuture<S, K, R, ReqBody>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>>,
    K: KeyExtractor,
    R: Respond<ResBody>,
    ReqBody: 'static,
{
    /// Polls the service, and passes its response to `complete`, with what is left to do. A rejection has nothing left.
    // Inlined by force, as `ResponseFuture::calling` is.
    #[inline(always)]
    pub(crate) fn poll_with<T>(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        complete: impl FnOnce(Response<ResBody>, Option<&mut Admission>) -> T,
    ) -> Poll<Result<T, S::Error>> {
        let mut state = self.project().state;
        loop {
            let next = match state.as_mut().project() {
                StateProj::Rejected { response } => {
                    return Poll::Ready(Ok(complete(response.take().expect("the response is taken once"), None)));
                }
                StateProj::Calling { future, admission } => {
                    let result = ready!(match admission.charge() {
                        Some(charge) => charge.run(|| future.poll(cx)),
                        None => future.poll(cx),
                    });
                    return Poll::Ready(match result {
                        Ok(response) => Ok(complete(response, Some(admission))),
                        Err(error) => {
                            admission.fail();
                            Err(error)
                        }
                    });
                }
                StateProj::Checking { pending, shared } => {
                    let waiting = pending.as_mut().expect("the request is taken once");
                    let verdict = match &mut waiting.step {
                        Step::Check(check, context) => {
                            let result = ready!(Pin::new(check).poll(cx));
                            shared.judge(result.as_ref(), context, &mut waiting.parts)
                        }
                        Step::Reserve(reserving) => {
                            let (reservation, context) = &mut **reserving;
                            let result = ready!(Pin::new(reservation).poll(cx));
                            shared.judge_reservation(result, context, &mut waiting.parts)
                        }
                        Step::Decide(decision) => {
                            let decision = ready!(Pin::new(decision).poll(cx));
                            shared.judge_joint(decision, &mut waiting.parts)
                        }
                        Step::LookUp(limiter) => {
                            let limiter = ready!(Pin::new(limiter).poll(cx));
                            shared.check_looked_up(limiter, &mut waiting.parts)
                        }
                    };
                    match verdict {
                        Verdict::Admit(admission) => {
                            let PendingRequest { mut ready, parts, body, .. } =
                                *pending.take().expect("the request is taken once");
                            State::calling(&mut ready, Request::from_parts(parts, body), admission)
                        }
                        Verdict::Reject(response) => {
                            let PendingRequest { parts, body, .. } =
                                *pending.take().expect("the request is taken once");
                            discard(&parts, body);
                            State::Rejected { response: Some(response) }
                        }
                        Verdict::Wait(step) => {
                            waiting.step = step;
                            continue;
                        }
                    }
                }
            };
            state.set(next);
        }
    }
}

impl<S: Service<Request<B>>, K, R, B> fmt::Debug for ResponseFuture<S, K, R, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.state {
            State::Rejected { .. } => "ResponseFuture::Rejected",
            State::Checking { .. } => "ResponseFuture::Checking",
            State::Calling { .. } => "ResponseFuture::Calling",
        })
    }
}

/// Says what happens to a request next.
pub(crate) enum Verdict<B> {
    /// The service is called.
    Admit(Admission),
    /// The client receives this response, and the service is not called.
    Reject(Response<B>),
    /// The request waits.
    Wait(Step),
}

/// Says what a request waits for.
pub(crate) enum Step {
    /// Its limiter is looked up.
    LookUp(LimiterFuture),
    /// The store has not answered yet.
    Check(CheckFuture, RequestContext),
    /// The store has not answered to a reservation yet. Boxed, because few layers reserve.
    Reserve(Box<(StoreFuture<Reservation>, RequestContext)>),
    /// A decider has not answered yet.
    Decide(JointFuture),
}

/// Stores what is known of a request until the store answers.
pub(crate) struct RequestContext {
    /// The limiter that is checked.
    pub(crate) limit: LimitRef,
    /// The key of the request, where it is needed after the check.
    pub(crate) key: Option<Box<Key>>,
    pub(crate) cost: Cost,
    /// The cost for each policy, where it is needed after the check.
    pub(crate) costs: Option<Box<Costs>>,
    /// Tells that a reservation charges the request, so that no final cost does.
    pub(crate) is_reserved: bool,
    pub(crate) labels: LabelIndex,
}

/// Stores what is left to do for an admitted request when the service has answered.
pub(crate) struct Admission {
    headers: HeaderUpdate,
    /// Boxed, because few layers use it, and the response future that carries it is moved several times.
    extras: Option<Box<Extras>>,
}

/// Stores what only layers with some options do.
#[derive(Default)]
pub(crate) struct Extras {
    pub(crate) charge: Option<Charge>,
    pub(crate) decisions: Option<Decisions>,
    /// The headers of a request that several limits decided.
    pub(crate) headers: Vec<HeaderUpdate>,
    /// Settled when it is dropped.
    pub(crate) reservation: Option<MeteredReservation>,
}

impl Admission {
    /// Admits a request without a decision.
    pub(crate) const EXEMPT: Self = Self { headers: HeaderUpdate::EMPTY, extras: None };

    #[inline(always)]
    pub(crate) fn new(headers: HeaderUpdate, extras: Option<Box<Extras>>) -> Self {
        Self { headers, extras }
    }

    /// Admits a request that several limits decided.
    pub(crate) fn with_extras(extras: Box<Extras>) -> Self {
        Self { headers: HeaderUpdate::EMPTY, extras: Some(extras) }
    }

    /// Returns the charge, which has to know while the service runs.
    #[inline]
    pub(crate) fn charge(&mut self) -> Option<&mut Charge> {
        self.extras.as_mut()?.charge.as_mut()
    }

    /// Holds a reservation until the response body does, or until the request ends without one.
    pub(crate) fn hold(&mut self, reservation: MeteredReservation) {
        self.extras.get_or_insert_default().reservation = Some(reservation);
    }

    /// Takes the reservation, for the response body.
    pub(crate) fn take_reservation(&mut self) -> Option<MeteredReservation> {
        self.extras.as_mut()?.reservation.take()
    }

    /// Settles the charge or the reservation of a request whose service returned an error.
    pub(crate) fn fail(&mut self) {
        drop(self.take_reservation());
        if let Some(charge) = self.charge() {
            charge.settle(Outcome::Failed);
        }
    }

    /// Completes the response of the service.
    // Inlined by force: the headers move once, from the future into the response.
    #[inline(always)]
    pub(crate) fn complete<B>(&mut self, response: &mut Response<B>) {
        if let Some(extras) = self.extras.take() {
            extras.complete(response);
        }
        self.headers.add_to(response.headers_mut());
    }
}

impl Extras {
    fn complete<B>(mut self: Box<Self>, response: &mut Response<B>) {
        if let Some(mut charge) = self.charge.take() {
            // The closure of the user reads a head without a body. It is lent to the closure and put back.
            let (mut head, ()) = Response::new(()).into_parts();
            (head.status, head.version) = (response.status(), response.version());
            mem::swap(&mut head.headers, response.headers_mut());
            mem::swap(&mut head.extensions, response.extensions_mut());
            charge.settle(Outcome::Response(&head));
            mem::swap(&mut head.headers, response.headers_mut());
            mem::swap(&mut head.extensions, response.extensions_mut());
        }
        if let Some(decisions) = self.decisions.take() {
            decisions.insert_into(response.extensions_mut());
        }
        for update in &mut self.headers {
            update.add_to(response.headers_mut());
        }
    }
}
