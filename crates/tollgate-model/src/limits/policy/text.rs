//! Reads and writes a policy as text: `api=100/min burst 20, token_bucket`.
//! Quotas are read in `quota/text/`, algorithms in `algorithm/text.rs`.

use std::{fmt, str::FromStr};

use super::Policy;
use crate::{Error, Lease, Quota, lease::LeaseParts, quota::write_length};

/// The longest text that is read. The longest text that is written has about 250 bytes.
const MAX_BYTES: usize = 400;

impl fmt::Display for Policy {
    /// Writes a text that parses to the same policy: the name, the quota and the algorithm, and
    /// then what is not the default.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}, {}", self.name(), self.quota, self.algorithm)?;
        if let Some(level) = self.level() {
            write!(f, ", level {level}")?;
        }
        if self.branch() > 1 {
            write!(f, ", branch {}", self.branch())?;
        }
        if let Some(lease) = self.lease() {
            f.write_str(", leased(")?;
            write_length(f, lease.generation_us())?;
            write!(f, ", 1/{})", lease.divisor())?;
        }
        f.write_str(if self.is_ranked() { "" } else { ", unranked" })?;
        f.write_str(if self.is_hidden() { ", hidden" } else { "" })
    }
}

impl FromStr for Policy {
    type Err = Error;

    /// Parses `NAME=QUOTA, ALGORITHM`, with `level N`, `branch N`,
    /// `leased(GENERATION, 1/SHARE)`, `unranked` and `hidden` behind it in any order.
    ///
    /// ```
    /// use tollgate::{Policy, Quota};
    ///
    /// let policy: Policy = "api=10/s burst 40, token_bucket, level 1".parse()?;
    /// assert_eq!(policy, Policy::token_bucket("api", Quota::per_second(10).with_burst(40)).at_level(1));
    ///
    /// let error = "api=10/s".parse::<Policy>().unwrap_err();
    /// assert_eq!(error.to_string(), r#"policy "api=10/s" needs an algorithm, as in api=100/min, token_bucket"#);
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) when the text has another form, or names a
    /// policy that is not valid.
    fn from_str(text: &str) -> Result<Self, Error> {
        if text.len() > MAX_BYTES {
            return Err(Error::config(format!(
                "policy text must have at most {MAX_BYTES} bytes, got {}",
                text.len()
            )));
        }
        let wrong = |what: &str| {
            Error::config(format!(
                "policy {text:?} {what}, as in api=100/min, token_bucket"
            ))
        };
        let mut parts = split(text);
        let first = parts.next().unwrap_or_default();
        let (name, quota) = first
            .split_once('=')
            .ok_or_else(|| wrong("needs a name and a quota"))?;
        let algorithm = parts
            .next()
            .ok_or_else(|| wrong("needs an algorithm"))?
            .parse()?;
        let (quota, mut lease): (Quota, _) = (quota.parse()?, None);
        let mut policy = Self::try_new(name, algorithm, quota)?;
        for part in parts {
            let number = |number: &str| {
                number
                    .parse()
                    .map_err(|_| wrong(&format!("has no number in {part:?}")))
            };
            if let Some(level) = part.strip_prefix("level ") {
                policy = policy.try_at_level(number(level)?)?;
            } else if let Some(branch) = part.strip_prefix("branch ") {
                policy = policy.try_at_branch(number(branch)?)?;
            } else if let Some(terms) = part
                .strip_prefix("leased(")
                .and_then(|terms| terms.strip_suffix(')'))
            {
                let (generation, share) = terms
                    .split_once(", 1/")
                    .ok_or_else(|| wrong("has a lease without terms"))?;
                lease = Some(
                    Lease::new()
                        .generation(Quota::parse_period(generation)?)
                        .share(number(share)?),
                );
            } else if part == "unranked" {
                policy = policy.unranked();
            } else if part == "hidden" {
                policy = policy.hidden();
            } else {
                return Err(wrong(&format!("has the unknown part {part:?}")));
            }
        }
        match lease {
            Some(lease) => policy.try_leased(lease),
            None => Ok(policy),
        }
    }
}

/// Splits at the commas outside of parentheses.
fn split(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_usize;
    text.split(move |sign| {
        match sign {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        sign == ',' && depth == 0
    })
    .map(|part| part.trim_matches(' '))
}
