//! Goes through the files of a set, and through the levels of each.
//! The fields of one descriptor are read in `descriptor.rs`. Files were read and parsed before, in
//! `load.rs` and `document/`.

use std::{
    borrow::Cow,
    collections::HashMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    builder::RuleSetBuilder,
    compiler::{Compiler, Siblings},
    digest::Digests,
    errors::{Errors, Trail},
};
use crate::{
    Compat, Format, RuleError, RuleErrorKind, RuleErrors, RuleSet,
    document::{Field, Node, Scalar, Value, short},
    metrics::RuleSeries,
    names::{metric_part, stat_name},
    rule::{Limit, Rule},
    rule_set::{self, Domain, level::Level},
    selector::Selector,
};

/// A text of rules, its file if it comes from one, and its format. Or the reason why it could not be
/// read.
pub(super) struct SourceText<'t> {
    pub(super) file: Option<Arc<Path>>,
    pub(super) text: Result<(Cow<'t, str>, Format), RuleError>,
}

/// Compiles all files of a set. Notes the files of networks that they name in `lists`.
pub(super) fn compile<'t>(
    options: &RuleSetBuilder,
    sources: impl IntoIterator<Item = SourceText<'t>>,
    lists: &mut Vec<PathBuf>,
) -> Result<RuleSet, RuleErrors> {
    let mut errors = Errors::default();
    let (mut documents, mut digests) = (Vec::new(), Digests::default());
    for SourceText { file, text } in sources {
        let tree = text.and_then(|(text, format)| {
            digests.add(file.as_deref(), &text);
            format.read(&text, &options.limits)
        });
        match tree {
            Ok(tree) => documents.push((file, tree)),
            Err(error) => errors.push(error.in_file(file.as_ref())),
        }
    }
    let named = mode(&documents, &mut errors);
    let compat = options.forced_compat.or(named).unwrap_or(options.compat);
    let mut compiler = Compiler {
        options: options.clone(),
        compat,
        errors,
        #[cfg(feature = "http")]
        limits: options.limits.clone(),
        lists: Vec::new(),
        digests,
        selectors: Vec::new(),
        nodes: Vec::new(),
    };
    let mut domains: HashMap<Box<str>, Siblings> = HashMap::new();
    for (file, tree) in &documents {
        compiler.errors.file.clone_from(file);
        compiler.document(tree, &mut domains, options.merge_domains);
    }
    for siblings in domains.values() {
        compiler.check_ranks(siblings);
        compiler.check_shares(siblings);
    }
    lists.append(&mut compiler.lists);
    compiler.errors.finish()?;
    let Compiler {
        selectors,
        nodes,
        digests,
        ..
    } = compiler;
    let domains = domains.into_iter().map(|(name, siblings)| {
        let domain = Domain {
            root: Level::new(compat, &siblings.ids, &selectors),
            priorities: siblings
                .priorities
                .map(|priorities| priorities.value)
                .unwrap_or_default(),
            fair_shares: siblings.fair_shares.map(|field| field.value),
            #[cfg(feature = "http")]
            networks: siblings.networks,
            #[cfg(feature = "http")]
            descriptors: siblings.descriptors,
        };
        (name, domain)
    });
    Ok(RuleSet {
        compat,
        digest: digests.finish(),
        domains: domains.collect(),
        selectors,
        nodes,
    })
}

/// Returns the mode that the files name. Files that name a mode must agree.
fn mode(documents: &[(Option<Arc<Path>>, Node)], errors: &mut Errors) -> Option<Compat> {
    let mut named: Option<Compat> = None;
    for (file, tree) in documents {
        let Value::Map(fields) = &tree.value else {
            continue;
        };
        let Some(field) = fields.iter().find(|field| field.name == "compat") else {
            continue;
        };
        errors.file.clone_from(file);
        let mode = match &field.node.value {
            Value::Scalar(Scalar::Text(text)) if **text == *"native" => Compat::Native,
            Value::Scalar(Scalar::Text(text)) if **text == *"envoy" => Compat::Envoy,
            _ => {
                let message = format!("expected native or envoy, got {}", field.node.describe());
                errors.refuse(Trail::Root.field("compat"), field.node.at, message);
                continue;
            }
        };
        match named {
            Some(other) if other != mode => {
                let message =
                    format!("all files of a set must have one mode, got {mode} after {other}");
                errors.refuse(Trail::Root.field("compat"), field.node.at, message);
            }
            _ => named = Some(mode),
        }
    }
    named
}

const ADDITIONS: [&str; 4] = ["rate_limits", "priorities", "fair_shares", "networks"];

