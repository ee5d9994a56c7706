//! Finds the states of a key that an operator names.
//! All states of a prefix are gone through in `scan.rs`.

use std::{net::IpAddr, time::Duration};

use clap::Args;
use tollgate::Key;
use tollgate_rules::Descriptor;

use super::{
    entry::StateEntry,
    limits::{LimitOptions, Limits},
    regional::{Regional, RegionalKey},
    scan::{Scan, ScanOptions, ScanReport},
    server::Server,
    state_key::{Kind, StateKey},
    wanted::Wanted,
};
use crate::{failure::Failure, rules};

/// The options of commands that look at one key.
#[derive(Args, Debug)]
pub(crate) struct KeyOptions {
    /// The key: a text or an address, as `top` and `who` print it, a whole Redis key, or with
    /// --rules KEY=VALUE entries
    #[arg(required = true, value_name = "KEY")]
    key: Vec<String>,

    /// Selects the domain of the entries, when the rules have several
    #[arg(long)]
    domain: Option<String>,

    /// The key is one text, although rules are known.
    #[arg(skip)]
    is_text: bool,

    #[command(flatten)]
    pub(crate) limits: LimitOptions,

    #[command(flatten)]
    scan: ScanOptions,
}

impl KeyOptions {
    /// Returns the options for a key that an [`Operator`](crate::Operator) is asked for: entries of
    /// rules, if they are known and the text has their form, or else one key.
    pub(crate) fn of(text: &str, limits: &Limits) -> Self {
        let entries: Vec<_> = text.split_whitespace().map(str::to_owned).collect();
        let are_entries = limits.rules().is_some()
            && !entries.is_empty()
            && entries.iter().all(|entry| rules::pair(entry).is_ok());
        Self {
            key: if are_entries {
                entries
            } else {
                vec![text.to_owned()]
            },
            domain: None,
            limits: LimitOptions::default(),
            scan: ScanOptions::default(),
            is_text: !are_entries,
        }
    }
}

/// Returns the longest time in milliseconds for which a process may still deny a key whose states
/// were removed. No denial outlasts the state that it was made of.
pub(crate) fn denied_ms(states: &[StateEntry], deny_cache_cap: Duration) -> u64 {
    let longest_ms = states.iter().map(|state| state.expires_ms).max();
    let cap_ms = u64::try_from(deny_cache_cap.as_millis()).unwrap_or(u64::MAX);
    longest_ms.unwrap_or(0).min(cap_ms)
}

/// Finds the states of the key. `limits` are the quotas that are known.
pub(crate) async fn find(
    options: &KeyOptions,
    limits: &Limits,
    server: &mut Server,
) -> Result<Vec<StateEntry>, Failure> {
    let (found, ..) = search(options, limits, server).await?;
    Ok(found)
}

/// Finds the states of the key, and what regions share of it.
pub(crate) async fn find_regional(
    options: &KeyOptions,
    limits: &Limits,
    server: &mut Server,
) -> Result<(Vec<StateEntry>, Regional), Failure> {
    let (found, scan, keys) = search(options, limits, server).await?;
    Ok((found, scan.regional(keys).await?))
}

/// Finds the states of the key. Returns them with the scan, and the keys that regions may have beside
/// states that are named.
async fn search<'s>(
    options: &KeyOptions,
    limits: &'s Limits,
    server: &'s mut Server,
) -> Result<(Vec<StateEntry>, Scan<'s>, Vec<RegionalKey>), Failure> {
    let (mut found, mut regional) = (Vec::new(), Vec::new());
    let keys = options.named(server.prefix(), limits)?;
    let mut scan = Scan::new(server, limits);
    match keys {
        Named::States(keys) => {
            regional.extend(keys.iter().flat_map(RegionalKey::of));
            scan.read(keys, &mut ScanReport::default(), &mut |entry| {
                found.push(entry);
            })
            .await?;
        }
        Named::Subjects(subjects) => {
            scan.run(&options.scan, &Wanted::Subjects(subjects), |entry| {
                found.push(entry);
            })
            .await?;
        }
    }
    // A scan may find a key twice.
    found.sort_by(|a, b| a.redis_key.cmp(&b.redis_key));
    found.dedup_by(|a, b| a.redis_key == b.redis_key);
    Ok((found, scan, regional))
}

/// Names the subject that the operator asks for.
enum Named {
    /// States whose keys are known.
    States(Vec<StateKey>),
    /// Any of these subjects, with policies that are not known.
    Subjects(Vec<String>),
}

impl KeyOptions {
    /// Returns the encoded keys that the operator may mean.
    pub(crate) fn subjects(&self, prefix: &str, limits: &Limits) -> Result<Vec<String>, Failure> {
        Ok(match self.named(prefix, limits)? {
            Named::States(keys) => {
                let mut subjects: Vec<_> = keys.into_iter().map(|key| key.subject).collect();
                subjects.dedup();
                subjects
            }
            Named::Subjects(subjects) => subjects,
        })
    }

    /// Refuses a key that can have no states.
    pub(crate) fn check(&self, prefix: &str, limits: &Limits) -> Result<(), Failure> {
        self.named(prefix, limits).map(drop)
    }

    fn named(&self, prefix: &str, limits: &Limits) -> Result<Named, Failure> {
        if let Some(rules) = limits.rules().filter(|_| !self.is_text) {
            let domain = rules::domain(rules, self.domain.as_deref())?;
            let descriptor: Descriptor<'_> = self
                .key
                .iter()
                .map(|entry| rules::pair(entry))
                .collect::<Result<_, _>>()?;
            let Some(found) = rules.find(domain, &descriptor) else {
                let outcome = rules.explain(domain, &descriptor).outcome().to_owned();
                return Err(Failure::new(format_args!(
                    "{}: {outcome}",
                    self.key.join(" ")
                )));
            };
            let policies = found
                .rule()
                .policies()
                .into_iter()
                .flat_map(|policies| policies.iter());
            let subject = found.key().encoded().to_owned();
            let key = |kind, policy: &str| StateKey {
                subject: subject.clone(),
                policy: policy.to_owned(),
                kind,
            };
            let keys = policies.map(|policy| key(Kind::of(policy), policy.name()));
            return Ok(Named::States(keys.collect()));
        }
        let [text] = &self.key[..] else {
            return Err(Failure::new(
                "expected one KEY, got several, which only entries with --rules may be",
            ));
        };
        if let Some(key) = StateKey::parse(prefix, text.as_bytes()) {
            return Ok(Named::States(vec![key]));
        }
        // The text as it stands in Redis, as an application gives it to `Key::new`, or an address.
        let mut subjects = vec![text.clone(), Key::new(text.as_str()).encoded().to_owned()];
        if let Ok(address) = text.parse::<IpAddr>() {
            subjects.push(Key::from(address).encoded().to_owned());
        }
        subjects.dedup();
        Ok(Named::Subjects(subjects))
    }
}
