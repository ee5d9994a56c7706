//! The formats that users choose from, as a table: the names of the headers, and which number each
//! reports.
//! The numbers become text in `text.rs`, and headers in `writer.rs`.

use std::time::{Duration, SystemTime};

use http::HeaderName;

use super::text::{QuotaUnit, round_up, wait_began};

/// Selects the names and the syntax of the rate limit headers.
///
/// Every HTTP denial carries `Retry-After`, whatever the format. `Ietf08` describes every policy.
/// `OpenAi` and `Anthropic` describe one policy for each unit. In the other formats each header has
/// one value. They describe the [strictest](tollgate_core::Decision::strictest) policy: the one with the
/// longest wait, or else the one closest to exhaustion.
/// [`header_formats`](crate::RateLimitBuilder::header_formats) combines formats.
///
/// The limit that a header reports is the burst: the most units that can remain. If it were the
/// amount, a quota of 20 with a burst of 40 would report `limit=20, remaining=39`. The policy lists
/// of `Ietf07`, `Ietf06` and `Envoy03` name the amount and the period, and the burst where it
/// differs: `20;w=1;burst=40`.
///
/// Stacked layers with the same format combine their headers. So does a layer around a service that
/// sets headers of this format itself. Lists grow. Of single values, those of the stricter layer
/// stay. A layer replaces headers of another format from inside where the names are equal, because
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
#[doc(alias = "X-RateLimit-Limit")]
#[doc(alias = "Retry-After")]
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
    /// `q` is the amount of the quota and `w` its period. With a burst above the amount, `q` is the
    /// burst and `w` the time in which it accrues: 5 per second with a burst of 10 is `q=10;w=2`.
    /// So `r`, the number of remaining units, is never above `q`, and `q` in `w` seconds is still
    /// the rate. The draft has no parameter for a burst. `w` is in seconds, rounded up: a period
    /// below one second is written as one second. `t` is the time in seconds until there are more
    /// units.
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
    /// Follows the API of GitHub.
    ///
    /// ```text
    /// x-ratelimit-limit: 5000
    /// x-ratelimit-remaining: 4999
    /// x-ratelimit-used: 1
    /// x-ratelimit-reset: 1767225600
    /// x-ratelimit-resource: core
    /// ```
    ///
    /// The limit is the burst, and the resource is the name of the policy. The reset is the time at
    /// which there are more units, as with [`ResetFormat::Epoch`].
    ///
    /// Source: [Rate limits for the REST
    /// API](https://docs.github.com/rest/using-the-rest-api/rate-limits-for-the-rest-api).
    GitHub,
    /// Follows Spring Cloud Gateway: `X-RateLimit-Remaining`, `X-RateLimit-Replenish-Rate` (units
    /// per second, rounded down), `X-RateLimit-Burst-Capacity` and `X-RateLimit-Requested-Tokens`
    /// (the cost).
    Spring,
    /// Writes `X-RateLimit-Limit` (the burst) and `X-RateLimit-Remaining`. A denial also carries
    /// `X-RateLimit-Retry-After`, with the same seconds as `Retry-After`.
    RetryAfter,
    /// Follows the crate `tower_governor`: as [`RetryAfter`](Self::RetryAfter), but a denial
    /// carries `X-RateLimit-After`.
    ///
    /// That crate marks requests that it does not limit with `X-RateLimit-Whitelisted`. Here the
    /// response to an [exempt](crate::RateLimitBuilder::exempt) request has no such header.
    TowerGovernor,
    /// Follows the API of OpenAI: a limit, the remaining units and a reset for requests, and the
    /// same for tokens.
    ///
    /// ```text
    /// x-ratelimit-limit-requests: 60
    /// x-ratelimit-remaining-requests: 59
    /// x-ratelimit-reset-requests: 1s
    /// x-ratelimit-limit-tokens: 150000
    /// x-ratelimit-remaining-tokens: 149984
    /// x-ratelimit-reset-tokens: 6m0s
    /// ```
    ///
    /// The limit is the burst. The reset is the time until the whole burst is available, in the
    /// form of Go's `time.Duration`: `12ms`, `6m0s`, `1h2m3s`. It is rounded up, to milliseconds
    /// below one second and to seconds above. A denial also carries `retry-after-ms`: the wait in
    /// milliseconds. The clients of OpenAI and Azure prefer it to `Retry-After`.
    ///
    /// Policies that count [`REQUESTS`](crate::QuotaUnit::REQUESTS) and
    /// [`TOKENS`](crate::QuotaUnit::TOKENS) appear. Set the units with
    /// [`quota_units`](crate::RateLimitBuilder::quota_units). Of several policies with one unit,
    /// the most restrictive one appears: the one with the longest wait, or else the one with the
    /// fewest remaining units. Policies with other units do not appear.
    ///
    /// Sources: [Rate limits in headers](https://developers.openai.com/api/docs/guides/rate-limits)
    /// of OpenAI, and
    /// [`retry-after-ms`](https://learn.microsoft.com/azure/ai-services/openai/how-to/quota) of
    /// Azure.
    OpenAi,
    /// Follows the API of Anthropic: a limit, the remaining units and a reset for requests, tokens,
    /// input tokens and output tokens.
    ///
    /// ```text
    /// anthropic-ratelimit-requests-limit: 1000
    /// anthropic-ratelimit-requests-remaining: 999
    /// anthropic-ratelimit-requests-reset: 2026-08-21T12:41:00Z
    /// anthropic-ratelimit-input-tokens-limit: 80000
    /// anthropic-ratelimit-input-tokens-remaining: 79000
    /// anthropic-ratelimit-input-tokens-reset: 2026-08-21T12:41:30Z
    /// ```
    ///
    /// The limit is the burst. The reset is the instant at which the whole burst is available, by
    /// the clock of [`ResetFormat::Epoch`], in UTC and in the form of [RFC
    /// 3339](https://www.rfc-editor.org/rfc/rfc3339). It is rounded up to seconds. Anthropic rounds
    /// the remaining tokens to thousands. This format writes them exactly.
    ///
    /// Policies that count [`REQUESTS`](crate::QuotaUnit::REQUESTS),
    /// [`TOKENS`](crate::QuotaUnit::TOKENS), [`INPUT_TOKENS`](crate::QuotaUnit::INPUT_TOKENS) and
    /// [`OUTPUT_TOKENS`](crate::QuotaUnit::OUTPUT_TOKENS) appear, one for each unit as in
    /// [`OpenAi`](Self::OpenAi).
    ///
    /// Source: [Response
    /// headers](https://platform.claude.com/docs/en/api/rate-limits#response-headers) of Anthropic.
    Anthropic,
    /// Writes `Retry-After` on denials and no other header.
    ///
    /// Use it where the client may be an attacker: for log-ins, password resets and codes. Rate
    /// limit headers name the policies and count down, so a guesser sees which limit to go around,
    /// and when to change the user. The problem document names the policies, too: use this format
    /// together with [`Empty`](crate::rejection::Empty), or with a response of your own. To hide one
    /// policy among others, make it [`hidden`](tollgate_core::Policy::hidden). Everywhere else, send the
    /// headers: clients that see their limits can keep to them.
    None,
}

