//! Exceptions as an operator asks for them, and the rows in which they are listed.
//!
//! [`Operator::grant_exception`](crate::Operator::grant_exception) and its like do whole tasks of these
//! parts. Exceptions themselves are those of [`tollgate::store`].

// The calls of each server are in `states/`.
//
// A fresh start removes the same keys as that of `Limiter::grant_exception`, by another way. A limiter resets by
// its store, which knows all masters and drops what this process holds of a lease. An operator holds nothing,
// is given any one master by a plain URL, and may have a user without the right to run the scripts of a store,
// with which a store is diagnosed before it is used. So it asks the server itself. `tests/it/fresh.rs` compares
// both.

use std::{net::IpAddr, time::Duration};

use serde::Serialize;
use tollgate::{
    Key, Policy, PolicySet, Quota,
    store::{Exception, ExceptionCall, Publication},
};
use tollgate_rules::{Descriptor, RuleSet};

use crate::{
    error::OperatorError,
    rules,
    states::{Published, Server},
    text::{parse_time, shown, shown_time},
};

/// An exception, with the fields that `tollgate except --format json` has.
///
/// ```
/// use std::time::Duration;
/// use tollgate::store::{Exception, ExceptionChange};
/// use tollgate_operator::ExceptionRow;
///
/// let twice = ExceptionChange::Factor(2.0);
/// let exception = Exception::new("daily", "acme", twice, Duration::from_secs(60)).by("ann");
/// let row = ExceptionRow::new(&exception, 0).with_key("a digest");
/// let json = serde_json::to_value(&row).unwrap();
/// assert_eq!((&json["key"], &json["change"]), (&"a digest".into(), &"factor 2".into()));
/// ```
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct ExceptionRow {
    /// The name of the limiter.
    pub limiter: String,
    /// The name of the policy.
    pub policy: String,
    /// The encoded key, or its digest.
    pub key: String,
    /// The change, as an exception writes it: `factor 2.5`.
    pub change: String,
    /// The quota that it puts into force, where the policy is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quota: Option<String>,
    /// The operator who granted it.
    pub author: String,
    /// The reason for the grant.
    pub reason: String,
    /// Its beginning, by the clock of the server.
    pub begins: String,
    /// Its end, by the clock of the server.
    pub ends: String,
    /// The seconds until its end.
    pub left_s: u64,
}

/// The end of an exception, as an operator says it.
///
/// ```
/// use std::time::Duration;
/// use tollgate_operator::exceptions::ExceptionEnd;
///
/// let end = ExceptionEnd::parse("2h").unwrap();
/// assert_eq!(end.lasts("ends", 0).unwrap(), Duration::from_secs(7_200));
/// let past = ExceptionEnd::parse("1970-01-01T00:00:01Z").unwrap();
/// assert!(past.lasts("ends", 2_000_000).unwrap_err().is_refused());
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ExceptionEnd {
    /// After this time.
    For(Duration),
    /// At this time of the server, in microseconds since the Unix epoch.
    Until(u64),
}

/// The time for which the record of a fresh start is kept, unless an operator says otherwise.
pub const RECORDED: Duration = Duration::from_secs(86_400);

/// The outcome of a grant.
#[derive(Debug)]
#[non_exhaustive]
pub struct Granted {
    /// The time of the server, in microseconds since the Unix epoch.
    pub now_us: u64,
    /// The exception, as it is listed now.
    pub exception: Option<Exception>,
    /// The one that it has replaced.
    pub replaced: Option<Exception>,
}

impl ExceptionRow {
    /// Creates the row of an exception whose store has this time, in microseconds since the Unix epoch.
    #[must_use]
    pub fn new(exception: &Exception, now_us: u64) -> Self {
        let left = Duration::from_micros(exception.ends_us().saturating_sub(now_us));
        Self {
            limiter: exception.limiter().to_owned(),
            policy: exception.policy().to_owned(),
            key: exception.key().to_owned(),
            change: exception.change().to_string(),
            quota: None,
            author: exception.author().to_owned(),
            reason: exception.reason().to_owned(),
            begins: shown_time(exception.begins_us()),
            ends: shown_time(exception.ends_us()),
            left_s: left.as_secs(),
        }
    }

    /// Shows this name in the place of the key.
    #[must_use]
    pub fn with_key(mut self, name: impl Into<String>) -> Self {
        self.key = name.into();
        self
    }

    /// Adds the quota that it puts into force, where that is known.
    #[must_use]
    pub fn with_quota(mut self, quota: Option<Quota>) -> Self {
        self.quota = quota.map(|quota| quota.to_string());
        self
    }
}

