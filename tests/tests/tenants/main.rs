//! The limits of tenants, which are fetched and cached. The time of tokio is paused, so that
//! nothing sleeps. A program of its own, because tracing decides once per process which lines are
//! enabled.

mod cache;
mod outage;
mod source;
