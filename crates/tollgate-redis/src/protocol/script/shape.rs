//! What all policy sets with the same algorithms have in common: their scripts. The text of a
//! script comes from `assembler.rs`, and its arguments from `protocol/check.rs`.

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock, Weak},
};

use super::sources::AlgorithmSource;
use tollgate_core::{
    Algorithm, Policy, PolicySet,
    raw::{Derived, Lock, PolicyParts, PolicySetParts},
};

/// Keeps what all policy sets with the same algorithms in the same order have in common, and the
/// scripts that a store on a server derives from it.
///
/// The names, levels and quotas of the policies are no part of it: they travel with each call.
/// Sliding buckets have one shape, whatever their number. A shape exists once in the process, as
/// long as a policy set uses it. So a million tenants with policies of their own share the scripts
/// of a few shapes. Each script is assembled when it is first used.
#[derive(Debug)]
pub struct Shape {
    id: ShapeId,
    algorithms: Box<[Algorithm]>,
    reading_len: usize,
    /// Two for each purpose: the second one is for requests that have ceilings.
    scripts: [[OnceLock<Script>; 2]; PURPOSES],
}

/// A script, and the SHA-1 by which the server knows it.
#[derive(Debug)]
pub struct Script {
    /// The text.
    pub text: String,
    /// The SHA-1 in hexadecimal digits.
    pub sha: String,
}

/// Selects a script of a shape by what it does.
#[derive(Clone, Copy, Debug)]
pub enum Purpose {
    /// Decides one check.
    Check,
    /// Returns what a check would decide, and charges nothing.
    Look,
    /// Decides for many keys with the same numbers, all at one cost.
    Batch,
    /// Decides for many keys, each with numbers and costs of its own.
    Mixed,
    /// Returns units.
    Refund,
    /// Reserves units.
    Reserve,
    /// Reserves units of policies that are spent one after the other.
    Cascade,
    /// Settles a reservation.
    Commit,
    /// Decides for many keys over leased policies, takes reports and grants units.
    Lease,
}

/// The number of purposes.
const PURPOSES: usize = Purpose::Lease as usize + 1;

/// Names a shape: four bits for each policy, and one more for leased policies. Equal for two policy
/// sets exactly when they have one shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ShapeId(u64);

/// The bit of leased policies, above the bits of eight algorithms.
const LEASED: u64 = 1 << 32;

static SHAPES: Lock<BTreeMap<ShapeId, Weak<Derived>>> = Lock::new(BTreeMap::new());

/// The shapes of sets whose place for them is taken. They are never removed: there are as many as
/// lists of algorithms, and few programs use one set with two kinds of store.
static KEPT: Lock<BTreeMap<ShapeId, &'static Derived>> = Lock::new(BTreeMap::new());

/// Finds the scripts of a set of policies.
pub trait ScriptsOf {
    /// Returns the shape: what this set shares with all sets of the same algorithms.
    fn shape(&self) -> &Shape;
}

impl ScriptsOf for PolicySet {
    #[inline]
    fn shape(&self) -> &Shape {
        match self.derived(Shape::of).get() {
            Some(shape) => shape,
            None => Shape::kept(self.shared()),
        }
    }
}

impl ShapeId {
    /// Returns the name of the shape of `policies`. No algorithm has the number zero, so that sets
    /// of different lengths differ.
    pub(crate) fn of(policies: &[Arc<Policy>]) -> Self {
        let leased = if policies.iter().any(|policy| policy.is_leased()) {
            LEASED
        } else {
            0
        };
        Self(
            leased
                | policies.iter().fold(0, |id, policy| {
                    id << 4 | (AlgorithmSource::place_of(policy.algorithm()) + 1)
                }),
        )
    }

    /// Returns whether the policies are leased: all of them are, or none.
    fn is_leased(self) -> bool {
        self.0 & LEASED > 0
    }
}

impl Shape {
    /// Returns the shape of `policies`: the one that is in use, or a new one.
    fn of(policies: &[Arc<Policy>]) -> Arc<Derived> {
        let id = ShapeId::of(policies);
        let mut shapes = SHAPES.lock();
        if let Some(shape) = shapes.get(&id).and_then(Weak::upgrade) {
            return shape;
        }
        let shape = Derived::new(Self::new(id, policies));
        shapes.insert(id, Arc::downgrade(&shape));
        shape
    }

