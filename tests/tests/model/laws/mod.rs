//! One file for each shared structure.

mod background;
mod branches;
mod breaker;
mod dial_state;
mod distance;
mod epoch_table;
mod memory;
mod queue;
