//! Writes limits in the language of rules.

use super::route_limit::RouteLimit;
use crate::{
    document::{Field, Node, Scalar, Value},
    error::Position,
};

/// Returns a document with one descriptor for each limit: `route`, and below it `key`.
pub(super) fn tree(limits: &[RouteLimit], domain: &str, default_name: &str) -> Node {
    let start = Position { line: 1, column: 1 };
    let descriptors = limits.iter().map(|limit| descriptor(limit, default_name)).collect();
    map(start, [("domain", text(start, domain)), ("descriptors", Node { at: start, value: Value::List(descriptors) })])
}

fn descriptor(limit: &RouteLimit, default_name: &str) -> Node {
    let at = limit.at;
    let name = text(at, limit.route().unwrap_or(default_name));
    let window = ("window", text(at, "1s"));
    let rate_limit = match limit.policy() {
        Some(policy) => {
            let (amount, burst) = (policy.quota().amount(), policy.quota().burst());
            let numbers = [("requests_per_unit", number(at, amount)), ("burst", number(at, burst))];
            let algorithm = ("algorithm", text(at, &policy.algorithm().to_string()));
            map(at, [("name", name), window, algorithm].into_iter().chain(numbers))
        }
        None => map(at, [("name", name), window, ("requests_per_unit", number(at, 0))]),
    };
    let key = map(at, [("key", text(at, "key")), ("rate_limit", rate_limit)]);
    let below = ("descriptors", Node { at, value: Value::List(vec![key]) });
    let route = limit.route().map(|route| ("value", text(at, route)));
    map(at, [("key", text(at, "route"))].into_iter().chain(route).chain([below]))
}

fn map<'a>(at: Position, fields: impl IntoIterator<Item = (&'a str, Node)>) -> Node {
    let field = |(name, node): (&str, Node)| Field { name: name.to_owned(), at, node };
    Node { at, value: Value::Map(fields.into_iter().map(field).collect()) }
}

fn text(at: Position, text: &str) -> Node {
    Node { at, value: Value::Scalar(Scalar::Text(text.into())) }
}

fn number(at: Position, number: u64) -> Node {
    Node { at, value: Value::Scalar(Scalar::Integer(number.into(), number.to_string().into())) }
}
