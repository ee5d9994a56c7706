//! `tollgate enforce`: sets the share of keys for which a limiter is enforced.
//! Shares are stored by tollgate-operator. Services read it by themselves.

use clap::Args;
use serde::Serialize;
use tollgate_operator::{
    states::{Published, PublishedLimiter, parse_share},
    text::shown,
};

use super::states::run_async;
use crate::{
    cells::{enforced, limiter_cells},
    failure::Failure,
    options::RedisOptions,
    output::{Format, Report, Table},
};

/// Sets the share of keys for which a limiter is enforced, on all replicas of a service and while
/// it runs. For all other keys the limiter is in shadow mode: it decides and counts, but denies
/// nothing.
///
/// Without SHARE, lists the limiters that services publish. A share reaches each replica within
/// three seconds, and stays in force until it is cleared, even after a restart of the service. It
/// overrides the share that the code sets.
///
/// A service publishes a limiter with `LimiterBuilder::published_with`. Limits in files of rules
/// have their own field `enforce`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  tollgate enforce --redis redis://127.0.0.1
  tollgate enforce search 25% --redis redis://127.0.0.1
  tollgate enforce search --clear --redis redis://127.0.0.1")]
pub(crate) struct Enforce {
    /// The name of the limiter
    #[arg(value_name = "LIMITER")]
    limiter: Option<String>,

    /// The share of the keys: 0% for none, 100% for all
    #[arg(value_name = "SHARE", value_parser = parse_share)]
    share: Option<u8>,

    /// Withdraws the share, so that the share in the code is in force again
    #[arg(long, requires = "limiter", conflicts_with = "share")]
    clear: bool,

    #[command(flatten)]
    redis: RedisOptions,
}

#[derive(Serialize)]
struct Enforced {
    limiters: Vec<PublishedLimiter>,
    warnings: Vec<String>,
}

impl Enforce {
    pub(crate) fn run(&self, format: Format) -> Result<Report, Failure> {
        let published = run_async(async {
            let mut server = self.redis.connect().await?;
            let mut published = Published::read(&mut server).await?;
            if let Some(name) = &self.limiter {
                let is_change = self.share.is_some() || self.clear;
                published.check_share(name, self.share, server.prefix())?;
                if is_change {
                    server.set_share(name, self.share).await?;
                    published.shares.remove(name);
                    published
                        .shares
                        .extend(self.share.map(|share| (name.clone(), format!("{share}%"))));
                }
            }
            Ok(published)
        })?;
        for warning in &published.warnings {
            eprintln!("warning: {warning}");
        }
        let limiters = match &self.limiter {
            Some(name) => vec![published.limiter(name)],
            None => published.limiters(),
        };
        let listed = Enforced {
            limiters,
            warnings: published.warnings,
        };
        Ok(Report::new(format, &listed, || listed.text(self)))
    }
}

impl Enforced {
    fn text(&self, command: &Enforce) -> String {
        match (&self.limiters[..], command.share, command.clear) {
            ([limiter], Some(share), _) => {
                let (name, now) = (shown(&limiter.limiter), enforced(limiter));
                format!(
                    "{name} is enforced for {share}% of the keys within three seconds, it was for {now}\n"
                )
            }
            ([limiter], None, true) => {
                let name = shown(&limiter.limiter);
                format!("the share of {name} in the code is in force again within three seconds\n")
            }
            ([], ..) => format!(
                "no limiters are published under the prefix {}\n",
                command.redis.prefix()
            ),
            (limiters, ..) => {
                let mut table = Table::new(["limiter", "enforced", "operator", "policies"]);
                for of in limiters {
                    table.row(limiter_cells(of));
                }
                table.text()
            }
        }
    }
}
