use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Response, header};

use super::{
    Reason, Rejection,
    accept::Form,
    kept::{self, Gist},
};
use crate::{fields::RATELIMIT_POLICY, shared::Limit};

/// What the middleware adds to an answer where the responder left it out.
#[derive(Debug)]
pub struct Completion<'a> {
    limit: Option<&'a Limit>,
    gist: Option<Gist>,
    retry_after: Option<Duration>,
}

impl<'a> Completion<'a> {
    pub(crate) fn new(reason: Reason<'a>, limit: Option<&'a Limit>) -> Self {
        let (Reason::Denied(decision), Some(limit)) = (reason, limit) else {
            return Self { limit, gist: None, retry_after: None };
        };
        match Gist::of(decision, limit) {
            Some((gist, retry_after)) => Self { limit: Some(limit), gist: Some(gist), retry_after: Some(retry_after) },
            None => Self { limit: Some(limit), gist: None, retry_after: decision.retry_after() },
        }
    }

    /// How long until a denied request would pass.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// Adds it to the fields of a responder's answer.
    pub(super) fn fill_in(&self, rejection: &Rejection<'_>, headers: &mut HeaderMap) {
        self.add(rejection, headers, |headers, name, value| {
            headers.entry(name).or_insert(value);
        });
    }

    /// The whole answer of a responder that writes the same to all who are denied alike and read the same form: the text,
    /// with the media type that it is of, is written where it is not kept.
    #[inline]
    pub(super) fn respond<B>(
        &self,
        rejection: &Rejection<'_>,
        form: Form,
        write: impl FnOnce() -> (String, Option<&'static str>),
        body: impl Fn(String) -> B,
    ) -> Response<B> {
        let gist = self.gist.map(|gist| gist.in_form(form));
        if let Some(answer) = gist.as_ref().and_then(kept::find) {
            return Response::from_parts(answer.head.clone(), body(String::from(&*answer.text)));
        }
        let (text, media) = write();
        let (mut head, ()) = Response::new(()).into_parts();
        head.status = rejection.status();
        if let Some(media) = media {
            head.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
        }
        // There is nothing yet to look up.
        self.add(rejection, &mut head.headers, |headers, name, value| {
            headers.insert(name, value);
        });
        if let Some(gist) = gist {
            kept::keep(gist, &head, &text);
        }
        Response::from_parts(head, body(text))
    }

    fn add(
        &self,
        rejection: &Rejection<'_>,
        headers: &mut HeaderMap,
        add: impl Fn(&mut HeaderMap, HeaderName, HeaderValue),
    ) {
        if let Some(seconds) = rejection.retry_after_seconds() {
            add(headers, header::RETRY_AFTER, seconds.into());
        }
        match (rejection.reason(), self.limit) {
            (Reason::Denied(decision), Some(limit)) => {
                add(headers, header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
                limit.wording.of(decision).fill_in(headers, add);
            }
            (Reason::CostNeverFits(_), Some(limit)) => {
                if let Some(configured) = limit.wording.configured() {
                    add(headers, RATELIMIT_POLICY, configured.clone());
                }
            }
            _ => {}
        }
    }
}
