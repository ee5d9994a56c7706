//! The field `fair_shares` once it is read, and the customer that a request has by it.
//! It is read in `compile/fair_shares.rs`. The shares themselves are computed by the core.

use std::{collections::HashMap, num::NonZeroU32};

use tollgate::Customer;

use crate::Descriptor;

/// Says whose request it is: the field `fair_shares` of a file.
pub(crate) struct FairShares {
    /// The key of the entry whose value is the customer.
    pub(crate) key: Box<str>,
    pub(crate) weights: HashMap<Box<str>, NonZeroU32>,
}

impl FairShares {
    /// Returns the customer of a request with these descriptors.
    pub(crate) fn customer(&self, descriptors: &[Descriptor<'_>]) -> Customer {
        let entry = descriptors
            .iter()
            .flat_map(Descriptor::entries)
            .find(|entry| *entry.key() == *self.key);
        let Some(entry) = entry else {
            return Customer::UNKNOWN;
        };
        let weight = self.weights.get(entry.value()).copied();
        Customer::new(entry.value()).weighing(weight.unwrap_or(NonZeroU32::MIN))
    }
}
