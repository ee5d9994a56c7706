use std::{
    fmt,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use redis::Value;

use super::{
    RedisStore,
    protocol::{self, MixedArgs, Script},
    replicas,
    server::{self, DISTANT, Server},
};
use crate::{Cost, Error, ErrorKind, Key, Policy, PolicySet, Quota, limiter};

/// Describes a setting of a server that an operator should change. See [`RedisStore::diagnose`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    code: &'static str,
    detail: String,
}

const EVICTION: &str = "TOLLGATE-EVICTION";
const ACL: &str = "TOLLGATE-ACL";
const CLOCK: &str = "TOLLGATE-CLOCK";
const VERSION: &str = "TOLLGATE-VERSION";

/// The oldest version that has `SET` with `PXAT`, which the scripts use.
const OLDEST: [u32; 2] = [6, 2];

/// The difference between two clocks up to which nothing is reported.
const SKEW: Duration = Duration::from_secs(1);

/// The most round trips that are measured. The shortest counts, because one may meet a moment in which the machine is busy.
const TRIPS: u32 = 5;

/// The amount per minute of the policies that are tried.
const TRIED: u64 = 600;

/// The costs of the three calls of each script.
const COSTS: [u64; 3] = [200, 1, 1];

impl Finding {
    fn new(code: &'static str, detail: impl Into<String>) -> Self {
        Self { code, detail: detail.into() }
    }

    /// Returns a code that does not change between versions: `TOLLGATE-EVICTION`, `TOLLGATE-ACL`,
    /// `TOLLGATE-CLOCK`, `TOLLGATE-VERSION` or `TOLLGATE-DISTANT`.
    #[must_use]
    pub fn code(&self) -> &'static str {
        self.code
    }

    /// Returns what is wrong, and what to do about it.
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
    /// Finds settings of the server that weaken limits, and tries the scripts of the given policies. In a cluster,
    /// examines every server that has slots.
    ///
    /// | code | meaning |
    /// |---|---|
    /// | `TOLLGATE-EVICTION` | `maxmemory-policy` is not `noeviction`. A flood of keys evicts exhausted ones, and so resets their limits. |
    /// | `TOLLGATE-ACL` | The user lacks a right that a script or this examination needs. |
    /// | `TOLLGATE-CLOCK` | The clocks of the server and of this machine differ by more than 1 s. Aligned windows begin at other times than this machine expects. With a [clock of the process](super::RedisStoreBuilder::clock) replicas disagree. |
    /// | `TOLLGATE-VERSION` | Redis is older than 6.2. |
    /// | `TOLLGATE-DISTANT` | The round trip takes more than four fifths of the default [`deadline`](crate::LimiterBuilder::deadline), 50 ms. A limiter with a longer deadline may be in order. |
    ///
    /// The scripts run on keys of their own, which are deleted afterwards. [`connect`](Self::connect) calls this once
    /// without policies, and logs the findings. Call it with policies when the service starts, or in a check of the
    /// deployment:
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
    /// The server cannot be reached, or does not answer a call within the
    /// [time for connecting](super::RedisStoreBuilder::connect_timeout).
    pub async fn diagnose(&self, policies: impl IntoIterator<Item = PolicySet>) -> Result<Vec<Finding>, Error> {
        let sets: Vec<PolicySet> = policies.into_iter().collect();
        let mut findings: Vec<Finding> = Vec::new();
        for (server, key) in self.backend().servers().await? {
            let mut found = examine(&server).await?;
            for set in &sets {
                try_scripts(&server, set, &key, &mut found).await?;
            }
            if !sets.is_empty() {
                found.extend(try_count(&server, &key).await?);
            }
            // Several servers of a cluster often have the same findings.
            found.retain(|finding| !findings.contains(finding));
            findings.append(&mut found);
        }
        Ok(findings)
    }

    /// Logs the findings of the server.
    pub(super) async fn log_findings(&self) {
        match self.diagnose([]).await {
            Ok(findings) => {
                for Finding { code, detail } in findings {
                    tracing::warn!(code, "{detail}");
                }
            }
            Err(error) => tracing::debug!(%error, "the redis server could not be examined"),
        }
    }
}

