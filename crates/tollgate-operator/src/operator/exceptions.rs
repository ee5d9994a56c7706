//! The exceptions of an operator: how a program lists, grants and withdraws them.
//! The parts of which that is made are in `exceptions.rs`, one floor up.

use serde::Serialize;
use tollgate::{
    PolicySet,
    store::{Exception, ExceptionCall, ExceptionChange},
};

use super::{Operator, Session, check_key};
use crate::{
    error::OperatorError,
    exceptions::{self, ExceptionEnd, ExceptionRow, RECORDED, encoded},
    rules,
    states::{KeyQuery, Limits, Names},
    text::shown,
};

/// An exception that an [`Operator`] is asked to [grant](Operator::grant_exception).
///
/// ```
/// use tollgate_operator::ExceptionRequest;
///
/// let request = ExceptionRequest::new("search", "acme", "factor 2.5", "2h")
///     .of("daily")
///     .by("ann")
///     .because("imports its archive");
/// # let _ = request;
/// ```
#[derive(Clone)]
pub struct ExceptionRequest {
    limiter: String,
    policy: Option<String>,
    key: String,
    change: String,
    ends: String,
    author: String,
    reason: String,
}

/// The exceptions that have not ended, as `tollgate except` lists them. Keys are digests, unless the
/// operator [shows keys](super::OperatorBuilder::shows_keys).
#[derive(Debug, Serialize)]
pub struct GrantedExceptions {
    exceptions: Vec<ExceptionRow>,
}

/// An exception that was granted, changed or withdrawn.
#[derive(Debug, Serialize)]
pub struct ChangedException {
    done: &'static str,
    exception: Option<ExceptionRow>,
}

impl ExceptionRequest {
    /// Creates a request for an exception of the only policy of a limiter.
    ///
    /// The key is one that the policy meters, written as for [`Operator::peek`], or the digest under which
    /// [`Operator::exceptions`] lists it. The change is `quota 900/day`, `factor 2.5` or
    /// `fresh start`, and the end a span such as `2h`, or a time of the server such as
    /// `2026-12-24T18:00:00Z`. A fresh start may have the empty one, and is then listed for a day.
    #[must_use]
    pub fn new(
        limiter: impl Into<String>,
        key: impl Into<String>,
        change: impl Into<String>,
        ends: impl Into<String>,
    ) -> Self {
        Self {
            limiter: limiter.into(),
            policy: None,
            key: key.into(),
            change: change.into(),
            ends: ends.into(),
            author: String::new(),
            reason: String::new(),
        }
    }

    /// Selects the policy of the limiter.
    #[must_use]
    pub fn of(mut self, policy: impl Into<String>) -> Self {
        self.policy = Some(policy.into());
        self
    }

    /// Sets who grants the exception: 1 to 64 characters.
    #[must_use]
    pub fn by(mut self, author: impl Into<String>) -> Self {
        self.author = author.into();
        self
    }

    /// Sets why it is granted: 1 to 200 characters.
    #[must_use]
    pub fn because(mut self, reason: impl Into<String>) -> Self {
        self.reason = reason.into();
        self
    }
}

impl ExceptionRequest {
    /// Returns the exception that it asks of a limiter with these policies, whose store has this time, in
    /// microseconds since the Unix epoch.
    ///
    /// [`Operator::grant_exception`] does so itself. Use it to grant an exception by a
    /// [`Limiter`](tollgate::Limiter) of the program.
    ///
    /// # Errors
    ///
    /// When the policies cannot [have](Exception::fits) the exception, and when its end is past, with the
    /// name of what is refused.
    pub fn exception(&self, policies: &PolicySet, now_us: u64) -> Result<Exception, OperatorError> {
        check_key(&self.key)?;
        self.at_key(encoded(&self.key), policies, now_us)
    }

    fn at_key(
        &self,
        encoded: String,
        policies: &PolicySet,
        now_us: u64,
    ) -> Result<Exception, OperatorError> {
        let change: ExceptionChange = self.change.parse().map_err(OperatorError::refused)?;
        let is_default = self.ends.is_empty() && change == ExceptionChange::FreshStart;
        let ends = is_default.then_some(ExceptionEnd::For(RECORDED));
        let ends = ends.or_else(|| ExceptionEnd::parse(&self.ends));
        let ends = ends.ok_or_else(|| {
            OperatorError::refused(format_args!(
                "ends must be a span such as 2h, or a time such as 2026-12-24T18:00:00Z, got {}",
                shown(&self.ends)
            ))
        })?;
        let policy = self.policy.as_deref();
        let policy = exceptions::policy(policy, &self.limiter, policies, "policy")?;
        let exception = Exception::new(policy, "", change, ends.lasts("ends", now_us)?)
            .at_key(encoded)
            .at_limiter(&*self.limiter)
            .by(&*self.author)
            .because(&*self.reason);
        exception.fits(policies).map_err(OperatorError::refused)?;
        Ok(exception)
    }
}

impl Operator {
    /// Lists the exceptions that have not ended, with the quotas that they put into force.
    ///
    /// # Errors
    ///
    /// When the server does not answer, or refuses.
    pub async fn exceptions(&self) -> Result<GrantedExceptions, OperatorError> {
        let mut session = self.session().await?;
        let reply = session.server.exceptions(&ExceptionCall::List).await?;
        let mut listed = reply.exceptions;
        listed.sort_by_key(Exception::id);
        let row = |exception| self.row(&session.limits, exception, reply.now_us);
        let exceptions = listed.iter().map(row).collect();
        session.keep();
        Ok(GrantedExceptions { exceptions })
    }