impl ExceptionEnd {
    /// Reads a span such as `2h`, or a time. `None` for any other text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let span = Quota::parse_period(text).ok().map(Self::For);
        span.or_else(|| parse_time(text).map(Self::Until))
    }

    /// Returns for how long an exception lasts from now on, by the clock of the server. `field` names
    /// the end in an error.
    ///
    /// # Errors
    ///
    /// When the end is past.
    pub fn lasts(self, field: &str, now_us: u64) -> Result<Duration, OperatorError> {
        let until = match self {
            Self::For(lasts) => return Ok(lasts),
            Self::Until(until) => until,
        };
        let left_us = until.checked_sub(now_us).ok_or_else(|| {
            OperatorError::refused(format_args!(
                "{field} {} is in the past: the server has {}",
                shown_time(until),
                shown_time(now_us)
            ))
        })?;
        Ok(Duration::from_micros(left_us))
    }
}

/// Returns the encoded key and the policies of the rule that limits these entries.
///
/// # Errors
///
/// When an entry has no sign `=`, when there is no such domain, and when no rule limits the entries.
pub fn of_rules(
    set: &RuleSet,
    domain: Option<&str>,
    entries: &[String],
) -> Result<(String, PolicySet), OperatorError> {
    let domain = rules::domain(set, domain)?;
    let pairs = entries.iter().map(|entry| rules::pair(entry));
    let descriptor: Descriptor<'_> = pairs.collect::<Result<_, _>>()?;
    let found = set.find(domain, &descriptor);
    let policies = found.as_ref().and_then(|found| found.rule().policies());
    let (Some(found), Some(policies)) = (&found, policies) else {
        return Err(OperatorError::not_found(format_args!(
            "no rule limits {}",
            shown(&entries.join(" "))
        )));
    };
    Ok((found.key().encoded().to_owned(), policies.clone()))
}

/// Returns the policies of a limiter that is published, the newest ones.
///
/// # Errors
///
/// When no such limiter is published under the prefix, which the error names.
pub fn of_published(
    published: &[Publication],
    limiter: &str,
    prefix: &str,
) -> Result<PolicySet, OperatorError> {
    let mut newest = published.iter().rev();
    if let Some(limiter) = newest.find(|published| published.name() == limiter) {
        return Ok(limiter.policies());
    }
    let mut names: Vec<_> = published.iter().map(Publication::name).collect();
    names.sort_unstable();
    names.dedup();
    let names = match &names[..] {
        [] => "none".to_owned(),
        names => shown(&names.join(", ")),
    };
    Err(OperatorError::not_found(format_args!(
        "no limiter {} is published under the prefix {prefix}, which has {names}",
        shown(limiter)
    )))
}

/// Returns the name of the policy, which may be left out when the limiter has one. `option` names the
/// field in an error.
///
/// # Errors
///
/// When the limiter has several policies, and none is named.
pub fn policy(
    policy: Option<&str>,
    limiter: &str,
    policies: &PolicySet,
    option: &str,
) -> Result<String, OperatorError> {
    let names: Vec<_> = policies.iter().map(Policy::name).collect();
    match (policy, &names[..]) {
        (Some(policy), _) => Ok(policy.to_owned()),
        (None, [only]) => Ok((*only).to_owned()),
        (None, _) => Err(OperatorError::refused(format_args!(
            "the limiter {} has several policies, choose one with {option}: {}",
            shown(limiter),
            shown(&names.join(", "))
        ))),
    }
}

/// Grants an exception, which [fits](Exception::fits) the policies of its limiter. A fresh start is
/// recorded, and then done.
///
/// # Errors
///
/// When the exception is not valid, when the store has no room, and when the server does not answer, or
/// refuses.
pub async fn grant(
    server: &mut Server,
    policies: &PolicySet,
    exception: Exception,
) -> Result<Granted, OperatorError> {
    let id = exception.id();
    let call = ExceptionCall::Grant(exception.clone());
    let replaced = server.exceptions(&call).await?;
    let mut policies = policies.iter();
    if exception.is_fresh_start()
        && let Some(policy) = policies.find(|policy| policy.name() == exception.policy())
    {
        server.start_fresh(policy, exception.key()).await?;
    }
    let reply = server.exceptions(&ExceptionCall::List).await?;
    let mut listed = reply.exceptions.into_iter();
    Ok(Granted {
        now_us: reply.now_us,
        exception: listed.find(|exception| exception.id() == id),
        replaced: replaced.exceptions.into_iter().next(),
    })
}

