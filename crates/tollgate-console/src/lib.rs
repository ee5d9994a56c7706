//! Serves a page for people on call: which limiters there are and what they enforce, which keys spend
//! and are denied most, what one key has spent, which keys have exceptions, and which replica enforces
//! what. With a name, they make a key fresh, grant an exception, and set the share of a limiter.
//!
//! Use the command `tollgate` in a terminal: it does the same, and more. Use metrics for alerts.
//!
//! A [`Console`] makes a [`Router`](axum::Router) for your own application. **It takes no
//! credentials itself.** Serve it behind the authentication of the application, and say for each
//! request who it is: a [`Visitor`] with a name, or one who may only read. Everybody else gets a 403.
//!
//! ```no_run
//! use axum::{Router, middleware};
//! use http::request::Parts;
//! use tollgate_operator::Operator;
//! use tollgate_console::{Console, Visitor};
//!
//! /// The user whom the application has authenticated.
//! #[derive(Clone)]
//! struct User {
//!     name: String,
//!     is_on_call: bool,
//! }
//!
//! # fn run() -> Result<Router, Box<dyn std::error::Error>> {
//! let operator = Operator::builder("redis://127.0.0.1").build()?;
//! let console = Console::builder(operator).build(|parts: &Parts| {
//!     let user = parts.extensions.get::<User>()?;
//!     user.is_on_call.then(|| Visitor::author(&user.name))
//! });
//! let app: Router = Router::new().nest("/console", console.router());
//! // The layer of the application that authenticates, and sets `User`, goes around it.
//! # Ok(app) }
//! ```
//!
//! In an application that counts in its own process, the page has the [`LocalLimiters`] that it is
//! given:
//!
//! ```
//! use axum::body::Body;
//! use http::{Request, StatusCode};
//! use tollgate::{Limiter, Policy, Quota};
//! use tollgate_console::{Console, LocalLimiters, Visitor};
//! use tower::ServiceExt;
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let limiter = Limiter::in_memory(Policy::token_bucket("api", Quota::per_hour(10)));
//! let console = Console::builder(LocalLimiters::new().with(&limiter));
//!
//! // Nobody is known here, so nobody sees anything.
//! let router = console.build(|_| None::<Visitor>).router();
//! let response = router.oneshot(Request::new(Body::empty())).await.unwrap();
//! assert_eq!(response.status(), StatusCode::FORBIDDEN);
//! # }
//! ```
//!
//! `docs/console.md` of the repository lists the endpoints and what protects them.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod console;
mod guard;
mod input;
mod local;
mod page;
mod problem;
mod routes;
mod source;
mod state;
mod visitor;

pub use console::{Console, ConsoleBuilder};
pub use local::LocalLimiters;
pub use source::Source;
pub use visitor::Visitor;

/// Compiles the example of the README with the tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
