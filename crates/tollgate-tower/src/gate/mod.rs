//! The gate before a service: for a middleware of your own that admits or rejects requests.
//!
//! All layers of this crate stand on it, and so do `tollgate-overload` and `tollgate-outgoing`. A
//! [`Gate`] decides on the head of a request, and [`Gated`] does the rest:
//!
//! - It asks before the service is called, and calls the service that was ready.
//! - It keeps a request that waits, with its body, and drops both when the caller gives up.
//! - It reads the [rest of a rejected body](crate::drain), so that the client receives the response.
//! - It gives what was admitted back exactly once: when the response is there, when the service
//!   fails or panics, or when the request is dropped.
//!
//! [`GateOptions`] has what users of a layer expect: [exempt](GateOptions::exempt) requests, a
//! [responder](crate::Respond) of their own, spread waits, and metrics.
//!
//! A limit by key needs none of this: use a [`RateLimitLayer`](crate::RateLimitLayer) with a
//! [`LimiterSource`](crate::LimiterSource).
//!
//! ```
//! use std::{convert::Infallible, sync::Arc, task::{Context, Poll}, time::Duration};
//!
//! use http::{Request, Response, request::Parts};
//! use tokio::sync::{OwnedSemaphorePermit, Semaphore};
//! use tollgate_tower::{Respond, gate::{Gate, GateOptions, Gated, Verdict}, rejection::{Overload, Problem, Reason}};
//! use tower::{Layer, Service, ServiceExt, service_fn};
//!
//! /// Lets some requests through at a time, and rejects all others.
//! #[derive(Clone)]
//! struct AtOnce {
//!     most: u32,
//!     places: Arc<Semaphore>,
//!     options: Arc<GateOptions>,
//! }
//!
//! impl AtOnce {
//!     fn new(most: u32, options: GateOptions) -> Self {
//!         Self { most, places: Arc::new(Semaphore::new(most as usize)), options: Arc::new(options) }
//!     }
//! }
//!
//! impl<S> Layer<S> for AtOnce {
//!     type Service = Gated<S, Self>;
//!
//!     fn layer(&self, inner: S) -> Self::Service {
//!         Gated::new(inner, self.clone())
//!     }
//! }
//!
//! impl<S, B, T> Gate<S, B> for AtOnce
//! where
//!     S: Service<Request<B>, Response = Response<T>>,
//!     Problem: Respond<T>,
//! {
//!     // The place is free again when the response is there, or the request is gone.
//!     type Pass = Option<OwnedSemaphorePermit>;
//!     type Wait = Infallible;
//!     type Response = S::Response;
//!
//!     fn admit(&self, parts: &mut Parts) -> Verdict<Self::Pass, Infallible, S::Response> {
//!         if self.options.is_exempt(parts) {
//!             return Verdict::Admit(None);
//!         }
//!         match Arc::clone(&self.places).try_acquire_owned() {
//!             Ok(place) => Verdict::Admit(Some(place)),
//!             Err(_) => {
//!                 let overload = Overload::new(self.most, self.most, Duration::from_secs(1));
//!                 Verdict::Reject(self.options.reject(Reason::Overloaded(&overload), parts))
//!             }
//!         }
//!     }
//!
//!     fn poll_wait(
//!         &self,
//!         never: &mut Infallible,
//!         _: &mut Parts,
//!         _: &mut Context<'_>,
//!     ) -> Poll<Verdict<Self::Pass, Infallible, S::Response>> {
//!         match *never {}
//!     }
//!
//!     fn hold(_: &mut S, never: &Infallible) -> S {
//!         match *never {}
//!     }
//!
//!     fn complete(_: Option<&mut Self::Pass>, response: S::Response) -> S::Response {
//!         response
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let options = GateOptions::new().exempt(|parts| parts.uri.path() == "/healthz");
//! let service = AtOnce::new(1, options).layer(service_fn(|request: Request<()>| async move {
//!     if request.uri().path() == "/slow" {
//!         std::future::pending::<()>().await;
//!     }
//!     Ok::<_, Infallible>(Response::new("done".to_owned()))
//! }));
//! let get = |path: &str| service.clone().oneshot(Request::get(path).body(()).unwrap());
//!
//! let slow = tokio::spawn(get("/slow"));
//! tokio::task::yield_now().await;
//! let rejected = get("/").await.unwrap();
//! assert_eq!(rejected.status(), 503);
//! assert_eq!(rejected.headers()["retry-after"], "1");
//! assert_eq!(get("/healthz").await.unwrap().status(), 200);
//!
//! // A request that is dropped gives its place back.
//! slow.abort();
//! assert!(slow.await.unwrap_err().is_cancelled());
//! assert_eq!(get("/").await.unwrap().status(), 200);
//! # }
//! ```

