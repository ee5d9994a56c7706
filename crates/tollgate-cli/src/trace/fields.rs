//! The fields of a request, by names that do not depend on the format of the trace.
//! Each format is read in a file of its own, such as `csv.rs` and `json.rs`.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
};

/// The fields of a request by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fields(BTreeMap<String, String>);

/// Gives a column of the trace the name of a field.
#[derive(Clone, Debug)]
pub(crate) struct Alias {
    pub(crate) field: String,
    pub(crate) column: String,
}

/// The names of the fields, each with the columns that common programs write.
const KNOWN: [(&str, &str); 8] = [
    (
        "time",
        "timestamp @timestamp ts time_iso8601 time_local msec datetime start_time date",
    ),
    (
        "ip",
        "remote_addr client_ip remote_ip clientip source_ip request.client_ip request.remote_ip \
         client remote_host c-ip",
    ),
    (
        "method",
        "request_method request.method http_method verb cs-method",
    ),
    (
        "path",
        "request_uri uri request.uri url request_path uri_path target cs-uri-stem",
    ),
    ("host", "http_host request.host vhost server_name"),
    ("user", "remote_user username"),
    (
        "user_agent",
        "http_user_agent request.headers.User-Agent useragent agent",
    ),
    ("referer", "http_referer request.headers.Referer referrer"),
];

impl Fields {
    pub(super) fn set(&mut self, name: impl Into<String>, value: impl Into<String>) {
        self.0.insert(name.into(), value.into());
    }

    /// Sets a field of a log in which a dash stands for no value.
    pub(super) fn set_unless_dash(&mut self, name: &str, value: &str) {
        if value != "-" && !value.is_empty() {
            self.set(name, value);
        }
    }

    /// Returns the value of a field.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Returns the names and values.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Gives the fields their known names, and splits those that hold several.
    pub(super) fn normalize(&mut self, aliases: &[Alias]) {
        for alias in aliases {
            if let Some(value) = self.get(&alias.column).map(str::to_owned) {
                self.set(&alias.field, value);
            }
        }
        if let Some(request) = self.get("request").map(str::to_owned) {
            self.split_request(&request);
        }
        for (name, columns) in KNOWN {
            if self.get(name).is_none()
                && let Some(value) = columns
                    .split(' ')
                    .find_map(|column| self.get(column))
                    .map(str::to_owned)
            {
                self.set_unless_dash(name, &value);
            }
        }
        if let Some(target) = self.get("path").map(str::to_owned) {
            self.split_target(&target);
        }
    }

    /// Splits `GET /path HTTP/1.1`. The bytes of a client that does not speak HTTP have no method
    /// and no path.
    fn split_request(&mut self, request: &str) {
        let parts: Vec<_> = request.split_ascii_whitespace().collect();
        if let [method, target] | [method, target, _] = parts[..]
            && method.bytes().all(|byte| byte.is_ascii_uppercase())
        {
            self.set("method", method);
            self.set("path", target);
        }
    }

    /// Splits a target of a request into its path and its query.
    fn split_target(&mut self, target: &str) {
        let target = match target.split_once("://") {
            Some((_, rest)) => &rest[rest.find('/').unwrap_or(rest.len())..],
            None => target,
        };
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        self.set("path", if path.is_empty() { "/" } else { path });
        if !query.is_empty() {
            self.set("query", query);
        }
    }

    /// Returns the address of the client. Of a list, the first one is read.
    pub(super) fn ip(&self) -> Option<IpAddr> {
        let first = self.get("ip")?.split(',').next()?.trim();
        let with_port = || first.parse().ok().map(|address: SocketAddr| address.ip());
        first
            .parse()
            .ok()
            .or_else(with_port)
            .map(|address: IpAddr| address.to_canonical())
    }
}

/// Returns whether a column has the time of a request.
pub(super) fn is_time(column: &str, aliases: &[Alias]) -> bool {
    let (name, columns) = KNOWN[0];
    column == name
        || columns.split(' ').any(|known| known == column)
        || aliases
            .iter()
            .any(|alias| alias.field == name && alias.column == column)
}
