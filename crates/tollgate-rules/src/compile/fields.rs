//! Reads values of a type: texts, numbers, lists, mappings. A wrong one is reported, with a guess
//! for a misspelt name.
//! Nothing here knows what a field means: that is in the file of its part of the language, such as
//! `limit.rs`.

use super::{compiler::Compiler, errors::Trail};
use crate::{
    RuleErrorKind,
    document::{Field, Node, Scalar, Value, short},
};

impl Compiler {
    /// Reads a text. A number or a boolean without quotes counts as its text, as in `value: 10`.
    pub(crate) fn text(&mut self, node: &Node, trail: &Trail<'_>) -> Option<Box<str>> {
        match &node.value {
            Value::Scalar(
                Scalar::Text(text) | Scalar::Integer(_, text) | Scalar::Bool(_, text),
            ) => Some(text.clone()),
            Value::Scalar(Scalar::Null) => Some(Box::default()),
            Value::Scalar(Scalar::Float(..) | Scalar::Other(_)) => {
                let message = format!(
                    "expected a text, got {}, write it in quotes",
                    node.describe()
                );
                self.errors
                    .push_at(RuleErrorKind::Type, trail, node.at, message);
                None
            }
            Value::List(_) | Value::Map(_) => self.wrong_type(node, trail, "a text"),
        }
    }

    /// Reads a text that is not empty.
    pub(crate) fn filled(&mut self, node: &Node, trail: &Trail<'_>) -> Option<Box<str>> {
        let text = self.text(node, trail)?;
        if text.is_empty() {
            self.errors.refuse(trail, node.at, "must not be empty");
        }
        Some(text)
    }

    pub(crate) fn boolean(&mut self, node: &Node, trail: &Trail<'_>) -> bool {
        match &node.value {
            Value::Scalar(Scalar::Bool(value, _)) => *value,
            Value::Scalar(Scalar::Null) => false,
            Value::Scalar(Scalar::Text(text))
                if self.compat.is_envoy() && yaml_1_1(text).is_some() =>
            {
                yaml_1_1(text).unwrap_or_default()
            }
            _ => self
                .wrong_type(node, trail, "true or false")
                .unwrap_or_default(),
        }
    }

    /// Reads a boolean that has to be there, because nothing would not mean `false`. Only actions
    /// have such fields.
    #[cfg(feature = "http")]
    pub(crate) fn filled_boolean(&mut self, node: &Node, trail: &Trail<'_>) -> bool {
        if node.is_null() {
            let wrong = self.wrong_type(node, trail, "true or false");
            return wrong.unwrap_or_default();
        }
        self.boolean(node, trail)
    }

    /// Reads an integer between two bounds.
    pub(crate) fn number(
        &mut self,
        node: &Node,
        trail: &Trail<'_>,
        least: u64,
        most: u64,
    ) -> Option<u64> {
        let number = match &node.value {
            Value::Scalar(Scalar::Integer(_, text)) if is_octal(text) => {
                match i128::from_str_radix(text, 8) {
                    Ok(number) if self.compat.is_envoy() => number,
                    // 10 in YAML 1.2 and 8 in YAML 1.1, which Envoy's service reads.
                    _ => {
                        let message = format!(
                            "expected an integer without leading zeros, got {}",
                            short(text)
                        );
                        self.errors.refuse(trail, node.at, message);
                        return None;
                    }
                }
            }
            Value::Scalar(Scalar::Integer(number, _)) => *number,
            _ => {
                return self.wrong_type(node, trail, &format!("an integer from {least} to {most}"));
            }
        };
        match u64::try_from(number) {
            Ok(number) if number >= least && number <= most => Some(number),
            _ => {
                let message = format!("must be {least} to {most}, got {number}");
                self.errors.refuse(trail, node.at, message);
                None
            }
        }
    }