/// Selects the meaning of `X-RateLimit-Reset`.
///
/// Services use both meanings, and a client cannot distinguish them by the header alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ResetFormat {
    /// Counts seconds from now. The clocks of client and server need not agree.
    #[default]
    Seconds,
    /// Counts seconds since the Unix epoch, rounded up. A window that ends on a second has this
    /// second.
    ///
    /// The time is on the clock of the store. Where the store does not say [when it
    /// decided](tollgate_core::Decision::decided_at), or its clock differs from that of this machine by a
    /// second or more, it is on the clock of this machine, which is read after the decision.
    Epoch,
}

/// Selects the number that a header reports.
#[derive(Clone, Copy)]
pub(super) enum Number {
    /// The burst: the most units that can remain.
    Limit,
    Remaining,
    /// The time until there are more units.
    Reset(ResetFormat),
    Used,
    /// The name of the policy.
    Resource,
    /// The units per second, rounded down.
    Rate,
    Cost,
    /// The wait of a denial.
    Wait,
    /// The limit, the remaining units and the reset in one value.
    State,
    /// The amount and the period of every policy.
    Quotas,
    /// The limit, and then the quotas with the names of the policies.
    LimitAndQuotas,
}

/// The names of the headers of a format, and what each of them reports behind those that say when
/// to come back.
type Row = (&'static str, &'static [Number]);

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

    /// Returns the row of the format. The lists of the default format and the groups of the formats
    /// with units are not numbers of one policy.
    const fn row(self) -> Row {
        use Number::{
            Cost, Limit, LimitAndQuotas, Quotas, Rate, Remaining, Reset, Resource, State, Used,
            Wait,
        };

        const EPOCH: Number = Reset(ResetFormat::Epoch);
        const SECONDS: Number = Reset(ResetFormat::Seconds);
        match self {
            Self::Ietf08 => ("retry-after, ratelimit, ratelimit-policy", &[]),
            Self::Ietf07 => ("retry-after, ratelimit, ratelimit-policy", &[State, Quotas]),
            Self::Ietf06 => (
                "retry-after, ratelimit-limit, ratelimit-remaining, ratelimit-reset, ratelimit-policy",
                &[Limit, Remaining, SECONDS, Quotas],
            ),
            Self::Envoy03 => (
                "retry-after, x-ratelimit-limit, x-ratelimit-remaining, x-ratelimit-reset",
                &[LimitAndQuotas, Remaining, SECONDS],
            ),
            Self::Legacy {
                reset: ResetFormat::Seconds,
            } => (
                "retry-after, x-ratelimit-limit, x-ratelimit-remaining, x-ratelimit-reset",
                &[Limit, Remaining, SECONDS],
            ),
            Self::Legacy {
                reset: ResetFormat::Epoch,
            } => (
                "retry-after, x-ratelimit-limit, x-ratelimit-remaining, x-ratelimit-reset",
                &[Limit, Remaining, EPOCH],
            ),
            Self::GitHub => (
                "retry-after, x-ratelimit-limit, x-ratelimit-remaining, x-ratelimit-used, x-ratelimit-reset, \
                 x-ratelimit-resource",
                &[Limit, Remaining, Used, EPOCH, Resource],
            ),
            Self::Spring => (
                "retry-after, x-ratelimit-remaining, x-ratelimit-replenish-rate, x-ratelimit-burst-capacity, \
                 x-ratelimit-requested-tokens",
                &[Remaining, Rate, Limit, Cost],
            ),
            Self::RetryAfter => (
                "retry-after, x-ratelimit-limit, x-ratelimit-remaining, x-ratelimit-retry-after",
                &[Limit, Remaining, Wait],
            ),
            Self::TowerGovernor => (
                "retry-after, x-ratelimit-limit, x-ratelimit-remaining, x-ratelimit-after",
                &[Limit, Remaining, Wait],
            ),
            Self::OpenAi => (
                "retry-after, retry-after-ms, x-ratelimit-limit-requests, x-ratelimit-remaining-requests, \
                 x-ratelimit-reset-requests, x-ratelimit-limit-tokens, x-ratelimit-remaining-tokens, \
                 x-ratelimit-reset-tokens",
                &[],
            ),
            Self::Anthropic => (
                "retry-after, anthropic-ratelimit-requests-limit, anthropic-ratelimit-requests-remaining, \
                 anthropic-ratelimit-requests-reset, anthropic-ratelimit-tokens-limit, \
                 anthropic-ratelimit-tokens-remaining, anthropic-ratelimit-tokens-reset, \
                 anthropic-ratelimit-input-tokens-limit, anthropic-ratelimit-input-tokens-remaining, \
                 anthropic-ratelimit-input-tokens-reset, anthropic-ratelimit-output-tokens-limit, \
                 anthropic-ratelimit-output-tokens-remaining, anthropic-ratelimit-output-tokens-reset",
                &[],
            ),
            Self::None => ("retry-after", &[]),
        }
    }

    pub(crate) const fn joined_names(self) -> &'static str {
        self.row().0
    }

    /// Returns the names of the headers, but for those that say when to come back.
    pub(crate) fn own_names(self) -> impl Iterator<Item = &'static str> {
        self.joined_names()
            .split(", ")
            .filter(|name| !matches!(*name, "retry-after" | "retry-after-ms"))
    }

    /// Returns each header with the number that it reports.
    pub(super) fn numbers(self) -> impl Iterator<Item = (HeaderName, Number)> {
        self.own_names()
            .map(HeaderName::from_static)
            .zip(self.row().1.iter().copied())
    }

    /// Returns the units that have a group of headers each in this format.
    pub(super) const fn units(self) -> &'static [QuotaUnit] {
        const UNITS: &[QuotaUnit] = &[
            QuotaUnit::REQUESTS,
            QuotaUnit::TOKENS,
            QuotaUnit::INPUT_TOKENS,
            QuotaUnit::OUTPUT_TOKENS,
        ];
        match self {
            Self::OpenAi => UNITS.split_at(2).0,
            Self::Anthropic => UNITS,
            _ => &[],
        }
    }

    /// Returns each unit with the names of its limit, of its remaining units and of its reset.
    pub(crate) fn groups(self) -> impl Iterator<Item = (QuotaUnit, [&'static str; 3])> {
        let mut names = self.own_names();
        let group =
            move |unit: &QuotaUnit| Some((*unit, [names.next()?, names.next()?, names.next()?]));
        self.units().iter().filter_map(group)
    }
}

