//! Reads `priorities`: the classes of a domain, with their ceilings.
//! Which class a request has is decided in `priority.rs`.

use tollgate::Priority;

use super::{
    compiler::{Compiler, Siblings},
    errors::Trail,
};
use crate::{
    RuleErrorKind,
    document::{Node, short},
    priority::{EntrySelector, PriorityClass},
};

const FIELDS: [&str; 4] = ["name", "ceiling", "key", "value"];

impl Compiler {
    pub(super) fn priorities(&mut self, list: &Node, trail: &Trail<'_>, siblings: &mut Siblings) {
        let mut classes: Vec<PriorityClass> = Vec::new();
        let items = self.list(list, trail);
        for (at, item) in items.iter().enumerate() {
            let trail = trail.item(at);
            let Some(class) = self.priority_class(item, &trail) else {
                continue;
            };
            if let Some(first) = classes.iter().find(|first| first.name == class.name) {
                let message = format!(
                    "class {:?} appears twice, first at {}",
                    short(class.name()),
                    first.origin
                );
                self.errors.push_at(
                    RuleErrorKind::Duplicate,
                    trail.field("name"),
                    item.at,
                    message,
                );
            }
            if class.selector.is_none() && at + 1 < items.len() {
                let message = format!(
                    "is missing in class {:?}, only the last class may leave it out",
                    short(class.name())
                );
                self.errors.refuse(trail.field("key"), item.at, message);
            }
            classes.push(class);
        }
        let field = self.placed(classes, list.at);
        if siblings.priorities.replace(field).is_some() {
            let message = "the domain has priorities in another file";
            self.errors
                .push_at(RuleErrorKind::Duplicate, trail, list.at, message);
        }
    }

    fn priority_class(&mut self, item: &Node, trail: &Trail<'_>) -> Option<PriorityClass> {
        let before = self.errors.count();
        let (mut name, mut ceiling, mut key, mut value) = (None, None, None, None);
        let fields = self.map(item, trail)?;
        for field in fields {
            let (node, trail) = (&field.node, trail.field(&field.name));
            match field.name.as_str() {
                "name" => name = self.filled(node, &trail),
                "ceiling" => ceiling = self.percent(node, &trail, 1),
                "key" => key = self.filled(node, &trail),
                "value" => value = self.filled(node, &trail),
                _ => self.unknown(field, &trail, &FIELDS, &[]),
            }
        }
        let has = |name: &str| fields.iter().any(|field| field.name == name);
        for required in ["name", "ceiling"] {
            if !has(required) {
                self.errors
                    .refuse(trail.field(required), item.at, "is missing");
            }
        }
        if has("value") && !has("key") {
            self.errors
                .refuse(trail.field("value"), item.at, "must stand beside a key");
        }
        if self.errors.count() > before {
            return None;
        }
        Some(PriorityClass {
            name: name?,
            priority: Priority::try_percent(ceiling?).ok()?,
            selector: key.map(|key| EntrySelector::new(key, value)),
            origin: self.errors.origin(item.at),
        })
    }

    /// Refuses leased limits in a domain whose requests have ranks: units that are taken in advance
    /// have none.
    pub(super) fn check_ranks(&mut self, siblings: &Siblings) {
        let Some(priorities) = &siblings.priorities else {
            return;
        };
        let Some(class) = priorities
            .value
            .iter()
            .find(|class| class.priority != Priority::CRITICAL)
        else {
            return;
        };
        let mut ids = siblings.ids.clone();
        while let Some(id) = ids.pop() {
            let node = &self.nodes[id as usize];
            ids.extend(node.children.iter().flat_map(|level| level.ids()));
            let policies = node.rule.iter().filter_map(|rule| rule.policies());
            if policies
                .flat_map(|set| set.iter())
                .any(|policy| policy.lease().is_some() && policy.is_ranked())
            {
                let message = format!(
                    "class {:?} has a ceiling below 100%, and the limit at {} is leased: its units have no priority",
                    short(class.name()),
                    node.origin
                );
                self.errors.file.clone_from(&priorities.file);
                let trail = Trail::Root;
                self.errors
                    .refuse(trail.field("priorities"), priorities.at, message);
            }
        }
    }
}
