//! Reads the `rate_limits` of a file.
//! What an action does with a request is in `actions/action.rs`.

use http::HeaderName;

use crate::{
    actions::{Actions, Descriptors, HeaderMatch},
    compile::{compiler::Compiler, errors::Trail},
    document::{Field, Node, short},
};

const ACTIONS: [&str; 10] = [
    "remote_address",
    "masked_remote_address",
    "request_headers",
    "generic_key",
    "header_value_match",
    "method",
    "path",
    "matched_path",
    "grpc_method",
    "grpc_service",
];

/// Makes the test of a header field by a text.
type TextTest = fn(HeaderName, Box<str>) -> HeaderMatch;

/// The fields of one action.
#[derive(Default)]
struct ActionFields {
    key: Option<Box<str>>,
    value: Option<Box<str>>,
    header: Option<HeaderName>,
    is_optional: bool,
    v4: Option<u64>,
    v6: Option<u64>,
    expected: Option<bool>,
    headers: Vec<HeaderMatch>,
}

impl Compiler {
    /// Reads the actions of all descriptors.
    pub(super) fn action_lists(&mut self, node: &Node, trail: &Trail<'_>) -> Descriptors {
        let items = self.list(node, trail).iter().enumerate();
        items
            .filter_map(|(at, item)| self.actions(item, &trail.item(at)))
            .collect()
    }

    fn actions(&mut self, node: &Node, trail: &Trail<'_>) -> Option<Actions> {
        let mut actions = Actions::new();
        for field in self.map(node, trail)? {
            let trail = trail.field(&field.name);
            if field.name != "actions" {
                self.unknown(field, &trail, &["actions"], &[]);
                continue;
            }
            for (at, item) in self.list(&field.node, &trail).iter().enumerate() {
                let trail = trail.item(at);
                match self.map(item, &trail) {
                    Some([field]) => {
                        actions = self.action(actions, field, &trail.field(&field.name));
                    }
                    Some(fields) => {
                        let message = format!("an action must be one field, got {}", fields.len());
                        self.errors.refuse(&trail, item.at, message);
                    }
                    None => {}
                }
            }
        }
        Some(actions)
    }

    fn action(&mut self, actions: Actions, field: &Field, trail: &Trail<'_>) -> Actions {
        let node = &field.node;
        let (names, required): (&[&str], &[&str]) = match field.name.as_str() {
            "remote_address" => (&[], &[]),
            "masked_remote_address" => (&["v4_prefix_mask_len", "v6_prefix_mask_len"], &[]),
            "request_headers" => (
                &["header_name", "descriptor_key", "skip_if_absent"],
                &["header_name", "descriptor_key"],
            ),
            "generic_key" => (
                &["descriptor_value", "descriptor_key"],
                &["descriptor_value"],
            ),
            "header_value_match" => (
                &[
                    "descriptor_value",
                    "descriptor_key",
                    "expect_match",
                    "headers",
                ],
                &["descriptor_value", "headers"],
            ),
            "method" | "path" | "matched_path" | "grpc_method" | "grpc_service" => {
                (&["descriptor_key"], &[])
            }
            _ => {
                self.unknown(field, trail, &ACTIONS, &[]);
                return actions;
            }
        };
        let Some(read) = self.action_fields(node, trail, names, required) else {
            return actions;
        };
        let value = read.value.unwrap_or_default();
        let key = |default: &str| read.key.clone().unwrap_or_else(|| default.into());
        match (field.name.as_str(), read.header) {
            ("remote_address", _) => actions.client_ip("remote_address"),
            ("masked_remote_address", _) => {
                let (v4, v6) = (read.v4.unwrap_or(32) as u8, read.v6.unwrap_or(128) as u8);
                actions.client_network("masked_remote_address", v4, v6)
            }
            ("request_headers", Some(name)) => actions.header_name(name, key(""), read.is_optional),
            ("generic_key", _) => actions.fixed(key("generic_key"), value),
            ("header_value_match", _) => actions.matched(
                key("header_match"),
                value,
                read.expected.unwrap_or(true),
                read.headers.into(),
            ),
            ("method", _) => actions.method(key("method")),
            ("path", _) => actions.path(key("path")),
            ("matched_path", _) => actions.matched_path(key("route")),
            ("grpc_method", _) => actions.grpc_method(key("grpc_method")),
            ("grpc_service", _) => actions.grpc_service(key("grpc_service")),
            _ => actions,
        }
    }

