//! Rate limits that all replicas of a service share.
//!
//! A [`Limiter`] checks keys against [policies](Policy) on a [`Store`]. With a [`RedisStore`] all
//! replicas spend from the same quota, with one atomic script call per decision. With a
//! [`MemoryStore`] the same algorithms decide inside the process. [`connect`] and [`open`] choose
//! the store by URL. What keeps bytes elsewhere, a database or a file, becomes a store by two
//! functions: see [`KeyValue`](store::KeyValue).
//!
//! **Start with the [guide]**: whether to use this, which algorithm, several limits, waiting,
//! outages, production.
//!
//! Use the `tollgate-tower` crate to limit an HTTP service, and `tollgate-tonic` to limit a gRPC
//! server. Use this crate alone for work that is not a request: jobs, e-mails, calls to an external
//! API.
//!
//! ```
//! use tollgate::{Limiter, MemoryStore, Policy, Quota};
//!
//! const BURST: Policy = Policy::token_bucket("burst", Quota::per_second(20).with_burst(40));
//! const DAILY: Policy = Policy::fixed_window("daily", Quota::per_day(50_000));
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::Error> {
//! let limiter = Limiter::new(MemoryStore::new(), [BURST, DAILY]);
//! let decision = limiter.check("acme").await?;
//! assert!(decision.is_allowed());
//! assert_eq!(decision.state("burst").unwrap().remaining(), 39);
//! assert_eq!(decision.state("daily").unwrap().remaining(), 49_999);
//! # Ok(()) }
//! ```
//!
//! Policies may [change](LimiterHandle) while checks run, and may be
//! [fetched](tenants::TenantLimiters) for each tenant.
//!
//! A [`ConcurrencyLimiter`](permits::ConcurrencyLimiter) limits how much runs at the same time:
//! streams, exports, jobs.
//!
//! Work whose cost is known later [reserves](Limiter::reserve) an estimate and
//! [commits](reservation::Reservation::commit) the real cost.
//!
//! [`DeniedKeys`](limiter::DeniedKeys) shows which keys are denied most. An observer sees each
//! denial, lockout and outage as an [event](limiter::events).
//!
//! [`Algorithm`] states the bound of each algorithm. A denial is not an error: [`Limiter::check`]
//! fails only when no decision was reached. [`Decision::into_result`] turns a denial into an error
//! for `?`.
//!
//! # Tests
//!
//! To test a service without Redis and without waiting, use a [`MemoryStore`] with a
//! [`Clock`](store::Clock) that the test moves. The feature `test-util` adds a store with fixed
//! answers, and a store that fails on command.
//!
//! ```
//! use std::time::Duration;
//! use tollgate::{Limiter, MemoryStore, Policy, Quota, store::Clock};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::Error> {
//! let clock = Clock::manual(0);
//! let store = MemoryStore::builder().clock(clock.clone()).build();
//! let limiter = Limiter::new(store, Policy::token_bucket("api", Quota::per_minute(1)));
//! assert!(limiter.check("acme").await?.is_allowed());
//! assert!(limiter.check("acme").await?.is_denied());
//! clock.advance(Duration::from_secs(60));
//! assert!(limiter.check("acme").await?.is_allowed());
//! # Ok(()) }
//! ```
//!
//! # Features
//!
//! | feature | default | adds |
//! |---|---|---|
//! | `redis` | yes | [`RedisStore`], for one server, Sentinel and Redis Cluster |
//! | `tls` | no | `rediss://` URLs, by rustls |
//! | `calendar` | no | windows of local days, weeks, months and years: `Policy::calendar_window` |
//! | `pool` | yes | a `deadpool_redis::Pool`, or a `Client` of the crate `redis`, as a [`RedisSource`](redis::RedisSource) |
//! | `sentinel-pool` | no | a `deadpool_redis::sentinel::Pool` as a [`RedisSource`](redis::RedisSource) |
//! | `serde` | no | `Serialize` and `Deserialize` of [`Quota`] and [`Algorithm`], as text |
//! | `macros` | no | the attribute `limited`, for async functions |
//! | `metrics` | no | the [metrics](#metrics) below, through the `metrics` facade |
//! | `test-util` | no | stores for the tests of applications: fixed answers, and outages on command |
//! | `testing` | no | what the tests of this project compare; not covered by semantic versioning |

// Nothing but the documentation for users and re-exports stands here. `docs/contributors/design.md`
// says which crate has what.

#![cfg_attr(docsrs, feature(doc_cfg))]

//!
//! # Metrics
//!
//! With the feature `metrics`, every limiter counts its checks, with and without middleware.
//! Install the recorder before the first check. The label `limiter` is the
//! [name](LimiterBuilder::name) of the limiter, `store` is the prefix of the store, or its table. No label value
//! comes from a request.
//!
//! | metric | labels | meaning |
//! |---|---|---|
//! | `tollgate_checks_total` | `limiter`, `outcome` | checks: `allowed`, `denied`, or `failed` without a decision; a peek is not counted |
//! | `tollgate_denials_total` | `limiter`, `policy` | denied checks, for each policy that denied; `other` beyond 64 names of policies |
//! | `tollgate_degraded_total` | `limiter`, `reason` | decisions without the store, by [kind](ErrorKind::as_str): `timeout`, `breaker`, `oom` … |
//! | `tollgate_errors_total` | `limiter`, `reason` | checks without a decision, by the same reasons, and `cost` |
//! | `tollgate_waiting` | | callers that wait for units, or for their turn in a queue, in all limiters together |
//! | `tollgate_exceptions_used_total` | `limiter`, `policy` | decisions by the quota of an [exception](store::Exception) |
//! | `tollgate_commits_total` | `limiter`, `outcome` | commits of [reservations](reservation::Reservation): `settled`, `already_settled`, `lapsed` or `failed` |
//! | `tollgate_outages_total` | `limiter` | outages that began |
//! | `tollgate_outage` | `limiter` | 1 in an outage, 0 otherwise |
//! | `tollgate_check_duration_seconds` | `limiter` | time from the start of a check to its decision; not for a store in the process, nor for a remembered denial |
//! | `tollgate_tenant_fetches_total` | `limiter`, `outcome` | fetches of the limits of [tenants](tenants::TenantLimiters): `succeeded` or `failed` |
//! | `tollgate_tenant_outage` | `limiter` | 1 while the limits of tenants cannot be fetched, 0 otherwise |
//! | `tollgate_tenants_cached` | `limiter` | tenants in the cache, as of the last fetch |
//! | `tollgate_permits_total` | `policy`, `outcome` | acquires of permits: `acquired`, `denied`, or `failed` without an answer |
//! | `tollgate_permits_lost_total` | `policy` | permits that could not be renewed and were lost |
//! | `tollgate_permits_held` | `policy` | permits that are held in this process |
//! | `tollgate_permits_waiting` | `policy` | callers that wait for a permit in this process |
//! | `tollgate_store_servers` | `store` | servers that a store sends checks to |
//! | `tollgate_store_connected` | `store` | servers to which there is a connection |
//! | `tollgate_store_breakers_open` | `store` | servers whose circuit breaker is open |
//! | `tollgate_store_queued` | `store` | checks that wait to be sent |
//! | `tollgate_store_round_trip_seconds` | `store` | time of the last call that counted the replicas |
//! | `tollgate_store_replicas` | `store` | processes that were counted last |
//! | `tollgate_lease_held` | `store` | units of [leased](Policy::leased) policies that this process may spend |
//! | `tollgate_lease_granted_total` | `store` | units that the server has granted to this process |
//! | `tollgate_lease_returned_total` | `store` | leased units that were given back |
//! | `tollgate_lease_lapsed_total` | `store` | leased units that ended unspent |
//! | `tollgate_lease_trips_saved_total` | `store` | checks that leased units decided without a trip |
//! | `tollgate_region_held` | `store` | units of limits that [several regions][regions] share, which this region held when this process saw them last |
//! | `tollgate_region_calls_total` | `store`, `outcome` | calls of the home that this process has carried: `answered` or `given_up` |
//! | `tollgate_region_resent_total` | `store` | calls of the home that were sent again |
//! | `tollgate_region_granted_total` | `store` | units that the home has granted to this process for its region |
//! | `tollgate_region_lost_total` | `store` | units of the region that nobody could spend: they came too late, lapsed, or were voided by a fail-over |
//! | `tollgate_region_round_trip_seconds` | `store` | the longest of the last round trips to the home |
//!
//! The gauges of a store are set once a second, from the first check on.
//!
//! [regions]: https://github.com/tollgate-rs/tollgate/blob/main/docs/regions.md

pub mod guide;
mod url;

#[cfg(feature = "test-util")]
#[doc(inline)]
pub use tollgate_core::test_util;
#[doc(inline)]
pub use tollgate_core::{
    Algorithm, Cost, Costs, Customer, Decision, Denied, Enforcement, Error, ErrorKind, ForeignText,
    Key, KeySecret, Lease, Limiter, LimiterBuilder, LimiterHandle, MemoryStore, Outage, Policy,
    PolicySet, Priority, Quota, Store, debug_fields, limiter, permits, reservation, tenants,
};
#[cfg(feature = "calendar")]
#[doc(inline)]
pub use tollgate_core::{Anchor, CalendarUnit, TimeZone};
#[cfg(feature = "redis")]
#[doc(inline)]
pub use tollgate_redis::{self as redis, RedisStore};
#[doc(inline)]
pub use tollgate_remote::credentials;
pub use url::{connect, open};

/// Keeps the state of policies: what you need to implement or to wrap a [`Store`].
pub mod store {
    #[doc(inline)]
    pub use tollgate_core::store::*;
    #[doc(inline)]
    pub use tollgate_remote::{Change, KeyValue, KeyValueStore, Scheme, Snapshot, Write, register};
}

/// Opens the stores to the project's own tests, which compare a script with its pure function.
/// Semantic versioning does not cover it.
#[cfg(feature = "testing")]
pub mod testing {
    pub use tollgate_core::testing::*;
    pub use tollgate_redis::testing::*;
    pub use tollgate_remote::testing::*;
}

/// Limits the calls of an async function.
///
/// Use it for work that is not a request: mails, jobs, calls of somebody else's API. Use the layers
/// of `tollgate-tower` and `tollgate-tonic` for requests. To limit a part of a function, write the
/// line that the attribute stands for: `limiter.check(key).wait(wait).await?.into_result()?`.
///
/// ```
/// use std::{sync::LazyLock, time::Duration};
/// use tollgate::{Limiter, MemoryStore, Policy, Quota};
///
/// static MAILS: LazyLock<Limiter> =
///     LazyLock::new(|| Limiter::new(MemoryStore::new(), Policy::token_bucket("mails", Quota::per_minute(1))));
///
/// type Failure = Box<dyn std::error::Error + Send + Sync>;
///
/// #[tollgate::limited(limiter = MAILS, key = recipient)]
/// async fn send_mail(recipient: &str, text: &str) -> Result<usize, Failure> {
///     Ok(text.len())
/// }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// assert_eq!(send_mail("ann@example.com", "hello").await.unwrap(), 5);
/// let denied = send_mail("ann@example.com", "hello again").await.unwrap_err();
/// assert!(denied.is::<tollgate::Denied>());
/// assert_eq!(send_mail("bob@example.com", "hello").await.unwrap(), 5);
/// # }
/// ```
///
/// # Options
///
/// All values are expressions. They may use the arguments of the function, `self` included, and are
/// evaluated with each call.
///
/// | option | type | meaning |
/// |---|---|---|
/// | `limiter` | `Limiter`, or any type that derefs to it | the limiter; required |
/// | `key` | `Into<Key>` | identifies the client, tenant or resource whose quota is spent; required |
/// | `wait` | text such as `"2s"` or `"1m30s"`, or a `Duration` | waits up to this time instead of denying: see [`wait`](limiter::CheckBuilder::wait) |
/// | `cost` | a number, or `Into<Cost>` | the units that a call spends; 1 by default |
/// | `crate` | a path | the `tollgate` crate under another name |
///
/// A method that waits up to two seconds:
///
/// ```
/// use tollgate::{Denied, Error, Limiter};
///
/// # struct Job { bytes: u64 }
/// enum UploadError {
///     Denied(Denied),
///     NoDecision(Error),
/// }
/// # impl From<Denied> for UploadError { fn from(denied: Denied) -> Self { Self::Denied(denied) } }
/// # impl From<Error> for UploadError { fn from(error: Error) -> Self { Self::NoDecision(error) } }
///
/// struct Uploads {
///     limiter: Limiter,
/// }
///
/// impl Uploads {
///     #[tollgate::limited(limiter = self.limiter, key = ("tenant", tenant), cost = job.bytes, wait = "2s")]
///     async fn upload(&self, tenant: u64, job: &Job) -> Result<(), UploadError> {
///         // …
/// #       let _ = job;
///         Ok(())
///     }
/// }
/// ```
///
/// # Errors
///
/// The function must return a `Result`. Its error type must implement `From<tollgate::Denied>`, for
/// a call that is denied, and `From<tollgate::Error>`, for a call without a decision:
/// `Box<dyn Error + Send + Sync>` and `anyhow::Error` do. The body does not run then.
///
/// # Cancellation
///
/// A dropped future may have spent the units. With `wait`, a future that is dropped while it waits
/// gives them back.
///
/// # Other attributes
///
/// With `#[async_trait]`, place the attribute on the function that contains the work, outside of
/// the trait's block: an `async_trait` method is no longer an `async fn` when the attribute sees
/// it.
#[cfg(feature = "macros")]
#[doc(inline)]
pub use tollgate_macros::limited;

/// Compiles the examples of the README with the tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
