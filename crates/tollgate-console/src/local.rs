//! Limiters of this process, for an application that counts in its own memory.
//! Limiters of all replicas are read by an operator of `tollgate-operator`.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;
use serde_json::{Value, json};
use tollgate::{
    Enforcement, ErrorKind, Key, Limiter,
    limiter::DeniedKeys,
    store::{Exception, Publication},
};
use tollgate_operator::ExceptionRow;

use crate::{input::Grant, problem::Problem};

/// The longest key, in bytes, as an operator has it.
const LONGEST_KEY: usize = 4_096;

/// Limiters of this process, which a [`Console`](crate::Console) shows.
///
/// Use an [`Operator`](tollgate_operator::Operator) where replicas share a store: it shows what all of
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
#[derive(Clone, Default)]
pub struct LocalLimiters {
    limiters: Vec<Local>,
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

impl LocalLimiters {
    /// Creates an empty list.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
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

    /// Returns the digest of a key, under which the process shows it everywhere.
    pub(crate) fn name_of(&self, key: &str) -> String {
        DeniedKeys::digest_of(key, &DeniedKeys::process_secret())
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
        let exceptions = self.rows(|exception| exception.key() == Key::new(key).encoded());
        Ok(json!({ "states": rows, "exceptions": exceptions.await? }))
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
        let local = self.named(name)?;
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

/// The exceptions of limiters of this process.
impl LocalLimiters {
    /// Lists the exceptions, with the fields that `tollgate except --format json` has.
    pub(crate) async fn exceptions(&self) -> Result<Value, Problem> {
        Ok(json!({ "exceptions": self.rows(|_| true).await? }))
    }

    async fn rows(
        &self,
        is_wanted: impl Fn(&Exception) -> bool,
    ) -> Result<Vec<ExceptionRow>, Problem> {
        let mut rows = Vec::new();
        for local in &self.limiters {
            let listed = match local.limiter.exceptions().await {
                Ok(listed) => listed,
                // Another kind of store keeps none.
                Err(error) if error.kind() == ErrorKind::Unsupported => continue,
                Err(error) => return Err(error.into()),
            };
            let wanted = listed.iter().filter(|listed| is_wanted(listed));
            rows.extend(wanted.map(|listed| self.row(local, listed)));
        }
        Ok(rows)
    }

    /// Grants an exception, or changes one.
    pub(crate) async fn grant(&self, grant: &Grant, author: &str) -> Result<Value, Problem> {
        let name = &*grant.limiter;
        let local = self.named(name)?;
        if !local.limiter.takes_exceptions() {
            return Err(Problem::refused(format!(
                "limiter {name} takes no exceptions: it is neither published nor built with_exceptions"
            )));
        }
        let listed = local.limiter.exceptions().await?;
        let is_named = |listed: &&Exception| self.name_of(listed.key()) == grant.key;
        let key = listed
            .iter()
            .find(is_named)
            .map_or(&*grant.key, Exception::key);
        let request = grant.request(author, key);
        let exception = request.exception(local.limiter.policies(), now_us())?;
        let id = exception.id();
        let replaced = local.limiter.grant_exception(exception).await?;
        let listed = local.limiter.exceptions().await?;
        let granted = listed.iter().find(|listed| listed.id() == id);
        Ok(json!({
            "done": if replaced.is_some() { "changed" } else { "granted" },
            "exception": granted.map(|granted| self.row(local, granted)),
        }))
    }

    /// Withdraws the exception of a key. The policy may be left out when there is one.
    pub(crate) async fn withdraw(
        &self,
        name: &str,
        policy: Option<&str>,
        key: &str,
    ) -> Result<Value, Problem> {
        let local = self.named(name)?;
        let is_meant = |listed: &&Exception| {
            // A fresh start has happened.
            !listed.is_fresh_start()
                && policy.is_none_or(|policy| policy == listed.policy())
                && ([key, Key::new(key).encoded()].contains(&listed.key())
                    || self.name_of(listed.key()) == key)
        };
        let listed = local.limiter.exceptions().await?;
        let meant: Vec<_> = listed.iter().filter(is_meant).collect();
        let [meant] = meant[..] else {
            let of = format!("for {key:?} at the limiter {name}");
            if meant.is_empty() {
                return Err(Problem::not_found(format!("there is no exception {of}")));
            }
            let policies: Vec<_> = meant.iter().map(|meant| meant.policy()).collect();
            return Err(Problem::refused(format!(
                "there are several exceptions {of}, choose a policy: {}",
                policies.join(", ")
            )));
        };
        local.limiter.withdraw_listed(meant).await?;
        Ok(json!({ "done": "withdrawn", "exception": self.row(local, meant) }))
    }

    fn row(&self, local: &Local, exception: &Exception) -> ExceptionRow {
        let mut policies = local.limiter.policies().iter();
        let policy = policies.find(|policy| policy.name() == exception.policy());
        let policy = policy.filter(|_| !exception.is_fresh_start());
        let changed = policy.and_then(|policy| exception.change().of(policy).ok());
        ExceptionRow::new(exception, now_us())
            .with_key(self.name_of(exception.key()))
            .with_quota(changed.map(|policy| policy.quota()))
    }

    fn named(&self, name: &str) -> Result<&Local, Problem> {
        let named = |local: &&Local| local.publication.name() == name;
        self.limiters.iter().find(named).ok_or_else(|| {
            let names: Vec<_> = self.names().collect();
            let names = names.join(", ");
            Problem::not_found(format!("there is no limiter {name:?}, expected {names}"))
        })
    }
}

/// Returns the time of a store in the process.
fn now_us() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, micros)
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
