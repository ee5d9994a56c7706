//! One key with its value, as a request brings it. The list of them is in `entries.rs`.
//! The key and value of a rule, which entries are compared with, are a `Selector`.

use std::{borrow::Cow, fmt};

/// One key and its value in a [`Descriptor`](crate::Descriptor).
#[derive(Clone, Default, PartialEq, Eq)]
pub struct DescriptorEntry<'a> {
    key: Cow<'a, str>,
    value: Cow<'a, str>,
}

impl<'a> DescriptorEntry<'a> {
    pub(crate) fn new(key: Cow<'a, str>, value: Cow<'a, str>) -> Self {
        Self { key, value }
    }

    pub(crate) fn into_owned(self) -> DescriptorEntry<'static> {
        DescriptorEntry::new(self.key.into_owned().into(), self.value.into_owned().into())
    }

    /// Returns the key.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Returns the value.
    #[must_use]
    pub fn value(&self) -> &str {
        &self.value
    }
}

impl fmt::Debug for DescriptorEntry<'_> {
    /// Writes the key alone: the value may identify a client.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}=..", self.key)
    }
}
