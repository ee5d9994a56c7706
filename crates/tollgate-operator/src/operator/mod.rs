//! The tasks of an operator on a running system.
//! They are built of the rooms beside this one. Exceptions are in a file of their own.

mod exceptions;

use std::{sync::Arc, time::Duration};

use serde::Serialize;
use tokio::{
    sync::{Mutex, MutexGuard},
    time::{Instant, timeout},
};
use tollgate_rules::RuleSet;

use crate::{
    error::OperatorError,
    exceptions::{ExceptionRow, encoded},
    replicas::{ReplicaSnapshot, StatusReport},
    states::{
        First, KeyQuery, Limits, Names, Order, Published, PublishedLimiter, Scan, Server,
        ServerAddress, StateEntry, Wanted, denied_ms, look_ahead, parse_share,
    },
};

pub use exceptions::{ChangedException, ExceptionRequest, GrantedExceptions};

/// The longest scan for the heaviest keys.
const LONGEST_SCAN: Duration = Duration::from_secs(20);

/// The time for which the heaviest keys are kept, so that several people cause one scan.
const KEPT: Duration = Duration::from_secs(2);

/// The time for which processes remember a denial by default.
const DENY_CACHE_CAP: Duration = Duration::from_secs(1);

/// The longest key, in bytes.
const LONGEST_KEY: usize = 4_096;

/// Reads and changes what services have in one store, as the command `tollgate` does.
///
/// Use a [`Limiter`](tollgate::Limiter) to decide, and to look at a key of a limiter that the program
/// has itself. An operator knows limiters and replicas by what they publish in the store. It
/// authenticates nobody: the rights are those of the user in its URL.
///
/// Everything that it returns is serialised as the command prints it with `--format json`. Clones
/// share a connection, which is opened when it is needed, and again after a failure.
///
/// ```no_run
/// # async fn run() -> Result<(), tollgate_operator::OperatorError> {
/// let operator = tollgate_operator::Operator::builder("redis://127.0.0.1").build()?;
/// let heaviest = operator.heaviest(20, tollgate_operator::Order::Spent).await?;
/// println!("{}", serde_json::to_string(&heaviest).unwrap());
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Operator(Arc<OperatorInner>);

struct OperatorInner {
    server_address: ServerAddress,
    names: Names,
    rules: Option<Rules>,
    /// The name of the limiter of the rules.
    rules_limiter: String,
    /// `None` before the first call, and after a failure.
    server: Mutex<Option<Server>>,
    heaviest: Mutex<Option<(Instant, u32, Order, HeaviestKeys)>>,
}

/// One call.
struct Session<'a> {
    slot: MutexGuard<'a, Option<Server>>,
    server: Server,
    /// The limits that are known.
    limits: Limits,
}

type Rules = Arc<dyn Fn() -> Arc<RuleSet> + Send + Sync>;

/// Builds an [`Operator`].
#[must_use = "a builder does nothing until `build` is called"]
pub struct OperatorBuilder {
    url: String,
    prefix: Option<String>,
    timeout: Duration,
    shows_keys: bool,
    secret: Option<Vec<u8>>,
    rules: Option<Rules>,
    rules_limiter: String,
}

/// The limiters that services publish, as `tollgate enforce` lists them.
#[derive(Debug, Serialize)]
pub struct PublishedLimiters {
    limiters: Vec<PublishedLimiter>,
    warnings: Vec<String>,
}

/// The rules and limits that each replica enforces, as `tollgate status` lists them.
#[derive(Debug, Serialize)]
pub struct EnforcedLimits(StatusReport);

/// The keys with the most use. `states` has them as `tollgate top --once` lists them.
#[derive(Clone, Debug, Serialize)]
pub struct HeaviestKeys {
    /// The states that were scanned.
    scanned: u64,
    /// Those of them that have no unit left.
    limited: u64,
    /// Those of them that have no known limit.
    without_limit: u64,
    states: Vec<StateEntry>,
}

/// The units that a key has spent, as `tollgate peek` lists them, and the exceptions that apply to it,
/// as `tollgate except` lists them.
#[derive(Debug, Serialize)]
pub struct KeyStates {
    states: Vec<StateEntry>,
    exceptions: Vec<ExceptionRow>,
}

/// The states of a key that were removed, as `tollgate reset` lists them.
#[derive(Debug, Serialize)]
pub struct RemovedStates {
    /// The longest time for which a process may still deny the key, in milliseconds from now.
    denied_ms: u64,
    states: Vec<StateEntry>,
}

