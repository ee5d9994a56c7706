//! `tollgate except`: lists, grants and withdraws exceptions.
//! The exception is found, and the server called, by tollgate-operator.

use std::{path::PathBuf, time::Duration};

use clap::Args;
use serde::Serialize;
use tollgate::{
    PolicySet, Quota,
    store::{Exception, ExceptionCall, ExceptionChange},
};
use tollgate_operator::{
    exceptions::{self, ExceptionEnd, ExceptionRow, RECORDED, encoded},
    states::Server,
    text::{parse_time, shown, span},
};

use super::states::run_async;
use crate::{
    failure::Failure,
    options::RedisOptions,
    output::{Format, Report, Table},
    rules::RuleOptions,
};

/// Lists, grants or withdraws exceptions: another quota for one key of a limiter, until an end, or a fresh
/// start.
///
/// Each replica applies a change within three seconds. An exception ends by the clock of the server,
/// also while the server is away. What the key has spent stays spent, but for a fresh start.
/// One that is granted again is changed.
///
/// The limiter has to be published by its service. For a limiter of rules, which is called `rules` by
/// default, name the files with --rules, and the value by KEY=VALUE entries. Another name of it needs
/// --rules-limiter.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  tollgate except --redis redis://127.0.0.1
  tollgate except search acme --factor 2.5 --for 2h --author ann --reason 'imports its archive' --redis redis://127.0.0.1
  tollgate except search acme --of daily --quota 900/day --until 2026-12-24T18:00:00Z --author ann --reason trial
  tollgate except search acme --of daily --fresh --author ann --reason 'was charged twice' --redis redis://127.0.0.1
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

    /// Lets nothing count any more that the policy has counted of the key; --for is how long that is listed,
    /// a day by default
    #[arg(long, requires = "key", conflicts_with_all = ["quota", "factor", "withdraw"])]
    fresh: bool,

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

    /// Sets the name of the limiter of the rules, when the service gives it another one
    #[arg(
        long,
        value_name = "LIMITER",
        default_value = "rules",
        requires = "file"
    )]
    rules_limiter: String,

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
    Fresh,
    Withdrawn,
}

#[derive(Serialize)]
struct Excepted {
    done: Done,
    exceptions: Vec<ExceptionRow>,
}

impl Except {
    pub(crate) fn run(&self, format: Format) -> Result<Report, Failure> {
        let excepted = run_async(async {
            let mut server = self.redis.connect().await?;
            let is_change =
                self.quota.is_some() || self.factor.is_some() || self.fresh || self.withdraw;
            match self.limiter.as_deref().filter(|_| is_change) {
                None => self.list(&mut server).await,
                Some(limiter) if self.withdraw => self.take_back(&mut server, limiter).await,
                Some(limiter) => self.grant(&mut server, limiter).await,
            }
        })?;
        Ok(Report::new(format, &excepted, || {
            excepted.text(&self.redis.prefix())
        }))
    }

    async fn list(&self, server: &mut Server) -> Result<Excepted, Failure> {
        let reply = server.exceptions(&ExceptionCall::List).await?;
        let is_asked = |exception: &&Exception| {
            let limiter = self.limiter.as_deref();
            limiter.is_none_or(|limiter| limiter == exception.limiter())
                && match &self.key[..] {
                    [] => true,
                    keys => keys.iter().any(|key| encoded(key) == exception.key()),
                }
        };
        let mut listed: Vec<_> = reply.exceptions.iter().filter(is_asked).collect();
        listed.sort_by_key(|exception| exception.id());
        Ok(Excepted::new(Done::Listed, listed, reply.now_us))
    }

