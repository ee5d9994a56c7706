//! The exceptions of limiters are read from the store, and put into force in this process.
//! See `store/exceptions/` of the core for what an exception is. The call is made by each store.

use super::{
    counter::{Complaints, is_away},
    held::held,
};
use tollgate_core::{
    Error, ErrorKind,
    raw::{Lock, WeakExceptions},
    store::{Clock, Exception, ExceptionsInForce},
};

/// The answer of a store about its exceptions.
#[derive(Debug)]
#[non_exhaustive]
pub struct ExceptionNews {
    /// The time of the call by the clock of the store, in microseconds since the Unix epoch.
    pub now_us: u64,
    /// Changes with each change of the exceptions.
    pub version: String,
    /// All exceptions. `None` when their version is the known one.
    pub exceptions: Option<Vec<Exception>>,
}

impl ExceptionNews {
    /// Creates what a store says.
    #[must_use]
    pub fn new(now_us: u64, version: String, exceptions: Option<Vec<Exception>>) -> Self {
        Self {
            now_us,
            version,
            exceptions,
        }
    }
}

/// The version of one who knows none yet. A store without exceptions has the empty one.
pub const UNKNOWN: &str = "-";

/// Keeps who follows the exceptions of a store, as long as a limiter holds it.
pub(crate) struct ExceptionFollower {
    followers: Lock<Followers>,
    /// Goes on while the system sleeps, so that no exception outlasts its end.
    clock: Clock,
}

#[derive(Default)]
struct Followers {
    added: Vec<WeakExceptions>,
    /// The version that all of them have.
    version: Option<String>,
    complaints: Complaints,
}

impl Default for ExceptionFollower {
    fn default() -> Self {
        Self {
            followers: Lock::default(),
            clock: Clock::since_boot(),
        }
    }
}

impl ExceptionFollower {
    /// Keeps these up to date from now on.
    pub(crate) fn add(&self, exceptions: &ExceptionsInForce) {
        let mut followers = self.followers.lock();
        followers.added.push(exceptions.downgrade());
        followers.version = None;
    }

    /// Returns whether a limiter wants to know the exceptions.
    pub(crate) fn is_used(&self) -> bool {
        let mut followers = self.followers.lock();
        !held(&mut followers.added, WeakExceptions::upgrade).is_empty()
    }

    /// Reads the exceptions by the call that `call` makes, and puts them into force. After a failed call
    /// the last ones stay until their ends.
    pub(crate) async fn follow<F>(&self, call: impl FnOnce(String) -> F)
    where
        F: Future<Output = Result<ExceptionNews, Error>>,
    {
        let (followers, known) = {
            let mut followers = self.followers.lock();
            let known = followers.version.clone();
            (held(&mut followers.added, WeakExceptions::upgrade), known)
        };
        let at_us = self.clock.now_us();
        let outcome = call(known.clone().unwrap_or_else(|| UNKNOWN.to_owned())).await;
        let mut current = self.followers.lock();
        match outcome {
            Ok(news) => {
                current.complaints.forget();
                for follower in &followers {
                    follower.synchronize(news.now_us, at_us);
                    if let Some(exceptions) = &news.exceptions {
                        follower.set(exceptions, &self.clock);
                    }
                }
                // One that came meanwhile knows nothing yet.
                let is_same = current.added.len() == followers.len() && current.version == known;
                current.version = Some(news.version).filter(|_| is_same);
            }
            Err(error) if current.complaints.is_new(&error) => report(&error),
            Err(_) => {}
        }
    }
}

/// Logs a failed call. A server that is away is an outage, which each limiter logs.
fn report(error: &Error) {
    match error.kind() {
        ErrorKind::PermissionDenied => tracing::warn!(
            code = "TOLLGATE-ACL",
            "exceptions of operators are not read; grant +hget +hvals on the keys of the prefix"
        ),
        kind if is_away(kind) => tracing::debug!(%error, "exceptions could not be read"),
        _ => tracing::warn!(%error, "exceptions of operators are not read"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{future::ready, time::Duration};
    use tollgate_core::{Key, Policy, PolicySet, Quota, store::ExceptionChange};

    #[tokio::test]
    async fn an_exception_ends_by_the_clock_of_the_store_also_while_it_is_away() {
        let follower = ExceptionFollower {
            clock: Clock::manual(7),
            ..ExceptionFollower::default()
        };
        let api = ExceptionsInForce::new("api");
        follower.add(&api);
        let policies = PolicySet::from(Policy::fixed_window("daily", Quota::per_day(9)));
        let change = ExceptionChange::Quota(Quota::per_day(1));
        let granted = Exception::new("daily", "acme", change, Duration::from_secs(10))
            .at_limiter("api")
            .by("ann")
            .because("a test");
        let mut list = tollgate_core::store::ExceptionList::default();
        let hour_us = 3_600_000_000;
        let call = tollgate_core::store::ExceptionCall::Grant(granted);
        list.apply(&call, hour_us).expect("an exception");
        let all = || Some(list.as_slice().to_vec());
        let news = |now_us, version: &str, exceptions| {
            ready(Ok(ExceptionNews::new(
                now_us,
                version.to_owned(),
                exceptions,
            )))
        };
        let away = || ready(Err(Error::new(ErrorKind::Unavailable, "away")));
        let key = Key::new("acme");
        let has = || api.policies(&policies, &key).is_some();

        follower
            .follow(|known| {
                assert_eq!(known, UNKNOWN);
                news(hour_us, "1", all())
            })
            .await;
        assert!(has());
        assert!(api.policies(&policies, &Key::new("other")).is_none());
        // The clock of the store goes on by itself.
        follower
            .follow(|known| {
                assert_eq!(known, "1");
                news(hour_us + 9_999_999, "1", None)
            })
            .await;
        assert!(has());
        follower.follow(|_| away()).await;
        assert!(has());
        follower.clock.advance(Duration::from_micros(1));
        assert!(!has(), "an exception outlasts its end");
        // A store whose clock was put back has it still.
        follower.follow(|_| news(hour_us, "1", None)).await;
        assert!(has());
        let other = ExceptionsInForce::new("api");
        follower.add(&other);
        follower
            .follow(|known| {
                assert_eq!(known, UNKNOWN, "a new limiter knows nothing");
                news(hour_us, "1", all())
            })
            .await;
        assert!(other.is_any());
        follower
            .follow(|_| news(hour_us, "2", Some(Vec::new())))
            .await;
        assert!(!has() && !api.is_any());
    }
}
