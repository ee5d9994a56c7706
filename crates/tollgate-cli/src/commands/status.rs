//! `tollgate status`: lists the replicas, and what each of them enforces.
//! Reports are read by tollgate-operator, and waited for by `rollout.rs`. Here they are laid out as text.

use std::{collections::BTreeMap, time::Duration};

use clap::Args;
use tollgate::store::ReplicaReport;
use tollgate_operator::{
    replicas::{ReplicaRow, ReplicaSnapshot, RulesRow, StatusReport},
    text::{shown, span},
};

use super::states::run_async;
use crate::{
    failure::Failure,
    options::RedisOptions,
    output::{Format, Report, Table},
};

/// Lists the replicas of services, and what each of them enforces: its rules with their digest, their
/// source and since when, and the limits of its limiters.
///
/// Equal rules have equal digests: `check` prints that of files. A replica reports every two seconds.
/// One that does not is silent, and is listed for ten minutes after its last report.
///
/// Rules are reported by services that use files of rules, and limiters by those that publish them.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  tollgate status --redis redis://127.0.0.1
  tollgate status --redis redis://127.0.0.1 --format json | jq '.replicas[].rules[].digest'")]
pub(crate) struct Status {
    #[command(flatten)]
    redis: RedisOptions,
}

impl Status {
    pub(crate) fn run(&self, format: Format) -> Result<Report, Failure> {
        let snapshot = run_async(async {
            let mut server = self.redis.connect().await?;
            Ok(ReplicaSnapshot::read(&mut server).await?)
        })?;
        for warning in &snapshot.warnings {
            eprintln!("warning: {warning}");
        }
        let enforced = StatusReport::from(snapshot);
        Ok(Report::new(format, &enforced, || {
            text(&enforced, &self.redis.prefix())
        }))
    }
}

/// Returns what is wrong with a replica, or with its rules.
fn remark(row: &ReplicaRow, rules: Option<&RulesRow>) -> String {
    let silent = Duration::from_millis(row.silent_ms);
    let silent = row
        .is_silent
        .then(|| format!("silent for {}", span(silent)));
    let refused = rules.and_then(|rules| rules.refused_ms);
    let refused = refused.map(|millis| {
        let refused = span(Duration::from_millis(millis));
        format!("refuses newer rules for {refused}")
    });
    silent
        .into_iter()
        .chain(refused)
        .collect::<Vec<_>>()
        .join(", ")
}

/// Returns the report as text.
fn text(report: &StatusReport, prefix: &str) -> String {
    if report.replicas.is_empty() && report.unreported.is_empty() {
        return format!("no replica reports under the prefix {prefix}\n");
    }
    let mut table = Table::new([
        "replica",
        "version",
        "digest",
        "in force for",
        "rules",
        "remark",
    ]);
    for row in &report.replicas {
        let version = shown(&row.version);
        for rules in &row.rules {
            let digest = rules.digest.clone().unwrap_or_else(|| "none".to_owned());
            let age = span(Duration::from_millis(rules.age_ms));
            let (source, remark) = (shown(&rules.source), remark(row, Some(rules)));
            table.row([
                row.title.clone(),
                version.clone(),
                digest,
                age,
                source,
                remark,
            ]);
        }
        if row.rules.is_empty() {
            let [digest, age, source] = [const { String::new() }; 3];
            table.row([
                row.title.clone(),
                version,
                digest,
                age,
                source,
                remark(row, None),
            ]);
        }
    }
    for process in &report.unreported {
        let name = format!(
            "process {}",
            shown(&process.chars().take(8).collect::<String>())
        );
        let remark = "counted, and reports nothing: an older version".to_owned();
        let [version, digest, age, source] = [const { String::new() }; 4];
        table.row([name, version, digest, age, source, remark]);
    }
    table.drop_empty_columns();
    table.text() + &limiters(report)
}

/// Returns a table of the limiters, and of the replicas that have each. Replicas with equal limits
/// share a line, so that an odd one is seen.
fn limiters(report: &StatusReport) -> String {
    let mut have: BTreeMap<(&str, String, Option<u8>), Vec<&ReplicaRow>> = BTreeMap::new();
    for row in report.replicas.iter().filter(|row| !row.is_silent) {
        for limiter in &row.limiters {
            let limits = (
                &*limiter.limiter,
                shown(&limiter.policies.join("; ")),
                limiter.enforced,
            );
            have.entry(limits).or_default().push(row);
        }
    }
    if have.is_empty() {
        return String::new();
    }
    let mut table = Table::new(["limiter", "enforced", "policies", "replicas"]);
    for ((limiter, policies, enforced), rows) in have {
        let enforced = enforced
            .map(|percent| format!("{percent}%"))
            .unwrap_or_default();
        let mut names: Vec<_> = rows.iter().map(|row| row.title.as_str()).collect();
        names.dedup();
        table.row([shown(limiter), enforced, policies, names.join(", ")]);
    }
    table.drop_empty_columns();
    format!("\n{}", table.text())
}

const _: () = assert!(
    ReplicaReport::KEPT.as_secs() == 600,
    "the help names the time"
);
