use std::{
    fmt,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use redis::Value;

use super::{RedisStore, connection::Connection, script::Script};
use crate::{Cost, Error, Key, Policy, PolicySet, Quota, reason::Reason};

/// Something about a server that somebody should change; see [`RedisStore::diagnose`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    code: &'static str,
    detail: String,
}

const EVICTION: &str = "TOLLGATE-EVICTION";
const ACL: &str = "TOLLGATE-ACL";
const CLOCK: &str = "TOLLGATE-CLOCK";
const VERSION: &str = "TOLLGATE-VERSION";

/// The scripts set the time of expiry (`SET` with `PXAT`), which came with it.
const OLDEST: [u32; 2] = [6, 2];

/// Clocks that differ by less are told apart by nobody.
const SKEW: Duration = Duration::from_secs(1);

/// What the policies that are tried allow in a minute.
const TRIED: u32 = 600;

/// What the three calls of each script charge.
const COSTS: [u32; 3] = [200, 1, 1];

impl Finding {
    fn new(code: &'static str, detail: impl Into<String>) -> Self {
        Self { code, detail: detail.into() }
    }

    /// A word that does not change between versions: `TOLLGATE-EVICTION`, `TOLLGATE-ACL`,
    /// `TOLLGATE-CLOCK` or `TOLLGATE-VERSION`.
    #[must_use]
    pub fn code(&self) -> &'static str {
        self.code
    }

    /// What is wrong, and what to do about it.
    #[must_use]
    pub fn detail(&self) -> &str {
        &self.detail
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.detail)
    }
}

impl RedisStore {
    /// Looks at the server, in a cluster at every one that has slots, for what makes limits weaker than they read, and does once what the
    /// given policies need there, on keys of its own that it deletes.
    ///
    /// | code | means |
    /// |---|---|
    /// | `TOLLGATE-EVICTION` | `maxmemory-policy` is not `noeviction`: whoever fills the memory makes exhausted keys fresh |
    /// | `TOLLGATE-ACL` | the user lacks a right that a script needs, or may not look |
    /// | `TOLLGATE-CLOCK` | the server's clock is more than a second from ours: windows of the calendar are not where this machine sees them, and with [a clock of ours](super::RedisStoreBuilder::clock) replicas disagree |
    /// | `TOLLGATE-VERSION` | Redis is older than 6.2 |
    ///
    /// [`connect`](Self::connect) does this once, without policies, and logs what it finds. Do it
    /// with policies in a check of the deployment, or as the service starts:
    ///
    /// ```no_run
    /// # async fn run(store: tollgate::RedisStore, limiter: tollgate::Limiter) -> Result<(), tollgate::Error> {
    /// for finding in store.diagnose([limiter.policies().clone()]).await? {
    ///     eprintln!("{finding}");
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// The server cannot be reached, or does not answer within the
    /// [time for connecting](super::RedisStoreBuilder::connect_timeout) to one of the questions.
    pub async fn diagnose(&self, policies: impl IntoIterator<Item = PolicySet>) -> Result<Vec<Finding>, Error> {
        let sets: Vec<PolicySet> = policies.into_iter().collect();
        let sets = &sets;
        let look = |connection: Arc<Connection>, key| async move {
            let mut findings = connection.look().await?;
            for set in sets {
                connection.try_scripts(set, &key, &mut findings).await?;
            }
            Ok(findings)
        };
        self.0.lanes.diagnose(look).await
    }

    /// Logs what is wrong with the server.
    pub(super) async fn warn(&self) {
        match self.diagnose([]).await {
            Ok(findings) => {
                for Finding { code, detail } in findings {
                    tracing::warn!(code, "{detail}");
                }
            }
            Err(error) => tracing::debug!(%error, "the server could not be looked at"),
        }
    }
}