impl ResetFormat {
    /// Returns the value of `X-RateLimit-Reset` for a time of `wait` from the decision on.
    /// `decided_at` is the time of the decision, if the store has said it.
    pub(crate) fn value(self, decided_at: Option<SystemTime>, wait: Duration) -> u64 {
        self.value_at(wait_began(decided_at), wait)
    }

    fn value_at(self, began: Duration, wait: Duration) -> u64 {
        match self {
            Self::Seconds => round_up(wait),
            // Rounded once: the sum of two rounded times would be up to one second later than
            // `Retry-After`.
            Self::Epoch => round_up(began.saturating_add(wait)),
        }
    }
}

/// Lists the formats of a layer. No two of them have a rate limit header in common.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct HeaderFormats {
    /// `HeaderFormat::None` fills the places behind the last format.
    formats: [HeaderFormat; MAX_FORMATS],
}

/// The most formats without a common header: one with `RateLimit`, one with `X-RateLimit`, and one
/// for each service of language models.
const MAX_FORMATS: usize = 4;

impl HeaderFormats {
    /// Creates a list of one format.
    pub(crate) const fn one(format: HeaderFormat) -> Self {
        Self {
            formats: [
                format,
                HeaderFormat::None,
                HeaderFormat::None,
                HeaderFormat::None,
            ],
        }
    }

