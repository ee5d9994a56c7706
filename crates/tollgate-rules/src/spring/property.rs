//! Reads mappings as properties, as Spring Boot does: `a: {b: 1}` and `a.b: 1` are the same.
//! Which names matter is decided in `reader.rs`.

use crate::{
    compile::listed,
    document::{Node, Value, short},
    error::Position,
};

/// A property: the parts of its name, its place and its value. A list is one value.
pub(super) struct Property<'n> {
    pub(super) name: Vec<&'n str>,
    pub(super) at: Position,
    pub(super) node: &'n Node,
}

impl Property<'_> {
    /// Returns whether the name starts with these parts.
    pub(super) fn is_under(&self, parts: &[&str]) -> bool {
        self.name.len() >= parts.len()
            && self
                .name
                .iter()
                .zip(parts)
                .all(|(part, other)| same(part, other))
    }

    /// Returns whether the name has exactly these parts.
    pub(super) fn is(&self, parts: &[&str]) -> bool {
        self.name.len() == parts.len() && self.is_under(parts)
    }
}

/// Lists the properties of a mapping in the order of the file. Mappings whose names are not wanted
/// are skipped.
pub(super) fn properties<'n>(
    node: &'n Node,
    is_wanted: impl Fn(&[&str]) -> bool,
) -> Vec<Property<'n>> {
    let mut all = Vec::new();
    if let Value::Map(_) = &node.value {
        collect(node, node.at, &mut Vec::new(), &is_wanted, &mut all);
    }
    all
}

fn collect<'n>(
    node: &'n Node,
    at: Position,
    name: &mut Vec<&'n str>,
    is_wanted: &dyn Fn(&[&str]) -> bool,
    all: &mut Vec<Property<'n>>,
) {
    match &node.value {
        Value::Map(fields) => {
            for field in fields {
                let depth = name.len();
                name.extend(parts(&field.name));
                if is_wanted(name) {
                    collect(&field.node, field.at, name, is_wanted, all);
                }
                name.truncate(depth);
            }
        }
        _ => all.push(Property {
            name: name.clone(),
            at,
            node,
        }),
    }
}

/// Splits a name at dots. Brackets hold one part, with its dots: `config[my.route].x`.
fn parts(name: &str) -> impl Iterator<Item = &str> {
    let mut rest = name;
    std::iter::from_fn(move || {
        rest = rest.trim_start_matches('.');
        if rest.is_empty() {
            return None;
        }
        let (part, after) = match rest
            .strip_prefix('[')
            .and_then(|inside| inside.split_once(']'))
        {
            Some(bracketed) => bracketed,
            None => {
                let end = rest
                    .char_indices()
                    .skip(1)
                    .find(|(_, sign)| ['.', '['].contains(sign));
                rest.split_at(end.map_or(rest.len(), |(at, _)| at))
            }
        };
        rest = after;
        Some(part)
    })
}

/// Returns a name as it is shown.
pub(super) fn path(parts: &[&str]) -> String {
    parts
        .iter()
        .map(|part| short(part))
        .collect::<Vec<_>>()
        .join(".")
}

/// Compares two parts in the relaxed way: without hyphens, underscores and case.
pub(super) fn same(one: &str, other: &str) -> bool {
    letters(one).eq(letters(other))
}

/// Says which names are expected, or which of them was probably meant.
pub(super) fn expected(name: &str, names: &[&str]) -> String {
    let distance = |other: &str| {
        let [one, other] = [name, other].map(|text| letters(text).collect::<String>());
        strsim::osa_distance(&one, &other)
    };
    let nearest = names
        .iter()
        .map(|other| (distance(other), other))
        .min_by_key(|(distance, _)| *distance);
    match nearest {
        // A long text is no misspelt name, and the comparison takes the product of the lengths.
        Some((distance, other)) if name.len() <= 40 && distance <= 3 => {
            format!("did you mean {other}?")
        }
        _ => format!("expected {}", listed(names.iter().copied())),
    }
}

fn letters(text: &str) -> impl Iterator<Item = char> {
    text.chars()
        .filter(|sign| !['-', '_'].contains(sign))
        .flat_map(char::to_lowercase)
}