/// Reads the settings of a server.
async fn examine(server: &Server) -> Result<Vec<Finding>, Error> {
    let (about, memory, time) = (info("server"), info("memory"), redis::cmd("TIME"));
    let clock = async {
        let asked = local_time(server);
        let answer = server.query_in_time(&time).await;
        answer.map(|answer| (asked, answer, local_time(server)))
    };
    let (about, memory, clock) = tokio::join!(server.query_in_time(&about), server.query_in_time(&memory), clock);
    let mut findings = Vec::new();
    match (granted(about)?, granted(memory)?) {
        (Some(about), Some(memory)) => {
            findings.extend(version(&text(&about)));
            findings.extend(eviction(&text(&memory)));
        }
        _ => findings.push(Finding::new(
            ACL,
            "the user may not call INFO, so the eviction policy and the version are not known; grant +info",
        )),
    }
    match granted(clock)? {
        Some((asked, answer, answered)) => findings.extend(skew(asked, &answer, answered)),
        None if server.clock().is_none() => findings.push(lacks("TIME", "+time")),
        None => {}
    }
    findings.extend(distance(server).await?);
    Ok(findings)
}

/// Measures the round trip, and compares it with the default deadline. A limiter may have another one, which a store does
/// not know.
async fn distance(server: &Server) -> Result<Option<Finding>, Error> {
    let (ping, mut shortest) = (redis::cmd("PING"), Duration::MAX);
    for _ in 0..TRIPS {
        let sent = Instant::now();
        granted(server.query_in_time(&ping).await)?;
        shortest = shortest.min(sent.elapsed());
        if server::far(shortest, limiter::DEADLINE).is_none() {
            return Ok(None);
        }
    }
    Ok(server::far(shortest, limiter::DEADLINE).map(|detail| Finding::new(DISTANT, detail)))
}

/// Returns the time since the Unix epoch on the clock of this process that decides, or on the system's.
fn local_time(server: &Server) -> Duration {
    match server.clock() {
        Some(clock) => Duration::from_micros(clock.now_us()),
        None => SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
    }
}

/// Packs the arguments of a call with a cost.
type PackArgs<'a> = &'a dyn Fn(Cost) -> Vec<u8>;

/// Calls every script of the policies on a key of its own, which expires after a minute at most.
async fn try_scripts(
    server: &Server,
    policies: &PolicySet,
    key: &Key,
    findings: &mut Vec<Finding>,
) -> Result<(), Error> {
    let brief = policies
        .iter()
        // One unit lasts a tenth of a second. Of two single charges, one falls into the second of the state that is
        // stored, and is written in place. The large charge before them is visible for twenty seconds.
        .map(|policy| Policy::try_new(policy.name(), policy.algorithm(), Quota::new(TRIED, Duration::from_secs(60))));
    let set = PolicySet::try_new(brief.collect::<Result<Vec<_>, _>>()?)?;
    let shape = set.shape();
    let names = set.iter().map(Policy::name).collect::<Vec<_>>().join(", ");
    let call = |command: &str, body: &str, packed: &[u8], is_refund: bool| {
        let mut command = redis::cmd(command);
        command.arg(body).arg(set.len());
        server.add_keys([(&set, key)], &mut command);
        command.arg(packed);
        if set.is_tagged() && !is_refund {
            command.arg("");
        }
        command
    };
    let charged = |cost| protocol::pack(server.now(), cost, &set).to_vec();
    let mixed = |cost| {
        let mut args = MixedArgs::new(server.now(), 1);
        args.subject(&set);
        args.run(cost, 1);
        args.into_bytes()
    };
    let refunded = |cost| protocol::pack_refund(server.now(), cost, -1.0, &set).to_vec();
    let tried: [(&Script, PackArgs<'_>); 4] =
        [(shape.check(), &charged), (shape.batch(), &charged), (shape.mixed(), &mixed), (shape.refund(), &refunded)];
    let mut left = Vec::new();
    for (script, packed) in tried {
        let is_refund = script.sha == shape.refund().sha;
        // By its body first: the user may lack the right to load a script that the server happens to know.
        let calls = [("EVAL", &script.text), ("EVALSHA", &script.sha), ("EVALSHA", &script.sha)];
        for ((command, body), cost) in calls.into_iter().zip(COSTS) {
            let call = call(command, body, &packed(Cost::new(cost)), is_refund);
            let Some(reply) = granted(server.query_in_time(&call).await)? else {
                findings.push(Finding::new(
                        ACL,
                        format!(
                            "the user may not {command} a script of the policies {names}, or a command in it, or not on keys \
                             {0}:*; grant ~{0}:* +evalsha +eval +time +get +mget +set +setrange, and for a sliding log \
                             +lindex +llen +lpush +lrange +lrem +lset +ltrim +rpush +pexpireat",
                            server.prefix()
                        ),
                    ));
                // Without its body the server may not know the script.
                break;
            };
            if script.sha == shape.check().sha {
                let decision = protocol::decision(&set, Cost::new(cost), &reply)?;
                left.push(decision.states().map(|state| state.remaining()).collect::<Vec<_>>());
            }
        }
    }
    // A state that may not be read counts as absent, so each charge is the first and no request is ever denied. A
    // window may end between two of the checks, but not between every two.
    let is_read = |at: usize| left.iter().zip(COSTS).any(|(left, cost)| left[at] < TRIED - cost);
    for (at, policy) in set.iter().enumerate().filter(|_| left.len() == COSTS.len()) {
        if !is_read(at) {
            findings.push(Finding::new(
                ACL,
                format!(
                    "the user may write the state of policy {} and not read it; grant read and write on its keys",
                    policy.name()
                ),
            ));
        }
    }
    let mut delete = redis::cmd("DEL");
    server.add_keys([(&set, key)], &mut delete);
    if granted(server.query_in_time(&delete).await)?.is_none() {
        findings.push(lacks("DEL", "+del"));
    }
    Ok(())
}

/// Calls the script by which the replicas count themselves, on a key of its own.
async fn try_count(server: &Server, key: &Key) -> Result<Option<Finding>, Error> {
    let mut call = redis::cmd("EVAL");
    call.arg(&Script::replicas().text).arg(1);
    replicas::add_call(server, key, "diagnosis", &mut call);
    if granted(server.query_in_time(&call).await)?.is_none() {
        return Ok(Some(Finding::new(
            ACL,
            format!(
                "the user may not call the script by which the replicas count themselves, or a command in it; grant \
                 ~{}:* +evalsha +eval +time +zadd +zremrangebyscore +zcard +pexpire, or set `Outage::local`",
                server.prefix()
            ),
        )));
    }
    // A missing right to delete is found with the scripts of the policies.
    granted(server.query_in_time(redis::cmd("DEL").arg(replicas::key_text(server, key))).await)?;
    Ok(None)
}

/// Returns `None` for a call that the user may not make.
fn granted<T>(answer: Result<T, Error>) -> Result<Option<T>, Error> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Ok(None),
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
            "maxmemory-policy is {policy}: a flood of keys evicts exhausted ones and so resets their limits; set noeviction"
        ),
    ))
}

