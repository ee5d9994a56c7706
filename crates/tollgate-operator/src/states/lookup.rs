//! Finds the states of a key that an operator names.
//! All states of a prefix are gone through in `scan.rs`.

use std::{net::IpAddr, time::Duration};

use tollgate::Key;
use tollgate_rules::Descriptor;

use super::{
    entry::StateEntry,
    limits::Limits,
    regional::{Regional, RegionalKey},
    scan::{Scan, ScanReport},
    state_key::{Kind, StateKey},
    wanted::Wanted,
};
use crate::{error::OperatorError, rules};

/// A key, as an operator writes it: a text or an address, a whole Redis key, or entries of rules.
///
/// ```
/// use tollgate_operator::states::{KeyQuery, Limits};
///
/// let query = KeyQuery::text("tenant 42");
/// let keys = query.subjects("tollgate", &Limits::default()).unwrap();
/// assert_eq!(keys, ["tenant 42", "tenant%2042"]);
/// ```
#[derive(Clone, Debug)]
pub struct KeyQuery {
    parts: Vec<String>,
    domain: Option<String>,
    /// The key is one text, although rules are known.
    is_text: bool,
}

impl KeyQuery {
    /// Creates a query of one key, also where rules are known.
    #[must_use]
    pub fn text(key: impl Into<String>) -> Self {
        Self {
            parts: vec![key.into()],
            domain: None,
            is_text: true,
        }
    }

    /// Creates a query of entries of rules, such as `tenant=gold`, in this domain or in the only one.
    /// Where no rules are known, there must be one part, which is the key.
    #[must_use]
    pub fn entries(parts: Vec<String>, domain: Option<String>) -> Self {
        Self {
            parts,
            domain,
            is_text: false,
        }
    }

    /// Returns the query that a text may mean: entries of rules, if they are known and the text has
    /// their form, or else one key.
    #[must_use]
    pub fn of(text: &str, limits: &Limits) -> Self {
        let entries: Vec<_> = text.split_whitespace().map(str::to_owned).collect();
        let are_entries = limits.rules().is_some()
            && !entries.is_empty()
            && entries.iter().all(|entry| rules::pair(entry).is_ok());
        if are_entries {
            Self::entries(entries, None)
        } else {
            Self::text(text)
        }
    }
}

/// Returns the longest time in milliseconds for which a process may still deny a key whose states
/// were removed. No denial outlasts the state that it was made of.
#[must_use]
pub fn denied_ms(states: &[StateEntry], deny_cache_cap: Duration) -> u64 {
    let longest_ms = states.iter().map(|state| state.expires_ms).max();
    let cap_ms = u64::try_from(deny_cache_cap.as_millis()).unwrap_or(u64::MAX);
    longest_ms.unwrap_or(0).min(cap_ms)
}

impl Scan<'_> {
    /// Finds the states of a key. Without rules, all keys of the server are scanned, unless the key is
    /// a whole Redis key.
    ///
    /// # Errors
    ///
    /// When the key [can have no states](KeyQuery::subjects), and when the server does not answer, or
    /// refuses.
    pub async fn find(mut self, query: &KeyQuery) -> Result<Vec<StateEntry>, OperatorError> {
        let (found, _) = self.search(query).await?;
        Ok(found)
    }

    /// Finds the states of a key, and what regions share of it.
    ///
    /// # Errors
    ///
    /// As [`find`](Self::find).
    pub async fn find_regional(
        mut self,
        query: &KeyQuery,
    ) -> Result<(Vec<StateEntry>, Regional), OperatorError> {
        let (found, keys) = self.search(query).await?;
        Ok((found, self.regional(keys).await?))
    }

    /// Finds the states of a key. Returns them with the keys that regions may have beside states that
    /// are named.
    async fn search(
        &mut self,
        query: &KeyQuery,
    ) -> Result<(Vec<StateEntry>, Vec<RegionalKey>), OperatorError> {
        let (mut found, mut regional) = (Vec::new(), Vec::new());
        match query.named(self.prefix(), self.limits())? {
            Named::States(keys) => {
                regional.extend(keys.iter().flat_map(RegionalKey::of));
                let add = &mut |entry| found.push(entry);
                self.read(keys, &mut ScanReport::default(), add).await?;
            }
            Named::Subjects(subjects) => {
                let wanted = Wanted::Subjects(subjects);
                self.run(&wanted, |entry| found.push(entry)).await?;
            }
        }
        // A scan may find a key twice.
        found.sort_by(|a, b| a.redis_key.cmp(&b.redis_key));
        found.dedup_by(|a, b| a.redis_key == b.redis_key);
        Ok((found, regional))
    }
}

/// Names the subject that the operator asks for.
enum Named {
    /// States whose keys are known.
    States(Vec<StateKey>),
    /// Any of these subjects, with policies that are not known.
    Subjects(Vec<String>),
}

impl KeyQuery {
    /// Returns the encoded keys that the operator may mean.
    ///
    /// # Errors
    ///
    /// When rules are known and none limits the entries, and when there are several parts without
    /// rules.
    pub fn subjects(&self, prefix: &str, limits: &Limits) -> Result<Vec<String>, OperatorError> {
        Ok(match self.named(prefix, limits)? {
            Named::States(keys) => {
                let mut subjects: Vec<_> = keys.into_iter().map(|key| key.subject).collect();
                subjects.dedup();
                subjects
            }
            Named::Subjects(subjects) => subjects,
        })
    }

    fn named(&self, prefix: &str, limits: &Limits) -> Result<Named, OperatorError> {
        if let Some(rules) = limits.rules().filter(|_| !self.is_text) {
            let domain = rules::domain(rules, self.domain.as_deref())?;
            let descriptor: Descriptor<'_> = self
                .parts
                .iter()
                .map(|entry| rules::pair(entry))
                .collect::<Result<_, _>>()?;
            let Some(found) = rules.find(domain, &descriptor) else {
                let outcome = rules.explain(domain, &descriptor).outcome().to_owned();
                return Err(OperatorError::not_found(format_args!(
                    "{}: {outcome}",
                    self.parts.join(" ")
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
        let [text] = &self.parts[..] else {
            return Err(OperatorError::refused(
                "expected one key, got several, which only entries of rules may be",
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