impl OperatorBuilder {
    /// Sets the prefix of the store's keys, or its table in PostgreSQL. The default is that in the
    /// URL (`?prefix=`, `?table=`), or else `tollgate`.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = Some(prefix.into());
        self
    }

    /// Sets how long the server may take to connect and to answer. The default is 5 seconds.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Shows the keys in [`heaviest`](Operator::heaviest). By default, digests of them are shown:
    /// keys may be addresses or names of people.
    pub fn shows_keys(mut self, shows_keys: bool) -> Self {
        self.shows_keys = shows_keys;
        self
    }

    /// Makes the digests of keys with this secret, so that they equal those of
    /// [`DeniedKeys`](tollgate::limiter::DeniedKeys) with it. The default is the
    /// [secret](tollgate::limiter::DeniedKeys::process_secret) of this process.
    pub fn digest_secret(mut self, secret: impl Into<Vec<u8>>) -> Self {
        self.secret = Some(secret.into());
        self
    }

    /// Adds the limits of rules, which the function returns as they are now. Keys may then be
    /// written as entries: `tenant=gold route=/export`.
    pub fn rules(mut self, rules: impl Fn() -> Arc<RuleSet> + Send + Sync + 'static) -> Self {
        self.rules = Some(Arc::new(rules));
        self
    }

    /// Sets the name of the limiter of the [rules](Self::rules), to which exceptions for their values are
    /// granted. The default is `rules`, as that of `tollgate-rules`.
    pub fn rules_limiter(mut self, name: impl Into<String>) -> Self {
        self.rules_limiter = name.into();
        self
    }

    /// Builds the operator. No server is asked.
    ///
    /// # Errors
    ///
    /// When the URL or the prefix is not valid. No message shows the URL: it may have a password.
    pub fn build(self) -> Result<Operator, OperatorError> {
        let mut server_address = ServerAddress::new(self.url).with_timeout(self.timeout);
        if let Some(prefix) = self.prefix {
            server_address = server_address.with_prefix(prefix);
        }
        server_address.address()?;
        let names = if self.shows_keys {
            Names::Plain
        } else {
            Names::digests(self.secret.as_deref())
        };
        Ok(Operator(Arc::new(OperatorInner {
            server_address,
            names,
            rules: self.rules,
            rules_limiter: self.rules_limiter,
            server: Mutex::new(None),
            heaviest: Mutex::new(None),
        })))
    }
}

impl Operator {
    /// Returns a builder for an operator of the store at this URL: `redis://`, `rediss://`,
    /// `redis+unix://` or `postgres://`. Of a Redis Cluster, a master has the states of its slots
    /// alone.
    pub fn builder(url: impl Into<String>) -> OperatorBuilder {
        OperatorBuilder {
            url: url.into(),
            prefix: None,
            timeout: Duration::from_secs(5),
            shows_keys: false,
            secret: None,
            rules: None,
            rules_limiter: "rules".to_owned(),
        }
    }

    /// Returns the address of the server, without user and password.
    #[must_use]
    pub fn address(&self) -> String {
        self.0.server_address.address().unwrap_or_default()
    }

    /// Returns the prefix of the store's keys.
    #[must_use]
    pub fn prefix(&self) -> &str {
        self.0.server_address.prefix()
    }

    /// Returns whether [`heaviest`](Self::heaviest) shows keys, and no digests.
    #[must_use]
    pub fn shows_keys(&self) -> bool {
        matches!(self.0.names, Names::Plain)
    }

    /// Returns the digest of a key's text, with the secret of this operator. Without one, because
    /// it [shows keys](OperatorBuilder::shows_keys), returns the text.
    #[must_use]
    pub fn name_of(&self, key: &str) -> String {
        let digest = self.0.names.digest(&encoded(key));
        digest.unwrap_or_else(|| key.to_owned())
    }

    /// Lists the limiters that services publish.
    ///
    /// # Errors
    ///
    /// When the server does not answer, or refuses.
    pub async fn limiters(&self) -> Result<PublishedLimiters, OperatorError> {
        let mut session = self.session().await?;
        let published = Published::read(&mut session.server).await?;
        session.keep();
        Ok(PublishedLimiters {
            limiters: published.limiters(),
            warnings: published.warnings,
        })
    }

    /// Lists the replicas, and what each of them enforces.
    ///
    /// # Errors
    ///
    /// When the server does not answer, or refuses.
    pub async fn replicas(&self) -> Result<EnforcedLimits, OperatorError> {
        let mut session = self.session().await?;
        let snapshot = ReplicaSnapshot::read(&mut session.server).await?;
        session.keep();
        Ok(EnforcedLimits(snapshot.into()))
    }

