use std::time::{SystemTime, UNIX_EPOCH};

use http::HeaderName;

use super::seconds;

/// Selects the names and the syntax of the rate limit headers.
///
/// Every HTTP denial carries `Retry-After`, whatever the format. `Ietf08` describes every policy. The other
/// formats have one value for each header and describe the [binding](tollgate::Decision::binding)
/// policy: the one with the longest wait, or else the one closest to exhaustion.
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
    /// `RateLimit: limit=20, remaining=7, reset=1`.
    Ietf07,
    /// Follows revisions 04 to 06: `RateLimit-Policy` as in revision 07, with `RateLimit-Limit`,
    /// `RateLimit-Remaining` and `RateLimit-Reset`.
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
    /// Counts seconds since the Unix epoch, by the clock of this machine.
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

impl ResetFormat {
    /// Returns the value of `X-RateLimit-Reset` for a time of `seconds` from now.
    pub(super) fn value(self, seconds: u64) -> u64 {
        match self {
            Self::Seconds => seconds,
            Self::Epoch => {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                seconds::round_up(now) + seconds
            }
        }
    }
}
