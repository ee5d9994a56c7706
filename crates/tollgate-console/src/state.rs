//! The state that all requests to a console share: its options, and the actions that were taken.
//! Options are set in `console.rs`.

use std::{
    collections::VecDeque,
    sync::Mutex,
    time::{SystemTime, UNIX_EPOCH},
};

use http::request::Parts;
use serde::Serialize;
use serde_json::Value;
use tollgate::limiter::DeniedKeys;

use crate::{page::Page, source::Source, visitor::Visitor};

/// The actions that are kept for the page. The log has all of them.
const MOST_ACTIONS: usize = 50;

/// The state that all requests share.
pub(crate) struct ConsoleState {
    pub(crate) source: Source,
    pub(crate) denied_keys: Option<DeniedKeys>,
    /// The hosts that requests may name. Empty for all.
    pub(crate) hosts: Vec<String>,
    pub(crate) visitor: Box<Visitors>,
    pub(crate) page: Page,
    pub(crate) actions: Actions,
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

/// The actions, the newest first.
#[derive(Default)]
pub(crate) struct Actions(Mutex<VecDeque<Action>>);

/// The object of an action: as the page shows it, and as the log has it.
pub(crate) struct Subject {
    shown: String,
    logged: String,
}

impl Subject {
    /// Names a limiter.
    pub(crate) fn limiter(name: String) -> Self {
        Self {
            shown: name.clone(),
            logged: name,
        }
    }

    /// Names a key, by its text or its digest as the source shows it, behind what it is about.
    pub(crate) fn key(source: &Source, about: &str, name: &str) -> Self {
        // A page that shows keys is seen by few. Logs are seen by many.
        let shows_keys = source.describe()["shows_keys"] == true;
        let logged = if shows_keys { "a key" } else { name };
        let of = |name: &str| format!("{about}{name}");
        Self {
            shown: of(name),
            logged: of(logged),
        }
    }

    /// Names the key of an exception, which has the fields of a row.
    pub(crate) fn exception(source: &Source, row: &Value) -> Self {
        let text = |field: &str| row[field].as_str().unwrap_or_default();
        let about = format!("{} {} ", text("limiter"), text("policy"));
        Self::key(source, &about, text("key"))
    }
}

impl ConsoleState {
    /// Notes an action, and logs it.
    pub(crate) fn note(
        &self,
        author: &str,
        action: &'static str,
        subject: Subject,
        outcome: String,
    ) {
        let Subject { shown, logged } = subject;
        tracing::info!(author, action, on = logged, outcome, "an operator acted");
        let at = SystemTime::now().duration_since(UNIX_EPOCH);
        let action = Action {
            at_ms: at.map_or(0, |at| u64::try_from(at.as_millis()).unwrap_or(u64::MAX)),
            author: author.to_owned(),
            action,
            on: shown,
            outcome,
        };
        if let Ok(mut actions) = self.actions.0.lock() {
            actions.push_front(action);
            actions.truncate(MOST_ACTIONS);
        }
    }

    /// Returns the actions, the newest first.
    pub(crate) fn actions(&self) -> Vec<Action> {
        let actions = self.actions.0.lock();
        actions.map_or_else(|_| Vec::new(), |actions| actions.iter().cloned().collect())
    }
}
