//! Reads and writes an algorithm as text: `token_bucket`, `sliding_buckets(10)`.
//! Arguments are read in the file of their algorithm with what is in `arguments.rs`, quotas and
//! policies in files of their own.

use std::{fmt, str::FromStr};

use super::{Algorithm, arguments::shown, table::ROWS};
use crate::{Error, micros::micros, quota};

impl fmt::Display for Algorithm {
    /// Writes the [name](Algorithm::name), with the arguments in parentheses.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match *self {
            Self::SlidingBuckets { buckets } => write!(f, "({buckets})"),
            Self::Lockout { first, longest } => {
                f.write_str("(")?;
                quota::write_length(f, micros(first))?;
                f.write_str(", ")?;
                quota::write_length(f, micros(longest))?;
                f.write_str(")")
            }
            #[cfg(feature = "calendar")]
            Self::CalendarWindow { unit, zone, anchor } => {
                write!(f, "({unit}, {zone}")?;
                anchor.map_or(Ok(()), |anchor| write!(f, ", {anchor}"))?;
                f.write_str(")")
            }
            _ => Ok(()),
        }
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
