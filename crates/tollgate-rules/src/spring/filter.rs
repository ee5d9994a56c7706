//! Reads the filters of a route.
//! Other filters are skipped. The three numbers are checked in `settings.rs`.

use super::{
    property::{Property, expected, path, properties, same},
    settings::{Filter, NUMBERS, NumberReader},
    values::Values,
};
use crate::{
    RuleErrorKind,
    document::{Node, Scalar, Value},
};

const NAME: &str = "RequestRateLimiter";

/// The name under which the gateway looks for the numbers. It knows no other spelling.
const REDIS: &str = "redis-rate-limiter";

/// The most filters `RequestRateLimiter` of one list. Each route has the filters of two lists.
const MAX_FILTERS: usize = 100;

const ARGUMENTS: [&str; 5] = [
    "key-resolver",
    "deny-empty-key",
    "empty-key-status",
    "status-code",
    "throw-on-limit",
];

/// Reads the filters `RequestRateLimiter` of a list, and skips all others.
pub(super) fn filters(list: &Node, field: &str, values: &mut Values<'_>) -> Vec<Filter> {
    let items = values.list(list, field).iter().enumerate();
    let filters: Vec<_> = items
        .filter_map(|(at, item)| filter(item, &format!("{field}[{at}]"), values))
        .take(MAX_FILTERS + 1)
        .collect();
    if filters.len() > MAX_FILTERS {
        let message = format!("must have at most {MAX_FILTERS} filters {NAME}");
        values.refuse(RuleErrorKind::Limit, field, list.at, message);
        return Vec::new();
    }
    filters
}

fn filter(item: &Node, field: &str, values: &mut Values<'_>) -> Option<Filter> {
    let mut filter = Filter {
        at: item.at,
        field: field.to_owned(),
        bucket: None,
        key_resolver: None,
        deny_empty_key: None,
        empty_key_status: None,
        status: None,
    };
    let properties = match &item.value {
        Value::Scalar(Scalar::Text(text)) => {
            let (name, arguments) = text.split_once('=').unwrap_or((text, ""));
            if name.trim() != NAME {
                return None;
            }
            if !arguments.trim().is_empty() {
                let message = "the gateway ignores arguments behind the name of this filter, write name and args";
                values.refuse(RuleErrorKind::Value, field, item.at, message);
                filter.bucket = Some(None);
            }
            return Some(filter);
        }
        _ => properties(item, |_| true),
    };
    let is_limiter = |property: &Property<'_>| match &property.node.value {
        Value::Scalar(Scalar::Text(text)) => property.is(&["name"]) && text.trim() == NAME,
        _ => false,
    };
    if !properties.iter().any(is_limiter) {
        return None;
    }
    let mut numbers = NumberReader::default();
    for property in properties
        .iter()
        .filter(|property| property.is_under(&["args"]))
    {
        let name = &property.name[1..];
        let field = format!("{field}.{}", path(&property.name));
        argument(name, property, &field, &mut filter, &mut numbers, values);
    }
    filter.bucket = numbers.finish(&format!("{field}.args.{REDIS}"), item.at, values);
    Some(filter)
}

fn argument(
    name: &[&str],
    property: &Property<'_>,
    field: &str,
    filter: &mut Filter,
    numbers: &mut NumberReader,
    values: &mut Values<'_>,
) {
    let (node, at) = (property.node, property.at);
    let mut refuse = |kind, message: String| values.refuse(kind, field, at, message);
    match name {
        [] if node.is_null() => {}
        [] => refuse(
            RuleErrorKind::Type,
            format!("expected a mapping, got {}", node.describe()),
        ),
        [redis, rest @ ..] if same(redis, REDIS) => {
            if *redis != REDIS {
                return refuse(
                    RuleErrorKind::UnknownField,
                    format!("the gateway ignores {redis}, write {REDIS}"),
                );
            }
            match rest {
                [number] => match NUMBERS.iter().position(|known| same(known, number)) {
                    Some(known) => numbers.read(known, node, field, values),
                    None => {
                        refuse(
                            RuleErrorKind::UnknownField,
                            format!("unknown field, {}", expected(number, &NUMBERS)),
                        );
                    }
                },
                _ if node.is_null() => {}
                _ => refuse(
                    RuleErrorKind::UnknownField,
                    format!("unknown field, {}", expected("", &NUMBERS)),
                ),
            }
        }
        [name, ..] if same(name, "bucket4j-rate-limiter") => {
            refuse(
                RuleErrorKind::Value,
                "a Bucket4j limiter is not read, write a rule for it".to_owned(),
            );
        }
        [name] if same(name, "rate-limiter") => {
            let message = "the limit of a bean is not in the file, remove rate-limiter and write redis-rate-limiter";
            refuse(RuleErrorKind::Value, message.to_owned());
        }
        [name] => match ARGUMENTS.iter().position(|known| same(known, name)) {
            Some(0) => filter.key_resolver = values.text(node, field),
            Some(1) => filter.deny_empty_key = values.boolean(node, field),
            Some(2) => filter.empty_key_status = values.text(node, field),
            Some(3) => filter.status = values.text(node, field),
            Some(_) => drop(values.boolean(node, field)),
            None => refuse(
                RuleErrorKind::UnknownField,
                format!("unknown field, {}", expected_argument(name)),
            ),
        },
        [name, ..] => refuse(
            RuleErrorKind::UnknownField,
            format!("unknown field, {}", expected_argument(name)),
        ),
    }
}

fn expected_argument(name: &str) -> String {
    let [a, b, c, d, e] = ARGUMENTS;
    expected(name, &[REDIS, a, b, c, d, e])
}