    /// Creates a list.
    ///
    /// # Panics
    ///
    /// Panics if two formats have a rate limit header in common.
    pub(crate) fn new(formats: impl IntoIterator<Item = HeaderFormat>) -> Self {
        let mut all = Self::one(HeaderFormat::None);
        for format in formats {
            for other in all.iter() {
                let common = other
                    .own_names()
                    .find(|name| format.own_names().any(|own| *name == own));
                if let Some(name) = common {
                    panic!("header formats {other:?} and {format:?} both write {name}");
                }
            }
            if let Some(place) = all
                .formats
                .iter_mut()
                .find(|place| **place == HeaderFormat::None)
            {
                *place = format;
            }
        }
        all
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = HeaderFormat> {
        self.formats
            .into_iter()
            .filter(|format| *format != HeaderFormat::None)
    }

    /// Returns the only format, if there is one.
    pub(super) fn only(self) -> Option<HeaderFormat> {
        let [first, second, ..] = self.formats;
        (second == HeaderFormat::None).then_some(first)
    }

    /// Returns the names of all headers, but for those that say when to come back.
    pub(crate) fn own_names(self) -> impl Iterator<Item = HeaderName> {
        self.iter()
            .flat_map(HeaderFormat::own_names)
            .map(HeaderName::from_static)
    }
}

impl Default for HeaderFormats {
    fn default() -> Self {
        Self::one(HeaderFormat::default())
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
            assert_eq!(
                ResetFormat::Epoch.value_at(millis(now), millis(wait)),
                expected,
                "{wait} ms at {now} ms"
            );
        }
        for now in (100_000..102_000).step_by(7) {
            for wait in (0..3_000).step_by(11) {
                let reset = millis(1000 * ResetFormat::Epoch.value_at(millis(now), millis(wait)));
                let end = millis(now + wait);
                assert!(
                    end <= reset && reset < end + millis(1000),
                    "{wait} ms at {now} ms"
                );
            }
        }
        assert_eq!(
            ResetFormat::Seconds.value_at(millis(100_500), millis(59_001)),
            60
        );
    }
}
