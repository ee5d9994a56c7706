//! Who asks, for limits that are shared fairly: a name that becomes a number, and a weight.
//! What the customer has spent is measured in `store/spending/mod.rs`, the share is computed in
//! `limiter/fair_shares.rs`.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    num::NonZeroU32,
};

use crate::Key;

/// Says who asks, for a limiter with [fair shares][`LimiterBuilder::fair_shares`].
///
/// Set it with [`Costs::with_customer`](crate::Costs::with_customer). Take what a client cannot make
/// up, such as the account of a request: who has many names has many shares.
///
/// A customer of weight 2 gets twice as much as one of weight 1, the default, where both ask for
/// more than there is.
///
/// ```
/// use std::num::NonZeroU32;
/// use tollgate::Customer;
///
/// let acme = Customer::new("acme").weighing(NonZeroU32::new(4).expect("not zero"));
/// assert_ne!(acme, Customer::new("acme"));
/// ```
///
/// [`LimiterBuilder::fair_shares`]: https://docs.rs/tollgate/latest/tollgate/struct.LimiterBuilder.html#method.fair_shares
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Customer {
    digest: u64,
    weight: NonZeroU32,
}

impl Customer {
    /// All who have no name. They have the share of one customer.
    pub const UNKNOWN: Self = Self {
        digest: 0,
        weight: NonZeroU32::MIN,
    };

    /// Creates the customer of this name.
    #[must_use]
    pub fn new(name: impl Into<Key>) -> Self {
        // The same in every replica: the hasher has no seed.
        let mut hasher = DefaultHasher::new();
        name.into().hash(&mut hasher);
        Self {
            digest: hasher.finish(),
            ..Self::UNKNOWN
        }
    }

    /// Sets the weight.
    #[must_use]
    pub const fn weighing(mut self, weight: NonZeroU32) -> Self {
        self.weight = weight;
        self
    }
}

// Leaves out the name, which may identify a person.
crate::debug_fields! { Customer: weight, .. }

/// Reads who asks, as fair shares count it.
pub trait CustomerParts: Sized {
    /// Returns the weight.
    fn weight(self) -> NonZeroU32;

    /// Returns a number that is the same in every replica. 0 for those who have no name.
    fn digest(self) -> u64;
}

impl CustomerParts for Customer {
    #[inline]
    fn weight(self) -> NonZeroU32 {
        self.weight
    }

    #[inline]
    fn digest(self) -> u64 {
        self.digest
    }
}
