//! Goes through the states of a prefix, in bounded memory.
//! Single keys are looked up in `lookup.rs`. Commands to a server are in `connection.rs` and
//! `table.rs`.

use std::fmt;

use serde::Serialize;
use tollgate::{Quota, store::StoredState};

use super::{
    entry::StateEntry,
    limits::Limits,
    reading::{Looked, Reading},
    regional::{Regional, RegionalKey},
    server::Server,
    state_key::StateKey,
    wanted::Wanted,
};
use crate::error::OperatorError;

/// The keys that a server looks at in one step, by default.
const COUNT: u64 = 1_000;

/// Goes through the states of a prefix in small steps, so that the server goes on deciding meanwhile.
///
/// ```no_run
/// # async fn run() -> Result<(), tollgate_operator::OperatorError> {
/// use tollgate_operator::states::{Limits, Scan, ServerAddress, Wanted};
///
/// let mut server = ServerAddress::new("redis://127.0.0.1").connect().await?;
/// let mut limits = Limits::default();
/// limits.read(&mut server).await?;
/// let mut limited = Vec::new();
/// let visit = |state: tollgate_operator::states::StateEntry| {
///     if state.is_limited() {
///         limited.push(state.subject);
///     }
/// };
/// let report = Scan::new(&mut server, &limits).run(&Wanted::All, visit).await?;
/// println!("{} of {} states are limited", limited.len(), report.states);
/// # Ok(()) }
/// ```
#[must_use = "nothing is scanned until `run` is called"]
pub struct Scan<'a> {
    server: &'a mut Server,
    limits: &'a Limits,
    /// The keys that the server looks at in one step.
    count: u64,
    progress: Option<Box<dyn FnMut(ScanProgress) + Send + 'a>>,
    /// The keys of purses and homes of single subjects that a scan has found.
    regional: Vec<RegionalKey>,
}

/// The progress of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ScanProgress {
    /// The keys that the server has looked at.
    pub looked_at: u64,
    /// The keys that it has, of all programs. 0 when that is not known.
    pub total: u64,
    /// The scan is at its end.
    pub is_done: bool,
}

/// Counts the keys of a scan.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct ScanReport {
    /// The states of this prefix. A state may be counted twice while the server resizes its table.
    pub states: u64,
    /// The keys that begin like a state and are none: they belong to other programs.
    pub other_keys: u64,
    /// The states whose limit is not known.
    pub without_limit: u64,
    /// The prefix, if no key has it.
    #[serde(skip)]
    pub unused_prefix: Option<String>,
}

impl<'a> Scan<'a> {
    /// Creates a scan. `limits` are the quotas that are known.
    pub fn new(server: &'a mut Server, limits: &'a Limits) -> Self {
        Self {
            server,
            limits,
            count: COUNT,
            progress: None,
            regional: Vec::new(),
        }
    }

    /// Sets how many keys the server looks at in one step, during which it does nothing else. The
    /// default is 1000.
    pub fn count(mut self, count: u64) -> Self {
        self.count = count.max(1);
        self
    }

    /// Calls a function after each step, and at the end.
    pub fn on_progress(mut self, progress: impl FnMut(ScanProgress) + Send + 'a) -> Self {
        self.progress = Some(Box::new(progress));
        self
    }

    /// Returns the prefix of the server.
    pub(super) fn prefix(&self) -> &str {
        self.server.prefix()
    }

    /// Returns the limits that are known.
    pub(super) fn limits(&self) -> &'a Limits {
        self.limits
    }

    fn report(&mut self, looked_at: u64, total: u64, is_done: bool) {
        if let Some(progress) = &mut self.progress {
            progress(ScanProgress {
                looked_at,
                total,
                is_done,
            });
        }
    }

    /// Reads what regions share of these keys, and of those that a scan has found.
    pub(super) async fn regional(
        mut self,
        mut keys: Vec<RegionalKey>,
    ) -> Result<Regional, OperatorError> {
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

    /// Visits every state that is wanted, in no order. A state may be visited twice.
    ///
    /// # Errors
    ///
    /// When the server does not answer, or refuses.
    pub async fn run(
        &mut self,
        wanted: &Wanted,
        mut visit: impl FnMut(StateEntry),
    ) -> Result<ScanReport, OperatorError> {
        let mut report = ScanReport::default();
        let total = self.server.total().await?;
        // The sets in which the replicas count themselves.
        let replicas = format!("{}:{{replicas}}", self.server.prefix());
        let mut looked_at = 0;
        let mut is_unused = matches!(wanted, Wanted::All);
        let mut place = Some(Vec::new());
        while let Some(at) = place {
            let (keys, next) = self.server.keys(wanted, &at, self.count).await?;
            // The reply of Redis does not include the number of keys that it looked at.
            looked_at += match total {
                0 => keys.len() as u64,
                _ => self.count,
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
            self.report(looked_at, total, false);
            place = next;
        }
        self.report(looked_at.max(total), total, true);
        report.unused_prefix = is_unused.then(|| self.server.prefix().to_owned());
        Ok(report)
    }

    /// Reads these states, and visits those that exist.
    pub(super) async fn read(
        &mut self,
        keys: Vec<StateKey>,
        report: &mut ScanReport,
        visit: &mut impl FnMut(StateEntry),
    ) -> Result<(), OperatorError> {
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

// A closure has no text.
impl fmt::Debug for Scan<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut scan = f.debug_struct("Scan");
        scan.field("count", &self.count).finish_non_exhaustive()
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
