//! The exceptions that a store keeps: what a call does to them, and their text.
//! The calls themselves are made by each store; the calls of callers are in `limiter/exceptions.rs`.

use std::mem;

use super::{Exception, id};
use crate::{Error, ErrorKind};

/// The work of [`Store::exceptions`](crate::Store::exceptions).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ExceptionCall {
    /// Lists all exceptions that have not ended.
    List,
    /// Grants an exception, in the place of the one of the same limiter, policy and key.
    Grant(Exception),
    /// Withdraws the exception with this [id](Exception::id).
    Withdraw(String),
}

impl ExceptionCall {
    /// Returns the call that withdraws an exception. `key` is [encoded](crate::Key::encoded).
    #[must_use]
    pub fn withdraw(limiter: &str, policy: &str, key: &str) -> Self {
        Self::Withdraw(id(limiter, policy, key))
    }
}

/// The answer of a store to an [`ExceptionCall`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ExceptionReply {
    /// The time of the call by the clock of the store, in microseconds since the Unix epoch.
    pub now_us: u64,
    /// All exceptions, or the one that was replaced or withdrawn.
    pub exceptions: Vec<Exception>,
}

impl ExceptionReply {
    /// Creates a reply.
    #[must_use]
    pub fn new(now_us: u64, exceptions: Vec<Exception>) -> Self {
        Self { now_us, exceptions }
    }
}

/// The exceptions of a store. A store that keeps a text decides by it.
///
/// ```
/// use std::time::Duration;
/// use tollgate::store::{Exception, ExceptionCall, ExceptionChange, ExceptionList};
///
/// let mut list = ExceptionList::default();
/// let exception = Exception::new("daily", "acme", ExceptionChange::Factor(2.0), Duration::from_secs(60));
/// let exception = exception.at_limiter("api").by("ann").because("a move");
/// list.apply(&ExceptionCall::Grant(exception), 0)?;
/// let mut read = ExceptionList::read(&list.to_string());
/// assert_eq!(read.apply(&ExceptionCall::List, 59_999_999)?.len(), 1);
/// assert!(read.apply(&ExceptionCall::List, 60_000_000)?.is_empty());
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct ExceptionList(Vec<Exception>);

impl ExceptionList {
    /// The most exceptions of a store.
    pub const MAX: usize = 4_096;

    /// Reads lines. Those that are not valid are left out: a newer version may have written them.
    #[must_use]
    pub fn read(text: &str) -> Self {
        let lines = text.lines().filter_map(|line| line.parse().ok());
        Self(lines.take(Self::MAX).collect())
    }

    /// Drops what has ended, and does what a call asks for. Returns all exceptions, or the one that was
    /// replaced or withdrawn.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`] when an exception is not valid, and [`ErrorKind::Full`] for one more than
    /// [`MAX`](Self::MAX). Nothing is granted then.
    pub fn apply(&mut self, call: &ExceptionCall, now_us: u64) -> Result<Vec<Exception>, Error> {
        self.0.retain(|exception| exception.ends_us() > now_us);
        let place = |id: &str| self.0.iter().position(|exception| exception.id() == id);
        match call {
            ExceptionCall::List => Ok(self.0.clone()),
            ExceptionCall::Withdraw(id) => {
                let at = place(id);
                Ok(at.map(|at| self.0.remove(at)).into_iter().collect())
            }
            ExceptionCall::Grant(exception) => {
                exception.is_valid()?;
                let granted = exception.granted_at(now_us);
                match place(&exception.id()) {
                    Some(at) => Ok(vec![mem::replace(&mut self.0[at], granted)]),
                    None if self.0.len() >= Self::MAX => Err(Self::full()),
                    None => {
                        self.0.push(granted);
                        Ok(Vec::new())
                    }
                }
            }
        }
    }

    /// Returns the error of a store that has no room.
    #[must_use]
    pub fn full() -> Error {
        let most = Self::MAX;
        Error::new(
            ErrorKind::Full,
            format!("exceptions of a store must be at most {most}, and no further one is granted"),
        )
    }

    /// Returns the exceptions, without a copy.
    #[must_use]
    pub fn into_vec(self) -> Vec<Exception> {
        self.0
    }

    /// Returns the exceptions.
    #[must_use]
    pub fn as_slice(&self) -> &[Exception] {
        &self.0
    }
}

