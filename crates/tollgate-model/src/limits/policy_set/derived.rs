//! A place in a policy set for what a store derives from it. What a store derives is its own: the
//! scripts of a Redis store stand in `tollgate-redis/src/protocol/script`.

use std::{any::Any, sync::Arc};

/// Holds what one kind of store derives from the policies of a set, such as its scripts.
///
/// Equal sets may share one value. A set has one place, which the first kind of store takes.
pub struct Derived(Box<dyn Any + Send + Sync>);

impl Derived {
    /// Wraps what a store has derived.
    pub fn new<T: Any + Send + Sync>(value: T) -> Arc<Self> {
        Arc::new(Self(Box::new(value)))
    }

    /// Returns the value, if it is of this type.
    #[inline]
    #[must_use]
    pub fn get<T: Any>(&self) -> Option<&T> {
        self.0.downcast_ref()
    }
}

crate::debug_fields! { Derived: .. }
