//! The console: its options and its routes.
//! The routes are in `routes.rs`, the guard of all of them in `guard.rs`, and the state that they share in
//! `state.rs`.

use std::sync::Arc;

use axum::{
    Router,
    middleware::from_fn_with_state,
    routing::{get, post},
};
use http::request::Parts;
use tollgate::limiter::DeniedKeys;

use crate::{
    Source, Visitor, guard,
    page::Page,
    routes,
    state::{Actions, ConsoleState},
};

/// A page for operators, and the endpoints that it calls.
///
/// Clones share the list of actions.
#[derive(Clone)]
pub struct Console(Arc<ConsoleState>);

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
        Console(Arc::new(ConsoleState {
            source: self.source,
            denied_keys: self.denied_keys,
            hosts: self.hosts,
            visitor: Box::new(visitor),
            page: Page::new(),
            actions: Actions::default(),
        }))
    }
}

impl Console {
    /// Returns a builder for a console about a store, by an [`Operator`](tollgate_operator::Operator), or
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
            .route("/api/exception", post(routes::grant))
            .route("/api/withdraw", post(routes::withdraw))
            .fallback(routes::nothing)
            .method_not_allowed_fallback(routes::wrong_method)
            .layer(from_fn_with_state(Arc::clone(&self.0), guard::guard))
            .with_state(Arc::clone(&self.0))
    }
}

tollgate::debug_fields! { Console: .. }
tollgate::debug_fields! { ConsoleBuilder: source, hosts, .. }
