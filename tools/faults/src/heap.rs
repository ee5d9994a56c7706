//! The heap of this process.

use std::alloc::System;

use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

/// Counts the bytes in use on the heap, which the memory of the process does not show.
#[global_allocator]
pub(crate) static HEAP: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;
