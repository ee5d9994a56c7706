//! Describes a request as metadata.

use serde_json::{Value, json};

use super::{Plan, Verdict};
use crate::Metadata;

impl Plan<'_> {
    /// Describes the request and the metadata of its verdict, as the `dynamic_metadata` of Envoy's protocol.
    ///
    /// ```
    /// use tollgate_rules::{Descriptor, Format, GlobalModes, RuleSet};
    ///
    /// let rules = RuleSet::parse("domain: shop", Format::Yaml)?;
    /// let request = [Descriptor::from([("tenant", "acme")])];
    /// let plan = rules.plan("shop", &request, 2).unwrap();
    /// let metadata = plan.dynamic_metadata(&plan.verdict(&[], GlobalModes::default()));
    /// assert_eq!(
    ///     serde_json::Value::Object(metadata).to_string(),
    ///     r#"{"descriptors":[{"entries":["tenant=acme"]}],"domain":"shop","hitsAddend":2}"#,
    /// );
    /// # Ok::<(), tollgate_rules::RuleErrors>(())
    /// ```
    #[must_use]
    pub fn dynamic_metadata(&self, verdict: &Verdict) -> Metadata {
        let descriptors = self.planned.iter().map(|planned| {
            let entries = planned.descriptor.entries().iter();
            let entries: Vec<_> = entries.map(|entry| format!("{}={}", entry.key(), entry.value())).collect();
            let mut fields = Metadata::new();
            fields.insert("entries".to_owned(), entries.into());
            if let Some(limit) = planned.descriptor.limit() {
                let unit = limit.unit().as_str().to_ascii_uppercase();
                fields.insert("limit".to_owned(), format!("requests_per_unit:{} unit:{unit}", limit.requests()).into());
            }
            if let Some(hits) = planned.descriptor.hits() {
                fields.insert("hitsAddend".to_owned(), hits.into());
            }
            Value::Object(fields)
        });
        let mut metadata = Metadata::new();
        metadata.insert("domain".to_owned(), json!(self.domain));
        metadata.insert("descriptors".to_owned(), descriptors.collect());
        if self.hits > 0 {
            metadata.insert("hitsAddend".to_owned(), self.hits.into());
        }
        if !verdict.metadata().is_empty() {
            metadata.insert("metadata".to_owned(), Value::Object(verdict.metadata().clone()));
        }
        metadata
    }
}
