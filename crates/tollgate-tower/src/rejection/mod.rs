//! Responses to rejected requests: for a body or a status of your own.
//!
//! | reason | status | `Retry-After` |
//! |---|---|---|
//! | [denied](Reason::Denied) | 429 | whole seconds, rounded up, at least 1 |
//! | [blocked](Reason::Blocked) | 429 | none, because waiting does not help |
//! | [forbidden](Reason::Forbidden) | 403 | none, because waiting does not help |
//! | [cost never fits](Reason::CostNeverFits) | 413 | none, because waiting does not help |
//! | [missing key](Reason::MissingKey) | 400, or the status that the extractor [sets](crate::KeyExtractor::or_status); 404 when the key is the route and no route matches | none |
//! | [misconfigured](Reason::Misconfigured) | 500 | none |
//! | [unavailable](Reason::Unavailable) | 503 | none |
//! | [no permit](Reason::NoPermit) | 429 | whole seconds, rounded up, at least 1; an estimate |
//! | [overloaded](Reason::Overloaded) | 503 | whole seconds, rounded up, at least 1; an estimate |
//!
//! A [responder](Respond) builds the response. The default is [`Problem`]. [`Empty`] has no body,
//! and [`respond_fn`] wraps a closure. The middleware then adds the headers that the responder has
//! not set: `Retry-After`, the rate limit headers, and `Cache-Control: no-store` on a 429.

// When a request is rejected is decided by each layer. Here is what the client gets.

mod problem;
mod reason;
mod respond;

pub use problem::Problem;
pub use reason::{Overload, Reason, Rejection};
pub(crate) use respond::add_headers;
pub use respond::{Empty, Respond, RespondFn, respond_fn};
