//! Makes the console of the settings.
//! See tollgate-console for what it shows, and what protects it.

use std::net::IpAddr;

use axum::http::HeaderName;
use tollgate::limiter::DeniedKeys;
use tollgate_console::{Console, Visitor};
use tollgate_rules::Rules;

use super::{
    arguments::{Arguments, ConsoleArguments, StoreArguments},
    failure::Failure,
};

/// Returns the place and the routes of the console, unless it is off. No server is asked.
pub(crate) fn console(
    settings: &Arguments,
    rules: &Rules,
    denied_keys: &DeniedKeys,
) -> Result<Option<(String, u16, axum::Router)>, Failure> {
    let console = &settings.console;
    let Some(port) = console.console_port else {
        return Ok(None);
    };
    let host = console.console_host.clone();
    if !is_loopback(&host) && !console.console_remote {
        return Err(Failure::new(format_args!(
            "--console-host {host:?} is no loopback address, and the console takes no credentials: \
             set --console-remote when a proxy before it authenticates"
        )));
    }
    let rules = rules.clone();
    let mut operator = tollgate_operator::Operator::builder(url(console, &settings.store)?)
        .rules(move || rules.current());
    if !settings.store.cache_key_prefix.is_empty() {
        operator = operator.prefix(settings.store.cache_key_prefix.clone());
    }
    let operator = operator
        .build()
        .map_err(|error| Failure::new(format_args!("the console cannot use the store: {error}")))?;
    let name = &console.console_author_header;
    let field = HeaderName::try_from(name)
        .map_err(|error| Failure::new(format_args!("--console-author-header {name:?}: {error}")))?;
    let mut page = Console::builder(operator).denied_keys(denied_keys.clone());
    if !console.console_remote {
        page = page.hosts(["localhost", "127.0.0.1", "[::1]", &host]);
    }
    Ok(Some((
        host,
        port,
        page.build(Visitor::by_header(field)).router(),
    )))
}

/// Returns the URL of the store. It may have a password.
fn url<'s>(console: &'s ConsoleArguments, store: &'s StoreArguments) -> Result<&'s str, Failure> {
    let url = console.console_store.as_deref().or(store.store.as_deref());
    url.filter(|url| !url.starts_with("memory:"))
        .ok_or_else(|| {
            Failure::new(
                "the console needs a store at a server: set --console-store or --store to a URL",
            )
        })
}

fn is_loopback(host: &str) -> bool {
    let address = host.parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}
