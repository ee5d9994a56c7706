//! `tollgate except`: lists, grants and withdraws exceptions.
//! The calls of each server are in `redis/`.

use std::{net::IpAddr, path::PathBuf, time::Duration};

use clap::Args;
use serde::Serialize;
use tollgate::{
    Key, PolicySet, Quota,
    store::{Exception, ExceptionCall, ExceptionChange, ExceptionReply, Publication},
};
use tollgate_rules::Descriptor;

use super::states::run_async;
use crate::{
    failure::Failure,
    output::{Format, Report, Table, shown},
    redis::{Published, RedisOptions, Server, span},
    rules::{self, RuleOptions},
    trace::{parse_time, shown_time},
};

/// Lists, grants or withdraws exceptions: another quota for one key of a limiter, until an end.
///
/// Each replica applies a change within three seconds. An exception ends by the clock of the server,
/// also while the server is away. What the key has spent stays spent: `tollgate reset` gives it back.
/// One that is granted again is changed.
///
/// The limiter has to be published by its service. For a limiter of rules, which is called `rules` by
/// default, name the files with --rules, and the value by KEY=VALUE entries.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  tollgate except --redis redis://127.0.0.1
  tollgate except search acme --factor 2.5 --for 2h --author ann --reason 'imports its archive' --redis redis://127.0.0.1
  tollgate except search acme --of daily --quota 900/day --until 2026-12-24T18:00:00Z --author ann --reason trial
  tollgate except search acme --withdraw --redis redis://127.0.0.1
  tollgate except rules tenant=gold --rules rules.yaml --factor 2 --for 2h --author ann --reason trial")]
pub(crate) struct Except {
    /// The name of the limiter
    #[arg(value_name = "LIMITER")]
    limiter: Option<String>,

    /// The key that the policy meters: a text or an address, as `top` and `who` print it, or with --rules
    /// KEY=VALUE entries
    #[arg(value_name = "KEY")]
    key: Vec<String>,

    /// Selects the policy, when the limiter has several
    #[arg(long = "of", value_name = "POLICY", requires = "key")]
    policy: Option<String>,

    /// Grants this quota
    #[arg(long, value_name = "QUOTA", requires = "key", conflicts_with_all = ["factor", "withdraw"])]
    quota: Option<Quota>,

    /// Grants the quota of the policy times this factor
    #[arg(long, requires = "key", conflicts_with = "withdraw")]
    factor: Option<f64>,

    /// Withdraws the exception before its end
    #[arg(long, requires = "key")]
    withdraw: bool,

    /// Sets for how long the exception lasts: 1 s to 366 days, such as 2h
    #[arg(long = "for", value_name = "TIME", value_parser = Quota::parse_period)]
    lasts: Option<Duration>,

    /// Sets when the exception ends, by the clock of the server
    #[arg(long, value_name = "TIME", conflicts_with = "lasts", value_parser = moment)]
    until: Option<u64>,

    /// Names who grants the exception
    #[arg(long)]
    author: Option<String>,

    /// Says why
    #[arg(long)]
    reason: Option<String>,

    /// Reads the policies of the limiter from this file or directory of rules
    #[arg(long = "rules", value_name = "FILE", requires = "key")]
    file: Option<PathBuf>,

    /// Selects the domain of the entries, when the rules have several
    #[arg(long)]
    domain: Option<String>,

    #[command(flatten)]
    rules: RuleOptions,

    #[command(flatten)]
    redis: RedisOptions,
}

/// The outcome of the command.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Done {
    Listed,
    Granted,
    Changed,
    Withdrawn,
}

#[derive(Serialize)]
struct Excepted {
    done: Done,
    exceptions: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    limiter: String,
    policy: String,
    /// The encoded key.
    key: String,
    change: String,
    author: String,
    reason: String,
    begins: String,
    ends: String,
    left_s: u64,
}

