//! Builds the tree from the events of a YAML parser.
//! JSON is read here too, because it is YAML. What a tree means is decided in `compile/`.

use std::{borrow::Cow, collections::HashMap};

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, ScanError, Span, StrInput, Tag};

use super::{
    budget::{Budget, duplicate, syntax},
    limits::Limits,
    node::{Field, Node, Scalar, Value, short},
};
use crate::error::{Position, RuleError};

/// Reads a text of one YAML document. `format` is the name of the format in messages.
pub(super) fn read(text: &str, limits: &Limits, format: &'static str) -> Result<Node, RuleError> {
    let mut reader = YamlReader::new(text, limits, format);
    loop {
        let (event, span) = reader.next()?;
        match event {
            Event::StreamEnd => {
                return Err(
                    syntax("the file is empty, expected a mapping with the field domain")
                        .at(place(span.start)),
                );
            }
            Event::StreamStart | Event::DocumentStart(_) | Event::Nothing => {}
            first => {
                let node = reader.node(first, span, 0)?;
                reader.end()?;
                return Ok(node);
            }
        }
    }
}

/// Reads a text of any number of YAML documents.
#[cfg(feature = "spring")]
pub(super) fn read_all(text: &str, limits: &Limits) -> Result<Vec<Node>, RuleError> {
    let mut reader = YamlReader::new(text, limits, "YAML");
    let mut documents = Vec::new();
    loop {
        let (event, span) = reader.next()?;
        match event {
            Event::StreamEnd => return Ok(documents),
            // An anchor belongs to its document (YAML 1.2, section 3.2.2.2).
            Event::DocumentStart(_) => reader.anchors.clear(),
            Event::StreamStart | Event::DocumentEnd | Event::Nothing => {}
            first => documents.push(reader.node(first, span, 0)?),
        }
    }
}

struct YamlReader<'a> {
    format: &'static str,
    parser: Parser<'a, StrInput<'a>>,
    budget: Budget<'a>,
    /// The values with an anchor.
    anchors: HashMap<usize, Anchored>,
}

/// A value with an anchor, and its size.
struct Anchored {
    node: Node,
    count: usize,
    depth: usize,
}

impl<'a> YamlReader<'a> {
    fn new(text: &'a str, limits: &'a Limits, format: &'static str) -> Self {
        let (parser, budget) = (Parser::new_from_str(text), Budget::new(limits));
        Self {
            format,
            parser,
            budget,
            anchors: HashMap::new(),
        }
    }

    fn next(&mut self) -> Result<(Event<'a>, Span), RuleError> {
        match self.parser.next_event() {
            Some(event) => event.map_err(|error| scan_error(self.format, &error)),
            None => Err(syntax("the file ends too early")),
        }
    }

    /// Reads the end of the document. A second document is refused.
    fn end(&mut self) -> Result<(), RuleError> {
        loop {
            let (event, span) = self.next()?;
            match event {
                Event::StreamEnd => return Ok(()),
                Event::DocumentStart(_) => {
                    let message = "a file must hold one document, write a file for each domain";
                    return Err(syntax(message).at(place(span.start)));
                }
                _ => {}
            }
        }
    }

    fn node(&mut self, event: Event<'a>, span: Span, depth: usize) -> Result<Node, RuleError> {
        let at = place(span.start);
        let (value, anchor) = match event {
            Event::Alias(id) => return self.alias(id, at, depth),
            Event::Scalar(text, style, anchor, tag) => {
                (Value::Scalar(scalar(&text, style, tag, at)?), anchor)
            }
            Event::SequenceStart(anchor, tag) => {
                container_tag(tag, "seq", at)?;
                (Value::List(self.list(at, depth + 1)?), anchor)
            }
            Event::MappingStart(anchor, tag) => {
                container_tag(tag, "map", at)?;
                (Value::Map(self.map(at, depth + 1)?), anchor)
            }
            _ => return Err(syntax("expected a value").at(at)),
        };
        self.budget.spend(1, || at)?;
        let node = Node { at, value };
        if anchor > 0 {
            let (count, depth) = (node.count(), node.depth());
            // The copy takes memory too.
            self.budget.spend(count, || at)?;
            self.anchors.insert(
                anchor,
                Anchored {
                    node: node.clone(),
                    count,
                    depth,
                },
            );
        }
        Ok(node)
    }

    /// Copies the value of an anchor. The size is checked before the copy is made.
    fn alias(&mut self, id: usize, at: Position, depth: usize) -> Result<Node, RuleError> {
        let Some(target) = self.anchors.get(&id) else {
            return Err(
                syntax("an alias must follow its anchor, and must not stand inside it").at(at),
            );
        };
        self.budget.spend(target.count, || at)?;
        self.budget.enter(depth + target.depth, || at)?;
        Ok(Node {
            at,
            value: target.node.value.clone(),
        })
    }

