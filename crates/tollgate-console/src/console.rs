//! The console: its options, its routes, and the actions that were taken on it.
//! What a route does is in `routes.rs`, and what protects all of them in `guard.rs`.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::{SystemTime, UNIX_EPOCH},
};

use axum::{
    Router,
    middleware::from_fn_with_state,
    routing::{get, post},
};
use http::request::Parts;
use serde::Serialize;
use tollgate::limiter::DeniedKeys;

use crate::{Source, Visitor, guard, page::Page, routes};

/// The actions that are kept for the page. The log has all of them.
const MOST_ACTIONS: usize = 50;

/// A page for operators, and the endpoints that it calls.
///
/// Clones share the list of actions.
#[derive(Clone)]
pub struct Console(Arc<ConsoleInner>);

pub(crate) struct ConsoleInner {
    pub(crate) source: Source,
    pub(crate) denied_keys: Option<DeniedKeys>,
    /// The hosts that requests may name. Empty for all.
    pub(crate) hosts: Vec<String>,
    pub(crate) visitor: Box<Visitors>,
    pub(crate) page: Page,
    actions: Mutex<VecDeque<Action>>,
}

/// Returns who sends a request.
type Visitors = dyn Fn(&Parts) -> Option<Visitor> + Send + Sync;

/// Something that somebody did.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Action {
    at_ms: u64,
    author: String,
    action: &'static str,
    on: String,
    outcome: String,
}

/// Builds a [`Console`].
#[must_use = "a builder does nothing until `build` is called"]
pub struct ConsoleBuilder {
    source: Source,
    denied_keys: Option<DeniedKeys>,
    hosts: Vec<String>,
}

impl ConsoleBuilder {
    /// Shows the keys that this process denies most.
    pub fn denied_keys(mut self, denied_keys: DeniedKeys) -> Self {
        self.denied_keys = Some(denied_keys);
        self
    }

    /// Answers only requests to these hosts, written without a port. By default, to all.
    ///
    /// Use it for a page without authentication: a foreign site whose name leads to the address of
    /// the page could otherwise read it in somebody's browser (DNS rebinding).
    pub fn hosts<H: Into<String>>(mut self, hosts: impl IntoIterator<Item = H>) -> Self {
        let hosts = hosts
            .into_iter()
            .map(|host| host.into().to_ascii_lowercase());
        self.hosts = hosts.collect();
        self
    }

    /// Builds the console. `visitor` returns who sends a request, and `None` for somebody who may
    /// see nothing, and gets a 403.
    ///
    /// The console authenticates nobody. The function reads what the application has found out
    /// before: an extension of the request, or a header field that only its proxy can set.
    pub fn build(
        self,
        visitor: impl Fn(&Parts) -> Option<Visitor> + Send + Sync + 'static,
    ) -> Console {
        Console(Arc::new(ConsoleInner {
            source: self.source,
            denied_keys: self.denied_keys,
            hosts: self.hosts,
            visitor: Box::new(visitor),
            page: Page::new(),
            actions: Mutex::default(),
        }))
    }
}

impl Console {
    /// Returns a builder for a console about a store, by an [`Operator`](tollgate_cli::Operator), or
    /// about [`LocalLimiters`](crate::LocalLimiters).
    pub fn builder(source: impl Into<Source>) -> ConsoleBuilder {
        ConsoleBuilder {
            source: source.into(),
            denied_keys: None,
            hosts: Vec::new(),
        }
    }

    /// Returns the routes, for a server of their own or to be nested at a path.
    pub fn router(&self) -> Router {
        Router::new()
            .route("/", get(routes::page))
            .route("/api/status", get(routes::status))
            .route("/api/keys", get(routes::keys))
            .route("/api/peek", post(routes::peek))
            .route("/api/reset", post(routes::reset))
            .route("/api/share", post(routes::share))
            .fallback(routes::nothing)
            .method_not_allowed_fallback(routes::wrong_method)
            .layer(from_fn_with_state(self.clone(), guard::guard))
            .with_state(self.clone())
    }

    pub(crate) fn inner(&self) -> &ConsoleInner {
        &self.0
    }
}

impl ConsoleInner {
    /// Notes an action, and logs it.
    pub(crate) fn note(&self, author: &str, action: &'static str, on: String, outcome: String) {
        // A page that shows keys is seen by few. Logs are seen by many.
        let shows_keys = self.source.describe()["shows_keys"] == true;
        let logged = if shows_keys && action == "reset" {
            "a key"
        } else {
            &*on
        };
        tracing::info!(author, action, on = logged, outcome, "an operator acted");
        let at = SystemTime::now().duration_since(UNIX_EPOCH);
        let action = Action {
            at_ms: at.map_or(0, |at| u64::try_from(at.as_millis()).unwrap_or(u64::MAX)),
            author: author.to_owned(),
            action,
            on,
            outcome,
        };
        if let Ok(mut actions) = self.actions.lock() {
            actions.push_front(action);
            actions.truncate(MOST_ACTIONS);
        }
    }

    /// Returns the actions, the newest first.
    pub(crate) fn actions(&self) -> Vec<Action> {
        let actions = self.actions.lock();
        actions.map_or_else(|_| Vec::new(), |actions| actions.iter().cloned().collect())
    }
}

tollgate::debug_fields! { Console: .. }
tollgate::debug_fields! { ConsoleBuilder: source, hosts, .. }