impl Except {
    pub(crate) fn run(&self, format: Format) -> Result<Report, Failure> {
        let excepted = run_async(async {
            let mut server = self.redis.connect().await?;
            let is_change = self.quota.is_some() || self.factor.is_some() || self.withdraw;
            let Some(limiter) = self.limiter.as_deref().filter(|_| is_change) else {
                return self.list(&mut server).await;
            };
            let (key, policies) = self.named(&mut server, limiter).await?;
            let policy = self.policy(limiter, &policies)?;
            if self.withdraw {
                let call = ExceptionCall::withdraw(limiter, &policy, &key);
                let reply = server.exceptions(&call).await?;
                return match &reply.exceptions[..] {
                    [] => Err(Failure::new(format_args!(
                        "there is no exception of {} for {} at the limiter {}",
                        shown(&policy),
                        shown(&key),
                        shown(limiter)
                    ))),
                    _ => Ok(Excepted::new(Done::Withdrawn, &reply)),
                };
            }
            let lasts = self.lasts(&mut server).await?;
            let exception = Exception::new(&*policy, "", self.change()?, lasts)
                .at_key(&*key)
                .at_limiter(limiter)
                .by(self.author.as_deref().unwrap_or_default())
                .because(self.reason.as_deref().unwrap_or_default());
            exception.fits(&policies).map_err(Failure::new)?;
            let id = exception.id();
            let replaced = server.exceptions(&ExceptionCall::Grant(exception)).await?;
            let mut reply = server.exceptions(&ExceptionCall::List).await?;
            reply.exceptions.retain(|exception| exception.id() == id);
            let done = match &replaced.exceptions[..] {
                [] => Done::Granted,
                _ => Done::Changed,
            };
            Ok(Excepted::new(done, &reply))
        })?;
        Ok(Report::new(format, &excepted, || {
            excepted.text(self.redis.prefix())
        }))
    }

    async fn list(&self, server: &mut Server) -> Result<Excepted, Failure> {
        let mut reply = server.exceptions(&ExceptionCall::List).await?;
        let is_asked = |exception: &Exception| {
            let limiter = self.limiter.as_deref();
            limiter.is_none_or(|limiter| limiter == exception.limiter())
                && match &self.key[..] {
                    [] => true,
                    keys => keys.iter().any(|key| encoded(key) == exception.key()),
                }
        };
        reply.exceptions.retain(is_asked);
        reply.exceptions.sort_by_key(Exception::id);
        Ok(Excepted::new(Done::Listed, &reply))
    }

    /// Returns the encoded key, and the policies of the limiter.
    async fn named(
        &self,
        server: &mut Server,
        limiter: &str,
    ) -> Result<(String, PolicySet), Failure> {
        if let Some(file) = &self.file {
            let set = self.rules.load(file)?;
            let domain = rules::domain(&set, self.domain.as_deref())?;
            let entries = self.key.iter().map(|entry| rules::pair(entry));
            let descriptor: Descriptor<'_> = entries.collect::<Result<_, _>>()?;
            let found = set.find(domain, &descriptor);
            let policies = found.as_ref().and_then(|found| found.rule().policies());
            let (Some(found), Some(policies)) = (&found, policies) else {
                return Err(Failure::new(format_args!(
                    "no rule limits {}",
                    shown(&self.key.join(" "))
                )));
            };
            return Ok((found.key().encoded().to_owned(), policies.clone()));
        }
        let [key] = &self.key[..] else {
            return Err(Failure::new(
                "expected one KEY, got several, which only entries with --rules may be",
            ));
        };
        let published = Published::read(server).await?;
        // The newest is the last one.
        let mut own = published.limits.iter().rev();
        match own.find(|limits| limits.name() == limiter) {
            Some(limits) => Ok((encoded(key), limits.policies())),
            // What a limiter that is gone has left can be withdrawn.
            None if self.withdraw && self.policy.is_some() => {
                let policy = self.policy.as_deref().unwrap_or_default();
                let policy = tollgate::Policy::try_new(
                    policy.to_owned(),
                    tollgate::Algorithm::TokenBucket,
                    Quota::per_second(1),
                );
                Ok((encoded(key), policy.map_err(Failure::new)?.into()))
            }
            None => {
                let names: Vec<_> = published.limits.iter().map(Publication::name).collect();
                Err(Failure::new(format_args!(
                    "no limiter {} is published under the prefix {}, which has {}",
                    shown(limiter),
                    self.redis.prefix(),
                    shown(&names.join(", "))
                )))
            }
        }
    }