    async fn grant(&self, server: &mut Server, limiter: &str) -> Result<Excepted, Failure> {
        let (key, policies) = match self.of_rules(limiter)? {
            Some(found) => found,
            None => {
                let published = exceptions::published(server).await?;
                let policies = exceptions::of_published(&published, limiter, server.prefix())?;
                (self.text_key()?, policies)
            }
        };
        let policy = exceptions::policy(self.policy.as_deref(), limiter, &policies, "--of")?;
        let lasts = match (self.lasts, self.until) {
            (Some(lasts), _) => ExceptionEnd::For(lasts),
            (None, Some(until)) => ExceptionEnd::Until(until),
            (None, None) if self.fresh => ExceptionEnd::For(RECORDED),
            (None, None) => {
                return Err(Failure::new(
                    "an exception has an end: expected --for TIME or --until TIME",
                ));
            }
        };
        let lasts = lasts.lasts("--until", server.now_us().await?)?;
        let exception = Exception::new(policy, "", self.change()?, lasts)
            .at_key(key)
            .at_limiter(limiter)
            .by(self.author.as_deref().unwrap_or_default())
            .because(self.reason.as_deref().unwrap_or_default());
        exception.fits(&policies).map_err(Failure::new)?;
        let granted = exceptions::grant(server, &policies, exception).await?;
        let done = match granted.replaced {
            _ if self.fresh => Done::Fresh,
            None => Done::Granted,
            Some(_) => Done::Changed,
        };
        Ok(Excepted::new(done, &granted.exception, granted.now_us))
    }

    async fn take_back(&self, server: &mut Server, limiter: &str) -> Result<Excepted, Failure> {
        let key = match self.of_rules(limiter)? {
            Some((key, _)) => key,
            None => self.text_key()?,
        };
        let what = exceptions::described(limiter, self.policy.as_deref(), &key);
        let is_meant = |exception: &Exception| {
            let policy = self.policy.as_deref();
            exception.limiter() == limiter
                && exception.key() == key
                && policy.is_none_or(|policy| policy == exception.policy())
        };
        let (now_us, withdrawn) = exceptions::withdraw(server, &what, is_meant).await?;
        Ok(Excepted::new(Done::Withdrawn, [&withdrawn], now_us))
    }

    /// Returns the encoded key and the policies of a rule, when rules are named.
    fn of_rules(&self, limiter: &str) -> Result<Option<(String, PolicySet)>, Failure> {
        let Some(file) = &self.file else {
            return Ok(None);
        };
        // No replica would apply the exception, or one to a key of another limiter.
        if limiter != self.rules_limiter {
            return Err(Failure::new(format_args!(
                "the limiter of the rules is {}, got {}: a limiter that is published needs no --rules, and \
                 --rules-limiter names that of the rules otherwise",
                shown(&self.rules_limiter),
                shown(limiter)
            )));
        }
        let set = self.rules.load(file)?;
        Ok(Some(exceptions::of_rules(
            &set,
            self.domain.as_deref(),
            &self.key,
        )?))
    }

    /// Returns the encoded key, which is one text.
    fn text_key(&self) -> Result<String, Failure> {
        match &self.key[..] {
            [key] => Ok(encoded(key)),
            _ => Err(Failure::new(
                "expected one KEY, got several, which only entries with --rules may be",
            )),
        }
    }

    fn change(&self) -> Result<ExceptionChange, Failure> {
        match (self.quota, self.factor) {
            (Some(quota), _) => Ok(ExceptionChange::Quota(quota)),
            (None, Some(factor)) => Ok(ExceptionChange::Factor(factor)),
            (None, None) if self.fresh => Ok(ExceptionChange::FreshStart),
            (None, None) => Err(Failure::new(
                "expected --quota, --factor, --fresh or --withdraw",
            )),
        }
    }
}

/// Reads a time.
fn moment(text: &str) -> Result<u64, String> {
    parse_time(text).ok_or_else(|| "expected a time such as 2026-12-24T18:00:00Z".to_owned())
}

impl Excepted {
    fn new<'e>(
        done: Done,
        exceptions: impl IntoIterator<Item = &'e Exception>,
        now_us: u64,
    ) -> Self {
        let row = |exception| ExceptionRow::new(exception, now_us);
        let exceptions = exceptions.into_iter().map(row).collect();
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
            Done::Fresh => {
                "fresh, although processes that remember a denial may deny for up to a second more:\n"
            }
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