/// Describes an exception that an operator names, for [`withdraw`].
#[must_use]
pub fn described(limiter: &str, policy: Option<&str>, key: &str) -> String {
    let of_policy = |policy| format!("of {} ", shown(policy));
    format!(
        "{}for {} at the limiter {}",
        policy.map(of_policy).unwrap_or_default(),
        shown(key),
        shown(limiter)
    )
}

/// Withdraws the only exception that `is_meant` selects, and returns it with the time of the server in
/// microseconds since the Unix epoch. `what` names it in an error.
///
/// # Errors
///
/// When there is none, or several, and when the server does not answer, or refuses.
pub async fn withdraw(
    server: &mut Server,
    what: &str,
    is_meant: impl Fn(&Exception) -> bool,
) -> Result<(u64, Exception), OperatorError> {
    let listed = server.exceptions(&ExceptionCall::List).await?.exceptions;
    // A fresh start has happened.
    let is_meant = |exception: &&Exception| !exception.is_fresh_start() && is_meant(exception);
    let meant: Vec<_> = listed.iter().filter(is_meant).collect();
    let missing = || OperatorError::not_found(format_args!("there is no exception {what}"));
    let meant = match meant[..] {
        [] => return Err(missing()),
        [meant] => meant,
        _ => {
            let names: Vec<_> = meant.iter().map(|meant| meant.policy()).collect();
            return Err(OperatorError::refused(format_args!(
                "there are several exceptions {what}, choose a policy: {}",
                shown(&names.join(", "))
            )));
        }
    };
    let call = ExceptionCall::withdraw(meant.limiter(), meant.policy(), meant.key());
    let reply = server.exceptions(&call).await?;
    // Somebody else may have withdrawn it meanwhile.
    let withdrawn = reply.exceptions.into_iter().next().ok_or_else(missing)?;
    Ok((reply.now_us, withdrawn))
}

/// Returns what is published under the prefix of the server.
///
/// # Errors
///
/// When the server does not answer, or refuses.
pub async fn published(server: &mut Server) -> Result<Vec<Publication>, OperatorError> {
    Ok(Published::read(server).await?.limits)
}

/// Returns the encoded key: a text that has the form of one, as commands print it, or as an application
/// gives it to `Key::new`, or an address.
#[must_use]
pub fn encoded(text: &str) -> String {
    match text.parse::<IpAddr>() {
        Ok(address) => Key::from(address).encoded().to_owned(),
        Err(_) if is_encoded(text) => text.to_owned(),
        Err(_) => Key::new(text).encoded().to_owned(),
    }
}

/// Returns whether a text may be an encoded key: it has no sign that `Key` writes as an escape.
fn is_encoded(text: &str) -> bool {
    let is_plain = |byte: u8| Key::bytes(&[byte]).encoded().len() == 1;
    let is_sign = |byte: u8| is_plain(byte) || SIGNS.contains(&byte);
    let mut escapes = text.split('%').skip(1);
    text.split('>').all(|level| !level.is_empty())
        && text.bytes().all(is_sign)
        && escapes.all(|escape| {
            let hex = escape.as_bytes().get(..2);
            hex.is_some_and(|hex| hex.iter().all(u8::is_ascii_hexdigit))
        })
}

/// The signs of encoded keys between and before parts.
const SIGNS: &[u8] = b"%>^,#()!~*";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_taken_as_commands_print_it_or_as_an_application_gives_it() {
        for printed in [
            "acme",
            "tenant%2042,/export,#7",
            "acme>ann",
            "shop,(tenant,acme)",
        ] {
            assert_eq!(encoded(printed), printed);
        }
        assert_eq!(
            encoded("2001:DB8::1"),
            Key::from("2001:db8::1".parse::<IpAddr>().unwrap()).encoded()
        );
        for given in [
            "tenant 42",
            "<script>",
            "100%",
            "a>",
            "ümlaut",
            "{x}",
            "\"><img src=x>",
            "",
        ] {
            assert_eq!(encoded(given), Key::new(given).encoded(), "{given}");
        }
    }

    #[test]
    fn an_end_is_a_span_or_a_time() {
        let hours = ExceptionEnd::For(Duration::from_secs(7_200));
        assert_eq!(ExceptionEnd::parse("2h"), Some(hours));
        let until = ExceptionEnd::Until(1_796_083_199_000_000);
        assert_eq!(ExceptionEnd::parse("2026-11-30T23:59:59Z"), Some(until));
        assert_eq!(ExceptionEnd::parse("soon"), None);
    }
}
