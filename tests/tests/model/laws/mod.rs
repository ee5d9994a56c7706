//! One file for each shared structure.

mod breaker;
mod dial_state;
mod epoch_table;
mod memory;
mod queue;
