//! Reads and changes the limits of a running system, for programs that operate it: a console, a bot, the
//! command `tollgate`.
//!
//! Services keep their limits in Redis or PostgreSQL, and publish there what they enforce. An [`Operator`]
//! reads and changes that: the keys with the most use, what one key has spent, its reset, the share of keys
//! for which a limiter is enforced, exceptions, and what each replica enforces. It runs no limiter: to
//! decide, and to look at a limiter of the program itself, use a [`Limiter`](tollgate::Limiter).
//!
//! ```no_run
//! # async fn run() -> Result<(), tollgate_operator::OperatorError> {
//! use tollgate_operator::{ExceptionRequest, Operator};
//!
//! let operator = Operator::builder("redis://127.0.0.1").build()?;
//! let request = ExceptionRequest::new("search", "acme", "factor 2.5", "2h");
//! operator.grant_exception(&request.by("ann").because("imports its archive")).await?;
//! # Ok(()) }
//! ```
//!
//! | room | purpose |
//! |---|---|
//! | the root | whole tasks, whose results are serialised as the command prints them with `--format json` |
//! | [`states`] | what a task is made of: the server, the limits that are known, scans, single keys |
//! | [`exceptions`] | exceptions as an operator asks for them |
//! | [`replicas`] | what replicas report |
//! | [`rules`], [`text`] | the domain and the entries of rules; times, spans and names as texts |

// Nothing but the list of the rooms stands here. What a command prints is in tollgate-cli, and what a page
// shows in tollgate-console.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod error;
pub mod exceptions;
mod operator;
pub mod replicas;
pub mod rules;
pub mod states;
pub mod text;

pub use error::{OperatorError, OperatorErrorKind};
pub use exceptions::ExceptionRow;
pub use operator::{
    ChangedException, EnforcedLimits, ExceptionRequest, GrantedExceptions, HeaviestKeys, KeyStates,
    Operator, OperatorBuilder, PublishedLimiters, RemovedStates,
};
pub use states::Order;

/// Compiles the examples of the README with the tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
