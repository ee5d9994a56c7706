//! The pairs of `docs/migrating.md`: what is written there beside another limiter admits the same
//! requests.
//!
//! The other limiter is its Lua on a real server, its crate, or a model of it. Both decide the same
//! trace. The crate `governor` is compiled for this alone, so its pair is in `tests/full`.

mod burst_fill;
mod express;
mod incr_expire;
mod lyft;
mod page;
mod seller;
mod sorted_set;
mod spring;
mod tower_limit;

use tollgate_test_support::traces::{
    SECOND, START, assert_same_admissions, in_process, in_process_by_key, trace,
};