impl Compiler {
    fn document(&mut self, tree: &Node, domains: &mut HashMap<Box<str>, Siblings>, merge: bool) {
        let root = Trail::Root;
        let Some(fields) = self.map(tree, &root) else {
            return;
        };
        let (mut domain, mut descriptors) = (None, None);
        let (mut rate_limits, mut priorities, mut networks) = (None, None, None);
        let mut fair_shares = None;
        for field in fields {
            let trail = root.field(&field.name);
            match field.name.as_str() {
                "domain" => {
                    domain = self
                        .text(&field.node, &trail)
                        .map(|name| (name, field.node.at));
                }
                "descriptors" => descriptors = Some(&field.node),
                "compat" => {}
                "rate_limits" => {
                    rate_limits = self.is_addition(field, &trail).then_some(&field.node);
                }
                "priorities" => priorities = self.is_addition(field, &trail).then_some(&field.node),
                "fair_shares" => {
                    fair_shares = self.is_addition(field, &trail).then_some(&field.node);
                }
                "networks" => networks = self.is_addition(field, &trail).then_some(&field.node),
                _ => self.unknown(
                    field,
                    &trail,
                    &["domain", "descriptors", "compat"],
                    &ADDITIONS,
                ),
            }
        }
        let trail = root.field("domain");
        let (name, at) = match domain {
            Some((name, at)) if name.is_empty() => {
                return self.errors.refuse(&trail, at, "must not be empty");
            }
            Some((name, at)) => (name, at),
            None if fields.iter().any(|field| field.name == "domain") => return,
            None => {
                let message = "is missing, expected a name for these rules";
                return self.errors.refuse(&trail, tree.at, message);
            }
        };
        if domains.contains_key(&name) && !merge {
            let message = format!(
                "domain {:?} has rules in another file, join the files or set merge_domains",
                short(&name)
            );
            self.errors
                .push_at(RuleErrorKind::Duplicate, &trail, at, message);
        }
        let mut siblings = domains.remove(&name).unwrap_or_default();
        if let Some(list) = descriptors {
            self.descriptors(
                list,
                &root.field("descriptors"),
                [&*name, ""],
                &mut siblings,
            );
        }
        if let Some(list) = priorities {
            self.priorities(list, &root.field("priorities"), &mut siblings);
        }
        if let Some(node) = fair_shares {
            self.fair_shares(node, &root.field("fair_shares"), &mut siblings);
        }
        if let Some(node) = networks {
            self.networks(node, &root.field("networks"), &mut siblings);
        }
        if let Some(list) = rate_limits {
            self.rate_limits(list, &root.field("rate_limits"), &mut siblings);
        }
        domains.insert(name, siblings);
    }

    /// Reads the actions that make descriptors of requests.
    #[cfg(feature = "http")]
    fn rate_limits(&mut self, list: &Node, trail: &Trail<'_>, siblings: &mut Siblings) {
        let descriptors = self.action_lists(list, trail);
        if siblings.descriptors.replace(descriptors).is_some() {
            let message = "the domain has rate_limits in another file";
            self.errors
                .push_at(RuleErrorKind::Duplicate, trail, list.at, message);
        }
    }

    #[cfg(not(feature = "http"))]
    fn networks(&mut self, node: &Node, trail: &Trail<'_>, _: &mut Siblings) {
        let message = "needs the feature http of tollgate-rules";
        self.errors.refuse(trail, node.at, message);
    }

    #[cfg(not(feature = "http"))]
    fn rate_limits(&mut self, list: &Node, trail: &Trail<'_>, _: &mut Siblings) {
        let message = "needs the feature http of tollgate-rules";
        self.errors.refuse(trail, list.at, message);
    }

    /// Reads descriptors. `within` is their domain, and the path of the descriptor that holds them.
    fn descriptors(
        &mut self,
        list: &Node,
        trail: &Trail<'_>,
        within: [&str; 2],
        siblings: &mut Siblings,
    ) {
        for (at, item) in self.list(list, trail).iter().enumerate() {
            let trail = trail.item(at);
            if let Some(fields) = self.map(item, &trail) {
                self.descriptor(fields, item, &trail, within, siblings);
            }
        }
    }

    fn descriptor(
        &mut self,
        all: &[Field],
        item: &Node,
        trail: &Trail<'_>,
        [domain, path]: [&str; 2],
        siblings: &mut Siblings,
    ) {
        let fields = self.read_descriptor(all, trail);
        let at = fields.at.unwrap_or(item.at);
        if fields.key.is_empty() {
            if !all.iter().any(|field| field.name == "key") {
                self.errors
                    .refuse(trail.field("key"), item.at, "is missing");
            }
            return;
        }
        let selector = Selector {
            key: fields.key.clone(),
            value: fields.value.clone(),
        };
        let mut node = rule_set::RuleNode {
            rule: None,
            children: None,
            value_to_metric: fields.value_to_metric,
            shares_counter: fields.share_threshold.map(|(shares, _)| shares),
            prefix_v6: fields.prefix_v6.map(|(bits, _)| bits),
            origin: self.errors.origin(item.at),
        };
        self.check_descriptor(&fields, &selector, trail, at);
        self.check_duplicate(&selector, trail, at, siblings);
        let mut name = metric_part(&fields.key, fields.value.as_deref().unwrap_or_default());
        if !path.is_empty() {
            name = format!("{path}.{name}");
        }
        let path = name;
        if let Some(limit) = fields
            .rate_limit
            .and_then(|limit| self.rate_limit(limit, &trail.field("rate_limit"), &path))
        {
            if let Limit::Policies(policies) = &limit.limit
                && let Err(error) = self.options.accepts(policies)
            {
                let at = fields.rate_limit.map_or(at, |node| node.at);
                let message = error.to_string();
                self.errors.refuse(trail.field("rate_limit"), at, message);
            }
            node.rule = Some(Arc::new(Rule {
                limit: limit.limit,
                name: limit.name.map(Into::into),
                replaces: limit.replaces,
                enforcement: fields.enforcement,
                is_quota: fields.is_quota,
                has_detailed_metric: fields.has_detailed_metric,
                on_outage: fields.on_outage,
                metadata: fields.metadata,
                metric: stat_name(&format!("{domain}.{path}")).into(),
                series: RuleSeries::default(),
                origin: Some(node.origin.clone()),
            }));
        }
        let id = self.nodes.len() as u32;
        siblings.ids.push(id);
        self.selectors.push(selector);
        self.nodes.push(node);
        if let Some(list) = fields.descriptors {
            let mut below = Siblings::default();
            let within = [domain, path.as_str()];
            self.descriptors(list, &trail.field("descriptors"), within, &mut below);
            if !below.ids.is_empty() {
                let level = Level::new(self.compat, &below.ids, &self.selectors);
                self.nodes[id as usize].children = Some(Box::new(level));
            }
        }
    }
}
