//! The limits of a layer: fixed limiters, tiers, limiters that are looked up for each request, and deciders.

mod lookup;
mod source;
mod table;
mod tiers;

pub(crate) use lookup::Lookup;
pub use source::LimiterSource;
pub(crate) use table::{LimiterTable, Selector, Target};
pub use tiers::TieredLimiters;
