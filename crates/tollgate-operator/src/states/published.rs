//! Reads the limits that services publish, and the shares of keys that operators set for them.
//! How they are fetched is in `connection.rs` and `table.rs`; which of them applies to a state is
//! decided in `limits.rs`.

use std::collections::BTreeMap;

use serde::Serialize;
use tollgate::{Enforcement, Error, Policy, PolicySet, store::Publication};

use super::server::Server;
use crate::{error::OperatorError, text::shown};

/// The most texts that are read, and the longest one. A service publishes 64 at most.
const MOST: usize = 1_000;
const MOST_BYTES: usize = 4_096;

/// Lists what services publish under a prefix.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Published {
    /// In the order in which they were renewed: the newest one comes last.
    pub limits: Vec<Publication>,
    /// The shares that operators have set, by the name of the limiter, as they stand in Redis.
    pub shares: BTreeMap<String, String>,
    /// Names the texts that could not be read.
    pub warnings: Vec<String>,
}

/// A limiter that services publish.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct PublishedLimiter {
    /// The name of the limiter.
    pub limiter: String,
    /// The shares in percent that replicas enforce now. Several while they change, none when
    /// operators cannot set the share.
    pub enforced: Vec<u8>,
    /// The share that operators have set.
    pub operator: Option<String>,
    /// The policies. Replicas may have different ones while they change.
    pub policies: Vec<Vec<String>>,
}

impl Published {
    /// Reads what is published under the prefix of the server.
    ///
    /// # Errors
    ///
    /// When the server does not answer, or refuses.
    pub async fn read(server: &mut Server) -> Result<Self, OperatorError> {
        let mut published = Self::default();
        for text in server.limits(MOST).await? {
            published.add(&text);
        }
        let shares = server.shares().await?;
        let text = |bytes: Vec<u8>| {
            String::from_utf8_lossy(&bytes[..bytes.len().min(MOST_BYTES)]).into_owned()
        };
        published.shares = shares
            .into_iter()
            .take(MOST)
            .map(|(name, share)| (text(name), text(share)))
            .collect();
        Ok(published)
    }

    fn add(&mut self, text: &[u8]) {
        let read = match str::from_utf8(text) {
            Ok(text) if text.len() <= MOST_BYTES => text
                .parse::<Publication>()
                .map_err(|error| error.to_string()),
            Ok(_) => Err("the text is too long".to_owned()),
            Err(_) => Err("the text is no UTF-8".to_owned()),
        };
        match read {
            Ok(limits) => self.limits.push(limits),
            Err(error) => {
                let text = String::from_utf8_lossy(&text[..text.len().min(MOST_BYTES)]);
                let name = text
                    .rsplit_once("; limiter ")
                    .map_or(&*text, |(_, name)| name);
                let name: String = name.chars().take(60).collect();
                // A newer version may have published it.
                let warning = format!(
                    "the published limits of {} are left out: {}",
                    shown(&name),
                    shown(&error)
                );
                self.warnings.push(warning);
            }
        }
    }

    /// Refuses a limiter that takes no share. `None` withdraws a share. A limiter that is gone may
    /// still have one, which can be withdrawn.
    ///
    /// # Errors
    ///
    /// When no such limiter is published, and when it takes no share.
    pub fn check_share(
        &self,
        name: &str,
        share: Option<u8>,
        prefix: &str,
    ) -> Result<(), OperatorError> {
        let limiter = self.limiter(name);
        if limiter.policies.is_empty() && !(share.is_none() && limiter.operator.is_some()) {
            let names: Vec<_> = self
                .limiters()
                .iter()
                .map(|limiter| shown(&limiter.limiter))
                .collect();
            let names = if names.is_empty() {
                "none are".to_owned()
            } else {
                format!("expected {}", names.join(", "))
            };
            return Err(OperatorError::not_found(format_args!(
                "no limiter {} is published under the prefix {prefix}, {names}",
                shown(name)
            )));
        }
        if share.is_some() && limiter.enforced.is_empty() {
            return Err(OperatorError::refused(format_args!(
                "limiter {} takes no share: its service publishes it without an Enforcement",
                shown(name)
            )));
        }
        Ok(())
    }

    /// Returns the policies with their names, the newest last.
    pub(super) fn policies(&self) -> impl Iterator<Item = Policy> {
        self.limits
            .iter()
            .flat_map(|limits| limits.policies().iter().cloned().collect::<Vec<_>>())
    }

    /// Returns each limiter once, by its name. One that has a share and is not published has no
    /// policies.
    #[must_use]
    pub fn limiters(&self) -> Vec<PublishedLimiter> {
        let names = self
            .limits
            .iter()
            .map(Publication::name)
            .chain(self.shares.keys().map(String::as_str));
        let mut limiters: Vec<_> = names.map(|name| self.limiter(name)).collect();
        limiters.sort_by(|a, b| a.limiter.cmp(&b.limiter));
        limiters.dedup();
        limiters
    }

    /// Returns the limiter with this name.
    #[must_use]
    pub fn limiter(&self, name: &str) -> PublishedLimiter {
        let own = || self.limits.iter().filter(|limits| limits.name() == name);
        let mut enforced: Vec<_> = own()
            .filter_map(Publication::enforcement)
            .map(Enforcement::percent)
            .collect();
        let texts =
            |policies: PolicySet| policies.iter().map(ToString::to_string).collect::<Vec<_>>();
        let mut policies: Vec<_> = own().map(|limits| texts(limits.policies())).collect();
        enforced.sort_unstable();
        enforced.dedup();
        policies.sort();
        policies.dedup();
        PublishedLimiter {
            limiter: name.to_owned(),
            enforced,
            operator: self.shares.get(name).cloned(),
            policies,
        }
    }
}

/// Reads a share such as `25%`. The sign may be left out.
///
/// ```
/// use tollgate_operator::states::parse_share;
///
/// assert_eq!(parse_share("25")?, 25);
/// assert!(parse_share("101%").is_err());
/// # Ok::<(), tollgate::Error>(())
/// ```
///
/// # Errors
///
/// When the text is not 0 to 100 percent.
pub fn parse_share(text: &str) -> Result<u8, Error> {
    let share = if text.ends_with('%') {
        text.to_owned()
    } else {
        format!("{text}%")
    };
    Ok(share.parse::<Enforcement>()?.percent())
}
