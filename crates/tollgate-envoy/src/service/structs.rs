//! Converts metadata into `google.protobuf.Struct`.
//! Which metadata an answer has is decided by tollgate-rules.

use prost_types::{ListValue, Struct, Value, value::Kind};
use serde_json::Value as Json;
use tollgate_rules::RuleMetadata;

/// Returns the message with these fields.
pub(super) fn message(metadata: &RuleMetadata) -> Struct {
    Struct {
        fields: metadata
            .iter()
            .map(|(name, value)| (name.clone(), of_value(value)))
            .collect(),
    }
}

fn of_value(value: &Json) -> Value {
    let kind = match value {
        Json::Null => Kind::NullValue(0),
        Json::Bool(value) => Kind::BoolValue(*value),
        // The message has no other numbers than doubles.
        Json::Number(number) => Kind::NumberValue(number.as_f64().unwrap_or_default()),
        Json::String(text) => Kind::StringValue(text.clone()),
        Json::Array(items) => Kind::ListValue(ListValue {
            values: items.iter().map(of_value).collect(),
        }),
        Json::Object(fields) => Kind::StructValue(message(fields)),
    };
    Value { kind: Some(kind) }
}
