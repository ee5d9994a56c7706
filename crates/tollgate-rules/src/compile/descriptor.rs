//! Reads and checks the fields of a descriptor.
//! The fields of its limit are read in `limit.rs`. Levels are walked in `files.rs`.

use tollgate::{Enforcement, Outage};

use super::{
    compiler::{Compiler, Siblings},
    errors::Trail,
};
use crate::{
    RuleErrorKind, RuleMetadata,
    document::{Field, Node, Value, short},
    error::Position,
    pattern::Pattern,
    selector::Selector,
};

/// The fields of a descriptor as they stand in the file.
#[derive(Default)]
pub(super) struct DescriptorFields<'n> {
    pub(super) key: Box<str>,
    pub(super) value: Option<Box<str>>,
    /// The place of the value, or else of the key.
    pub(super) at: Option<Position>,
    pub(super) rate_limit: Option<&'n Node>,
    pub(super) descriptors: Option<&'n Node>,
    pub(super) enforcement: Enforcement,
    pub(super) is_quota: bool,
    pub(super) has_detailed_metric: bool,
    pub(super) value_to_metric: bool,
    pub(super) share_threshold: Option<(bool, Position)>,
    pub(super) metadata: Option<RuleMetadata>,
    pub(super) prefix_v6: Option<(u8, Position)>,
    pub(super) on_outage: Option<Outage>,
}

impl Compiler {
    pub(super) fn read_descriptor<'n>(
        &mut self,
        all: &'n [Field],
        trail: &Trail<'_>,
    ) -> DescriptorFields<'n> {
        const FIELDS: [&str; 10] = [
            "key",
            "value",
            "rate_limit",
            "descriptors",
            "shadow_mode",
            "quota_mode",
            "detailed_metric",
            "value_to_metric",
            "share_threshold",
            "metadata",
        ];
        const ADDITIONS: [&str; 3] = ["prefix_v6", "on_outage", "enforce"];
        let mut read = DescriptorFields::default();
        for field in all {
            let (node, trail) = (&field.node, trail.field(&field.name));
            match field.name.as_str() {
                "key" => {
                    read.at = read.at.or(Some(node.at));
                    read.key = self.text(node, &trail).unwrap_or_default();
                    if read.key.is_empty() && !matches!(node.value, Value::List(_) | Value::Map(_))
                    {
                        self.errors.refuse(&trail, node.at, "must not be empty");
                    }
                }
                "value" => {
                    read.value = self.text(node, &trail).filter(|value| !value.is_empty());
                    read.at = read.value.as_ref().map(|_| node.at).or(read.at);
                }
                "rate_limit" => read.rate_limit = (!node.is_null()).then_some(node),
                "descriptors" => read.descriptors = Some(node),
                "shadow_mode" if self.boolean(node, &trail) => {
                    read.enforcement = Enforcement::share(0);
                }
                "shadow_mode" => {}
                "quota_mode" => read.is_quota = self.boolean(node, &trail),
                "detailed_metric" => read.has_detailed_metric = self.boolean(node, &trail),
                "value_to_metric" => read.value_to_metric = self.boolean(node, &trail),
                "share_threshold" => {
                    read.share_threshold = Some((self.boolean(node, &trail), node.at));
                }
                "metadata" => read.metadata = self.metadata(node, &trail),
                "prefix_v6" if self.is_addition(field, &trail) => {
                    read.prefix_v6 = self
                        .number(node, &trail, 32, 128)
                        .map(|bits| (bits as u8, node.at));
                }
                "on_outage" if self.is_addition(field, &trail) => {
                    read.on_outage = self.on_outage(node, &trail);
                }
                "enforce" if self.is_addition(field, &trail) => {
                    if all.iter().any(|other| other.name == "shadow_mode") {
                        let message = "must not stand beside shadow_mode, which is the share 0%";
                        self.errors.refuse(&trail, field.at, message);
                    }
                    let percent = self.percent(node, &trail, 0);
                    read.enforcement = percent.map(Enforcement::share).unwrap_or_default();
                }
                name if ADDITIONS.contains(&name) => {}
                _ => self.unknown(field, &trail, &FIELDS, &ADDITIONS),
            }
        }
        read
    }

    /// Checks fields that depend on each other.
    pub(super) fn check_descriptor(
        &mut self,
        fields: &DescriptorFields<'_>,
        node: &Selector,
        trail: &Trail<'_>,
        at: Position,
    ) {
        let is_pattern = if self.compat.is_envoy() {
            Pattern::new(&node.composite()).is_some()
        } else {
            if node.key.contains('*') {
                let message = "must not contain *, which is a pattern only in a value";
                self.errors.refuse(trail.field("key"), at, message);
            }
            node.pattern().is_some()
        };
        if let (Some((true, at)), false) = (fields.share_threshold, is_pattern) {
            let message = "needs a value with a pattern, such as free-*";
            self.errors
                .refuse(trail.field("share_threshold"), at, message);
        }
        if let (Some((_, at)), true) = (fields.prefix_v6, node.value.is_some() && !is_pattern) {
            let message = "needs a descriptor without a value, or with a pattern";
            self.errors.refuse(trail.field("prefix_v6"), at, message);
        }
    }

    pub(super) fn check_duplicate(
        &mut self,
        node: &Selector,
        trail: &Trail<'_>,
        at: Position,
        siblings: &mut Siblings,
    ) {
        let id = self.nodes.len() as u32;
        let text = if self.compat.is_envoy() {
            node.composite()
        } else {
            // The length keeps the key apart from the value.
            format!("{}:{}{}", node.key.len(), node.key, node.value())
        };
        let Some(first) = siblings.seen.insert(text, id) else {
            return;
        };
        let first = self
            .nodes
            .get(first as usize)
            .map(|node| node.origin.to_string())
            .unwrap_or_default();
        let shown = match &node.value {
            Some(value) => format!("key {:?} with value {:?}", short(&node.key), short(value)),
            None => format!("key {:?} without a value", short(&node.key)),
        };
        let message = format!("{shown} appears twice at one level, first at {first}");
        let field = if node.value.is_some() { "value" } else { "key" };
        self.errors
            .push_at(RuleErrorKind::Duplicate, trail.field(field), at, message);
    }

    fn on_outage(&mut self, node: &Node, trail: &Trail<'_>) -> Option<Outage> {
        match &*self.text(node, trail)? {
            "allow" => Some(Outage::Open),
            "fail" => Some(Outage::Closed),
            "local" => Some(Outage::default()),
            _ => {
                let message = format!("expected allow, fail or local, got {}", node.describe());
                self.errors.refuse(trail, node.at, message);
                None
            }
        }
    }
}
