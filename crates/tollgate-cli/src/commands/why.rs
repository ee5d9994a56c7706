//! `tollgate why`: explains why a key was denied, from an event log and from the state now.
//! The log is read in `event_log/`, and the state by tollgate-operator.

use std::{fmt::Write as _, path::PathBuf, time::Duration};

use clap::Args;
use serde::Serialize;
use sha2::{Digest as _, Sha256};
use tollgate_operator::{
    ExceptionRow,
    states::{Limits, PublishedLimiter, StateEntry, look_ahead},
    text::{shown, shown_time, span},
};

use super::states::{run_async, state_table};
use crate::{
    cells::fits_in,
    event_log::{Answer, EventLog, Logged, Moment, Question},
    failure::Failure,
    options::{KeyOptions, NameOptions, RedisOptions, connect},
    output::{Format, Report},
};

/// Explains why a key was denied: by which policy and quota, with which units left, whether by the store
/// or by the outage rule, and when the same check would have been admitted.
///
/// The answer comes from an event log: the lines of JSON that `LogLine` of the library writes, of one
/// replica or of several. Other lines are skipped. With --redis, what the key has spent now follows,
/// and whether the limit is enforced for the key.
///
/// A key below KEY counts too: acme>ann is one of acme. A log that has digests of keys needs the secret
/// of these, and finds KEY alone.
#[derive(Args, Debug)]
#[command(mut_arg("url", |url| url.required(false)))]
#[command(after_help = "\
Examples:
  tollgate why acme --log audit.log
  tollgate why acme --at 12:03 --log web-1.log --log web-2.log --redis redis://127.0.0.1
  kubectl logs deploy/web --since 1h | tollgate why acme --at 12:03 --log -
  tollgate why --rules rules.yaml tenant=gold route=/export --log audit.log

Exit status:
  0  a denial is explained
  1  the log has none at that time
  2  a wrong argument, a file that cannot be read, a server that is away")]
pub(crate) struct Why {
    #[command(flatten)]
    key: KeyOptions,

    /// Reads an event log, or standard input for -; may be repeated
    #[arg(long = "log", required = true, value_name = "FILE")]
    logs: Vec<PathBuf>,

    /// Sets the moment: 12:03 or 12:03:11 in UTC, or a whole time; the default is that of the last
    /// denial
    #[arg(long, value_name = "TIME", value_parser = Moment::parse)]
    at: Option<Moment>,

    /// Sets how many seconds before and after the moment the denial may be
    #[arg(long, default_value_t = 60, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(0..=86_400))]
    within: u64,

    #[command(flatten)]
    names: NameOptions,

    #[command(flatten)]
    redis: RedisOptions,
}

#[derive(Serialize)]
struct ExplainedDenial {
    #[serde(flatten)]
    answer: Answer,
    /// The units that the key has spent now. `None` when no server is named.
    now: Option<Now>,
    warnings: Vec<String>,
}

/// The state of the key now.
#[derive(Serialize)]
struct Now {
    states: Vec<StateEntry>,
    /// If the limiter is published with a share: the shares of keys in percent that replicas
    /// enforce.
    enforced: Vec<u8>,
    /// Says for each of these shares if it contains the key. `None` when no share is published.
    is_enforced: Option<bool>,
    /// The exceptions that apply to the key, with the quotas that they put into force.
    exceptions: Vec<ExceptionRow>,
}

impl Why {
    pub(crate) fn run(&self, format: Format) -> Result<Report, Failure> {
        let mut limits = self.key.limits.load()?;
        let keys = self.key.query().subjects(&self.redis.prefix(), &limits)?;
        let names = self.names.load()?;
        let question = Question {
            digests: keys.iter().filter_map(|key| names.digest(key)).collect(),
            keys,
            moment: self.at.unwrap_or(Moment::Last),
            within_us: self.within * 1_000_000,
        };
        let mut log = EventLog::default();
        for path in &self.logs {
            log.read(path, |event| question.wants(event))?;
        }
        let answer = question.answer(&log);
        let mut warnings = log.warnings.clone();
        warnings.extend(log.more());
        for warning in &warnings {
            eprintln!("warning: {}", shown(warning));
        }
        let now = if self.redis.is_named() {
            Some(run_async(self.now(
                &mut limits,
                &question,
                answer.denial.as_ref(),
            ))?)
        } else {
            None
        };
        let status = u8::from(answer.denial.is_none());
        let explained = ExplainedDenial {
            answer,
            now,
            warnings,
        };
        let text = || explained.text(self);
        Ok(Report::new(format, &explained, text).with_status(status))
    }

