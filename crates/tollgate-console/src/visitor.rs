//! The visitor of the page, and whether actions have an author.
//! See `guard.rs` for whether a request may come at all.

use http::{HeaderName, request::Parts};

/// The longest name of an author, in characters.
const LONGEST: usize = 100;

/// A person whom the application has authenticated.
///
/// ```
/// use tollgate_console::Visitor;
///
/// assert_eq!(Visitor::author("ann").name(), Some("ann"));
/// assert_eq!(Visitor::reader().name(), None);
/// // No name, and no place in a log line, so no author.
/// assert_eq!(Visitor::author("ann\nbob").name(), None);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Visitor {
    name: Option<String>,
}

impl Visitor {
    /// Creates a visitor who may look and act. The name stands in the log beside each action.
    ///
    /// A name that is empty, has more than 100 characters, or has control characters makes a
    /// [`reader`](Self::reader).
    #[must_use]
    pub fn author(name: impl Into<String>) -> Self {
        let name = name.into();
        let is_name = !name.trim().is_empty()
            && name.chars().count() <= LONGEST
            && !name.chars().any(char::is_control);
        Self {
            name: is_name.then_some(name),
        }
    }

    /// Creates a visitor who may look, and not act.
    #[must_use]
    pub fn reader() -> Self {
        Self { name: None }
    }

    /// Returns a function for [`build`](crate::ConsoleBuilder::build) that lets everybody look, and
    /// takes the author of an action from a header field.
    ///
    /// Use it behind a proxy that authenticates, sets the field, and removes it from what clients
    /// send. Without such a proxy the name is only what a person says, so serve the page where nobody
    /// else can reach it. The page sends what a person enters as `tollgate-author`.
    pub fn by_header(
        field: HeaderName,
    ) -> impl Fn(&Parts) -> Option<Self> + Clone + Send + Sync + 'static {
        move |parts| {
            let name = parts
                .headers
                .get(&field)
                .and_then(|name| name.to_str().ok());
            Some(name.map_or_else(Self::reader, Self::author))
        }
    }

    /// Returns the name of an author.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }
}
