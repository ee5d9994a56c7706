//! Makes descriptors of the requests of a trace.
//! The fields of a request are read in `trace/`. Actions of rules are those of tollgate-rules.

use std::net::SocketAddr;

use http::{HeaderName, HeaderValue, request::Parts};
use tollgate_rules::{ClientIp, Descriptor, Descriptors};

use crate::{
    failure::Failure,
    trace::{Fields, Request},
};

/// Makes the descriptors of a request.
#[derive(Debug)]
pub(crate) enum Source {
    /// By the field `rate_limits` of the rules.
    Rules(Descriptors),
    /// By templates of the command line.
    Templates(Vec<Template>),
}

/// Makes one descriptor: `tenant={tenant},path={path}`.
#[derive(Debug)]
pub(crate) struct Template {
    entries: Vec<(String, Vec<Part>)>,
}

#[derive(Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Field(String),
}

impl Source {
    /// Makes the descriptors of a request.
    ///
    /// Fails when an action needs the address of the client, and the trace has none.
    pub(super) fn descriptors(
        &self,
        request: &Request,
    ) -> Result<Vec<Descriptor<'static>>, String> {
        match self {
            Self::Templates(templates) => Ok(templates
                .iter()
                .filter_map(|template| template.descriptor(&request.fields))
                .collect()),
            Self::Rules(descriptors) => {
                let head = head(request)?;
                let made = descriptors
                    .extract(&head, &ClientIp::Peer)
                    .map_err(|_| "no address of the client")?;
                Ok(made.iter().map(owned).collect())
            }
        }
    }
}

/// Copies a descriptor out of the request that it was made of.
fn owned(descriptor: &Descriptor<'_>) -> Descriptor<'static> {
    descriptor
        .entries()
        .iter()
        .map(|entry| (entry.key().to_owned(), entry.value().to_owned()))
        .collect()
}

impl Template {
    /// Reads `KEY=TEXT,…`, in which `{NAME}` stands for a field.
    pub(crate) fn parse(text: &str) -> Result<Self, Failure> {
        let wrong = |reason: &str| {
            Failure::new(format_args!(
                "descriptor {text:?} {reason}, expected the form key={{field}},key=text"
            ))
        };
        let mut entries = Vec::new();
        for entry in text.split(',') {
            let (key, value) = entry
                .split_once('=')
                .ok_or_else(|| wrong("has an entry without ="))?;
            if key.trim().is_empty() {
                return Err(wrong("has an empty key"));
            }
            let mut parts = Vec::new();
            let mut rest = value;
            while let Some((before, after)) = rest.split_once('{') {
                let (field, behind) = after
                    .split_once('}')
                    .ok_or_else(|| wrong("has a { without }"))?;
                parts.extend([Part::Text(before.to_owned()), Part::Field(field.to_owned())]);
                rest = behind;
            }
            parts.push(Part::Text(rest.to_owned()));
            entries.push((key.trim().to_owned(), parts));
        }
        Ok(Self { entries })
    }

    /// Returns the fields that the template reads.
    pub(super) fn fields(&self) -> impl Iterator<Item = &str> {
        let parts = self.entries.iter().flat_map(|(_, parts)| parts);
        parts.filter_map(|part| match part {
            Part::Field(name) => Some(name.as_str()),
            Part::Text(_) => None,
        })
    }

    /// Makes the descriptor, and returns `None` when the request lacks a field.
    fn descriptor(&self, fields: &Fields) -> Option<Descriptor<'static>> {
        let mut descriptor = Descriptor::new();
        for (key, parts) in &self.entries {
            let mut value = String::new();
            for part in parts {
                match part {
                    Part::Text(text) => value.push_str(text),
                    Part::Field(name) => value.push_str(fields.get(name)?),
                }
            }
            descriptor.push(key.clone(), value);
        }
        Some(descriptor)
    }
}

/// Makes the head of a request, as a server would see it.
fn head(request: &Request) -> Result<Parts, String> {
    let fields = &request.fields;
    // No action reads the query.
    let (method, path) = (
        fields.get("method").unwrap_or("GET"),
        fields.get("path").unwrap_or("/"),
    );
    let builder = http::Request::builder().method(method).uri(path);
    let (mut head, ()) = builder
        .body(())
        .map_err(|_| "the method or the path is not valid".to_owned())?
        .into_parts();
    if let Some(ip) = request.ip {
        head.extensions.insert(SocketAddr::new(ip, 0));
    }
    for (column, value) in fields.iter() {
        let header = header_name(column).and_then(|name| HeaderName::try_from(name).ok());
        if let (Some(name), Ok(value)) = (header, HeaderValue::from_str(value)) {
            head.headers.insert(name, value);
        }
    }
    Ok(head)
}

/// Returns the header field that a column holds: `http_x_tenant` of nginx,
/// `request.headers.X-Tenant` of Caddy, `x-tenant`.
pub(super) fn header_name(column: &str) -> Option<String> {
    if matches!(column, "user_agent" | "host" | "referer") {
        return Some(column.replace('_', "-"));
    }
    if let Some(name) = column.strip_prefix("http_") {
        return Some(name.replace('_', "-"));
    }
    let inside = ["request.headers.", "headers.", "header."]
        .iter()
        .find_map(|prefix| column.strip_prefix(prefix));
    let custom = || {
        column
            .get(..2)
            .filter(|prefix| prefix.eq_ignore_ascii_case("x-"))
            .map(|_| column)
    };
    inside.or_else(custom).map(str::to_ascii_lowercase)
}