    /// Reads a percentage, as in `25%`. The percent sign may be missing.
    pub(crate) fn percent(&mut self, node: &Node, trail: &Trail<'_>, least: u8) -> Option<u8> {
        let percent = match &node.value {
            Value::Scalar(Scalar::Integer(_, text) | Scalar::Text(text)) => {
                let digits = text.strip_suffix('%').unwrap_or(text);
                // `parse` would also accept a sign.
                digits
                    .parse::<u8>()
                    .ok()
                    .filter(|_| digits.bytes().all(|byte| byte.is_ascii_digit()))
            }
            _ => None,
        };
        let percent = percent.filter(|percent| (least..=100).contains(percent));
        if percent.is_none() {
            let message = format!("must be {least}% to 100%, got {}", node.describe());
            self.errors.refuse(trail, node.at, message);
        }
        percent
    }

    /// Reads a list. Nothing counts as an empty list.
    pub(crate) fn list<'n>(&mut self, node: &'n Node, trail: &Trail<'_>) -> &'n [Node] {
        match &node.value {
            Value::List(items) => items,
            Value::Scalar(Scalar::Null) => &[],
            _ => self.wrong_type(node, trail, "a list").unwrap_or_default(),
        }
    }

    pub(crate) fn map<'n>(&mut self, node: &'n Node, trail: &Trail<'_>) -> Option<&'n [Field]> {
        match &node.value {
            Value::Map(fields) => Some(fields),
            _ => self.wrong_type(node, trail, "a mapping"),
        }
    }

    pub(crate) fn wrong_type<T>(
        &mut self,
        node: &Node,
        trail: &Trail<'_>,
        expected: &str,
    ) -> Option<T> {
        let message = format!("expected {expected}, got {}", node.describe());
        self.errors
            .push_at(RuleErrorKind::Type, trail, node.at, message);
        None
    }

    /// Returns whether an addition is allowed. Reports it otherwise.
    pub(crate) fn is_addition(&mut self, field: &Field, trail: &Trail<'_>) -> bool {
        if !self.compat.is_envoy() {
            return true;
        }
        let message = format!(
            "field {} is an addition of Tollgate and is refused in the mode envoy, remove it or set compat: native",
            field.name
        );
        self.errors
            .push_at(RuleErrorKind::Addition, trail, field.at, message);
        false
    }

    /// Reports a field of an unknown name, with the most similar name.
    pub(crate) fn unknown(
        &mut self,
        field: &Field,
        trail: &Trail<'_>,
        names: &[&str],
        additions: &[&str],
    ) {
        let additions = if self.compat.is_envoy() {
            &[]
        } else {
            additions
        };
        let names = || names.iter().chain(additions);
        let message = match similar(&field.name, names().copied()) {
            Some(name) => format!("unknown field, did you mean {name}?"),
            None => format!("unknown field, expected {}", listed(names().copied())),
        };
        self.errors
            .push_at(RuleErrorKind::UnknownField, trail, field.at, message);
    }
}

/// Returns the name that was probably meant.
pub(super) fn similar<'n>(text: &str, names: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    // A long text is no misspelt name, and the comparison takes the product of the lengths.
    if text.len() > 40 {
        return None;
    }
    let text = text.to_ascii_lowercase().replace('-', "_");
    let distances = names.map(|name| (strsim::osa_distance(&text, name), name));
    let (distance, name) = distances.min_by_key(|(distance, _)| *distance)?;
    (distance <= (name.len() / 3).clamp(1, 3)).then_some(name)
}

/// Writes names as `a, b or c`.
pub(crate) fn listed<'n>(names: impl Iterator<Item = &'n str>) -> String {
    let names: Vec<_> = names.collect();
    match names.split_last() {
        Some((last, others)) if !others.is_empty() => format!("{} or {last}", others.join(", ")),
        _ => names.concat(),
    }
}

/// Returns whether a number starts with 0 and has only digits.
fn is_octal(text: &str) -> bool {
    text.len() > 1 && text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Reads the booleans that YAML 1.1 has beside true and false.
fn yaml_1_1(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "y" | "yes" | "on" => Some(true),
        "n" | "no" | "off" => Some(false),
        _ => None,
    }
}
