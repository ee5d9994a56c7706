//! Reads scalars as Spring does: each is a text, and may hold placeholders.
//! Names of settings are read in `property.rs`.

use crate::{
    RuleErrorKind,
    compile::Errors,
    document::{Node, Scalar, Value, short},
    error::Position,
};

/// Reads values and collects mistakes.
pub(super) struct Values<'a> {
    /// Returns the value of the name in a placeholder.
    pub(super) resolve: &'a dyn Fn(&str) -> Option<String>,
    pub(super) errors: Errors,
}

/// The most placeholders inside the default of another one.
const MAX_NESTED: usize = 8;

impl Values<'_> {
    pub(super) fn refuse(
        &mut self,
        kind: RuleErrorKind,
        field: &str,
        at: Position,
        message: impl Into<String>,
    ) {
        self.errors.push_at(kind, field, at, message);
    }

    /// Returns the items of a list. A mistake is reported when something else stands there.
    pub(super) fn list<'n>(&mut self, node: &'n Node, field: &str) -> &'n [Node] {
        match &node.value {
            Value::List(items) => return items,
            Value::Scalar(Scalar::Null) => {}
            _ => {
                let message = format!("expected a list, got {}", node.describe());
                self.refuse(RuleErrorKind::Type, field, node.at, message);
            }
        }
        &[]
    }

    /// Reads a text. `None` when nothing stands there, or when a mistake was reported.
    pub(super) fn text(&mut self, node: &Node, field: &str) -> Option<String> {
        let text = match &node.value {
            Value::Scalar(Scalar::Null) => return None,
            Value::Scalar(
                Scalar::Text(text)
                | Scalar::Integer(_, text)
                | Scalar::Float(_, text)
                | Scalar::Bool(_, text)
                | Scalar::Other(text),
            ) => text,
            Value::List(_) | Value::Map(_) => {
                let message = format!("expected a text, got {}", node.describe());
                self.refuse(RuleErrorKind::Type, field, node.at, message);
                return None;
            }
        };
        match self.resolved(text.trim(), 0) {
            Ok(text) => Some(text),
            Err(message) => {
                self.refuse(RuleErrorKind::Value, field, node.at, message);
                None
            }
        }
    }

    /// Reads an integer of at least `least` and at most `most`.
    pub(super) fn number(
        &mut self,
        node: &Node,
        field: &str,
        least: u64,
        most: u64,
    ) -> Option<u64> {
        let text = self.text(node, field)?;
        let is_octal = text.len() > 1 && text.starts_with('0');
        let number = if is_octal {
            None
        } else {
            text.parse::<u64>().ok()
        };
        match number.filter(|number| (least..=most).contains(number)) {
            Some(number) => Some(number),
            None => {
                let mut message = format!(
                    "expected an integer from {least} to {most}, got {:?}",
                    short(&text)
                );
                if is_octal {
                    message.push_str("; the gateway may read a number that starts with 0 as octal");
                }
                self.refuse(RuleErrorKind::Value, field, node.at, message);
                None
            }
        }
    }

    /// Reads a boolean, in the words that Spring accepts.
    pub(super) fn boolean(&mut self, node: &Node, field: &str) -> Option<bool> {
        let text = self.text(node, field)?;
        match text.to_ascii_lowercase().as_str() {
            "true" | "on" | "yes" | "1" => Some(true),
            "false" | "off" | "no" | "0" => Some(false),
            _ => {
                let message = format!("expected true or false, got {:?}", short(&text));
                self.refuse(RuleErrorKind::Value, field, node.at, message);
                None
            }
        }
    }

    /// Replaces the placeholders of a text.
    fn resolved(&self, text: &str, depth: usize) -> Result<String, String> {
        let (mut done, mut rest) = (String::new(), text);
        while let Some((before, after)) = rest.split_once("${") {
            let Some(end) = closing_brace(after) else {
                break;
            };
            let (inside, behind) = (&after[..end], &after[end + 1..]);
            done.push_str(before);
            done.push_str(&self.value(inside, depth)?);
            rest = behind;
        }
        done.push_str(rest);
        Ok(done)
    }

    /// Returns the value of `NAME` or `NAME:DEFAULT`.
    fn value(&self, placeholder: &str, depth: usize) -> Result<String, String> {
        let shown = short(placeholder);
        if depth == MAX_NESTED {
            return Err(format!(
                "placeholders must be nested at most {MAX_NESTED} deep"
            ));
        }
        let (name, default) = match placeholder.split_once(':') {
            Some((name, default)) => (name, Some(default)),
            None => (placeholder, None),
        };
        match ((self.resolve)(name), default) {
            (Some(value), _) => Ok(value),
            (None, Some(default)) => self.resolved(default, depth + 1),
            (None, None) => Err(format!(
                "the placeholder ${{{shown}}} has no value and no default"
            )),
        }
    }
}

/// Returns the index of the brace that ends a placeholder.
fn closing_brace(text: &str) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' if depth == 0 => return Some(at),
            b'}' => depth -= 1,
            _ => {}
        }
    }
    None
}
