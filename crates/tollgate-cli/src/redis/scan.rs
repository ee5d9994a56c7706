//! Goes through the states of a prefix, in bounded memory.
//! Single keys are looked up in `lookup.rs`. Commands to a server are in `connection.rs` and
//! `table.rs`.

use clap::Args;
use serde::Serialize;
use tollgate::{Quota, store::StoredState};

use super::{
    entry::StateEntry,
    limits::Limits,
    progress::ProgressOptions,
    reading::{Looked, Reading},
    regional::{Regional, RegionalKey},
    server::Server,
    state_key::StateKey,
    wanted::Wanted,
};
use crate::failure::Failure;

/// The keys that a server looks at in one step.
const COUNT: u64 = 1_000;

/// The options of commands that scan.
#[derive(Args, Clone, Debug)]
pub(crate) struct ScanOptions {
    /// Sets how many keys the server looks at in one step, during which it does nothing else
    #[arg(long, default_value_t = COUNT, value_name = "KEYS", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    count: u64,

    #[command(flatten)]
    progress: ProgressOptions,
}

/// Goes through the states of a prefix.
pub(crate) struct Scan<'a> {
    server: &'a mut Server,
    limits: &'a Limits,
    /// The keys of purses and homes of single subjects that a scan has found.
    regional: Vec<RegionalKey>,
}

/// Counts the keys of a scan.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct ScanReport {
    /// The states of this prefix. A state may be counted twice while the server resizes its table.
    pub(crate) states: u64,
    /// The keys that begin like a state and are none: they belong to other programs.
    pub(crate) other_keys: u64,
    /// The states whose limit is not known.
    pub(crate) without_limit: u64,
    /// The prefix, if no key has it.
    #[serde(skip)]
    pub(crate) unused_prefix: Option<String>,
}

/// The counts of a scan beside the states that it has found, which are listed as `states`.
#[derive(Debug, Serialize)]
pub(crate) struct ScanCounts {
    scanned: u64,
    other_keys: u64,
    without_limit: u64,
}

impl Default for ScanOptions {
    fn default() -> Self {
        Self {
            count: COUNT,
            progress: ProgressOptions::never(),
        }
    }
}

impl ScanOptions {
    /// Returns the options of a scan that shows no progress.
    pub(crate) fn without_progress(&self) -> Self {
        Self {
            progress: ProgressOptions::never(),
            ..self.clone()
        }
    }
}

impl<'a> Scan<'a> {
    pub(crate) fn new(server: &'a mut Server, limits: &'a Limits) -> Self {
        Self {
            server,
            limits,
            regional: Vec::new(),
        }
    }

    /// Reads what regions share of these keys, and of those that a scan has found.
    pub(crate) async fn regional(
        mut self,
        mut keys: Vec<RegionalKey>,
    ) -> Result<Regional, Failure> {
        keys.append(&mut self.regional);
        keys.sort_by_key(|key| key.redis_key(self.server.prefix()));
        keys.dedup();
        let mut regional = Regional::default();
        for key in &keys {
            let name = key.redis_key(self.server.prefix());
            if let Some((now_us, value, expires_ms)) = self.server.value(&name).await? {
                let named = (key, self.server.prefix());
                regional.add(named, self.limits, now_us, (&value, expires_ms));
            }
        }
        Ok(regional)
    }

    /// Visits every state that is wanted, in no order.
    pub(crate) async fn run(
        &mut self,
        options: &ScanOptions,
        wanted: &Wanted,
        mut visit: impl FnMut(StateEntry),
    ) -> Result<ScanReport, Failure> {
        let mut report = ScanReport::default();
        let total = self.server.total().await?;
        // The sets in which the replicas count themselves.
        let replicas = format!("{}:{{replicas}}", self.server.prefix());
        let mut progress = options.progress.start();
        let mut looked_at = 0;
        let mut is_unused = matches!(wanted, Wanted::All);
        let mut place = Some(Vec::new());
        while let Some(at) = place {
            let (keys, next) = self.server.keys(wanted, &at, options.count).await?;
            // The reply of Redis does not include the number of keys that it looked at.
            looked_at += match total {
                0 => keys.len() as u64,
                _ => options.count,
            };
            is_unused &= keys.is_empty();
            let mut states = Vec::new();
            for key in &keys {
                if let Some(key) = RegionalKey::parse(self.server.prefix(), key) {
                    if wanted.names(&key.state.subject) {
                        self.regional.push(key);
                    }
                    continue;
                }
                match StateKey::parse(self.server.prefix(), key) {
                    Some(key) if wanted.has(&key) => states.push(key),
                    Some(_) => {}
                    None if key.starts_with(replicas.as_bytes()) => {}
                    None if StateKey::is_held_key(self.server.prefix(), key) => {}
                    None => report.other_keys += 1,
                }
            }
            self.read(states, &mut report, &mut visit).await?;
            progress.update(looked_at, total);
            place = next;
        }
        progress.end(looked_at.max(total), total);
        report.unused_prefix = is_unused.then(|| self.server.prefix().to_owned());
        Ok(report)
    }

