//! Reads the YAML documents of a gateway: their profiles, their routes, and the bucket of each.
//! Single filters are read in `filter.rs`, scalars in `values.rs`. What the settings mean together
//! is decided in `writer.rs`.

use std::collections::HashMap;

use super::{
    filter::filters,
    property::{Property, expected, path, properties, same},
    settings::{NUMBERS, NumberReader, Route, Settings},
    values::Values,
};
use crate::{
    RuleErrorKind,
    document::{Node, Scalar, Value, short},
    error::Position,
};

/// The names that are read. The last two say for which profile a document is.
const ROOTS: [&[&str]; 3] = [
    &["spring", "cloud", "gateway"],
    &["spring", "config", "activate", "on-profile"],
    &["spring", "profiles"],
];

pub(super) struct Reader<'a> {
    pub(super) values: Values<'a>,
    pub(super) profiles: &'a [String],
}

/// The bucket of a route under `redis-rate-limiter.config`, while it is read.
struct Config<'n> {
    route: &'n str,
    field: String,
    at: Position,
    numbers: NumberReader,
}

#[derive(Default)]
struct Configs<'n> {
    all: Vec<Config<'n>>,
    by_route: HashMap<&'n str, usize>,
}

impl Reader<'_> {
    /// Reads all active documents. Later ones replace the settings of earlier ones.
    pub(super) fn settings(&mut self, documents: &[Node]) -> Settings {
        let mut settings = Settings::default();
        let (mut routes, mut default_filters, mut config) = (None, None, Configs::default());
        for document in documents {
            let is_wanted = |name: &[&str]| {
                ROOTS.iter().any(|root| {
                    name.iter()
                        .zip(*root)
                        .all(|(part, other)| same(part, other))
                })
            };
            let properties = properties(document, is_wanted);
            if !self.is_active(&properties) {
                continue;
            }
            let (mut own_routes, mut own_filters) = (None, None);
            for property in &properties {
                let Some(name) = setting(property) else {
                    continue;
                };
                match name {
                    [name, rest @ ..] if same(name, "routes") => {
                        self.list(property, rest, &mut own_routes);
                    }
                    [name, rest @ ..] if same(name, "default-filters") => {
                        self.list(property, rest, &mut own_filters);
                    }
                    [filter, limiter, name]
                        if same(filter, "filter") && same(limiter, "request-rate-limiter") =>
                    {
                        self.filter_default(name, property, &mut settings);
                    }
                    [redis, word, route, number]
                        if same(redis, "redis-rate-limiter") && same(word, "config") =>
                    {
                        self.config(route, number, property, &mut config);
                    }
                    _ => {}
                }
            }
            routes = own_routes.or(routes);
            default_filters = own_filters.or(default_filters);
        }
        if let Some((node, field)) = routes {
            settings.routes = self.routes(node, &field);
        }
        if let Some((node, field)) = default_filters {
            settings.default_filters = filters(node, &field, &mut self.values);
        }
        for Config {
            route,
            field,
            at,
            numbers,
        } in config.all
        {
            if let Some(bucket) = numbers.finish(&field, at, &mut self.values) {
                settings.config.insert(route.to_owned(), bucket);
            }
        }
        settings
    }

    /// Records a list, which must be written as a list and under one prefix.
    fn list<'n>(
        &mut self,
        property: &Property<'n>,
        rest: &[&str],
        list: &mut Option<(&'n Node, String)>,
    ) {
        let field = path(&property.name);
        if !rest.is_empty() {
            let message = "write the list in YAML, and not with indices";
            return self
                .values
                .refuse(RuleErrorKind::Syntax, &field, property.at, message);
        }
        if let Some((_, other)) = list {
            let message = format!("must stand once in a document, also stands as {other}");
            return self
                .values
                .refuse(RuleErrorKind::Duplicate, &field, property.at, message);
        }
        *list = Some((property.node, field));
    }

    fn filter_default(&mut self, name: &str, property: &Property<'_>, settings: &mut Settings) {
        const NAMES: [&str; 4] = [
            "deny-empty-key",
            "empty-key-status-code",
            "throw-on-limit",
            "enabled",
        ];
        let (node, field) = (property.node, path(&property.name));
        match NAMES.iter().position(|known| same(known, name)) {
            Some(0) => settings.deny_empty_key = self.values.boolean(node, &field),
            Some(1) => settings.empty_key_status = self.values.text(node, &field),
            Some(_) => {}
            None => {
                let message = format!("unknown field, {}", expected(name, &NAMES));
                self.values
                    .refuse(RuleErrorKind::UnknownField, &field, property.at, message);
            }
        }
    }

    fn config<'n>(
        &mut self,
        route: &'n str,
        number: &str,
        property: &Property<'n>,
        config: &mut Configs<'n>,
    ) {
        let field = path(&property.name);
        let Some(number) = NUMBERS.iter().position(|known| same(known, number)) else {
            let message = format!("unknown field, {}", expected(number, &NUMBERS));
            return self
                .values
                .refuse(RuleErrorKind::UnknownField, &field, property.at, message);
        };
        let known = *config.by_route.entry(route).or_insert_with(|| {
            let base = path(&property.name[..property.name.len() - 1]);
            config.all.push(Config {
                route,
                field: base,
                at: property.at,
                numbers: NumberReader::default(),
            });
            config.all.len() - 1
        });
        config.all[known]
            .numbers
            .read(number, property.node, &field, &mut self.values);
    }

    fn routes(&mut self, list: &Node, field: &str) -> Vec<Route> {
        let items = self.values.list(list, field).iter().enumerate();
        items
            .filter_map(|(at, item)| self.route(item, format!("{field}[{at}]")))
            .collect()
    }

    fn route(&mut self, item: &Node, field: String) -> Option<Route> {
        let mut route = Route {
            id: None,
            at: item.at,
            field,
            filters: Vec::new(),
        };
        if let Value::Scalar(Scalar::Text(text)) = &item.value {
            // The short form `id=uri,predicate` has no filters of its own.
            route.id = text.split_once('=').map(|(id, _)| id.to_owned());
            return Some(route);
        }
        const NAMES: [&str; 3] = ["id", "filters", "enabled"];
        let properties = properties(item, |name| NAMES.iter().any(|known| same(known, name[0])));
        for property in &properties {
            let field = format!("{}.{}", route.field, path(&property.name));
            match NAMES.iter().position(|known| property.is(&[known])) {
                Some(0) => route.id = self.values.text(property.node, &field),
                Some(1) => route.filters = filters(property.node, &field, &mut self.values),
                Some(_) if self.values.boolean(property.node, &field) == Some(false) => {
                    return None;
                }
                _ => {}
            }
        }
        Some(route)
    }

    /// Returns whether a document is for all profiles or for an active one.
    fn is_active(&mut self, properties: &[Property<'_>]) -> bool {
        let names = [ROOTS[1], ROOTS[2]];
        let Some(property) = properties
            .iter()
            .find(|property| names.iter().any(|name| property.is(name)))
        else {
            return true;
        };
        let field = path(&property.name);
        let texts = match &property.node.value {
            Value::List(items) => items
                .iter()
                .filter_map(|item| self.values.text(item, &field))
                .collect(),
            _ => Vec::from_iter(self.values.text(property.node, &field)),
        };
        let mut names = texts
            .iter()
            .flat_map(|text| text.split(','))
            .map(str::trim)
            .filter(|name| !name.is_empty());
        let mut is_active = false;
        names.all(|name| {
            let (name, is_negated) = name
                .strip_prefix('!')
                .map_or((name, false), |name| (name, true));
            if name.contains(['&', '|', '(', ')', '!']) {
                let message = format!(
                    "expected names of profiles, got the expression {:?}",
                    short(name)
                );
                self.values
                    .refuse(RuleErrorKind::Value, &field, property.at, message);
            }
            is_active |= self.profiles.iter().any(|active| active == name) != is_negated;
            true
        });
        is_active
    }
}

/// Returns the name of a setting of the gateway without its prefix.
fn setting<'p, 'n>(property: &'p Property<'n>) -> Option<&'p [&'n str]> {
    let is_under = |parts| property.is_under(parts);
    if is_under(&["spring", "cloud", "gateway", "server", "webflux"]) {
        Some(&property.name[5..])
    } else if is_under(&["spring", "cloud", "gateway", "server"]) {
        // The gateway for servlets has other limiters.
        None
    } else if is_under(&["spring", "cloud", "gateway"]) {
        Some(&property.name[3..])
    } else {
        None
    }
}