// What a kind of layer decides, and by what, is in the folder or the crate of that layer.

mod background;
mod gated;
mod layers;
mod options;

use std::{
    mem,
    task::{Context, Poll},
};

use http::{Request, request::Parts};
use tower_service::Service;

pub use crate::metrics::DecisionCounters;
pub use background::in_background;
pub use gated::{Gated, ResponseFuture};
pub use layers::{IsLayer, Unbuilt};
pub(crate) use layers::{is_layer, is_no_layer};
pub(crate) use options::FromParts;
pub use options::GateOptions;

/// Decides on the requests of a service `S`, whose bodies are `B`.
///
/// A layer implements it, and returns a [`Gated`] service with a clone of itself: a handle to what
/// its clones share. The [module](self) has an example. The methods are called in this order:
///
/// 1. [`admit`](Self::admit), once for each request.
/// 2. After [`Verdict::Wait`]: [`hold`](Self::hold), and then [`poll_wait`](Self::poll_wait) until
///    it returns another verdict.
/// 3. While the service works: [`set_running`](Self::set_running) around each of its steps, and
///    [`poll_revoked`](Self::poll_revoked) before it.
/// 4. [`complete`](Self::complete) or [`fail`](Self::fail). A request that is dropped, or whose
///    service panics, drops its pass instead.
pub trait Gate<S: Service<Request<B>>, B>: Clone {
    /// Stores what belongs to an admitted request until its response.
    type Pass;

    /// Stores what a request waits for.
    type Wait;

    /// The completed response.
    type Response;

    /// Decides on the head of a request.
    fn admit(&self, parts: &mut Parts) -> Verdict<Self::Pass, Self::Wait, S::Response>;

    /// Waits, and decides then. It is not polled again after another verdict than
    /// [`Verdict::Wait`], which replaces `wait`.
    fn poll_wait(
        &self,
        wait: &mut Self::Wait,
        parts: &mut Parts,
        cx: &mut Context<'_>,
    ) -> Poll<Verdict<Self::Pass, Self::Wait, S::Response>>;

    /// Takes the service that is ready, for a request that waits: see [`take_ready`]. A gate whose
    /// requests never wait need not clone the service.
    fn hold(service: &mut S, wait: &Self::Wait) -> S;

    /// Notes whether the service runs now. When it panics, the pass is dropped after `true`, and so
    /// knows of the panic wherever it is caught.
    fn set_running(_pass: &mut Self::Pass, _is_running: bool) {}

    /// Returns a rejection once the request must not go on. The service is dropped then.
    fn poll_revoked(_pass: &mut Self::Pass, _cx: &mut Context<'_>) -> Poll<S::Response> {
        Poll::Pending
    }

    /// Completes the response of the service, or a rejection, which has no pass.
    fn complete(pass: Option<&mut Self::Pass>, response: S::Response) -> Self::Response;

    /// Ends a request whose service returned an error. By default the pass is dropped alone.
    fn fail(_pass: &mut Self::Pass) {}
}

/// Says what happens to a request next: a gate admits it with a pass `P`, rejects it with a response
/// `A`, or keeps it waiting for `W`.
#[derive(Debug)]
pub enum Verdict<P, W, A> {
    /// The service is called.
    Admit(P),
    /// The client receives this response, and the service is not called.
    Reject(A),
    /// The request waits.
    Wait(W),
}

/// Takes the service that is ready. Its clone has to become ready before the next call.
///
/// [`Gate::hold`] of a gate whose requests wait is this function.
pub fn take_ready<S: Clone>(service: &mut S) -> S {
    let clone = service.clone();
    mem::replace(service, clone)
}