    /// Reads the fields of an action. `None` when one that is required has no value.
    fn action_fields(
        &mut self,
        node: &Node,
        trail: &Trail<'_>,
        names: &[&str],
        required: &[&str],
    ) -> Option<ActionFields> {
        let mut read = ActionFields::default();
        let fields = if node.is_null() {
            &[][..]
        } else {
            self.map(node, trail)?
        };
        for field in fields {
            let (node, trail) = (&field.node, trail.field(&field.name));
            match field.name.as_str() {
                name if !names.contains(&name) => self.unknown(field, &trail, names, &[]),
                "descriptor_key" => read.key = self.filled(node, &trail),
                "descriptor_value" => read.value = self.filled(node, &trail),
                "header_name" => read.header = self.header_name(node, &trail),
                "skip_if_absent" => read.is_optional = self.boolean(node, &trail),
                "v4_prefix_mask_len" => read.v4 = self.number(node, &trail, 0, 32),
                "v6_prefix_mask_len" => read.v6 = self.number(node, &trail, 0, 128),
                "expect_match" => read.expected = Some(self.filled_boolean(node, &trail)),
                _ => {
                    let items = self.list(node, &trail);
                    if items.is_empty() {
                        let message = "must have at least one header field";
                        self.errors.refuse(&trail, node.at, message);
                    }
                    read.headers = items
                        .iter()
                        .enumerate()
                        .filter_map(|(at, item)| self.header_match(item, &trail.item(at)))
                        .collect();
                }
            }
        }
        let mut is_whole = true;
        for name in required {
            if !fields.iter().any(|field| field.name == *name) {
                self.errors.refuse(trail.field(name), node.at, "is missing");
                is_whole = false;
            }
        }
        is_whole.then_some(read)
    }

    fn header_name(&mut self, node: &Node, trail: &Trail<'_>) -> Option<HeaderName> {
        let text = self.text(node, trail)?;
        let name = HeaderName::from_bytes(text.as_bytes()).ok();
        if name.is_none() {
            let hint = match &*text {
                ":path" => ": use the action path",
                ":method" => ": use the action method",
                _ => "",
            };
            self.errors.refuse(
                trail,
                node.at,
                format!(
                    "must be the name of a header field, got {:?}{hint}",
                    short(&text)
                ),
            );
        }
        name
    }

    /// Reads one test of a header field.
    fn header_match(&mut self, node: &Node, trail: &Trail<'_>) -> Option<HeaderMatch> {
        const NAMES: [&str; 5] = [
            "name",
            "string_match",
            "present_match",
            "exact_match",
            "invert_match",
        ];
        let (mut name, mut test, mut tests) = (None, None, 0);
        let (mut is_inverted, mut is_present) = (false, true);
        for field in self.map(node, trail)? {
            let (node, trail) = (&field.node, trail.field(&field.name));
            match field.name.as_str() {
                "name" => name = self.header_name(node, &trail),
                "invert_match" => is_inverted = self.boolean(node, &trail),
                "present_match" => {
                    is_present = self.filled_boolean(node, &trail);
                    tests += 1;
                }
                "exact_match" => {
                    let text = self.text(node, &trail);
                    test = text.map(|text| (HeaderMatch::exact as TextTest, text, false));
                    tests += 1;
                }
                "string_match" => {
                    test = self.string_match(node, &trail);
                    tests += 1;
                }
                _ => self.unknown(field, &trail, &NAMES, &[]),
            }
        }
        if tests > 1 {
            let message = "must have one of string_match, exact_match and present_match".to_owned();
            self.errors.refuse(trail, node.at, message);
        }
        let Some(name) = name else {
            self.errors
                .refuse(trail.field("name"), node.at, "is missing");
            return None;
        };
        let header = match test {
            None => HeaderMatch::present(name),
            Some((test, text, false)) => test(name, text),
            Some((test, text, true)) => test(name, text).ignore_case(),
        };
        Some(if is_inverted == is_present {
            header.invert()
        } else {
            header
        })
    }

    fn string_match(
        &mut self,
        node: &Node,
        trail: &Trail<'_>,
    ) -> Option<(TextTest, Box<str>, bool)> {
        let (mut found, mut ignores_case) = (None, false);
        for field in self.map(node, trail)? {
            let trail = trail.field(&field.name);
            let test: Option<TextTest> = match field.name.as_str() {
                "exact" => Some(HeaderMatch::exact),
                "prefix" => Some(HeaderMatch::prefix),
                "suffix" => Some(HeaderMatch::suffix),
                "contains" => Some(HeaderMatch::contains),
                _ => None,
            };
            match test {
                Some(test) if found.is_none() => {
                    found = self.text(&field.node, &trail).map(|text| (test, text));
                }
                Some(_) => self.errors.refuse(
                    &trail,
                    field.node.at,
                    "must be the only test of the text".to_owned(),
                ),
                None if field.name == "ignore_case" => {
                    ignores_case = self.boolean(&field.node, &trail);
                }
                None => self.unknown(
                    field,
                    &trail,
                    &["exact", "prefix", "suffix", "contains", "ignore_case"],
                    &[],
                ),
            }
        }
        if found.is_none() {
            self.errors.refuse(
                trail,
                node.at,
                "must have one of exact, prefix, suffix and contains".to_owned(),
            );
        }
        found.map(|(test, text)| (test, text, ignores_case))
    }
}
