//! Rate limits as exact algorithms: the trait [`Store`] with its laws, the store in process, and the
//! [`Limiter`] that callers use. Keys, policies and decisions are those of `tollgate-model`.
//!
//! Applications add the crate `tollgate`, which has everything of this crate under the same names,
//! the stores on servers, and the guide. Add this crate to write a middleware or a store in a crate
//! of its own, so that it compiles nothing of Redis: see [`raw`] for stores.
//!
//! # Features
//!
//! | feature | default | adds |
//! |---|---|---|
//! | `calendar` | no | windows of local days, weeks, months and years: `Policy::calendar_window` |
//! | `serde` | no | `Serialize` and `Deserialize` of [`Quota`] and [`Algorithm`], as text |
//! | `metrics` | no | the metrics that the crate `tollgate` lists, through the `metrics` facade |
//! | `test-util` | no | stores for the tests of applications: fixed answers, and outages on command |
//! | `testing` | no | what the tests of this project compare; not covered by semantic versioning |

// The rooms import downward: `limiter` uses `store`, and `store` uses the crate of the model. None of
// them knows a server. `docs/contributors/design.md` says which room has what.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod clock;
pub mod limiter;
mod lock;
mod random;
pub mod raw;
mod runtime;
pub mod store;
#[cfg(feature = "test-util")]
pub mod test_util;
#[cfg(feature = "testing")]
pub mod testing;

/// Limits how much work runs at the same time, over all replicas.
///
/// A [`ConcurrencyLimiter`](permits::ConcurrencyLimiter) hands out [`Permit`](permits::Permit)s of
/// a [`Concurrency`](permits::Concurrency). Dropping a permit gives it back.
pub mod permits {
    pub use crate::limiter::permits::{ConcurrencyLimiter, Lost, Permit, PermitDenied};
    #[doc(inline)]
    pub use tollgate_model::{Concurrency, OnLoss};
}

/// Reserves units for work whose cost is known later: see [`Limiter::reserve`].
pub mod reservation {
    pub use crate::{
        limiter::{
            growing::{GrowingBuilder, GrowingReservation, Growth, GrowthError, Take, TakeFuture},
            reservation::{Reservation, ReserveBuilder},
        },
        store::reservation::{ReservationId, Settlement},
    };
}

/// Looks up the policies of each tenant in a source of your own, and caches them: see
/// [`TenantLimiters`](tenants::TenantLimiters).
pub mod tenants {
    pub use crate::limiter::tenants::{SourceOutage, TenantLimiters, TenantLimitersBuilder};
}

#[doc(inline)]
pub use limiter::{Limiter, LimiterBuilder, LimiterHandle, Outage};
#[doc(inline)]
pub use store::{MemoryStore, Store};
#[doc(inline)]
pub use tollgate_model::{
    Algorithm, Cost, Costs, Customer, Decision, Denied, Enforcement, Error, ErrorKind, ForeignText,
    Key, KeySecret, Lease, Policy, PolicySet, Priority, Quota, debug_fields,
};
#[cfg(feature = "calendar")]
#[doc(inline)]
pub use tollgate_model::{Anchor, CalendarUnit, TimeZone};

/// Compiles the examples of the README with the tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
