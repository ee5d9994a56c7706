use std::time::{SystemTime, UNIX_EPOCH};

use http::HeaderName;

/// The words in which an answer tells what holds and what is left.
///
/// `Retry-After` stands on every denial, whatever the dialect. A dialect of lists tells of every
/// policy; one of single values of the policy that [binds](tollgate::Decision::binding): the one
/// to wait longest for, or the nearest to exhaustion.
///
/// The drafts are of draft-ietf-httpapi-ratelimit-headers, an Internet-Draft: their syntax changes
/// between revisions, and none is a standard.
///
/// ```
/// use tollgate::{Limiter, MemoryStore, Policy, Quota};
/// use tollgate_tower::{HeaderFormat, RateLimitLayer, key::Global};
///
/// let limiter = Limiter::new(MemoryStore::new(), Policy::token_bucket("all", Quota::per_second(100)));
/// let layer = RateLimitLayer::builder(limiter, Global).header_format(HeaderFormat::Ietf07).build();
/// # let _ = layer;
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HeaderFormat {
    /// Revisions 08 to 11: lists of named policies.
    ///
    /// ```text
    /// RateLimit-Policy: "burst";q=20;w=1, "day";q=50000;w=86400
    /// RateLimit: "burst";r=7;t=1, "day";r=49120;t=2
    /// ```
    ///
    /// `q` is the quota's amount and `w` its period in seconds, rounded up: a period below a second
    /// cannot be expressed, and is understated rather than overstated. `r` is what is left, `t` the
    /// seconds until there is more of it.
    #[default]
    Ietf08,
    /// Revision 07: `RateLimit-Policy: 20;w=1, 50000;w=86400` and
    /// `RateLimit: limit=20, remaining=7, reset=1`.
    Ietf07,
    /// Revisions 04 to 06: `RateLimit-Policy` as in 07, and `RateLimit-Limit`,
    /// `RateLimit-Remaining`, `RateLimit-Reset`.
    Ietf06,
    /// The individual draft-polli-ratelimit-headers-03 as Envoy writes it:
    /// `X-RateLimit-Limit: 20, 20;w=1;name="burst", 50000;w=86400;name="day"`, with
    /// `X-RateLimit-Remaining` and `X-RateLimit-Reset` in seconds from now.
    Envoy03,
    /// `X-RateLimit-Limit` (the burst), `X-RateLimit-Remaining`, `X-RateLimit-Reset`.
    Legacy {
        /// What `X-RateLimit-Reset` counts.
        reset: Reset,
    },
    /// As Spring Cloud Gateway writes it: `X-RateLimit-Remaining`, `X-RateLimit-Replenish-Rate`
    /// (units per second, rounded down), `X-RateLimit-Burst-Capacity`,
    /// `X-RateLimit-Requested-Tokens` (the cost).
    Spring,
    /// `X-RateLimit-Limit` (the burst), `X-RateLimit-Remaining`, and on a denial
    /// `X-RateLimit-Retry-After` with the seconds of `Retry-After`.
    RetryAfter,
    /// Nothing but `Retry-After`.
    None,
}

/// What `X-RateLimit-Reset` counts: both are in use, and clients cannot tell which.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reset {
    /// Seconds from now. Needs no clock that agrees with the client's.
    #[default]
    Seconds,
    /// Seconds since the Unix epoch, by this machine's clock.
    Epoch,
}

impl HeaderFormat {
    /// The fields of the dialect, `retry-after` among them: what a browser must be told in
    /// `Access-Control-Expose-Headers` before it lets a script read them.
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

impl Reset {
    pub(super) fn tell(self, seconds: u64) -> u64 {
        match self {
            Self::Seconds => seconds,
            Self::Epoch => {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                super::seconds(now) + seconds
            }
        }
    }
}