    /// Lists up to `number` states, those with the most use first. All states of the prefix are
    /// scanned in small steps, within 20 seconds. Calls within two seconds share a scan.
    ///
    /// # Errors
    ///
    /// When the server does not answer, or refuses, or when the scan takes longer.
    pub async fn heaviest(&self, number: u32, by: Order) -> Result<HeaviestKeys, OperatorError> {
        let mut kept = self.0.heaviest.lock().await;
        if let Some((at, of, order, heaviest)) = &*kept
            && at.elapsed() < KEPT
            && (*of, *order) == (number, by)
        {
            return Ok(heaviest.clone());
        }
        // A connection of its own: nobody waits for a scan who does not need it.
        let scan = async {
            let mut server = self.0.server_address.connect().await?;
            let mut limits = self.limits();
            limits.read(&mut server).await?;
            let (mut first, mut limited) = (First::new(number, by), 0);
            let scan = Scan::new(&mut server, &limits)
                .run(&Wanted::All, |state| {
                    limited += u64::from(state.is_limited());
                    first.add(state);
                })
                .await?;
            let mut states = first.take();
            states
                .iter_mut()
                .for_each(|state| self.0.names.apply(state));
            Ok::<_, OperatorError>(HeaviestKeys {
                scanned: scan.states,
                limited,
                without_limit: scan.without_limit,
                states,
            })
        };
        let heaviest = match timeout(LONGEST_SCAN, scan).await {
            Ok(scanned) => scanned?,
            Err(_) => {
                return Err(OperatorError::unavailable(format_args!(
                    "the store has too many keys to scan within {} s, use tollgate top",
                    LONGEST_SCAN.as_secs()
                )));
            }
        };
        *kept = Some((Instant::now(), number, by, heaviest.clone()));
        Ok(heaviest)
    }

    /// Shows what a key has spent, and with a cost when a check of this many units would be
    /// admitted. Changes nothing.
    ///
    /// The key is a text or an address as [`heaviest`](Self::heaviest) shows keys, a whole Redis
    /// key, or entries of [rules](OperatorBuilder::rules).
    ///
    /// # Errors
    ///
    /// When the key is empty or has more than 4096 bytes, when no rule limits these entries, and
    /// when the server does not answer, or refuses.
    pub async fn peek(&self, key: &str, cost: Option<u64>) -> Result<KeyStates, OperatorError> {
        check_key(key)?;
        let mut session = self.session().await?;
        let mut states = session.find(key).await?;
        if let Some(cost) = cost {
            look_ahead(&mut session.server, &mut states, cost).await?;
        }
        let exceptions = self.exceptions_of(&session, key);
        session.keep();
        Ok(KeyStates { states, exceptions })
    }

    /// Removes what a key has spent, so that every policy has its whole burst again. The key is
    /// written as for [`peek`](Self::peek).
    ///
    /// # Errors
    ///
    /// As [`peek`](Self::peek).
    pub async fn reset(&self, key: &str) -> Result<RemovedStates, OperatorError> {
        check_key(key)?;
        let mut session = self.session().await?;
        let states = session.find(key).await?;
        for state in &states {
            // One command for each, because a cluster takes no keys of several slots.
            session.server.remove(state).await?;
        }
        session.keep();
        // It has the key as it was.
        *self.0.heaviest.lock().await = None;
        Ok(RemovedStates {
            denied_ms: denied_ms(&states, DENY_CACHE_CAP),
            states,
        })
    }

    /// Sets the share of the keys for which a published limiter is enforced, such as `25%`. `None`
    /// withdraws it. It reaches each replica within three seconds.
    ///
    /// # Errors
    ///
    /// When the share is not 0 to 100 percent, when no such limiter is published, when it takes no
    /// share, and when the server does not answer, or refuses.
    pub async fn set_share(&self, limiter: &str, share: Option<&str>) -> Result<(), OperatorError> {
        let percent = share.map(parse_share).transpose();
        let refused = |error| OperatorError::refused(format_args!("share: {error}"));
        let percent = percent.map_err(refused)?;
        let mut session = self.session().await?;
        let published = Published::read(&mut session.server).await?;
        published.check_share(limiter, percent, self.prefix())?;
        session.server.set_share(limiter, percent).await?;
        session.keep();
        Ok(())
    }

    /// Returns the limits of the rules, if there are any.
    fn limits(&self) -> Limits {
        let rules = self.0.rules.as_ref();
        rules.map_or_else(Limits::default, |rules| Limits::of_rules(rules()))
    }

    /// Connects, or takes the connection of the call before.
    async fn session(&self) -> Result<Session<'_>, OperatorError> {
        let mut slot = self.0.server.lock().await;
        let mut server = match slot.take() {
            Some(server) => server,
            None => self.0.server_address.connect().await?,
        };
        let mut limits = self.limits();
        limits.read(&mut server).await?;
        Ok(Session {
            slot,
            server,
            limits,
        })
    }
}

impl Session<'_> {
    async fn find(&mut self, key: &str) -> Result<Vec<StateEntry>, OperatorError> {
        let query = KeyQuery::of(key, &self.limits);
        Scan::new(&mut self.server, &self.limits).find(&query).await
    }

    /// Keeps the connection for the next call. A session that failed does not.
    fn keep(mut self) {
        *self.slot = Some(self.server);
    }
}

fn check_key(key: &str) -> Result<(), OperatorError> {
    if (1..=LONGEST_KEY).contains(&key.len()) {
        return Ok(());
    }
    Err(OperatorError::refused(format_args!(
        "key must have 1 to {LONGEST_KEY} bytes, got {}",
        key.len()
    )))
}

tollgate::debug_fields! { Operator: .. }
tollgate::debug_fields! { OperatorBuilder: shows_keys, .. }
