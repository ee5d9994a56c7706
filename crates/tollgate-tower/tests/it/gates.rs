//! Gates of users' own, on the skeleton that all layers share.

use std::{
    panic::AssertUnwindSafe,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, ready},
    time::Duration,
};

use futures_util::FutureExt;
use http::{Request, Response, StatusCode, request::Parts};
use tokio::sync::oneshot;
use tollgate_tower::{
    Respond,
    gate::{Gate, GateOptions, Gated, Verdict, take_ready},
    rejection::{Overload, Problem, Reason},
};
use tower::{Layer, Service, ServiceExt, service_fn};

use crate::support::{header, hello, request, request_with};

/// Opens for requests when a test says so.
#[derive(Clone)]
pub(crate) struct Door {
    options: Arc<GateOptions>,
    /// Those who wait. `None` when the door is locked, and all are rejected.
    bells: Option<Arc<Mutex<Vec<oneshot::Sender<bool>>>>>,
    /// What became of each request.
    ends: Arc<Mutex<Vec<&'static str>>>,
}

impl Door {
    /// Rejects all requests, but those with the header `exempt`.
    pub(crate) fn closed() -> Self {
        let options = GateOptions::new().exempt(|parts| parts.headers.contains_key("exempt"));
        Self {
            options: Arc::new(options),
            bells: None,
            ends: Arc::default(),
        }
    }

    fn guarded() -> Self {
        Self {
            bells: Some(Arc::default()),
            ..Self::closed()
        }
    }

    /// Answers the request that came last.
    fn answer(&self, opens: bool) {
        let bell = self.bells.as_ref().unwrap().lock().unwrap().pop();
        let _ = bell.expect("a request waits").send(opens);
    }

    fn reject<B>(&self, parts: &Parts) -> Response<B>
    where
        Problem: Respond<B>,
    {
        let overload = Overload::new(1, 1, Duration::from_secs(9));
        self.options.reject(Reason::Overloaded(&overload), parts)
    }

    fn ends(&self) -> Vec<&'static str> {
        std::mem::take(&mut *self.ends.lock().unwrap())
    }
}

impl<S> Layer<S> for Door {
    type Service = Gated<S, Self>;

    fn layer(&self, inner: S) -> Self::Service {
        Gated::new(inner, self.clone())
    }
}

/// Notes how its request ended.
pub(crate) struct Guest {
    ends: Arc<Mutex<Vec<&'static str>>>,
    end: &'static str,
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.ends.lock().unwrap().push(self.end);
    }
}

impl<S, B, T> Gate<S, B> for Door
where
    S: Service<Request<B>, Response = Response<T>> + Clone,
    Problem: Respond<T>,
{
    type Pass = Guest;
    type Wait = Pin<Box<oneshot::Receiver<bool>>>;
    type Response = S::Response;

    fn admit(&self, parts: &mut Parts) -> Verdict<Guest, Self::Wait, S::Response> {
        if self.options.is_exempt(parts) {
            return Verdict::Admit(Guest {
                ends: Arc::clone(&self.ends),
                end: "dropped",
            });
        }
        let Some(bells) = &self.bells else {
            return Verdict::Reject(self.reject(parts));
        };
        let (bell, answer) = oneshot::channel();
        bells.lock().unwrap().push(bell);
        Verdict::Wait(Box::pin(answer))
    }

    fn poll_wait(
        &self,
        answer: &mut Self::Wait,
        parts: &mut Parts,
        cx: &mut Context<'_>,
    ) -> Poll<Verdict<Guest, Self::Wait, S::Response>> {
        Poll::Ready(match ready!(answer.as_mut().poll(cx)) {
            Ok(true) => Verdict::Admit(Guest {
                ends: Arc::clone(&self.ends),
                end: "dropped",
            }),
            _ => Verdict::Reject(self.reject(parts)),
        })
    }

    fn hold(service: &mut S, _: &Self::Wait) -> S {
        take_ready(service)
    }

    fn set_running(guest: &mut Guest, is_running: bool) {
        guest.end = if is_running { "panicked" } else { "dropped" };
    }

    fn complete(guest: Option<&mut Guest>, response: S::Response) -> S::Response {
        if let Some(guest) = guest {
            guest.end = "complete";
        }
        response
    }

    fn fail(guest: &mut Guest) {
        guest.end = "failed";
    }
}

#[test]
fn a_client_that_need_not_wait_is_asked_to_wait_for_a_second() {
    let overload = Overload::new(1, 1, Duration::ZERO);
    let (parts, ()) = request().into_parts();
    let response: Response<String> =
        GateOptions::new().reject(Reason::Overloaded(&overload), &parts);
    assert_eq!(header(&response, "retry-after"), Some("1"));
}

#[tokio::test]
async fn a_gate_of_ones_own_rejects_as_the_layers_do_and_lets_the_exempt_pass() {
    let door = Door::closed();
    let service = door.layer(hello());
    let Ok(rejected) = service.clone().oneshot(request()).await;
    assert_eq!(rejected.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(header(&rejected, "retry-after"), Some("9"));
    assert_eq!(
        header(&rejected, "content-type"),
        Some("application/problem+json")
    );
    let Ok(exempt) = service.oneshot(request_with("exempt", "yes")).await;
    assert_eq!(exempt.body(), "hello");
    assert_eq!(door.ends(), ["complete"]);
}

#[tokio::test]
async fn a_request_that_waits_is_admitted_rejected_or_dropped() {
    let door = Door::guarded();
    let service = door.layer(hello());
    for (opens, status) in [(true, 200), (false, 503)] {
        let mut call = Box::pin(service.clone().oneshot(request()));
        assert!(call.as_mut().now_or_never().is_none());
        door.answer(opens);
        let Ok(response) = call.await;
        assert_eq!(response.status(), status);
    }
    assert_eq!(door.ends(), ["complete"]);
    let mut call = Box::pin(service.oneshot(request()));
    assert!(call.as_mut().now_or_never().is_none());
    drop(call);
    assert_eq!(door.ends(), [""; 0]);
}

#[tokio::test]
async fn a_pass_ends_once_however_the_service_ends() {
    let door = Door::closed();
    let answer = |request: Request<()>| async move {
        match request.uri().path() {
            "/fails" => Err("no answer"),
            "/panics" => panic!("a handler"),
            "/hangs" => std::future::pending().await,
            _ => Ok(Response::new(String::new())),
        }
    };
    let service = door.layer(service_fn(answer));
    for (path, end) in [
        ("/", "complete"),
        ("/fails", "failed"),
        ("/panics", "panicked"),
        ("/hangs", "dropped"),
    ] {
        let request = Request::get(path).header("exempt", "yes");
        let call = service.clone().oneshot(request.body(()).unwrap());
        let _ = AssertUnwindSafe(call).catch_unwind().now_or_never();
        assert_eq!(door.ends(), [end], "{path}");
    }
}