impl Connection {
    /// What the server tells of itself.
    async fn look(&self) -> Result<Vec<Finding>, Error> {
        let (server, memory, time) = (info("server"), info("memory"), redis::cmd("TIME"));
        let clock = async {
            let asked = self.ours();
            let answer = self.query_in_time(&time).await;
            answer.map(|answer| (asked, answer, self.ours()))
        };
        let (server, memory, clock) = tokio::join!(self.query_in_time(&server), self.query_in_time(&memory), clock);
        let mut findings = Vec::new();
        match (granted(server)?, granted(memory)?) {
            (Some(server), Some(memory)) => {
                findings.extend(version(&text(&server)));
                findings.extend(eviction(&text(&memory)));
            }
            _ => findings.push(Finding::new(
                ACL,
                "the user may not call INFO: whether keys are evicted, and how old the server is, is not known; grant +info",
            )),
        }
        match granted(clock)? {
            Some((asked, answer, answered)) => findings.extend(skew(asked, &answer, answered)),
            None if self.clock().is_none() => findings.push(lacks("TIME", "+time")),
            None => {}
        }
        Ok(findings)
    }

    /// Our time since the Unix epoch: that of the clock which decides, where it is one of ours.
    fn ours(&self) -> Duration {
        match self.clock() {
            Some(clock) => Duration::from_micros(clock.now_us()),
            None => SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
        }
    }

    /// Does once what the policies need, on a key of its own that is gone after a minute at most.
    async fn try_scripts(&self, policies: &PolicySet, key: &Key, findings: &mut Vec<Finding>) -> Result<(), Error> {
        let brief = policies
            .iter()
            // A tenth of a second each: of two single charges one belongs to the second of what stood there, and is
            // written in place. The great one before them is seen for twenty seconds.
            .map(|policy| {
                Policy::try_new(policy.name(), policy.algorithm(), Quota::new(TRIED, Duration::from_secs(60)))
            });
        let set = PolicySet::try_new(brief.collect::<Result<Vec<_>, _>>()?)?;
        let plan = set.plan();
        let names = set.iter().map(Policy::name).collect::<Vec<_>>().join(", ");
        let call = |command: &str, script: &str, own: &[f64], is_tagged: bool| {
            let mut command = redis::cmd(command);
            command.arg(script).arg(set.len());
            self.keys(plan, std::iter::once(key), &mut command);
            command.arg(&*plan.pack(own));
            if is_tagged {
                command.arg("");
            }
            command
        };
        let scripts: [(&Script, Option<f64>, bool); 3] =
            [(&plan.check, None, plan.tagged), (&plan.batch, None, plan.tagged), (&plan.refund, Some(-1.0), false)];
        let mut left = Vec::new();
        for (script, spent, is_tagged) in scripts {
            // By its body first: that the server knows it now does not tell that it may be sent.
            let calls = [("EVAL", &script.text), ("EVALSHA", &script.sha), ("EVALSHA", &script.sha)];
            for ((command, body), cost) in calls.into_iter().zip(COSTS) {
                let own = [self.now(), cost.into()].into_iter().chain(spent).collect::<Vec<_>>();
                let Some(reply) = granted(self.query_in_time(&call(command, body, &own, is_tagged)).await)? else {
                    findings.push(Finding::new(
                        ACL,
                        format!(
                            "the user may not {command} a script of the policies {names}, one of the commands in it, or \
                             not on keys {}:*; docs/operations.md has the rights",
                            self.prefix()
                        ),
                    ));
                    // The server may not know the script now.
                    break;
                };
                if script.sha == plan.check.sha {
                    let decision = super::reply::decision(plan, &set, Cost::new(cost), &reply)?;
                    left.push(decision.states().map(|state| state.remaining()).collect::<Vec<_>>());
                }
            }
        }
        // A state that may not be read counts as absent, each charge as the first, and nobody is ever denied. A window
        // may end between two of the checks, not between any two.
        let is_read = |at: usize| left.iter().zip(COSTS).any(|(left, cost)| left[at] < u64::from(TRIED - cost));
        for (at, policy) in set.iter().enumerate().filter(|_| left.len() == COSTS.len()) {
            if !is_read(at) {
                findings.push(Finding::new(
                    ACL,
                    format!(
                        "the user may write what policy {} spends and not read it; docs/operations.md has the rights",
                        policy.name()
                    ),
                ));
            }
        }
        let mut delete = redis::cmd("DEL");
        self.keys(plan, std::iter::once(key), &mut delete);
        if granted(self.query_in_time(&delete).await)?.is_none() {
            findings.push(lacks("DEL", "+del"));
        }
        Ok(())
    }
}

