//! Builds the tree from the raw values of a JSON parser.

use std::fmt;

use serde::de::{Deserializer as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Deserializer, value::RawValue};

use super::{
    budget::{Budget, duplicate, syntax},
    limits::Limits,
    node::{Field, Node, Scalar, Value},
};
use crate::error::{Position, RuleError};

/// Reads a JSON text.
///
/// Each container is read once for each container around it, so the work is at most the depth times the bytes. The depth
/// is tested first, because the parser of raw values has no limit.
pub(super) fn read(text: &str, limits: &Limits) -> Result<Node, RuleError> {
    if text.trim().is_empty() {
        return Err(syntax("the file is empty, expected an object with the field domain"));
    }
    if let Some(byte) = too_deep(text, limits.depth) {
        let budget = Budget::new(limits);
        budget.enter(limits.depth + 1, || Position::of_byte(text, byte))?;
    }
    let raw: &RawValue = serde_json::from_str(text).map_err(|error| json_error(&error, Position::default()))?;
    let mut reader = Reader { places: Places::new(text), budget: Budget::new(limits) };
    reader.node(raw.get(), 0)
}

/// Returns the byte of the first bracket beyond a depth. Brackets in texts do not count.
fn too_deep(text: &str, most: usize) -> Option<usize> {
    let (mut depth, mut is_text, mut is_escaped) = (0_usize, false, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_text => is_escaped = true,
            b'"' => is_text = !is_text,
            b'[' | b'{' if !is_text => depth += 1,
            b']' | b'}' if !is_text => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > most {
            return Some(at);
        }
    }
    None
}

struct Reader<'a> {
    places: Places<'a>,
    budget: Budget<'a>,
}

impl<'a> Reader<'a> {
    fn node(&mut self, raw: &'a str, depth: usize) -> Result<Node, RuleError> {
        let at = self.places.of(raw);
        self.budget.spend(1, || at)?;
        let value = match raw.as_bytes().first() {
            Some(b'[') => self.list(raw, at, depth + 1)?,
            Some(b'{') => self.map(raw, at, depth + 1)?,
            _ => Value::Scalar(scalar(raw).map_err(|error| json_error(&error, at))?),
        };
        Ok(Node { at, value })
    }

    fn list(&mut self, raw: &'a str, at: Position, depth: usize) -> Result<Value, RuleError> {
        self.budget.enter(depth, || at)?;
        let room = self.budget.limits.nodes - self.budget.nodes.min(self.budget.limits.nodes);
        let items =
            Deserializer::from_str(raw).deserialize_seq(Items { room }).map_err(|error| json_error(&error, at))?;
        items.into_iter().map(|item| self.node(item.get(), depth)).collect::<Result<_, _>>().map(Value::List)
    }

    fn map(&mut self, raw: &'a str, at: Position, depth: usize) -> Result<Value, RuleError> {
        self.budget.enter(depth, || at)?;
        let room = self.budget.limits.nodes - self.budget.nodes.min(self.budget.limits.nodes);
        let members =
            Deserializer::from_str(raw).deserialize_map(Members { room }).map_err(|error| json_error(&error, at))?;
        let mut fields: Vec<Field> = Vec::with_capacity(members.len());
        let mut names = std::collections::HashSet::with_capacity(members.len());
        // A name stands after the brace, or after the value before it.
        let mut rest = &raw[1..];
        for (name, value) in members {
            let name_at = self.places.of(rest.trim_start_matches([' ', '\t', '\r', '\n', ',']));
            rest = after(rest, value.get());
            if !names.insert(name.clone()) {
                return Err(duplicate(&name, name_at));
            }
            fields.push(Field { name, at: name_at, node: self.node(value.get(), depth)? });
        }
        Ok(Value::Map(fields))
    }
}

/// Returns the text after a part of it.
fn after<'a>(text: &'a str, part: &str) -> &'a str {
    let end = part.as_ptr() as usize + part.len() - text.as_ptr() as usize;
    text.get(end..).unwrap_or_default()
}

fn scalar(raw: &str) -> serde_json::Result<Scalar> {
    Ok(match serde_json::from_str::<serde_json::Value>(raw)? {
        serde_json::Value::Bool(value) => Scalar::Bool(value, raw.into()),
        serde_json::Value::Number(number) => match raw.parse() {
            Ok(integer) => Scalar::Integer(integer, raw.into()),
            Err(_) => Scalar::Float(number.as_f64().unwrap_or(f64::NAN), raw.into()),
        },
        serde_json::Value::String(text) => Scalar::Text(text.into()),
        _ => Scalar::Null,
    })
}

/// Finds lines and columns of places that mostly follow each other.
struct Places<'a> {
    text: &'a str,
    /// The last place that was asked for, and its byte.
    last: (usize, Position),
}

impl<'a> Places<'a> {
    fn new(text: &'a str) -> Self {
        Self { text, last: (0, Position { line: 1, column: 1 }) }
    }

    /// Returns the place where a part of the text starts.
    fn of(&mut self, part: &str) -> Position {
        let byte = part.as_ptr() as usize - self.text.as_ptr() as usize;
        let (from, mut at) = if self.last.0 <= byte { self.last } else { (0, Position { line: 1, column: 1 }) };
        for sign in self.text.get(from..byte).unwrap_or_default().chars() {
            at = match sign {
                '\n' => Position { line: at.line + 1, column: 1 },
                _ => Position { column: at.column + 1, ..at },
            };
        }
        self.last = (byte, at);
        at
    }
}

fn json_error(error: &serde_json::Error, start: Position) -> RuleError {
    let text = error.to_string();
    // The place is part of the text, and stands in front of every message already.
    let message = text.split(" at line ").next().unwrap_or(&text);
    let at = match start.line {
        0 => Position { line: error.line() as u32, column: error.column().max(1) as u32 },
        _ => start,
    };
    syntax(format!("invalid JSON: {message}")).at(at)
}

/// Reads the items of a list, up to a number.
struct Items {
    room: usize,
}

impl<'a> Visitor<'a> for Items {
    type Value = Vec<&'a RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'a>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let mut all = Vec::new();
        while let Some(item) = items.next_element()? {
            // One item more than there is room for: the budget then refuses it.
            if all.len() <= self.room {
                all.push(item);
            }
        }
        Ok(all)
    }
}

/// Reads the members of an object, up to a number.
struct Members {
    room: usize,
}

impl<'a> Visitor<'a> for Members {
    type Value = Vec<(String, &'a RawValue)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        let mut all = Vec::new();
        while let Some((name, value)) = members.next_entry::<String, &RawValue>()? {
            if all.len() <= self.room {
                all.push((name, value));
            }
        }
        Ok(all)
    }
}
