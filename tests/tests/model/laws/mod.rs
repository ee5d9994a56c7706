//! One file for each thing that is shared.

mod breaker;
mod generation;
mod queue;
mod slots;