    /// Returns the shape of policies whose set keeps what another kind of store derives.
    #[cold]
    fn kept(policies: &[Arc<Policy>]) -> &'static Self {
        let shape = Self::of(policies);
        let mut kept = KEPT.lock();
        let kept = kept
            .entry(ShapeId::of(policies))
            .or_insert_with(|| Box::leak(Box::new(shape)));
        kept.get().expect("nothing else is kept")
    }

    fn new(id: ShapeId, policies: &[Arc<Policy>]) -> Self {
        let algorithms = policies.iter().map(|policy| policy.algorithm()).collect();
        let reading_len = policies.iter().map(|policy| policy.reading_len()).sum();
        Self {
            id,
            algorithms,
            reading_len,
            scripts: Default::default(),
        }
    }

    /// Returns the number of shapes in use.
    #[cfg(feature = "testing")]
    pub(crate) fn count() -> usize {
        SHAPES.lock().len()
    }

    /// Returns the name of this shape.
    #[inline]
    pub(crate) fn id(&self) -> ShapeId {
        self.id
    }

    pub(crate) fn algorithms(&self) -> &[Algorithm] {
        &self.algorithms
    }

    /// Returns whether the policies are leased: all of them are, or none.
    pub(crate) fn is_leased(&self) -> bool {
        self.id.is_leased()
    }

    /// Returns the number of integers that a reply has for one subject or run, if none is left out.
    pub(crate) fn reading_len(&self) -> usize {
        self.reading_len
    }

    /// Returns the number of keys on the server that a subject has.
    pub(crate) fn keys(&self) -> usize {
        self.algorithms.len() * if self.is_leased() { 2 } else { 1 }
    }

    /// Returns the script for a purpose. `assemble` is called when it is first used.
    #[inline]
    pub(super) fn assembled(
        &self,
        purpose: Purpose,
        is_capped: bool,
        assemble: impl FnOnce() -> Script,
    ) -> &Script {
        self.scripts[purpose as usize][usize::from(is_capped)].get_or_init(assemble)
    }
}

impl Drop for Shape {
    /// Removes the shape from those in use, unless another thread has made the same shape again
    /// meanwhile.
    fn drop(&mut self) {
        let mut shapes = SHAPES.lock();
        if shapes
            .get(&self.id)
            .is_some_and(|shape| shape.strong_count() == 0)
        {
            shapes.remove(&self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_core::Quota;

    fn set(algorithms: &[Algorithm]) -> PolicySet {
        let quota = Quota::per_second(5);
        let policy = |(at, &algorithm): (usize, &Algorithm)| {
            Policy::try_new(format!("p{at}"), algorithm, quota).unwrap()
        };
        PolicySet::try_new(algorithms.iter().enumerate().map(policy)).unwrap()
    }

    #[test]
    fn a_shape_that_was_made_again_is_not_forgotten_by_the_drop_of_the_old_one() {
        let list = [
            Algorithm::SlidingLog,
            Algorithm::FixedWindow,
            Algorithm::SlidingLog,
            Algorithm::FixedWindow,
        ];
        let kept = set(&list);
        let id = kept.shape().id();
        // A shape outside the list stands for the old one, whose drop comes after the new one was
        // made.
        drop(Shape::new(id, kept.shared()));
        assert!(
            SHAPES
                .lock()
                .get(&id)
                .is_some_and(|shape| shape.strong_count() == 1)
        );
        assert!(std::ptr::eq(set(&list).shape(), kept.shape()));
    }

    /// Whether a set was used with another kind of store before makes no difference.
    #[test]
    fn a_set_whose_place_is_taken_has_the_same_shape() {
        let list = [Algorithm::SlidingWindow, Algorithm::SlidingLog];
        let (taken, free) = (set(&list), set(&list));
        let _ = taken.derived(|_| Derived::new("another store"));
        assert!(std::ptr::eq(taken.shape(), free.shape()));
    }
}
