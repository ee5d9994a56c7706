//! `tollgate rollout`: waits until all replicas enforce the same rules.
//! See `rollout/mod.rs` for when that is so.

use std::{path::PathBuf, time::Duration};

use clap::Args;
use serde::Serialize;
use tokio::time::{Instant, sleep, timeout_at};
use tollgate::store::{ReplicaReport, RulesDigest};
use tollgate_operator::{replicas::ReplicaSnapshot, text::shown};

use super::states::run_async;
use crate::{
    failure::Failure,
    options::RedisOptions,
    output::{Format, Report},
    rollout::{RolloutWatch, Verdict},
    rules::RuleOptions,
};

/// Waits until all replicas enforce these rules, and names those that do not.
///
/// It is complete when each replica that is counted has reported for six seconds that it enforces the
/// rules and nothing else. A replica that falls silent is waited for until --gone has passed: it may be
/// paused, and come back with the rules of before. Replicas without rules do not count.
///
/// No command knows of a replica that has never reached the server. Where the number of replicas is
/// known, name it with --replicas.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  tollgate rollout rules.yaml --redis redis://127.0.0.1
  tollgate rollout a94a8fe5ccb19ba6 --replicas 3 --within 600 --redis redis://127.0.0.1

Exit status:
  0  all replicas enforce the rules
  1  some do not yet, and the time is over
  2  a wrong argument, a server that is away")]
pub(crate) struct Rollout {
    /// The rules: their digest, which `check` and `status` print, or their file or directory
    #[arg(value_name = "DIGEST|PATH")]
    rules: String,

    /// Counts only rules of this source, as `status` shows it, when services have several
    #[arg(long)]
    source: Option<String>,

    /// Sets the fewest replicas that must enforce the rules
    #[arg(long, default_value_t = 1, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=5_000))]
    replicas: u32,

    /// Sets how long to wait, in seconds
    #[arg(long, default_value_t = 300, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(10..=86_400))]
    within: u64,

    /// Sets after how many seconds a silent replica is not waited for any more
    #[arg(long, default_value_t = 30, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(10..=600))]
    gone: u64,

    #[command(flatten)]
    options: RuleOptions,

    #[command(flatten)]
    redis: RedisOptions,
}

/// The pause between two looks at the replicas.
const PAUSE: Duration = Duration::from_millis(500);

#[derive(Serialize)]
struct RolledOut {
    digest: String,
    is_complete: bool,
    /// The number of replicas that enforce the rules.
    enforcing: usize,
    missing: Vec<MissingRow>,
}

#[derive(Serialize)]
struct MissingRow {
    replica: String,
    reason: String,
}

impl Rollout {
    pub(crate) fn run(&self, format: Format) -> Result<Report, Failure> {
        let digest = self.digest()?;
        let mut watched = RolloutWatch::new(digest);
        watched.source.clone_from(&self.source);
        watched.at_least = self.replicas as usize;
        watched.gone = Duration::from_secs(self.gone);
        let verdict = run_async(self.wait(&mut watched))?;
        let missing = verdict.missing.iter().map(|missing| MissingRow {
            replica: missing.replica.clone(),
            reason: missing.reason.to_string(),
        });
        let rolled_out = RolledOut {
            digest: digest.to_string(),
            is_complete: verdict.is_complete,
            enforcing: verdict.enforcing,
            missing: missing.collect(),
        };
        let status = u8::from(!verdict.is_complete);
        let text = || rolled_out.text(self);
        Ok(Report::new(format, &rolled_out, text).with_status(status))
    }

    /// Returns the digest that is named, or that of the files.
    fn digest(&self) -> Result<RulesDigest, Failure> {
        let path = PathBuf::from(&self.rules);
        match self.rules.parse() {
            // A file is meant, even when its name is one of a digest.
            Ok(digest) if !path.exists() => Ok(digest),
            Err(error) if !path.exists() => Err(Failure::new(format_args!(
                "there are no rules {}, and {error}",
                shown(&self.rules)
            ))),
            _ => Ok(self.options.load(&path)?.digest()),
        }
    }

    /// Looks at the replicas until they all enforce the rules, or the time is over.
    async fn wait(&self, watched: &mut RolloutWatch) -> Result<Verdict, Failure> {
        let began = Instant::now();
        let end = began + Duration::from_secs(self.within);
        let (mut server, mut last, mut said) = (None, None, String::new());
        let mut away = None;
        loop {
            let look = async {
                let server = match &mut server {
                    Some(server) => server,
                    None => server.insert(self.redis.connect().await?),
                };
                ReplicaSnapshot::read(server).await
            };
            match timeout_at(end, look).await {
                Ok(Ok(snapshot)) => {
                    let verdict = watched.look(&snapshot, began.elapsed());
                    if verdict.is_complete {
                        return Ok(verdict);
                    }
                    say(&mut said, progress(&verdict));
                    (last, away) = (Some(verdict), None);
                }
                // A server that was never read is not the right one. Any other may come back.
                Ok(Err(failure)) if last.is_none() => return Err(failure.into()),
                Ok(Err(failure)) => {
                    watched.interrupted();
                    say(&mut said, failure.message().to_owned());
                    (server, away) = (None, Some(failure));
                }
                Err(_) => {}
            }
            if Instant::now() + PAUSE >= end {
                break;
            }
            sleep(PAUSE).await;
        }
        match (last, away) {
            (Some(verdict), None) => Ok(verdict),
            (_, Some(failure)) => Err(failure.into()),
            (None, None) => Err(Failure::new("the server did not answer in time")),
        }
    }
}

/// Reports to the operator what is waited for, when it has changed.
fn say(said: &mut String, text: String) {
    if *said != text {
        eprintln!("{text}");
        *said = text;
    }
}

fn progress(verdict: &Verdict) -> String {
    let total = verdict.enforcing + verdict.missing.len();
    let missing: Vec<_> = verdict
        .missing
        .iter()
        .map(|missing| missing.replica.as_str())
        .collect();
    let waits = if missing.is_empty() {
        String::new()
    } else {
        format!(", waits for {}", missing.join(", "))
    };
    format!(
        "{} of {total} replicas enforce the rules{waits}",
        verdict.enforcing
    )
}

impl RolledOut {
    fn text(&self, command: &Rollout) -> String {
        let (digest, enforcing) = (&self.digest, self.enforcing);
        if self.is_complete {
            return format!("all {enforcing} replicas enforce {digest}\n");
        }
        let mut text = format!(
            "not all replicas enforce {digest} after {} s: {enforcing} do\n",
            command.within
        );
        for missing in &self.missing {
            text += &format!("{}: {}\n", missing.replica, missing.reason);
        }
        if self.missing.is_empty() && enforcing < command.replicas as usize {
            text += &format!("{} replicas must\n", command.replicas);
        }
        text
    }
}

const _: () = assert!(
    ReplicaReport::LAPSE.as_secs() < 10,
    "a replica that runs is never gone after the shortest --gone"
);
