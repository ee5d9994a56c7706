//! Refuses requests to other hosts.
//!
//! A page of another site cannot send JSON to the playground. But its name may change from its own
//! address to 127.0.0.1 (DNS rebinding). The browser then takes the playground for a part of that
//! site. The field `Host` still has the name.

use std::{net::IpAddr, sync::Arc};

use axum::{
    extract::{Request, State},
    http::{StatusCode, header, uri::Authority},
    middleware::Next,
    response::Response,
};

use crate::problem::Refused;

/// Knows the hosts of the playground: addresses, `localhost`, and the name on which it listens.
///
/// Any address is accepted. A browser sends it only if it has opened that address, so no name was
/// involved.
#[derive(Clone, Debug)]
pub(crate) struct Hosts {
    own: Option<Arc<str>>,
}

impl Hosts {
    /// Creates the hosts of a listener. `listen` is its address, as `LISTEN` has it: `name:port`.
    pub(crate) fn new(listen: Option<&str>) -> Self {
        Self {
            own: listen
                .and_then(|listen| listen.rsplit_once(':'))
                .map(|(name, _)| name.into()),
        }
    }

    /// Returns whether a host, with or without a port, is one of the playground.
    fn has(&self, host: &str) -> bool {
        let Ok(authority) = host.parse::<Authority>() else {
            return false;
        };
        let name = authority
            .host()
            .trim_start_matches('[')
            .trim_end_matches(']');
        if name.parse::<IpAddr>().is_ok() {
            return true;
        }
        let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
        // Browsers resolve these names to the loopback address without DNS (RFC 6761).
        name == "localhost"
            || name.ends_with(".localhost")
            || self
                .own
                .as_ref()
                .is_some_and(|own| own.eq_ignore_ascii_case(&name))
    }
}

/// Passes requests whose every host is one of the playground. Others get the status 421.
pub(crate) async fn guard(
    State(hosts): State<Hosts>,
    request: Request,
    next: Next,
) -> Result<Response, Refused> {
    let in_fields = request
        .headers()
        .get_all(header::HOST)
        .iter()
        .map(|host| String::from_utf8_lossy(host.as_bytes()));
    let in_target = request
        .uri()
        .authority()
        .map(|authority| authority.as_str().into());
    let mut named: Vec<_> = in_fields.chain(in_target).collect();
    if named.is_empty() {
        named.push("none".into());
    }
    if let Some(other) = named.iter().find(|host| !hosts.has(host)) {
        let message =
            format!("host must be localhost, an address, or the name in LISTEN, got {other}");
        return Err(Refused::new(
            StatusCode::MISDIRECTED_REQUEST,
            "host",
            other,
            message,
        ));
    }
    drop(named);
    Ok(next.run(request).await)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_localhost_and_the_own_name_are_hosts_and_no_other_name_is() {
        let hosts = Hosts::new(Some("Demo.example:3000"));
        for host in [
            "127.0.0.1:3000",
            "192.0.2.7",
            "[::1]:3000",
            "[::1]",
            "localhost",
            "LOCALHOST:80",
            "localhost.",
        ] {
            assert!(hosts.has(host) && Hosts::new(None).has(host), "{host}");
        }
        for host in ["demo.example:3000", "demo.example"] {
            assert!(hosts.has(host) && !Hosts::new(None).has(host), "{host}");
        }
        for host in [
            "",
            "none",
            "evil.example",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "xlocalhost",
            "a b",
        ] {
            assert!(!hosts.has(host), "{host}");
        }
    }
}
