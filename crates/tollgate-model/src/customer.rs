//! Who asks, for limits that are shared fairly: a name that becomes a number, and a weight.
//! What the customer has spent is measured in `store/spending/mod.rs`, the share is computed in
//! `limiter/fair_shares.rs`.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    num::NonZeroU32,
};

use crate::{Key, key::KeyParts};

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
        Self {
            digest: digest(&name.into()),
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

/// Returns the hash of a name, the same in every replica: the hasher has no seed.
fn digest(name: &Key) -> u64 {
    let mut hasher = DefaultHasher::new();
    match name.level(0).padded::<TEXT>() {
        // What `Key::hash` writes, in one piece: each has a price.
        Some(text) => {
            let (mut block, len) = ([0; LENGTH + TEXT], name.as_bytes().len());
            block[..LENGTH].copy_from_slice(&len.to_ne_bytes());
            block[LENGTH..].copy_from_slice(text);
            hasher.write(&block[..LENGTH + len]);
        }
        None => name.hash(&mut hasher),
    }
    hasher.finish()
}

/// The bytes of a length as it is hashed, and those of a text that is hashed in one piece.
const LENGTH: usize = size_of::<usize>();
const TEXT: usize = 64;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_of_a_name_is_the_hash_of_its_key() {
        let nested = Key::new("x".repeat(40)).child("y".repeat(40));
        let branches = Key::new("a").with_branch("b");
        let names = [0, 1, 7, 8, 63, 64, 65].map(|length| Key::new("n".repeat(length)));
        for name in names.into_iter().chain([nested, branches]) {
            let mut hasher = DefaultHasher::new();
            name.hash(&mut hasher);
            assert_eq!(Customer::new(name).digest(), hasher.finish());
        }
    }
}
