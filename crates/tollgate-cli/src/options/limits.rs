//! The options that name limits.
//! The limit of a state is found by tollgate-operator.

use std::{path::PathBuf, sync::Arc};

use clap::Args;
use tollgate_operator::states::{Limits, Server};

use super::server::RedisOptions;
use crate::{failure::Failure, rules::RuleOptions};

/// The options that name the limits. Without them, the limits are those that services publish.
#[derive(Args, Debug, Default)]
pub(crate) struct LimitOptions {
    /// Reads the limits from this file or directory of rules
    #[arg(long = "rules", value_name = "FILE")]
    file: Option<PathBuf>,

    /// Sets the quota of a policy, such as api=100/min; may be repeated
    #[arg(long = "policy", value_name = "NAME=QUOTA")]
    policies: Vec<String>,

    #[command(flatten)]
    rules: RuleOptions,
}

impl LimitOptions {
    /// Returns whether no limit is named.
    pub(crate) fn is_empty(&self) -> bool {
        self.file.is_none() && self.policies.is_empty()
    }

    /// Reads the limits that are named.
    pub(crate) fn load(&self) -> Result<Limits, Failure> {
        let mut limits = Limits::default();
        if !self.is_empty() {
            limits = limits.named_alone();
        }
        for policy in &self.policies {
            let (name, quota) = policy
                .split_once('=')
                .filter(|(name, _)| !name.is_empty())
                .ok_or_else(|| {
                    Failure::new(format_args!(
                        "--policy {policy:?} must have the form NAME=QUOTA"
                    ))
                })?;
            let quota = quota
                .parse()
                .map_err(|error| Failure::new(format_args!("--policy {name}: {error}")))?;
            limits = limits.with_policy(name, quota);
        }
        match &self.file {
            Some(file) => Ok(limits.with_rules(Arc::new(self.rules.load(file)?))),
            None => Ok(limits),
        }
    }
}

/// Connects to the server, and reads the limits there. Prints what could not be read.
pub(crate) async fn connect(limits: &mut Limits, redis: &RedisOptions) -> Result<Server, Failure> {
    let mut server = redis.connect().await?;
    limits.read(&mut server).await?;
    for warning in limits.warnings() {
        eprintln!("warning: {warning}");
    }
    Ok(server)
}

/// Refuses to go on without limits. `needs` says what needs them.
pub(crate) fn require(limits: &Limits, needs: &str, prefix: &str) -> Result<(), Failure> {
    if limits.are_known() {
        return Ok(());
    }
    Err(Failure::new(format_args!(
        "{needs} needs the limits, and none are published under the prefix {prefix}: set the prefix of the services \
         with --prefix, name the limits with --rules or --policy, or build the limiters of the services with \
         .published()"
    )))
}
