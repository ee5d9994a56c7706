//! Limiters of this process, for an application that counts in its own memory.
//! Limiters of all replicas are read by an operator of `tollgate-cli`.

use serde::Serialize;
use serde_json::{Value, json};
use tollgate::{Enforcement, Key, KeySecret, Limiter, limiter::DeniedKeys, store::Publication};

use crate::problem::Problem;

/// The longest key, in bytes, as an operator has it.
const LONGEST_KEY: usize = 4_096;

/// Limiters of this process, which a [`Console`](crate::Console) shows.
///
/// Use an [`Operator`](tollgate_cli::Operator) where replicas share a store: it shows what all of
/// them have, and lists keys, which no limiter does.
///
/// ```
/// use tollgate::{Enforcement, Limiter, Policy, Quota};
/// use tollgate_console::LocalLimiters;
///
/// let share = Enforcement::share(25);
/// let api = Limiter::in_memory(Policy::token_bucket("api", Quota::per_second(10)));
/// let search = Limiter::in_memory(Policy::token_bucket("search", Quota::per_second(1)));
/// let limiters = LocalLimiters::new().with(&api).with_share(&search, &share);
/// assert_eq!(limiters.names().collect::<Vec<_>>(), ["api", "search"]);
/// ```
#[derive(Clone)]
pub struct LocalLimiters {
    limiters: Vec<Local>,
    secret: KeySecret,
}

#[derive(Clone)]
struct Local {
    limiter: Limiter,
    /// The name, the policies and the share, as a store would publish them.
    publication: Publication,
    /// The share that an operator has set.
    operator: std::sync::Arc<std::sync::Mutex<Option<u8>>>,
}

/// The state of a policy, with the fields that `tollgate peek --format json` has.
#[derive(Serialize)]
struct PolicyRow<'a> {
    limiter: &'a str,
    subject: &'a str,
    policy: &'a str,
    algorithm: &'static str,
    spent: u64,
    limit: u64,
    debt: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    fits_after_us: Option<u64>,
    quota: String,
    expires_ms: u64,
}

impl Default for LocalLimiters {
    fn default() -> Self {
        Self::new()
    }
}

impl LocalLimiters {
    /// Creates an empty list.
    #[must_use]
    pub fn new() -> Self {
        // The random keys of the standard library's hash maps.
        let secret: Vec<u8> = (0..4_u64)
            .flat_map(|at| {
                use std::hash::BuildHasher as _;
                std::hash::RandomState::new().hash_one(at).to_le_bytes()
            })
            .collect();
        Self {
            limiters: Vec::new(),
            secret: KeySecret::new(secret),
        }
    }

    /// Adds a limiter, under its [name](Limiter::name).
    #[must_use]
    pub fn with(self, limiter: &Limiter) -> Self {
        self.add(limiter, None)
    }

    /// Adds a limiter with the share of the keys for which it is enforced, which people may then set
    /// on the page.
    #[must_use]
    pub fn with_share(self, limiter: &Limiter, share: &Enforcement) -> Self {
        self.add(limiter, Some(share.clone()))
    }

    fn add(mut self, limiter: &Limiter, share: Option<Enforcement>) -> Self {
        let (name, policies) = (limiter.name().to_owned(), limiter.policies().clone());
        self.limiters.push(Local {
            limiter: limiter.clone(),
            publication: Publication::new(name, policies, share),
            operator: std::sync::Arc::default(),
        });
        self
    }

    /// Returns the names of the limiters.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.limiters.iter().map(|local| local.publication.name())
    }

    /// Returns the digest of a key.
    pub(crate) fn name_of(&self, key: &str) -> String {
        DeniedKeys::digest(&Key::new(key), &self.secret)
    }

    /// Lists the limiters, with the fields that `tollgate enforce --format json` has.
    pub(crate) fn limiters(&self) -> Value {
        let row = |local: &Local| {
            let shares = local.publication.enforcement().map(Enforcement::percent);
            let policies = local.limiter.policies();
            let policies: Vec<_> = policies.iter().map(ToString::to_string).collect();
            json!({
                "limiter": local.publication.name(),
                "enforced": shares.into_iter().collect::<Vec<_>>(),
                "operator": local.operator().map(|share| format!("{share}%")),
                "policies": [policies],
            })
        };
        json!({ "limiters": self.limiters.iter().map(row).collect::<Vec<_>>(), "warnings": [] })
    }

    /// Shows what a key has spent, and when this cost would be admitted.
    pub(crate) async fn peek(&self, key: &str, cost: Option<u64>) -> Result<Value, Problem> {
        check_key(key)?;
        let mut rows = Vec::new();
        for local in &self.limiters {
            let cost = cost.unwrap_or(0);
            let decision = local.limiter.peek(key).cost(cost).await?;
            for state in decision.states() {
                let (policy, limit) = (state.policy(), state.policy().quota().burst());
                let fits = match state.is_exceeded() {
                    true => state.retry_after().map(micros),
                    false => Some(0),
                };
                if state.spent() == 0 && cost == 0 {
                    continue;
                }
                let row = PolicyRow {
                    limiter: local.publication.name(),
                    subject: key,
                    policy: policy.name(),
                    algorithm: policy.algorithm().name(),
                    spent: state.spent(),
                    limit,
                    debt: state.spent().saturating_sub(limit),
                    fits_after_us: fits.filter(|_| cost > 0),
                    quota: policy.quota().to_string(),
                    expires_ms: micros(state.reset_after()).div_ceil(1_000),
                };
                rows.push(json!(row));
            }
        }
        Ok(json!({ "states": rows }))
    }

    /// Makes a key fresh, and returns what it had spent.
    pub(crate) async fn reset(&self, key: &str) -> Result<Value, Problem> {
        let mut spent = self.peek(key, None).await?;
        for local in &self.limiters {
            local.limiter.reset(key).await?;
        }
        // No denial is remembered in the process that counts.
        spent["denied_ms"] = json!(0);
        Ok(spent)
    }

    /// Sets the share of a limiter. `None` withdraws it.
    pub(crate) fn set_share(&self, name: &str, share: Option<&str>) -> Result<(), Problem> {
        let percent = share.map(percent).transpose()?;
        let named = |local: &&Local| local.publication.name() == name;
        let local = self.limiters.iter().find(named).ok_or_else(|| {
            let names: Vec<_> = self.names().collect();
            let names = names.join(", ");
            Problem::refused(format!("there is no limiter {name:?}, expected {names}"))
        })?;
        if local.publication.enforcement().is_none() {
            return Err(Problem::refused(format!(
                "limiter {name} takes no share: it has no Enforcement"
            )));
        }
        local.publication.set_share(percent)?;
        if let Ok(mut operator) = local.operator.lock() {
            *operator = percent;
        }
        Ok(())
    }
}

impl Local {
    fn operator(&self) -> Option<u8> {
        self.operator.lock().ok().and_then(|share| *share)
    }
}

fn check_key(key: &str) -> Result<(), Problem> {
    if (1..=LONGEST_KEY).contains(&key.len()) {
        return Ok(());
    }
    Err(Problem::refused(format!(
        "key must have 1 to {LONGEST_KEY} bytes, got {}",
        key.len()
    )))
}

/// Reads a share such as `25%`. The sign may be left out.
fn percent(share: &str) -> Result<u8, Problem> {
    let digits = share.strip_suffix('%').unwrap_or(share);
    let read = format!("{digits}%").parse::<Enforcement>();
    let share = read.map_err(|error| Problem::refused(format!("share: {error}")))?;
    Ok(share.percent())
}

fn micros(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

tollgate::debug_fields! { LocalLimiters: .. }
