//! Reads and writes an algorithm as text: `token_bucket`, `sliding_buckets(10)`.

use std::{fmt, str::FromStr, time::Duration};

use smallvec::SmallVec;

use super::{Algorithm, ROWS};
use crate::{Error, model::quota};

/// Writes the name of an algorithm, with its arguments in parentheses.
pub(super) fn write(
    f: &mut fmt::Formatter<'_>,
    name: &str,
    arguments: &[&dyn Argument],
) -> fmt::Result {
    f.write_str(name)?;
    let arguments: SmallVec<[_; 4]> = arguments
        .iter()
        .filter(|argument| argument.is_set())
        .collect();
    for (at, argument) in arguments.iter().enumerate() {
        f.write_str(if at == 0 { "(" } else { ", " })?;
        argument.write(f)?;
    }
    f.write_str(if arguments.is_empty() { "" } else { ")" })
}

/// Writes an argument of an algorithm as it is read.
pub(super) trait Argument {
    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result;

    /// Returns whether the argument is written.
    fn is_set(&self) -> bool {
        true
    }
}

impl Argument for u16 {
    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(feature = "calendar")]
impl Argument for crate::CalendarUnit {
    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(feature = "calendar")]
impl Argument for crate::TimeZone {
    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(feature = "calendar")]
impl Argument for Option<crate::Anchor> {
    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.map_or(Ok(()), |anchor| fmt::Display::fmt(&anchor, f))
    }

    fn is_set(&self) -> bool {
        self.is_some()
    }
}

impl Argument for Duration {
    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        quota::write_length(f, self.as_micros() as u64)
    }
}

/// Returns what stands in the parentheses behind a name.
pub(super) fn arguments(rest: &str) -> Option<&str> {
    rest.strip_prefix('(')
        .and_then(|rest| rest.strip_suffix(')'))
}

/// Returns the start of a wrong text, for a message.
pub(super) fn shown(text: &str) -> String {
    text.chars().take(60).collect()
}

impl FromStr for Algorithm {
    type Err = Error;

    /// Parses the name of an algorithm, as `Display` writes it.
    ///
    /// ```
    /// use tollgate::Algorithm;
    ///
    /// assert_eq!("fixed_window".parse::<Algorithm>()?, Algorithm::FixedWindow);
    /// assert_eq!("sliding_buckets(10)".parse::<Algorithm>()?, Algorithm::SlidingBuckets { buckets: 10 });
    ///
    /// let error = "sliding_buckets".parse::<Algorithm>().unwrap_err();
    /// assert_eq!(
    ///     error.to_string(),
    ///     r#"algorithm "sliding_buckets" needs the number of buckets, as in sliding_buckets(10)"#,
    /// );
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    fn from_str(text: &str) -> Result<Self, Error> {
        for row in ROWS {
            match (row.facts.parse, text.strip_prefix(row.name)) {
                (Some(parse), Some(rest)) => return parse(text, rest),
                (None, Some("")) => return Ok(row.sample),
                _ => {}
            }
        }
        let (mut with, mut names) = (Vec::new(), Vec::new());
        for algorithm in Self::ALL {
            if algorithm.facts().parse.is_some() {
                &mut with
            } else {
                &mut names
            }
            .push(algorithm.to_string());
        }
        let (names, with) = (names.join(", "), with.join(" or "));
        Err(Error::config(format!(
            "unknown algorithm {:?}, expected {names} or {with}",
            shown(text)
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_algorithm_is_read_as_it_is_written() {
        for algorithm in Algorithm::ALL {
            assert_eq!(
                algorithm.to_string().parse::<Algorithm>().unwrap(),
                algorithm
            );
        }
    }

    #[test]
    fn a_wrong_name_is_refused_with_the_names_that_are_right() {
        let error = "token-bucket".parse::<Algorithm>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "unknown algorithm \"token-bucket\", expected token_bucket, interval_bucket, leaky_bucket, fixed_window, \
             window_from_first_hit, sliding_window, sliding_log or sliding_buckets(10) or lockout(1m, 1h)"
        );
        for text in [
            "sliding_buckets()",
            "sliding_buckets(0)",
            "sliding_buckets(1001)",
            "sliding_buckets(+9)",
        ] {
            let error = text.parse::<Algorithm>().unwrap_err().to_string();
            assert!(
                error.ends_with("must have 1 to 1000 buckets, as in sliding_buckets(10)"),
                "{error}"
            );
        }
    }
}