fn version(server: &str) -> Option<Finding> {
    // Valkey also reports the version of Redis that it is compatible with.
    let reported = field(server, "redis_version")?;
    let mut numbers = reported.split('.').map(|number| number.parse().unwrap_or(0));
    let version = [numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)];
    let [major, minor] = OLDEST;
    (version < OLDEST).then(|| {
        Finding::new(VERSION, format!("the server is Redis {reported}, the scripts need {major}.{minor} or newer"))
    })
}

/// Compares the clocks. The server read its clock between `asked` and `answered`.
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
    (apart > SKEW + unsure).then(|| {
        Finding::new(CLOCK, format!("the server's clock is {:.1} s {direction} this machine's", apart.as_secs_f64()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_number() {
        let finds =
            |version_text: &str| version(&format!("# Server\r\nredis_version:{version_text}\r\nos:x\r\n")).is_some();
        for old in ["2.8.24", "4.0.14", "5.0.0", "6.0.20", "6.1.241"] {
            assert!(finds(old), "{old}");
        }
        for new in ["6.2.0", "6.10.0", "7.0.15", "7.2.4", "8.0.2", "10.0.0", "255.255.255"] {
            assert!(!finds(new), "{new}");
        }
        assert_eq!(version("# Server\r\n"), None, "a missing version is not a finding");
        let found = version("redis_version:6.0.16").map(|finding| finding.to_string());
        assert_eq!(
            found.as_deref(),
            Some("TOLLGATE-VERSION: the server is Redis 6.0.16, the scripts need 6.2 or newer")
        );
    }

    #[test]
    fn the_round_trip_does_not_count_as_skew() {
        let answer = |us: u64| {
            let bulk = |number: u64| Value::BulkString(number.to_string().into_bytes());
            Value::Array(vec![bulk(us / 1_000_000), bulk(us % 1_000_000)])
        };
        let at = Duration::from_micros;
        let (asked, trip) = (1_700_000_000_000_000, 4_000_000);
        for server in [asked, asked + trip / 2, asked + trip] {
            assert_eq!(skew(at(asked), &answer(server), at(asked + trip)), None, "within the round trip");
        }
        for (server, told) in [
            (asked + 3_600_000_000, "3600.0 s ahead of this machine's"),
            (asked - 1_500_000, "1.5 s behind this machine's"),
        ] {
            let found = skew(at(asked), &answer(server), at(asked)).expect("a finding");
            assert_eq!(found.code(), "TOLLGATE-CLOCK");
            assert!(found.detail().contains(told), "{found}");
        }
        assert_eq!(skew(at(asked), &answer(asked + 999_999), at(asked)), None);
        assert_eq!(skew(at(asked), &Value::Nil, at(asked)), None);
    }
}