    async fn now(
        &self,
        limits: &mut Limits,
        question: &Question,
        denial: Option<&Logged>,
    ) -> Result<Now, Failure> {
        let mut server = connect(limits, &self.redis).await?;
        let scan = self.key.scan.over(&mut server, limits);
        let mut states = scan.find(&self.key.query()).await?;
        let cost = denial.and_then(|denial| denial.cost).unwrap_or(1);
        look_ahead(&mut server, &mut states, cost).await?;
        let limiter = denial.and_then(|denial| denial.limiter.as_deref());
        let is_it = |published: &&PublishedLimiter| Some(&*published.limiter) == limiter;
        let enforced = limits.published().iter().find(is_it);
        let enforced = enforced
            .map(|published| published.enforced.clone())
            .unwrap_or_default();
        let key = denial
            .and_then(|denial| denial.key.as_ref())
            .or(question.keys.last());
        let is_enforced = key.filter(|_| !enforced.is_empty()).map(|key| {
            let place = place(key);
            enforced.iter().all(|percent| place < u64::from(*percent))
        });
        let row = |(exception, quota)| {
            ExceptionRow::new(exception, limits.excepted_us()).with_quota(quota)
        };
        let of_key = key.into_iter().flat_map(|key| limits.exceptions(key));
        let exceptions = of_key.map(row).collect();
        Ok(Now {
            states,
            enforced,
            is_enforced,
            exceptions,
        })
    }
}

/// Returns the least share in percent that does not contain the key: `Enforcement` explains it.
fn place(key: &str) -> u64 {
    let digest = Sha256::digest(key.as_bytes());
    let first: [u8; 8] = std::array::from_fn(|at| digest[at]);
    u64::from_be_bytes(first) % 100
}

impl ExplainedDenial {
    fn text(&self, command: &Why) -> String {
        let mut text = String::new();
        // Writing to memory cannot fail.
        let _ = match &self.answer.denial {
            Some(denial) => self.denial(&mut text, denial, command),
            None => self.no_denial(&mut text, command),
        };
        if let Some(now) = &self.now {
            let _ = self.add_now(&mut text, now);
        }
        text
    }

