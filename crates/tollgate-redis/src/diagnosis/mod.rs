//! Looks for settings of a server that weaken limits, when a store connects or an operator asks.
//! The scripts are tried in `scripts.rs`. No check depends on what is found.

mod finding;
mod scripts;

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use redis::Value;

pub use self::finding::Finding;
use self::finding::{ACL, granted, lacks};
use super::{
    RedisStore,
    server::{self, DISTANT, Server, field, info, text},
};
use tollgate_core::{Error, ForeignText, PolicySet, store::Deadline};

const EVICTION: &str = "TOLLGATE-EVICTION";
const CLOCK: &str = "TOLLGATE-CLOCK";
const VERSION: &str = "TOLLGATE-VERSION";

/// The difference between two clocks up to which nothing is reported.
const SKEW: Duration = Duration::from_secs(1);

/// The most round trips that are measured. The shortest counts, because one may meet a moment in
/// which the machine is busy.
const TRIPS: u32 = 5;

impl RedisStore {
    /// Reports settings of the server that weaken limits, and tries the scripts of the given
    /// policies. In a cluster, examines every server that has slots.
    ///
    /// | code | meaning |
    /// |---|---|
    /// | `TOLLGATE-EVICTION` | `maxmemory-policy` is not `noeviction`. A flood of keys evicts exhausted ones, and so resets their limits. |
    /// | `TOLLGATE-ACL` | The user lacks a right that a script or this examination needs. |
    /// | `TOLLGATE-CLOCK` | The clocks of the server and of this machine differ by more than 1 s. Aligned windows begin at other times than this machine expects. With a [clock of the process](super::RedisStoreBuilder::clock) replicas disagree. |
    /// | `TOLLGATE-VERSION` | Redis is older than 6.2. |
    /// | `TOLLGATE-DISTANT` | The round trip takes more than four fifths of the default [`deadline`](tollgate_core::LimiterBuilder::deadline), 50 ms. Ignore this if all limiters have a longer deadline. |
    ///
    /// The scripts run on keys of their own, which are deleted afterwards.
    /// [`connect`](Self::connect) calls this once without policies, and logs the findings. Call it
    /// with policies when the service starts, or in a check of the deployment:
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
    /// When the server cannot be reached, or does not answer a call within the
    /// [time for connecting](super::RedisStoreBuilder::connect_timeout).
    pub async fn diagnose(
        &self,
        policies: impl IntoIterator<Item = PolicySet>,
    ) -> Result<Vec<Finding>, Error> {
        let sets: Vec<PolicySet> = policies.into_iter().collect();
        let mut findings: Vec<Finding> = Vec::new();
        for (server, key) in self.backend().servers().await? {
            let mut found = examine(&server).await?;
            for set in &sets {
                scripts::try_policies(&server, set, &key, &mut found).await?;
            }
            if !sets.is_empty() {
                found.extend(scripts::try_count(&server, &key).await?);
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
                for finding in findings {
                    tracing::warn!(code = finding.code(), "{}", finding.detail());
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
    let (about, memory, clock) = tokio::join!(
        server.query_in_time(&about),
        server.query_in_time(&memory),
        clock
    );
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
        None if server.config.clock.is_none() => findings.push(lacks("TIME", "+time")),
        None => {}
    }
    findings.extend(distance(server).await?);
    Ok(findings)
}

/// Measures the round trip, and compares it with the default deadline. A limiter may have another
/// one, which a store does not know.
async fn distance(server: &Server) -> Result<Option<Finding>, Error> {
    let (ping, mut shortest) = (redis::cmd("PING"), Duration::MAX);
    for _ in 0..TRIPS {
        let sent = Instant::now();
        granted(server.query_in_time(&ping).await)?;
        shortest = shortest.min(sent.elapsed());
        if server::far(server::KIND, shortest, Deadline::DEFAULT).is_none() {
            return Ok(None);
        }
    }
    Ok(server::far(server::KIND, shortest, Deadline::DEFAULT)
        .map(|detail| Finding::new(DISTANT, detail)))
}

/// Returns the time since the Unix epoch on the clock of this process that decides, or on the
/// system's.
fn local_time(server: &Server) -> Duration {
    match &server.config.clock {
        Some(clock) => Duration::from_micros(clock.now_us()),
        None => SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default(),
    }
}

fn eviction(memory: &str) -> Option<Finding> {
    let policy = field(memory, "maxmemory_policy").filter(|policy| *policy != "noeviction")?;
    Some(Finding::new(
        EVICTION,
        format!(
            "maxmemory-policy is {}: a flood of keys evicts exhausted ones and so resets their limits; set noeviction",
            ForeignText(policy)
        ),
    ))
}

fn version(about: &str) -> Option<Finding> {
    server::version(about).map(|detail| Finding::new(VERSION, detail))
}

/// Compares the clocks. The server read its clock between `asked` and `answered`.
fn skew(asked: Duration, answer: &Value, answered: Duration) -> Option<Finding> {
    let number = |value: &Value| match value {
        Value::Int(number) => u64::try_from(*number).ok(),
        value => text(value).parse().ok(),
    };
    let Value::Array(parts) = answer else {
        return None;
    };
    let [seconds, micros] = parts.as_slice() else {
        return None;
    };
    let server = Duration::from_secs(number(seconds)?) + Duration::from_micros(number(micros)?);
    let ours = asked + answered.saturating_sub(asked) / 2;
    let (apart, direction) = match server.checked_sub(ours) {
        Some(ahead) => (ahead, "ahead of"),
        None => (ours - server, "behind"),
    };
    let unsure = answered.saturating_sub(asked) / 2;
    (apart > SKEW + unsure).then(|| {
        Finding::new(
            CLOCK,
            format!(
                "the server's clock is {:.1} s {direction} this machine's",
                apart.as_secs_f64()
            ),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_number() {
        let finds = |version_text: &str| {
            version(&format!(
                "# Server\r\nredis_version:{version_text}\r\nos:x\r\n"
            ))
            .is_some()
        };
        for old in ["2.8.24", "4.0.14", "5.0.0", "6.0.20", "6.1.241"] {
            assert!(finds(old), "{old}");
        }
        for new in [
            "6.2.0",
            "6.10.0",
            "7.0.15",
            "7.2.4",
            "8.0.2",
            "10.0.0",
            "255.255.255",
        ] {
            assert!(!finds(new), "{new}");
        }
        assert_eq!(
            version("# Server\r\n"),
            None,
            "a missing version is not a finding"
        );
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
            assert_eq!(
                skew(at(asked), &answer(server), at(asked + trip)),
                None,
                "within the round trip"
            );
        }
        for (server, detail) in [
            (asked + 3_600_000_000, "3600.0 s ahead of this machine's"),
            (asked - 1_500_000, "1.5 s behind this machine's"),
        ] {
            let found = skew(at(asked), &answer(server), at(asked)).expect("a finding");
            assert_eq!(found.code(), "TOLLGATE-CLOCK");
            assert!(found.detail().contains(detail), "{found}");
        }
        assert_eq!(skew(at(asked), &answer(asked + 999_999), at(asked)), None);
        assert_eq!(skew(at(asked), &Value::Nil, at(asked)), None);
    }
}