impl std::fmt::Display for ExceptionList {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0
            .iter()
            .try_for_each(|exception| writeln!(f, "{exception}"))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Policy, PolicySet, Quota, store::ExceptionChange};

    fn exception(key: String) -> Exception {
        let change = ExceptionChange::Quota(Quota::per_day(7));
        Exception::new("daily", key, change, Duration::from_secs(60))
            .at_limiter("api")
            .by("ann")
            .because("a move")
    }

    #[test]
    fn ten_thousand_exceptions_are_refused_and_what_is_there_can_be_changed() {
        let mut list = ExceptionList::default();
        let granted = (0..10_000)
            .filter(|at| {
                let call = ExceptionCall::Grant(exception(format!("customer-{at}")));
                list.apply(&call, 0).is_ok()
            })
            .count();
        assert_eq!(granted, ExceptionList::MAX);
        let one_more = ExceptionCall::Grant(exception("one more".to_owned()));
        let refused = list.apply(&one_more, 0).expect_err("no room");
        assert_eq!(refused.kind(), ErrorKind::Full);
        let again = ExceptionCall::Grant(exception("customer-7".to_owned()));
        let replaced = list.apply(&again, 1).expect("a change");
        assert_eq!(replaced[0].ends_us(), 60_000_000);
        let withdrawn = ExceptionCall::withdraw("api", "daily", "customer-7");
        let withdrawn = list.apply(&withdrawn, 2).expect("a withdrawal");
        assert_eq!(withdrawn[0].ends_us(), 60_000_001);
        let another = ExceptionCall::Grant(exception("another".to_owned()));
        list.apply(&another, 3).expect("room");
    }

    #[test]
    fn what_is_not_valid_is_refused_by_its_name() {
        let policies = PolicySet::from([
            Policy::fixed_window("daily", Quota::per_day(9)),
            Policy::fixed_window("tenant", Quota::per_day(9)).at_level(1),
        ]);
        let good = || exception("acme".to_owned());
        good().fits(&policies).expect("an exception");
        let of = |policy: &str, key: crate::Key, change, lasts| {
            Exception::new(policy, key, change, lasts)
                .at_limiter("api")
                .by("ann")
                .because("a move")
        };
        let minute = Duration::from_secs(60);
        let twice = ExceptionChange::Factor(2.0);
        let burst = ExceptionChange::Quota(Quota::per_day(9).with_burst(20));
        let nested = || crate::Key::new("acme").child("ann");
        of("tenant", "acme".into(), twice, minute)
            .fits(&policies)
            .expect("an exception");
        for (refused, name) in [
            (good().at_limiter(""), "limiter of"),
            (good().by(""), "author of"),
            (good().by("a\tb"), "author of"),
            (good().because("<script>"), "reason of"),
            (good().because("x".repeat(201)), "reason of"),
            (of("none", "acme".into(), twice, minute), "policy of"),
            (of("tenant", nested(), twice, minute), "key of"),
            (
                of("daily", "acme".into(), burst, minute),
                "policy quota burst",
            ),
            (
                of("daily", "acme".into(), ExceptionChange::Factor(0.0), minute),
                "factor of",
            ),
            (
                of(
                    "daily",
                    "acme".into(),
                    ExceptionChange::Factor(f64::NAN),
                    minute,
                ),
                "factor of",
            ),
            (of("daily", "acme".into(), twice, Duration::ZERO), "time of"),
            (
                of("daily", "acme".into(), twice, Exception::MAX + minute),
                "time of",
            ),
        ] {
            let error = refused.fits(&policies).expect_err(name).to_string();
            assert!(error.starts_with(name), "{name}: {error}");
        }
    }

    /// A version that knows no fresh start leaves the line out, as it does with any foreign one.
    #[test]
    fn a_fresh_start_stands_beside_the_exception_of_its_key() {
        let mut list = ExceptionList::default();
        let fresh = Exception::new("daily", "acme", ExceptionChange::FreshStart, Exception::MAX);
        let fresh = fresh.at_limiter("api").by("ann").because("a move");
        for granted in [exception("acme".to_owned()), fresh] {
            let replaced = list.apply(&ExceptionCall::Grant(granted), 5).expect("room");
            assert_eq!(replaced, []);
        }
        let text = list.to_string();
        assert!(text.contains("\tacme{fresh}\t5\t"), "{text}");
        assert_eq!(ExceptionList::read(&text).as_slice(), list.as_slice());
        assert_eq!(list.as_slice()[1].key(), "acme");
        for foreign in [
            text.replace("{fresh}", ""),
            text.replace("fresh start", "factor 2"),
        ] {
            assert_eq!(
                ExceptionList::read(&foreign).as_slice().len(),
                1,
                "{foreign}"
            );
        }
        let withdraw = ExceptionCall::withdraw("api", "daily", "acme");
        assert_eq!(list.apply(&withdraw, 6).expect("a call").len(), 1);
        assert_eq!(list.apply(&withdraw, 6).expect("a call"), []);
        assert!(list.as_slice()[0].is_fresh_start());
    }

    #[test]
    fn a_line_reads_as_it_was_written_and_what_is_foreign_is_left_out() {
        let mut list = ExceptionList::default();
        for key in ["acme", "a>b", "ümlaut"] {
            let call = ExceptionCall::Grant(exception(key.to_owned()));
            list.apply(&call, 5).expect("an exception");
        }
        let text = format!("a line of tomorrow\n{list}\n\t\t\n");
        assert_eq!(ExceptionList::read(&text).as_slice(), list.as_slice());
    }
}
