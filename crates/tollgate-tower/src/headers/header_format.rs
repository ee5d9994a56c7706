use std::time::Duration;

use http::HeaderName;

use super::seconds::{round_up, since_epoch};

/// Selects the names and the syntax of the rate limit headers.
///
/// Every HTTP denial carries `Retry-After`, whatever the format. `Ietf08` describes every policy. The other
/// formats have one value for each header and describe the [binding](tollgate::Decision::binding)
/// policy: the one with the longest wait, or else the one closest to exhaustion.
///
/// `limit` is the burst in these formats: the most units that can remain. The policies name the
/// amount and the period, and the burst where it differs: `20;w=1;burst=40`. A limit of the amount
/// would report `limit=20, remaining=39` while the burst is unused.
///
/// Stacked layers with the same format combine their headers, and so does a layer around a service
/// that sets headers of this format itself: lists grow, and of single values those of the stricter
/// layer stay. Headers of another format from inside are replaced where the names are equal, because
/// a client cannot parse a mixture.
///
/// The `Ietf` formats follow draft-ietf-httpapi-ratelimit-headers. It is an Internet-Draft, not a
/// standard, and its syntax changes between revisions.
///
/// ```
/// use http::{Request, Response};
/// use tollgate::{Limiter, MemoryStore, Policy, Quota};
/// use tollgate_tower::{HeaderFormat, RateLimitLayer, key::Global};
/// use tower::{Layer, ServiceExt, service_fn};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// # let service = service_fn(|_: Request<()>| async { Ok::<_, std::convert::Infallible>(Response::new(String::new())) });
/// let limiter = Limiter::new(MemoryStore::new(), Policy::token_bucket("all", Quota::per_second(100)));
/// let layer = RateLimitLayer::builder(limiter, Global).header_format(HeaderFormat::Ietf07).build();
///
/// let response = layer.layer(service).oneshot(Request::new(())).await.unwrap();
/// assert_eq!(response.headers()["ratelimit"], "limit=100, remaining=99, reset=1");
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HeaderFormat {
    /// Follows revisions 08 to 11: lists of named policies.
    ///
    /// ```text
    /// RateLimit-Policy: "burst";q=20;w=1, "day";q=50000;w=86400
    /// RateLimit: "burst";r=7;t=1, "day";r=49120;t=2
    /// ```
    ///
    /// `q` is the amount of the quota. `w` is its period in seconds, rounded up: a period below one
    /// second is written as one second. `r` is the number of remaining units. `t` is the time in
    /// seconds until there are more.
    #[default]
    Ietf08,
    /// Follows revision 07: `RateLimit-Policy: 20;w=1, 50000;w=86400` and
    /// `RateLimit: limit=20, remaining=7, reset=1`. The limit is the burst.
    Ietf07,
    /// Follows revisions 04 to 06: `RateLimit-Policy` as in revision 07, with `RateLimit-Limit`,
    /// `RateLimit-Remaining` and `RateLimit-Reset`. The limit is the burst.
    Ietf06,
    /// Follows draft-polli-ratelimit-headers-03, as Envoy does:
    /// `X-RateLimit-Limit: 20, 20;w=1;name="burst", 50000;w=86400;name="day"`, with
    /// `X-RateLimit-Remaining` and with `X-RateLimit-Reset` in seconds from now.
    Envoy03,
    /// Writes `X-RateLimit-Limit` (the burst), `X-RateLimit-Remaining` and `X-RateLimit-Reset`.
    Legacy {
        /// Selects the meaning of `X-RateLimit-Reset`.
        reset: ResetFormat,
    },
    /// Follows Spring Cloud Gateway: `X-RateLimit-Remaining`, `X-RateLimit-Replenish-Rate` (units per
    /// second, rounded down), `X-RateLimit-Burst-Capacity` and `X-RateLimit-Requested-Tokens` (the
    /// cost).
    Spring,
    /// Writes `X-RateLimit-Limit` (the burst) and `X-RateLimit-Remaining`. A denial also carries
    /// `X-RateLimit-Retry-After`, with the same seconds as `Retry-After`.
    RetryAfter,
    /// Writes `Retry-After` on denials and no other header.
    None,
}

/// Selects the meaning of `X-RateLimit-Reset`.
///
/// Both meanings are in use, and a client cannot tell one from the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ResetFormat {
    /// Counts seconds from now. The clocks of client and server need not agree.
    #[default]
    Seconds,
    /// Counts seconds since the Unix epoch, by the clock of this machine, rounded up.
    Epoch,
}