    /// Reads these states, and visits those that exist.
    pub(crate) async fn read(
        &mut self,
        keys: Vec<StateKey>,
        report: &mut ScanReport,
        visit: &mut impl FnMut(StateEntry),
    ) -> Result<(), Failure> {
        if keys.is_empty() {
            return Ok(());
        }
        let keys: Vec<_> = keys
            .into_iter()
            .map(|key| (self.limits.quota(&key), key))
            .collect();
        let (now_us, looked) = self.server.look(&keys).await?;
        for ((quota, key), looked) in keys.iter().zip(looked) {
            let (stored, expires_ms, marked_us) = match looked {
                Looked::Nothing => continue,
                Looked::Foreign => {
                    report.other_keys += 1;
                    continue;
                }
                Looked::State {
                    stored,
                    expires_ms,
                    marked_us,
                } => (stored, expires_ms, marked_us),
            };
            let spent = spent(&stored, marked_us, now_us, expires_ms, quota.as_ref());
            report.states += 1;
            report.without_limit += u64::from(quota.is_none());
            let reading = Reading::new(stored, spent, now_us);
            visit(StateEntry::new(
                key,
                self.server.prefix(),
                spent,
                quota.as_ref(),
                expires_ms,
                reading,
            ));
        }
        Ok(())
    }
}

/// Returns the units that are spent. A log may hold units that have left its period, so the oldest
/// one that counts for the limit is looked at.
fn spent(
    stored: &StoredState,
    marked_us: Option<u64>,
    now_us: u64,
    expires_ms: u64,
    quota: Option<&Quota>,
) -> u64 {
    let expires_us = now_us.saturating_add(expires_ms.saturating_mul(1_000));
    let spent = stored.spent(now_us, expires_us, quota);
    let (StoredState::SlidingLog { units }, Some(quota), Some(at_us)) = (stored, quota, marked_us)
    else {
        return spent;
    };
    let has_left = u128::from(at_us) + quota.period().as_micros() <= u128::from(now_us);
    if has_left {
        (*units).min(quota.burst().saturating_sub(1))
    } else {
        spent
    }
}

impl ScanReport {
    /// Returns the counts, for a report with a list of states.
    pub(crate) fn counts(&self) -> ScanCounts {
        ScanCounts {
            scanned: self.states,
            other_keys: self.other_keys,
            without_limit: self.without_limit,
        }
    }

    /// Returns the counts as a line.
    pub(crate) fn line(&self) -> String {
        let mut line = format!("{} states", self.states);
        if let Some(prefix) = &self.unused_prefix {
            line.push_str(&format!(
                ": no key has the prefix {prefix}, which --prefix sets"
            ));
        }
        if self.without_limit > 0 && self.without_limit < self.states {
            line.push_str(&format!(", {} without a known limit", self.without_limit));
        }
        if self.other_keys > 0 {
            line.push_str(&format!(
                ", {} keys of other programs left out",
                self.other_keys
            ));
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_of_a_log_that_have_left_its_period_do_not_count_against_the_limit() {
        let (log, quota) = (
            StoredState::SlidingLog { units: 9 },
            Quota::new(5, std::time::Duration::from_secs(10)),
        );
        let spent = |marked_us, quota| spent(&log, marked_us, 100_000_000, 1, quota);
        assert_eq!(spent(Some(90_000_001), Some(&quota)), 9);
        assert_eq!(spent(Some(90_000_000), Some(&quota)), 4);
        assert_eq!(spent(None, None), 9);
    }
}
