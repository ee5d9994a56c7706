//! Reads the text of a file as a tree of nodes, each with its place.
//!
//! The formats become one tree, so that a mistake is reported in the same way in each: with the
//! place of the value, and several mistakes at once. Types that serde derives have neither: serde
//! reports the first mistake only, and it has no places for values that are wrong in their context,
//! such as a duplicate composite key.
//!
//! # Libraries
//!
//! YAML is read from the events of `saphyr-parser`: each has the span of its text, nothing is built
//! before the limits are checked, and an alias is an event and not a copy. The others that were
//! compared:
//!
//! | library | reason against it |
//! |---|---|
//! | `serde-saphyr` 2.1 | good messages, limits and spans, but for serde types only; needs Rust 1.89, and the workspace promises 1.88 |
//! | `saphyr` 0.3.3 | bounds the copies that aliases make, but neither the size nor the depth of its tree |
//! | `marked-yaml` 0.8 | refuses every alias and every tag, also in files of Envoy's service; parser `yaml-rust2` |
//! | `serde_yaml` | not maintained |
//!
//! JSON is YAML. TOML is read as the spanned tree of `toml`.
//! What the fields of a tree mean is decided in `compile/`. Files come from `load.rs`.

mod budget;
mod format;
mod limits;
mod node;
#[cfg(feature = "toml")]
mod toml;
mod yaml;

pub use format::Format;
#[cfg(feature = "spring")]
pub(crate) use format::read_yaml;
pub use limits::Limits;
pub(crate) use node::{Field, Node, Scalar, Value, short};
