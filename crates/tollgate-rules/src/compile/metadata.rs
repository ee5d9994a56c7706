//! Reads metadata, which must fit a `google.protobuf.Struct`.
//! Metadata is only carried: `verdict/combine.rs` joins it for an answer.

use serde_json::{Map, Number, Value as Json};

use super::{compiler::Compiler, errors::Trail};
use crate::{
    RuleMetadata,
    document::{Node, Scalar, Value},
};

impl Compiler {
    /// Reads a mapping of any fields.
    pub(super) fn metadata(&mut self, node: &Node, trail: &Trail<'_>) -> Option<RuleMetadata> {
        if node.is_null() {
            return None;
        }
        let fields = self.map(node, trail)?;
        let mut metadata = Map::new();
        for field in fields {
            let value = self.json(&field.node, &trail.field(&field.name))?;
            metadata.insert(field.name.clone(), value);
        }
        (!metadata.is_empty()).then_some(metadata)
    }

    fn json(&mut self, node: &Node, trail: &Trail<'_>) -> Option<Json> {
        let number = |number: f64| Number::from_f64(number).map(Json::Number);
        let json = match &node.value {
            Value::Scalar(Scalar::Null) => Some(Json::Null),
            Value::Scalar(Scalar::Bool(value, _)) => Some(Json::Bool(*value)),
            Value::Scalar(Scalar::Integer(value, _)) => match i64::try_from(*value) {
                Ok(value) => Some(Json::from(value)),
                Err(_) => number(*value as f64),
            },
            Value::Scalar(Scalar::Float(value, _)) => number(*value),
            Value::Scalar(Scalar::Text(text)) => Some(Json::from(&**text)),
            Value::Scalar(Scalar::Other(_)) => None,
            Value::List(items) => {
                let items = items
                    .iter()
                    .enumerate()
                    .map(|(at, item)| self.json(item, &trail.item(at)));
                return items.collect::<Option<Vec<_>>>().map(Json::Array);
            }
            Value::Map(fields) => {
                let mut map = Map::new();
                for field in fields {
                    map.insert(
                        field.name.clone(),
                        self.json(&field.node, &trail.field(&field.name))?,
                    );
                }
                return Some(Json::Object(map));
            }
        };
        json.or_else(|| {
            self.wrong_type(
                node,
                trail,
                "a text, a finite number, true, false, a list or a mapping",
            )
        })
    }
}
