//! Joins the metadata of several rules.

use serde_json::Value;

use crate::Metadata;

/// Adds the fields of `other` that are missing. Mappings are joined, and of other values the first is kept.
pub(super) fn merge(metadata: &mut Metadata, other: &Metadata) {
    for (name, value) in other {
        match (metadata.get_mut(name), value) {
            (None, value) => {
                metadata.insert(name.clone(), value.clone());
            }
            (Some(Value::Object(first)), Value::Object(second)) => merge(first, second),
            (Some(_), _) => {}
        }
    }
}