/// The answer, unless the user has no right to it.
fn granted<T>(answer: Result<T, Error>) -> Result<Option<T>, Error> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(error) if error.cause() == Reason::Acl => Ok(None),
        Err(error) => Err(error),
    }
}

fn lacks(command: &str, right: &str) -> Finding {
    Finding::new(ACL, format!("the user may not call {command}; grant {right}"))
}

fn info(section: &str) -> redis::Cmd {
    let mut command = redis::cmd("INFO");
    command.arg(section);
    command
}

fn text(reply: &Value) -> String {
    match reply {
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => text.clone(),
        _ => String::new(),
    }
}

fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
}

fn eviction(memory: &str) -> Option<Finding> {
    let policy = field(memory, "maxmemory_policy").filter(|policy| *policy != "noeviction")?;
    Some(Finding::new(
        EVICTION,
        format!(
            "maxmemory-policy is {policy}: a flood of keys evicts exhausted ones, whose quota is then fresh; set noeviction"
        ),
    ))
}

fn version(server: &str) -> Option<Finding> {
    // Valkey tells a version of Redis as well, that which it is compatible with.
    let told = field(server, "redis_version")?;
    let mut numbers = told.split('.').map(|number| number.parse().unwrap_or(0));
    let version = [numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)];
    let [major, minor] = OLDEST;
    (version < OLDEST)
        .then(|| Finding::new(VERSION, format!("the server is {told}, the scripts need {major}.{minor} or newer")))
}

/// The server read its clock between the two times given.
fn skew(asked: Duration, answer: &Value, answered: Duration) -> Option<Finding> {
    let number = |value: &Value| match value {
        Value::Int(number) => u64::try_from(*number).ok(),
        value => text(value).parse().ok(),
    };
    let Value::Array(parts) = answer else { return None };
    let [seconds, micros] = parts.as_slice() else { return None };
    let server = Duration::from_secs(number(seconds)?) + Duration::from_micros(number(micros)?);
    let ours = asked + answered.saturating_sub(asked) / 2;
    let (apart, direction) = match server.checked_sub(ours) {
        Some(ahead) => (ahead, "ahead of"),
        None => (ours - server, "behind"),
    };
    let unsure = answered.saturating_sub(asked) / 2;
    (apart > SKEW + unsure)
        .then(|| Finding::new(CLOCK, format!("the server's clock is {:.1} s {direction} ours", apart.as_secs_f64())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_number() {
        let finds = |told: &str| version(&format!("# Server\r\nredis_version:{told}\r\nos:x\r\n")).is_some();
        for old in ["2.8.24", "4.0.14", "5.0.0", "6.0.20", "6.1.241"] {
            assert!(finds(old), "{old}");
        }
        for new in ["6.2.0", "6.10.0", "7.0.15", "7.2.4", "8.0.2", "10.0.0", "255.255.255"] {
            assert!(!finds(new), "{new}");
        }
        assert_eq!(version("# Server\r\n"), None, "what is not told is no finding");
        let found = version("redis_version:6.0.16").map(|finding| finding.to_string());
        assert_eq!(found.as_deref(), Some("TOLLGATE-VERSION: the server is 6.0.16, the scripts need 6.2 or newer"));
    }

    #[test]
    fn the_trip_is_no_skew() {
        let answer = |us: u64| {
            let bulk = |number: u64| Value::BulkString(number.to_string().into_bytes());
            Value::Array(vec![bulk(us / 1_000_000), bulk(us % 1_000_000)])
        };
        let at = Duration::from_micros;
        let (asked, trip) = (1_700_000_000_000_000, 4_000_000);
        for server in [asked, asked + trip / 2, asked + trip] {
            assert_eq!(skew(at(asked), &answer(server), at(asked + trip)), None, "read on the way");
        }
        for (server, told) in
            [(asked + 3_600_000_000, "3600.0 s ahead of ours"), (asked - 1_500_000, "1.5 s behind ours")]
        {
            let found = skew(at(asked), &answer(server), at(asked)).expect("a finding");
            assert_eq!(found.code(), "TOLLGATE-CLOCK");
            assert!(found.detail().contains(told), "{found}");
        }
        assert_eq!(skew(at(asked), &answer(asked + 999_999), at(asked)), None);
        assert_eq!(skew(at(asked), &Value::Nil, at(asked)), None);
    }
}