impl HeaderFormat {
    /// Returns the names of the headers of this format, `retry-after` included.
    ///
    /// A script in a browser can read a header only if `Access-Control-Expose-Headers` names it.
    ///
    /// ```
    /// use tollgate_tower::HeaderFormat;
    ///
    /// let names: Vec<_> = HeaderFormat::Ietf08.names().collect();
    /// assert_eq!(names, ["retry-after", "ratelimit", "ratelimit-policy"]);
    /// ```
    pub fn names(self) -> impl Iterator<Item = HeaderName> {
        self.joined_names().split(", ").map(HeaderName::from_static)
    }

    pub(crate) const fn joined_names(self) -> &'static str {
        match self {
            Self::Ietf08 | Self::Ietf07 => "retry-after, ratelimit, ratelimit-policy",
            Self::Ietf06 => "retry-after, ratelimit-limit, ratelimit-remaining, ratelimit-reset, ratelimit-policy",
            Self::Envoy03 | Self::Legacy { .. } => {
                "retry-after, x-ratelimit-limit, x-ratelimit-remaining, x-ratelimit-reset"
            }
            Self::Spring => {
                "retry-after, x-ratelimit-remaining, x-ratelimit-replenish-rate, x-ratelimit-burst-capacity, \
                 x-ratelimit-requested-tokens"
            }
            Self::RetryAfter => "retry-after, x-ratelimit-limit, x-ratelimit-remaining, x-ratelimit-retry-after",
            Self::None => "retry-after",
        }
    }
}

impl HeaderFormat {
    /// Returns the names of the single values that a layer of this format may write or replace.
    pub(super) const fn single_names(self) -> &'static [&'static str] {
        match self {
            Self::Ietf08 | Self::None => &[],
            Self::Ietf07 => &["ratelimit"],
            Self::Ietf06 => &["ratelimit-limit", "ratelimit-remaining", "ratelimit-reset"],
            Self::Envoy03 | Self::Legacy { .. } | Self::Spring | Self::RetryAfter => &[
                "x-ratelimit-limit",
                "x-ratelimit-remaining",
                "x-ratelimit-reset",
                "x-ratelimit-replenish-rate",
                "x-ratelimit-burst-capacity",
                "x-ratelimit-requested-tokens",
            ],
        }
    }
}

impl ResetFormat {
    /// Returns the value of `X-RateLimit-Reset` for a time of `wait` from now.
    pub(super) fn value(self, wait: Duration) -> u64 {
        self.value_at(since_epoch(), wait)
    }

    fn value_at(self, now: Duration, wait: Duration) -> u64 {
        match self {
            Self::Seconds => round_up(wait),
            // Rounded once: the sum of two rounded times would be up to one second later than `Retry-After`.
            Self::Epoch => round_up(now.saturating_add(wait)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reset_since_the_epoch_is_at_most_one_second_later_than_the_wait() {
        let millis = Duration::from_millis;
        for (now, wait, expected) in [
            (100_000, 0, 100),
            (100_000, 60_000, 160),
            (100_000, 59_001, 160),
            (100_500, 59_500, 160),
            (100_500, 59_501, 161),
            (100_999, 59_001, 160),
            (100_001, 60_000, 161),
        ] {
            assert_eq!(ResetFormat::Epoch.value_at(millis(now), millis(wait)), expected, "{wait} ms at {now} ms");
        }
        for now in (100_000..102_000).step_by(7) {
            for wait in (0..3_000).step_by(11) {
                let reset = millis(1000 * ResetFormat::Epoch.value_at(millis(now), millis(wait)));
                let end = millis(now + wait);
                assert!(end <= reset && reset < end + millis(1000), "{wait} ms at {now} ms");
            }
        }
        assert_eq!(ResetFormat::Seconds.value_at(millis(100_500), millis(59_001)), 60);
    }

    #[test]
    fn the_single_values_of_a_format_are_among_its_names() {
        for format in [HeaderFormat::Ietf07, HeaderFormat::Ietf06] {
            let names: Vec<_> = format.names().collect();
            assert!(format.single_names().iter().all(|name| names.iter().any(|it| it == name)), "{format:?}");
        }
        let legacy = HeaderFormat::Legacy { reset: ResetFormat::Epoch };
        for format in [HeaderFormat::Envoy03, legacy, HeaderFormat::Spring, HeaderFormat::RetryAfter] {
            let others = ["retry-after", "x-ratelimit-retry-after"];
            let mut names = format.names().filter(|name| !others.contains(&name.as_str()));
            assert!(names.all(|name| format.single_names().contains(&name.as_str())), "{format:?}");
        }
    }
}
