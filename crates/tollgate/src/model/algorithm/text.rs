//! Reads and writes an algorithm as text: `token_bucket`, `sliding_buckets(10)`.

use std::{fmt, str::FromStr};

use super::kind::Algorithm;
use crate::Error;

/// The names of the algorithms without a number.
const NAMES: [(&str, Algorithm); 7] = [
    ("token_bucket", Algorithm::TokenBucket),
    ("interval_bucket", Algorithm::IntervalBucket),
    ("leaky_bucket", Algorithm::LeakyBucket),
    ("fixed_window", Algorithm::FixedWindow),
    ("window_from_first_hit", Algorithm::WindowFromFirstHit),
    ("sliding_window", Algorithm::SlidingWindow),
    ("sliding_log", Algorithm::SlidingLog),
];

/// The start of the text of a calendar window, whose unit and zone follow in parentheses.
#[cfg(feature = "calendar")]
const CALENDAR: &str = "calendar_window";

const BUCKETS: &str = "sliding_buckets";

impl fmt::Display for Algorithm {
    /// Writes the name of the constructor of [`Policy`](crate::Policy), with the number of buckets in parentheses.
    ///
    /// ```
    /// use tollgate::Algorithm;
    ///
    /// assert_eq!(Algorithm::TokenBucket.to_string(), "token_bucket");
    /// assert_eq!(Algorithm::SlidingBuckets { buckets: 10 }.to_string(), "sliding_buckets(10)");
    /// ```
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Self::SlidingBuckets { buckets } = self {
            return write!(f, "{BUCKETS}({buckets})");
        }
        #[cfg(feature = "calendar")]
        if let Self::CalendarWindow { unit, zone } = self {
            return write!(f, "{CALENDAR}({unit}, {zone})");
        }
        let name = NAMES.into_iter().find(|(_, algorithm)| algorithm == self);
        f.write_str(name.map_or(BUCKETS, |(name, _)| name))
    }
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
        if let Some((_, algorithm)) = NAMES.into_iter().find(|(name, _)| *name == text) {
            return Ok(algorithm);
        }
        #[cfg(feature = "calendar")]
        if let Some(rest) = text.strip_prefix(CALENDAR) {
            return calendar_window(text, rest);
        }
        let shown: String = text.chars().take(60).collect();
        let Some(rest) = text.strip_prefix(BUCKETS) else {
            let names: Vec<_> = NAMES.into_iter().map(|(name, _)| name).collect();
            let names = names.join(", ");
            return Err(Error::config(format!("unknown algorithm {shown:?}, expected {names} or {BUCKETS}(10)")));
        };
        let number = rest.strip_prefix('(').and_then(|rest| rest.strip_suffix(')'));
        let buckets = number.filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
        match buckets.and_then(|digits| digits.parse().ok()) {
            Some(buckets @ 1..=1000) => Ok(Self::SlidingBuckets { buckets }),
            _ if rest.is_empty() => {
                Err(Error::config(format!("algorithm {shown:?} needs the number of buckets, as in {BUCKETS}(10)")))
            }
            _ => Err(Error::config(format!("algorithm {shown:?} must have 1 to 1000 buckets, as in {BUCKETS}(10)"))),
        }
    }
}

/// Reads the unit and the zone of a calendar window: `(month, Europe/Berlin)`.
#[cfg(feature = "calendar")]
fn calendar_window(text: &str, rest: &str) -> Result<Algorithm, Error> {
    let inner = rest.strip_prefix('(').and_then(|rest| rest.strip_suffix(')'));
    let Some((unit, zone)) = inner.and_then(|inner| inner.split_once(',')) else {
        let shown: String = text.chars().take(60).collect();
        return Err(Error::config(format!(
            "algorithm {shown:?} needs a unit and a time zone, as in {CALENDAR}(month, Europe/Berlin)"
        )));
    };
    Ok(Algorithm::CalendarWindow { unit: unit.trim().parse()?, zone: zone.trim().parse()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_algorithm_is_read_as_it_is_written() {
        for algorithm in Algorithm::ALL {
            assert_eq!(algorithm.to_string().parse::<Algorithm>().unwrap(), algorithm);
        }
    }

    #[test]
    fn a_wrong_name_is_refused_with_the_names_that_are_right() {
        let error = "token-bucket".parse::<Algorithm>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "unknown algorithm \"token-bucket\", expected token_bucket, interval_bucket, leaky_bucket, fixed_window, \
             window_from_first_hit, sliding_window, sliding_log or sliding_buckets(10)"
        );
        for text in ["sliding_buckets()", "sliding_buckets(0)", "sliding_buckets(1001)", "sliding_buckets(+9)"] {
            let error = text.parse::<Algorithm>().unwrap_err().to_string();
            assert!(error.ends_with("must have 1 to 1000 buckets, as in sliding_buckets(10)"), "{error}");
        }
    }
}
