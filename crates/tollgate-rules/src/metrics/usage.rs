//! Sorts the units of one check into within, near and over, with or without the feature `metrics`.
//! Where they are counted is in `rules.rs`, and in tollgate-envoy.

use crate::Compat;

/// The units of one check, sorted by where they lie: within the limit, near it, or over it.
///
/// A unit is near when it lies above four fifths of the limit. All units of a check that passes are
/// within, and some of them may also be near. A check that does not pass may have units that were
/// near before the limit was reached.
///
/// ```
/// use tollgate_rules::{Compat, Usage};
///
/// // 7 units, after which 22 of 20 are counted: 2 lie over the limit, and 4 between 16 and 20.
/// let usage = Usage::new(20, 22, 7, Compat::Native);
/// assert_eq!((usage.total, usage.over, usage.near, usage.within), (7, 2, 4, 0));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Usage {
    /// The units of the check.
    pub total: u64,
    /// The units over the limit.
    pub over: u64,
    /// The units over four fifths of the limit, and not over the limit.
    pub near: u64,
    /// The units of a check that passed.
    pub within: u64,
    /// The units over the limit that passed, because the rule is in shadow mode.
    pub shadow: u64,
    /// The units over the limit that were denied without the store, because it denied the key
    /// before.
    pub over_from_cache: u64,
    /// The units that a descriptor gave back. They belong to no other number.
    pub refunded: u64,
}

impl Usage {
    /// Sorts the units of a check of `hits` units, after which the counter stands at `after` of
    /// `limit`.
    #[must_use]
    pub fn new(limit: u64, after: u64, hits: u64, compat: Compat) -> Self {
        let before = after.saturating_sub(hits);
        let near = near_threshold(limit, compat);
        let mut usage = Self {
            total: hits,
            ..Self::default()
        };
        if after > limit {
            if before >= limit {
                usage.over = hits;
            } else {
                usage.over = after - limit;
                usage.near = limit - near.max(before);
            }
        } else {
            usage.within = hits;
            if after > near {
                usage.near = if before >= near { hits } else { after - near };
            }
        }
        usage
    }

    /// Counts units that a descriptor gave back.
    #[must_use]
    pub fn refunded(hits: u64) -> Self {
        Self {
            refunded: hits,
            ..Self::default()
        }
    }

    /// Sorts the units of a check that a remembered denial answered: all of them are over.
    #[must_use]
    pub fn remembered(hits: u64) -> Self {
        Self {
            total: hits,
            over: hits,
            over_from_cache: hits,
            ..Self::default()
        }
    }

    /// Counts the units over the limit as units of a rule in shadow mode, too.
    #[must_use]
    pub fn in_shadow_mode(mut self) -> Self {
        self.shadow = self.over;
        self
    }
}

/// Returns four fifths of a limit, rounded down. Envoy's service computes them with 24 bits of
/// precision.
fn near_threshold(limit: u64, compat: Compat) -> u64 {
    if compat.is_envoy() {
        return f64::from(limit as f32 * 0.8_f32) as u64;
    }
    limit - limit.div_ceil(5)
}
