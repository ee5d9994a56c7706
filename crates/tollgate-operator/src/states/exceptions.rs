//! Reads the exceptions of a store, and finds the quota that one puts into force.
//! What an operator asks for is in `exceptions.rs`, one floor up.

use std::collections::HashMap;

use tollgate::{
    Algorithm, Policy, Quota,
    store::{Exception, ExceptionCall, ExceptionChange},
};

use super::{server::Server, state_key::StateKey};
use crate::error::OperatorError;

/// The exceptions that have not ended.
#[derive(Debug, Default)]
pub(super) struct Exceptions {
    /// The time by the clock of the server, in microseconds since the Unix epoch.
    pub(super) now_us: u64,
    /// By the key that the policy meters.
    by_key: HashMap<String, Vec<Exception>>,
}

impl Exceptions {
    pub(super) async fn read(server: &mut Server) -> Result<Self, OperatorError> {
        let reply = server.exceptions(&ExceptionCall::List).await?;
        let mut by_key: HashMap<_, Vec<_>> = HashMap::new();
        for exception in reply.exceptions {
            let key = exception.key().to_owned();
            by_key.entry(key).or_default().push(exception);
        }
        Ok(Self {
            now_us: reply.now_us,
            by_key,
        })
    }

    /// Returns the exceptions for a key, and for its outer levels, the outermost first.
    pub(super) fn of_key<'e>(&'e self, key: &'e str) -> impl Iterator<Item = &'e Exception> {
        let ends = key.match_indices('>').map(|(at, _)| at);
        let levels = ends.chain([key.len()]).map(|end| &key[..end]);
        levels.filter_map(|level| self.by_key.get(level)).flatten()
    }

    /// Returns the quota in force of a state whose policy has this one for other keys.
    pub(super) fn quota(&self, key: &StateKey, plain: Option<Quota>) -> Option<Quota> {
        let exceptions = self.by_key.get(&key.subject);
        let is_of_policy = |exception: &&Exception| {
            exception.policy() == key.policy && !exception.is_fresh_start()
        };
        let Some(exception) = exceptions.and_then(|all| all.iter().find(is_of_policy)) else {
            return plain;
        };
        changed(exception, key, plain).or(plain)
    }
}

/// Returns the quota that the policy of a state has with an exception.
pub(super) fn changed(
    exception: &Exception,
    key: &StateKey,
    plain: Option<Quota>,
) -> Option<Quota> {
    let change = exception.change();
    let plain = match change {
        ExceptionChange::Quota(quota) => plain.or(Some(quota)),
        _ => plain,
    };
    let algorithm = Algorithm::of_tag(key.kind.tag())?;
    let policy = Policy::try_new(key.policy.clone(), algorithm, plain?);
    let changed = policy.and_then(|policy| change.of(&policy));
    changed.ok().map(|policy| policy.quota())
}