    fn list(&mut self, at: Position, depth: usize) -> Result<Vec<Node>, RuleError> {
        self.budget.enter(depth, || at)?;
        let mut items = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd, _) => return Ok(items),
                (event, span) => items.push(self.node(event, span, depth)?),
            }
        }
    }

    fn map(&mut self, at: Position, depth: usize) -> Result<Vec<Field>, RuleError> {
        self.budget.enter(depth, || at)?;
        let mut fields = Fields::default();
        let mut merged = Vec::new();
        loop {
            let (event, span) = self.next()?;
            if event == Event::MappingEnd {
                break;
            }
            let at = place(span.start);
            let is_merge =
                matches!(&event, Event::Scalar(text, ScalarStyle::Plain, 0, None) if text == "<<");
            let name = match self.node(event, span, depth)?.value {
                Value::Scalar(Scalar::Text(text)) => text,
                _ => return Err(syntax("the name of a field must be a text").at(at)),
            };
            let (event, span) = self.next()?;
            let node = self.node(event, span, depth)?;
            if is_merge {
                merged.extend(merge_sources(node)?);
            } else if !fields.push(Field {
                name: name.into(),
                at,
                node,
            }) {
                return Err(duplicate(&fields.last_refused, at));
            }
        }
        // The fields of the mapping come before merged ones, and earlier merged mappings before
        // later ones.
        for field in merged {
            fields.push(field);
        }
        Ok(fields.all)
    }
}

/// Collects fields of different names.
#[derive(Default)]
struct Fields {
    all: Vec<Field>,
    /// The names, once there are many.
    names: std::collections::HashSet<String>,
    last_refused: String,
}

impl Fields {
    const MANY: usize = 16;

    /// Adds a field. Returns `false` when there is one of this name.
    fn push(&mut self, field: Field) -> bool {
        let is_known = if self.all.len() < Self::MANY {
            self.all.iter().any(|known| known.name == field.name)
        } else {
            if self.names.is_empty() {
                self.names
                    .extend(self.all.iter().map(|known| known.name.clone()));
            }
            !self.names.insert(field.name.clone())
        };
        if is_known {
            self.last_refused = field.name;
            return false;
        }
        self.all.push(field);
        true
    }
}

/// Returns the fields that a merge key `<<` adds.
fn merge_sources(node: Node) -> Result<Vec<Field>, RuleError> {
    let at = node.at;
    let refused = || syntax("the merge key << takes a mapping or a list of mappings").at(at);
    match node.value {
        Value::Map(fields) => Ok(fields),
        Value::List(items) => {
            let maps = items.into_iter().map(|item| match item.value {
                Value::Map(fields) => Ok(fields),
                _ => Err(refused()),
            });
            Ok(maps
                .collect::<Result<Vec<_>, _>>()?
                .into_iter()
                .flatten()
                .collect())
        }
        Value::Scalar(_) => Err(refused()),
    }
}

/// Resolves a scalar by the core schema of YAML 1.2 (section 10.3).
fn scalar(
    text: &str,
    style: ScalarStyle,
    tag: Option<Cow<'_, Tag>>,
    at: Position,
) -> Result<Scalar, RuleError> {
    let resolved = || {
        if style == ScalarStyle::Plain {
            plain(text)
        } else {
            Scalar::Text(text.into())
        }
    };
    let Some(tag) = tag else {
        return Ok(resolved());
    };
    let by_tag = match (tag.is_yaml_core_schema(), tag.suffix.as_str()) {
        (true, "str") => Some(Scalar::Text(text.into())),
        (true, "null" | "bool" | "int" | "float") => Some(plain(text)),
        (false, "") if tag.handle == "!" => Some(Scalar::Text(text.into())),
        _ => None,
    };
    by_tag.ok_or_else(|| unknown_tag(&tag, at))
}

fn container_tag(tag: Option<Cow<'_, Tag>>, expected: &str, at: Position) -> Result<(), RuleError> {
    match tag {
        Some(tag) if !(tag.is_yaml_core_schema() && tag.suffix == expected) => {
            Err(unknown_tag(&tag, at))
        }
        _ => Ok(()),
    }
}

fn unknown_tag(tag: &Tag, at: Position) -> RuleError {
    syntax(format!(
        "the tag {} is not supported, remove it",
        short(&tag.to_string())
    ))
    .at(at)
}

fn plain(text: &str) -> Scalar {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Scalar::Null,
        "true" | "True" | "TRUE" => return Scalar::Bool(true, text.into()),
        "false" | "False" | "FALSE" => return Scalar::Bool(false, text.into()),
        _ => {}
    }
    if let Some(number) = integer(text) {
        return Scalar::Integer(number, text.into());
    }
    match float(text) {
        Some(number) => Scalar::Float(number, text.into()),
        None => Scalar::Text(text.into()),
    }
}

fn integer(text: &str) -> Option<i128> {
    let digits = |digits: &str, radix| {
        (!digits.starts_with(['+', '-']))
            .then(|| i128::from_str_radix(digits, radix).ok())
            .flatten()
    };
    if let Some(octal) = text.strip_prefix("0o") {
        return digits(octal, 8);
    }
    if let Some(hex) = text.strip_prefix("0x") {
        return digits(hex, 16);
    }
    text.parse().ok()
}

fn float(text: &str) -> Option<f64> {
    match text.trim_start_matches(['+', '-']) {
        ".inf" | ".Inf" | ".INF" => return Some(f64::INFINITY),
        ".nan" | ".NaN" | ".NAN" => return Some(f64::NAN),
        _ => {}
    }
    // Rust also reads `inf`, `nan` and `infinity`, which are texts in YAML.
    let is_number = text
        .bytes()
        .all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte));
    if is_number { text.parse().ok() } else { None }
}

fn scan_error(format: &str, error: &ScanError) -> RuleError {
    // The messages of the parser are fixed texts. They hold one character of the file at most.
    syntax(format!("invalid {format}: {}", error.info())).at(place(*error.marker()))
}

fn place(mark: Marker) -> Position {
    Position {
        line: mark.line() as u32,
        column: mark.col() as u32 + 1,
    }
}
