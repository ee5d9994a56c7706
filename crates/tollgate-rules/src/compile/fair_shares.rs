//! Reads `fair_shares`: the entry that names the customer of a request, and the weights of customers.
//! Which customer a request has is found in `fair_shares.rs` beside the root, shares are computed
//! by the core.

use std::{collections::HashMap, num::NonZeroU32};

use tollgate::{Limiter, MemoryStore, Policy};

use super::{
    compiler::{Compiler, Siblings},
    errors::Trail,
};
use crate::{RuleErrorKind, document::Node, fair_shares::FairShares};

const HEAVIEST: u64 = 1_000;

impl Compiler {
    pub(super) fn fair_shares(&mut self, node: &Node, trail: &Trail<'_>, siblings: &mut Siblings) {
        let (mut key, mut weights) = (None, HashMap::new());
        for field in self.map(node, trail).unwrap_or_default() {
            let (node, trail) = (&field.node, trail.field(&field.name));
            match field.name.as_str() {
                "key" => key = self.filled(node, &trail),
                "weights" => {
                    for customer in self.map(node, &trail).unwrap_or_default() {
                        let trail = trail.field(&customer.name);
                        let weight = self.number(&customer.node, &trail, 1, HEAVIEST);
                        let weight = weight.and_then(|weight| NonZeroU32::new(weight as u32));
                        weights
                            .extend(weight.map(|weight| (customer.name.as_str().into(), weight)));
                    }
                }
                _ => self.unknown(field, &trail, &["key", "weights"], &[]),
            }
        }
        let Some(key) = key else {
            return self
                .errors
                .refuse(trail.field("key"), node.at, "is missing");
        };
        let field = self.placed(FairShares { key, weights }, node.at);
        if siblings.fair_shares.replace(field).is_some() {
            let message = "the domain has fair_shares in another file";
            self.errors
                .push_at(RuleErrorKind::Duplicate, trail, node.at, message);
        }
    }

    /// Refuses what cannot be shared fairly beside `fair_shares`: classes, and limits that are no
    /// buckets or belong to one customer.
    pub(super) fn check_shares(&mut self, siblings: &Siblings) {
        let Some(field) = &siblings.fair_shares else {
            return;
        };
        let mut refused = Vec::new();
        if siblings.priorities.is_some() {
            refused.push("must not stand beside priorities".to_owned());
        }
        let (key, store) = (&field.value.key, MemoryStore::new());
        let mut ids: Vec<_> = siblings.ids.iter().map(|id| (*id, false)).collect();
        while let Some((id, is_within)) = ids.pop() {
            let node = &self.nodes[id as usize];
            let is_own = is_within || self.selectors[id as usize].key == *key;
            let below = node.children.iter().flat_map(|level| level.ids());
            ids.extend(below.map(|id| (id, is_own)));
            let Some(policies) = node.rule.as_ref().and_then(|rule| rule.policies()) else {
                continue;
            };
            let limiter = Limiter::builder(store.clone()).policies(policies.clone());
            let why = if is_own && policies.iter().any(Policy::is_ranked) {
                format!("it belongs to one {key}: make it unranked")
            } else if let Err(error) = limiter.fair_shares().try_build() {
                error.to_string()
            } else {
                continue;
            };
            refused.push(format!("cannot share the limit at {}: {why}", node.origin));
        }
        for message in refused {
            self.errors.file.clone_from(&field.file);
            let trail = Trail::Root;
            self.errors
                .refuse(trail.field("fair_shares"), field.at, message);
        }
    }
}
