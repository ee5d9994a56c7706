//! The tree that all formats become: values with their places, and how an error describes one.
//! Trees are built in `yaml.rs` and `toml.rs`, and read in `compile/` and `spring/`.

use std::borrow::Cow;

use crate::error::{Position, cut};

/// A value of a file and its place.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) at: Position,
    pub(crate) value: Value,
}

#[derive(Clone, Debug)]
pub(crate) enum Value {
    Scalar(Scalar),
    List(Vec<Node>),
    Map(Vec<Field>),
}

/// A field of a mapping.
#[derive(Clone, Debug)]
pub(crate) struct Field {
    pub(crate) name: String,
    /// The place of the name.
    pub(crate) at: Position,
    pub(crate) node: Node,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Scalar {
    Null,
    /// The text stands as in the file, because a key or a value may be written without quotes:
    /// `value: 010`.
    Bool(bool, Box<str>),
    Integer(i128, Box<str>),
    Float(f64, Box<str>),
    Text(Box<str>),
    /// A scalar of another type, such as a date of TOML.
    #[cfg_attr(
        not(feature = "toml"),
        expect(dead_code, reason = "YAML and JSON have no such type")
    )]
    Other(Box<str>),
}

impl Node {
    /// Returns the number of values in the tree. A text of which a copy takes more memory counts as
    /// several.
    pub(super) fn count(&self) -> usize {
        const BYTES: usize = 64;
        1 + match &self.value {
            Value::Scalar(scalar) => scalar.text().len() / BYTES,
            Value::List(items) => items.iter().map(Self::count).sum(),
            Value::Map(fields) => fields
                .iter()
                .map(|field| field.name.len() / BYTES + field.node.count())
                .sum(),
        }
    }

    /// Returns the number of lists and mappings from this node to its deepest value.
    pub(super) fn depth(&self) -> usize {
        match &self.value {
            Value::Scalar(_) => 0,
            Value::List(items) => 1 + items.iter().map(Self::depth).max().unwrap_or(0),
            Value::Map(fields) => {
                1 + fields
                    .iter()
                    .map(|field| field.node.depth())
                    .max()
                    .unwrap_or(0)
            }
        }
    }

    /// Returns whether nothing stands in the place of the value.
    pub(crate) fn is_null(&self) -> bool {
        matches!(self.value, Value::Scalar(Scalar::Null))
    }

    /// Describes the value in an error, as the kind and the value.
    pub(crate) fn describe(&self) -> Cow<'static, str> {
        match &self.value {
            Value::List(_) => "a list".into(),
            Value::Map(_) => "a mapping".into(),
            Value::Scalar(Scalar::Null) => "nothing".into(),
            Value::Scalar(Scalar::Bool(_, text) | Scalar::Other(text)) => short(text).into(),
            Value::Scalar(Scalar::Integer(_, text) | Scalar::Float(_, text)) => {
                format!("the number {}", short(text)).into()
            }
            Value::Scalar(Scalar::Text(text)) => format!("the text {:?}", short(text)).into(),
        }
    }
}

impl Scalar {
    fn text(&self) -> &str {
        match self {
            Self::Null => "",
            Self::Bool(_, text)
            | Self::Integer(_, text)
            | Self::Float(_, text)
            | Self::Text(text)
            | Self::Other(text) => text,
        }
    }
}

/// Cuts a text for a message.
pub(crate) fn short(text: &str) -> String {
    cut(text, 60).into_owned()
}