    /// Returns the name of the policy.
    fn policy(&self, limiter: &str, policies: &PolicySet) -> Result<String, Failure> {
        let names: Vec<_> = policies.iter().map(tollgate::Policy::name).collect();
        match (&self.policy, &names[..]) {
            (Some(policy), _) => Ok(policy.clone()),
            (None, [only]) => Ok((*only).to_owned()),
            (None, _) => Err(Failure::new(format_args!(
                "the limiter {} has several policies, choose one with --of: {}",
                shown(limiter),
                shown(&names.join(", "))
            ))),
        }
    }

    fn change(&self) -> Result<ExceptionChange, Failure> {
        match (self.quota, self.factor) {
            (Some(quota), _) => Ok(ExceptionChange::Quota(quota)),
            (None, Some(factor)) => Ok(ExceptionChange::Factor(factor)),
            (None, None) => Err(Failure::new("expected --quota, --factor or --withdraw")),
        }
    }

    /// Returns for how long the exception lasts from now on, by the clock of the server.
    async fn lasts(&self, server: &mut Server) -> Result<Duration, Failure> {
        if let Some(lasts) = self.lasts {
            return Ok(lasts);
        }
        let until = self.until.ok_or_else(|| {
            Failure::new("an exception has an end: expected --for TIME or --until TIME")
        })?;
        let now_us = server.now_us().await?;
        let left_us = until.checked_sub(now_us).ok_or_else(|| {
            Failure::new(format_args!(
                "--until {} is in the past: the server has {}",
                shown_time(until),
                shown_time(now_us)
            ))
        })?;
        Ok(Duration::from_micros(left_us))
    }
}

/// Reads a time.
fn moment(text: &str) -> Result<u64, String> {
    parse_time(text).ok_or_else(|| "expected a time such as 2026-12-24T18:00:00Z".to_owned())
}

/// Returns the encoded key: a text that has the form of one, as commands print it, or as an application
/// gives it to `Key::new`, or an address.
fn encoded(text: &str) -> String {
    let key = match text.parse::<IpAddr>() {
        Ok(address) => Key::from(address),
        Err(_) => Key::new(text),
    };
    let is_encoded = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'{' | b'}');
    match text.parse::<IpAddr>() {
        Err(_) if text.bytes().all(is_encoded) => text.to_owned(),
        _ => key.encoded().to_owned(),
    }
}

impl Excepted {
    fn new(done: Done, reply: &ExceptionReply) -> Self {
        let row = |exception: &Exception| {
            let left = Duration::from_micros(exception.ends_us().saturating_sub(reply.now_us));
            Row {
                limiter: exception.limiter().to_owned(),
                policy: exception.policy().to_owned(),
                key: exception.key().to_owned(),
                change: exception.change().to_string(),
                author: exception.author().to_owned(),
                reason: exception.reason().to_owned(),
                begins: shown_time(exception.begins_us()),
                ends: shown_time(exception.ends_us()),
                left_s: left.as_secs(),
            }
        };
        let exceptions = reply.exceptions.iter().map(row).collect();
        Self { done, exceptions }
    }

    fn text(&self, prefix: &str) -> String {
        let what = match self.done {
            Done::Listed if self.exceptions.is_empty() => {
                return format!("there are no exceptions under the prefix {prefix}\n");
            }
            Done::Listed => "",
            Done::Granted => "granted, in force within three seconds:\n",
            Done::Changed => "changed, in force within three seconds:\n",
            Done::Withdrawn => "withdrawn, within three seconds:\n",
        };
        let names = [
            "limiter", "policy", "key", "change", "left", "author", "reason",
        ];
        let mut table = Table::new(names);
        for row in &self.exceptions {
            let left = span(Duration::from_secs(row.left_s));
            let cells = [
                &row.limiter,
                &row.policy,
                &row.key,
                &row.change,
                &left,
                &row.author,
                &row.reason,
            ];
            table.row(cells.map(|cell| shown(cell)));
        }
        what.to_owned() + &table.text()
    }
}
