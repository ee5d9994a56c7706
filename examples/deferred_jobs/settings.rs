use std::{env, str::FromStr, time::Duration};

use tollgate::Quota;
use tollgate_examples::Failure;

/// Holds the options of all commands.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) redis_url: String,
    /// The calls that the receiver allows.
    pub(crate) limit: Quota,
    /// The calls that leave: the limit with the margin.
    pub(crate) quota: Quota,
    pub(crate) workers: usize,
    pub(crate) claim_after: Duration,
    pub(crate) receiver: String,
}

impl Settings {
    /// Reads the options. A text that is not valid is an error with the name of the variable.
    pub(crate) fn from_environment() -> Result<Self, Failure> {
        let limit: Quota = parsed("QUOTA", "100/min")?;
        let margin = match variable("MARGIN") {
            Some(text) => Quota::parse_period(&text).map_err(|error| format!("MARGIN: {error}"))?,
            None => limit.period() * 3 / 100,
        };
        let claim_after = variable("CLAIM_AFTER").unwrap_or_else(|| "60s".to_owned());
        Ok(Self {
            redis_url: variable("REDIS_URL")
                .ok_or("REDIS_URL must be set: the deferred jobs are in a Redis Stream")?,
            limit,
            quota: limit
                .try_with_margin(margin)
                .map_err(|error| format!("MARGIN: {error}"))?,
            workers: parsed("WORKERS", "16")?,
            claim_after: Quota::parse_period(&claim_after)
                .map_err(|error| format!("CLAIM_AFTER: {error}"))?,
            receiver: variable("RECEIVER").unwrap_or_else(|| "127.0.0.1:3000".to_owned()),
        })
    }

    /// Returns how long a worker waits for a turn with one job. It renews its claim on the job
    /// after that time.
    pub(crate) fn longest_wait(&self) -> Duration {
        self.claim_after / 2
    }

    /// Returns how long a call may take. A worker has confirmed its job before another one can
    /// claim it.
    pub(crate) fn call_timeout(&self) -> Duration {
        self.claim_after / 4
    }
}

fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|text| !text.is_empty())
}

fn parsed<T: FromStr<Err: std::fmt::Display>>(name: &str, default: &str) -> Result<T, Failure> {
    let text = variable(name).unwrap_or_else(|| default.to_owned());
    text.parse()
        .map_err(|error| format!("{name}={text}: {error}").into())
}
