//! What descriptors are made of, and no request of a trace has. Without it a trace that lacks a
//! header looks like one whose requests no rule limits.

use tollgate_rules::RequestPart;

use super::source::{Source, header_name};
use crate::trace::Request;

/// The parts that no request so far has had.
#[derive(Debug)]
pub(super) struct Missing(Vec<MissingPart>);

#[derive(Debug)]
enum MissingPart {
    /// `rate_limits` of the rules reads it.
    OfRules(RequestPart),
    /// A template of the command line has it.
    OfTemplate(String),
}

impl Missing {
    /// Lists all that the descriptors are made of.
    pub(super) fn of(source: &Source) -> Self {
        Self(match source {
            Source::Rules(descriptors) => descriptors
                .reads()
                .into_iter()
                .map(MissingPart::OfRules)
                .collect(),
            Source::Templates(templates) => {
                let mut fields: Vec<_> = templates
                    .iter()
                    .flat_map(|template| template.fields())
                    .collect();
                fields.sort_unstable();
                fields.dedup();
                let part = |field: &str| MissingPart::OfTemplate(field.to_owned());
                fields.into_iter().map(part).collect()
            }
        })
    }

    /// Removes what this request has.
    pub(super) fn look_at(&mut self, request: &Request) {
        self.0.retain(|part| !part.is_in(request));
    }

    /// Returns a sentence for each part that no request had, which says what to do.
    pub(super) fn notes(&self) -> impl Iterator<Item = String> {
        self.0.iter().map(MissingPart::note)
    }
}

impl MissingPart {
    fn is_in(&self, request: &Request) -> bool {
        let fields = &request.fields;
        match self {
            Self::OfRules(RequestPart::ClientAddress) => request.ip.is_some(),
            Self::OfRules(RequestPart::Header(name)) => fields.iter().any(|(column, value)| {
                !value.is_empty()
                    && header_name(column).is_some_and(|header| header == name.as_str())
            }),
            Self::OfRules(RequestPart::Method) => fields.get("method").is_some(),
            Self::OfRules(RequestPart::Path) => fields.get("path").is_some(),
            // The routes of a router stand in no log.
            Self::OfRules(_) => false,
            Self::OfTemplate(field) => fields.get(field).is_some(),
        }
    }

    fn note(&self) -> String {
        let (part, reader, field, substitute) = match self {
            Self::OfRules(part) => {
                let (field, substitute) = match part {
                    RequestPart::ClientAddress => ("ip".to_owned(), ""),
                    RequestPart::Header(name) => (format!("headers.{name}"), ""),
                    RequestPart::Method => ("method".to_owned(), ", and GET is taken"),
                    RequestPart::Path => ("path".to_owned(), ", and / is taken"),
                    _ => {
                        return format!(
                            "a log does not have {part}, which rate_limits reads: make descriptors with --descriptor"
                        );
                    }
                };
                (part.to_string(), "rate_limits", field, substitute)
            }
            Self::OfTemplate(field) => (
                format!("the field {field:?}"),
                "--descriptor",
                field.clone(),
                "",
            ),
        };
        format!(
            "no request has {part}, which {reader} reads{substitute}: name its column with --field {field}=COLUMN"
        )
    }
}
