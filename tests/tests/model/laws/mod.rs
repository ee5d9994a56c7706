//! One file for each thing that is shared.

mod breaker;
mod generation;
mod memory;
mod queue;
mod slots;
