//! Reads logs with one JSON object in each line.
//! Which name has which meaning is decided in `fields.rs`.

use serde_json::{Map, Value};

use super::fields::Fields;

/// Reads a line. Objects inside it are read as `outer.inner`, and lists as texts with commas.
pub(super) fn parse(line: &[u8]) -> Result<Fields, String> {
    let object: Map<String, Value> = serde_json::from_slice(line).map_err(|error| {
        // The message of the parser has the place, and no text of the line.
        format!("no JSON object: {error}")
    })?;
    let mut fields = Fields::default();
    add(&mut fields, "", &object);
    Ok(fields)
}

fn add(fields: &mut Fields, path: &str, object: &Map<String, Value>) {
    for (name, value) in object {
        let name = if path.is_empty() {
            name.clone()
        } else {
            format!("{path}.{name}")
        };
        match value {
            Value::Object(object) => add(fields, &name, object),
            Value::Array(items) => {
                let items: Vec<_> = items.iter().filter_map(scalar).collect();
                fields.set(name, items.join(","));
            }
            value => {
                if let Some(text) = scalar(value) {
                    fields.set(name, text);
                }
            }
        }
    }
}

fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(boolean) => Some(boolean.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}
