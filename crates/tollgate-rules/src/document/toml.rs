//! Builds the tree from the spanned tree of a TOML parser.
//! YAML and JSON are read in `yaml.rs`.

use toml::de::{DeTable, DeValue};

use super::{
    budget::{Budget, syntax},
    limits::Limits,
    node::{Field, Node, Scalar, Value, short},
};
use crate::error::{Position, RuleError};

/// Reads a TOML text.
pub(super) fn read(text: &str, limits: &Limits) -> Result<Node, RuleError> {
    let table = DeTable::parse(text).map_err(|error| {
        let message = error.message().replace('\n', ", ");
        let at = error.span().map_or_else(Position::default, |span| {
            Position::of_byte(text, span.start)
        });
        syntax(format!("invalid TOML: {}", short(&message))).at(at)
    })?;
    let mut reader = TomlReader {
        lines: Lines::new(text),
        budget: Budget::new(limits),
    };
    let value = reader.table(table.into_inner(), Position { line: 1, column: 1 }, 1)?;
    Ok(Node {
        at: Position { line: 1, column: 1 },
        value,
    })
}

struct TomlReader<'a> {
    lines: Lines<'a>,
    budget: Budget<'a>,
}

impl TomlReader<'_> {
    fn table(
        &mut self,
        table: DeTable<'_>,
        at: Position,
        depth: usize,
    ) -> Result<Value, RuleError> {
        self.budget.enter(depth, || at)?;
        let mut fields = Vec::with_capacity(table.len());
        for (name, value) in table {
            let at = self.lines.place(name.span().start);
            let start = self.lines.place(value.span().start);
            let node = self.node(value.into_inner(), start, depth)?;
            fields.push(Field {
                name: name.into_inner().into_owned(),
                at,
                node,
            });
        }
        // The parser sorts by name. The order of the file is that in which mistakes are reported.
        fields.sort_by_key(|field| field.at);
        Ok(Value::Map(fields))
    }

    fn node(&mut self, value: DeValue<'_>, at: Position, depth: usize) -> Result<Node, RuleError> {
        self.budget.spend(1, || at)?;
        let value = match value {
            DeValue::String(text) => Value::Scalar(Scalar::Text(text.into())),
            DeValue::Integer(number) => {
                let text = number.to_string();
                let parsed = i128::from_str_radix(number.as_str(), number.radix());
                Value::Scalar(parsed.map_or(Scalar::Other(text.clone().into()), |n| {
                    Scalar::Integer(n, text.into())
                }))
            }
            DeValue::Float(number) => Value::Scalar(Scalar::Float(
                number.as_str().parse().unwrap_or(f64::NAN),
                number.to_string().into(),
            )),
            DeValue::Boolean(value) => Value::Scalar(Scalar::Bool(value, value.to_string().into())),
            DeValue::Datetime(date) => Value::Scalar(Scalar::Other(date.to_string().into())),
            DeValue::Array(items) => {
                self.budget.enter(depth + 1, || at)?;
                let mut nodes = Vec::with_capacity(items.len());
                for item in items {
                    let start = self.lines.place(item.span().start);
                    nodes.push(self.node(item.into_inner(), start, depth + 1)?);
                }
                Value::List(nodes)
            }
            DeValue::Table(table) => self.table(table, at, depth + 1)?,
        };
        Ok(Node { at, value })
    }
}

/// Finds the lines of bytes.
struct Lines<'a> {
    text: &'a str,
    /// The byte at which each line starts.
    starts: Vec<usize>,
    /// The characters before each block, so that a long line is not counted from its start.
    before: Vec<usize>,
}

/// The bytes of a block.
const BLOCK: usize = 512;

impl<'a> Lines<'a> {
    fn new(text: &'a str) -> Self {
        let newlines = text
            .bytes()
            .enumerate()
            .filter(|(_, byte)| *byte == b'\n')
            .map(|(at, _)| at + 1);
        Self {
            text,
            starts: std::iter::once(0).chain(newlines).collect(),
            before: text
                .as_bytes()
                .chunks(BLOCK)
                .scan(0, |before, block| {
                    Some(std::mem::replace(before, *before + characters(block)))
                })
                .collect(),
        }
    }

    /// Returns the characters before a byte.
    fn characters(&self, byte: usize) -> usize {
        let bytes = self.text.as_bytes();
        let block = (byte / BLOCK).min(self.before.len().saturating_sub(1));
        let rest = bytes.get(block * BLOCK..byte.min(bytes.len()));
        self.before.get(block).copied().unwrap_or_default() + characters(rest.unwrap_or_default())
    }

    fn place(&self, byte: usize) -> Position {
        let line = self.starts.partition_point(|start| *start <= byte);
        let start = self.starts.get(line.wrapping_sub(1)).copied().unwrap_or(0);
        let column = self.characters(byte) - self.characters(start);
        Position {
            line: line as u32,
            column: column as u32 + 1,
        }
    }
}

/// Returns the characters that begin in these bytes.
fn characters(text: &[u8]) -> usize {
    text.iter()
        .filter(|&&byte| byte & 0b1100_0000 != 0b1000_0000)
        .count()
}