    fn denial(&self, text: &mut String, denial: &Logged, command: &Why) -> std::fmt::Result {
        let field = |field: &Option<String>| field.as_deref().map_or_else(|| "?".to_owned(), shown);
        let name = denial.key.as_ref().or(denial.key_digest.as_ref());
        let (policy, limiter) = (field(&denial.policy), field(&denial.limiter));
        writeln!(
            text,
            "{} was denied at {} by the policy {policy} of the limiter {limiter}",
            name.map_or_else(|| "?".to_owned(), |name| shown(name)),
            shown_time(denial.at_us)
        )?;
        let by_exception = match self.answer.exception {
            Some(_) => ", by an exception for the key",
            None => "",
        };
        writeln!(
            text,
            "  quota in force: {}, {}{by_exception}",
            field(&denial.quota),
            field(&denial.algorithm)
        )?;
        if let (Some(cost), Some(remaining)) = (denial.cost, denial.remaining) {
            writeln!(
                text,
                "  units: the check asked for {cost}, and {remaining} were left to it"
            )?;
        }
        if let Some(kept) = denial.kept.filter(|kept| *kept > 0) {
            writeln!(
                text,
                "  rank: its priority leaves {kept} units to higher ones"
            )?;
        }
        match &denial.degraded {
            None => writeln!(text, "  decided by: the store")?,
            Some(reason) => writeln!(
                text,
                "  decided by: the outage rule of one replica, because of {}; the quota is its share",
                shown(reason)
            )?,
        }
        if let Some(outage) = &self.answer.outage {
            let reason = field(&outage.reason);
            let at = shown_time(outage.at_us);
            writeln!(
                text,
                "  outage: a replica of {limiter} was without its store since {at}, because of {reason}"
            )?;
        }
        if denial.leased == Some(true) {
            writeln!(
                text,
                "  lease: replicas hold units of this policy, so another one may still have had some"
            )?;
        }
        if let Some(lockout) = &self.answer.lockout {
            writeln!(
                text,
                "  lockout: the last failure came at {}",
                shown_time(lockout.at_us)
            )?;
        }
        match self.answer.admitted_us {
            Some(admitted_us) => {
                let wait = Duration::from_micros(admitted_us.saturating_sub(denial.at_us));
                let at = shown_time(admitted_us);
                writeln!(
                    text,
                    "  the same check was admitted from {at} on, {} later, if nobody else spent",
                    span(wait)
                )?;
            }
            None => writeln!(
                text,
                "  the same check was never admitted: the quota blocks"
            )?,
        }
        if let Some(rules) = &self.answer.rules {
            writeln!(
                text,
                "  rules: {} were loaded at {}",
                rules.rules.unwrap_or(0),
                shown_time(rules.at_us)
            )?;
        }
        let counted: Vec<_> = self
            .answer
            .denials
            .iter()
            .map(|denials| {
                format!(
                    "{} by {} of {}",
                    denials.count,
                    shown(&denials.policy),
                    shown(&denials.limiter)
                )
            })
            .collect();
        writeln!(
            text,
            "denials within {} s of that: {}",
            command.within,
            counted.join(", ")
        )
    }

    fn no_denial(&self, text: &mut String, command: &Why) -> std::fmt::Result {
        let Answer { before, after, .. } = &self.answer;
        match command.at {
            Some(_) => writeln!(
                text,
                "the log has no denial of the key within {} s of that time",
                command.within
            )?,
            None => writeln!(text, "the log has no denial of the key")?,
        }
        for (word, event) in [("before", before), ("after", after)] {
            if let Some(event) = event {
                let policy = event.policy.as_deref().map(shown).unwrap_or_default();
                writeln!(
                    text,
                    "the nearest one {word}: {} by {policy}",
                    shown_time(event.at_us)
                )?;
            }
        }
        Ok(())
    }

    fn add_now(&self, text: &mut String, now: &Now) -> std::fmt::Result {
        let cost = self
            .answer
            .denial
            .as_ref()
            .and_then(|denial| denial.cost)
            .unwrap_or(1);
        writeln!(text, "\nnow:")?;
        if now.states.is_empty() {
            writeln!(text, "nothing is spent")?;
        } else {
            text.push_str(&state_table(&now.states));
        }
        for state in &now.states {
            writeln!(
                text,
                "{cost} units of {} fit {}",
                state.policy,
                fits_in(state)
            )?;
        }
        for row in &now.exceptions {
            let with = row
                .quota
                .as_ref()
                .map(|quota| format!(", which makes {quota} of its quota"));
            writeln!(
                text,
                "exception from {} of {}: {}{}, from {} until {}, by {}: {}",
                shown(&row.policy),
                shown(&row.limiter),
                shown(&row.change),
                with.unwrap_or_default(),
                row.begins,
                row.ends,
                shown(&row.author),
                shown(&row.reason)
            )?;
        }
        if let Some(is_enforced) = now.is_enforced {
            let shares: Vec<_> = now
                .enforced
                .iter()
                .map(|percent| format!("{percent}%"))
                .collect();
            let what = if is_enforced {
                "and for this one"
            } else {
                "and not for this one: a layer lets it pass"
            };
            writeln!(
                text,
                "the limit is enforced for {} of the keys, {what}",
                shares.join(", ")
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate::{Enforcement, Key};

    #[test]
    fn the_place_of_a_key_is_where_enforcement_begins() {
        for text in ["acme", "acme>ann", "192.0.2.7"] {
            let key = Key::new(text);
            let place = place(key.encoded()) as u8;
            assert!(!Enforcement::share(place).applies_to(&key), "{text}");
            assert!(Enforcement::share(place + 1).applies_to(&key), "{text}");
        }
    }
}