    /// Grants an exception, or changes the one of the same limiter, policy and key. Replicas apply it
    /// within three seconds.
    ///
    /// # Errors
    ///
    /// When the limiter is not published, and is not that of the [rules](super::OperatorBuilder::rules);
    /// when it cannot [have](Exception::fits) the exception, with the name of what is refused; when its
    /// end is past, or the store has no room; and when the server does not answer, or refuses.
    pub async fn grant_exception(
        &self,
        request: &ExceptionRequest,
    ) -> Result<ChangedException, OperatorError> {
        check_key(&request.key)?;
        let mut session = self.session().await?;
        let limiter = &*request.limiter;
        let (key, policies) = self.named(&mut session, limiter, &request.key).await?;
        let now_us = session.server.now_us().await?;
        let exception = request.at_key(key, &policies, now_us)?;
        let granted = exceptions::grant(&mut session.server, &policies, exception).await?;
        let row = |exception| self.row(&session.limits, &exception, granted.now_us);
        let exception = granted.exception.map(row);
        session.keep();
        let done = if granted.replaced.is_some() {
            "changed"
        } else {
            "granted"
        };
        Ok(ChangedException { done, exception })
    }

    /// Withdraws an exception before its end. The policy may be left out when the key has one exception
    /// of the limiter. The key is written as for [`ExceptionRequest::new`].
    ///
    /// # Errors
    ///
    /// When there is no such exception, and when the server does not answer, or refuses.
    pub async fn withdraw_exception(
        &self,
        limiter: &str,
        policy: Option<&str>,
        key: &str,
    ) -> Result<ChangedException, OperatorError> {
        check_key(key)?;
        let mut session = self.session().await?;
        let keys = self.keys(&session.limits, key);
        let is_meant = |exception: &Exception| {
            exception.limiter() == limiter
                && policy.is_none_or(|policy| policy == exception.policy())
                && (keys.iter().any(|key| key == exception.key())
                    || self.0.names.digest(exception.key()).as_deref() == Some(key))
        };
        let what = exceptions::described(limiter, policy, key);
        let withdrawn = exceptions::withdraw(&mut session.server, &what, is_meant);
        let (now_us, withdrawn) = withdrawn.await?;
        let row = self.row(&session.limits, &withdrawn, now_us);
        session.keep();
        Ok(ChangedException {
            done: "withdrawn",
            exception: Some(row),
        })
    }

    /// Returns the exceptions that apply to a key.
    pub(super) fn exceptions_of(&self, session: &Session<'_>, key: &str) -> Vec<ExceptionRow> {
        let limits = &session.limits;
        let keys = self.keys(limits, key);
        let now_us = limits.excepted_us();
        let found = keys.iter().flat_map(|key| limits.exceptions(key));
        let mut found: Vec<_> = found.map(|(exception, _)| exception).collect();
        found.sort_by_key(|exception| exception.id());
        found.dedup();
        let row = |exception| self.row(limits, exception, now_us);
        found.into_iter().map(row).collect()
    }

    fn row(&self, limits: &Limits, exception: &Exception, now_us: u64) -> ExceptionRow {
        let digest = self.0.names.digest(exception.key());
        ExceptionRow::new(exception, now_us)
            .with_key(digest.unwrap_or_else(|| exception.key().to_owned()))
            .with_quota(limits.quota_with(exception))
    }

    /// Returns the encoded keys that the operator may mean.
    fn keys(&self, limits: &Limits, key: &str) -> Vec<String> {
        let subjects = KeyQuery::of(key, limits).subjects(self.prefix(), limits);
        let mut keys = subjects.unwrap_or_default();
        keys.push(encoded(key));
        keys.sort();
        keys.dedup();
        keys
    }

    /// Returns the encoded key of an exception, and the policies of its limiter.
    async fn named(
        &self,
        session: &mut Session<'_>,
        limiter: &str,
        key: &str,
    ) -> Result<(String, PolicySet), OperatorError> {
        let listed = match &self.0.names {
            Names::Plain => None,
            names => {
                let reply = session.server.exceptions(&ExceptionCall::List).await?;
                let mut keys = reply.exceptions.iter().map(Exception::key);
                let listed = keys.find(|listed| names.digest(listed).as_deref() == Some(key));
                listed.map(str::to_owned)
            }
        };
        let limits = &session.limits;
        match limits.rules().filter(|_| limiter == self.0.rules_limiter) {
            None => {
                let policies =
                    exceptions::of_published(limits.publications(), limiter, self.prefix());
                policies.map(|policies| (listed.unwrap_or_else(|| encoded(key)), policies))
            }
            Some(set) => {
                let entries: Vec<_> = key.split_whitespace().map(str::to_owned).collect();
                let are_entries = entries.iter().all(|entry| rules::pair(entry).is_ok());
                let key = listed.unwrap_or_else(|| key.to_owned());
                match limits.policies_of_subject(&key) {
                    Some(policies) => Ok((key, policies)),
                    None if are_entries => exceptions::of_rules(set, None, &entries),
                    None => Err(OperatorError::not_found(format_args!(
                        "no rule limits {}",
                        shown(&key)
                    ))),
                }
            }
        }
    }
}

// Leaves out the key, which may identify a person.
tollgate::debug_fields! {
    ExceptionRequest: limiter, policy, change, ends, author, reason, ..
}
