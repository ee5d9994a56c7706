//! Reads `networks`: lists of allowed and denied networks, in place or in files with one network in
//! each line.
//! Which network an address belongs to is decided in `networks.rs` beside the root.

use std::path::PathBuf;

use tollgate_tower::key::{Network, Networks};

use super::{
    compiler::{Compiler, Siblings},
    errors::Trail,
};
use crate::{RuleErrorKind, document::Node, error::cut, load, networks::ClientNetworks};

const FIELDS: [&str; 4] = ["allow", "deny", "allow_file", "deny_file"];

impl Compiler {
    pub(super) fn networks(&mut self, node: &Node, trail: &Trail<'_>, siblings: &mut Siblings) {
        let before = self.errors.count();
        let (mut allowed, mut denied) = (Vec::new(), Vec::new());
        let Some(fields) = self.map(node, trail) else {
            return;
        };
        for field in fields {
            let (node, trail) = (&field.node, trail.field(&field.name));
            match field.name.as_str() {
                "allow" => self.network_list(node, &trail, &mut allowed),
                "deny" => self.network_list(node, &trail, &mut denied),
                "allow_file" => self.network_file(node, &trail, &mut allowed),
                "deny_file" => self.network_file(node, &trail, &mut denied),
                _ => self.unknown(field, &trail, &FIELDS, &[]),
            }
        }
        if self.errors.count() > before {
            return;
        }
        match Networks::try_new(allowed, denied) {
            Ok(_) if siblings.networks.is_some() => {
                let message = "the domain has networks in another file";
                self.errors
                    .push_at(RuleErrorKind::Duplicate, trail, node.at, message);
            }
            Ok(networks) => siblings.networks = Some(ClientNetworks(networks)),
            Err(error) => self.errors.refuse(trail, node.at, error.to_string()),
        }
    }

    fn network_list(&mut self, node: &Node, trail: &Trail<'_>, networks: &mut Vec<Network>) {
        for (at, item) in self.list(node, trail).iter().enumerate() {
            let trail = trail.item(at);
            if let Some(text) = self.text(item, &trail) {
                networks.extend(self.errors.accept(&trail, item.at, text.parse::<Network>()));
            }
        }
    }

    /// Reads a file of networks. A path that is not absolute begins at the directory of the rules.
    fn network_file(&mut self, node: &Node, trail: &Trail<'_>, networks: &mut Vec<Network>) {
        let Some(text) = self.filled(node, trail) else {
            return;
        };
        if text.is_empty() {
            return;
        }
        let directory = self.errors.file.as_ref().and_then(|file| file.parent());
        let path =
            directory.map_or_else(|| PathBuf::from(&*text), |directory| directory.join(&*text));
        let read = load::text(&path, &self.limits);
        if let Ok(text) = &read {
            self.digests.add(Some(&path), text);
        }
        let shown = cut(&path.to_string_lossy(), 300).into_owned();
        self.lists.push(path);
        match read {
            Ok(text) => match Network::parse_lines(&text) {
                Ok(list) => networks.extend(list),
                Err(error) => {
                    self.errors
                        .refuse(trail, node.at, format!("{shown}: {error}"));
                }
            },
            Err(error) => self.errors.push_at(
                error.kind(),
                trail,
                node.at,
                format!("{shown}: {}", error.message()),
            ),
        }
    }
}
