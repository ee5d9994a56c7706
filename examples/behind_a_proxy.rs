//! A service behind a proxy: the client's address is what the proxy says it is, and nobody else.
//!
//! ```text
//! cargo run --example behind_a_proxy
//! curl -i -H 'X-Forwarded-For: 203.0.113.7' http://127.0.0.1:3000/
//! ```
//!
//! Here the proxy is your own curl: connections from this machine are trusted. Two clients have a limit each: send the
//! request three times for `203.0.113.7`, then once for `203.0.113.8`. What stands left of the address that the proxy
//! appends is the client's own invention and changes nothing: `X-Forwarded-For: 1.1.1.1, 203.0.113.7` is still
//! `203.0.113.7`. Started with `TRUSTED=10.0.0.0/8`, it trusts this machine no more, and the header is ignored.

use std::env;

use axum::{Router, extract::Request, routing::get};
use tollgate::{Limiter, Policy, Quota};
use tollgate_examples::{Failure, listen, serve, store};
use tollgate_tower::{
    RateLimitLayer,
    key::{ForwardedIp, Network, TrustedProxies},
};

const CLIENT: Policy = Policy::token_bucket("client", Quota::per_minute(2));

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let store = store()?;
    let trusted = env::var("TRUSTED").unwrap_or_else(|_| "127.0.0.0/8,::1".to_owned());
    let networks = trusted.split(',').map(str::parse).collect::<Result<Vec<Network>, _>>()?;
    let client = ForwardedIp::x_forwarded_for(TrustedProxies::networks(networks));

    // The extractor also tells the address, for a log or an answer of one's own.
    let who = client.clone();
    let hello = move |request: Request| async move {
        match who.address(&request.into_parts().0) {
            Ok(address) => format!("you are {address}\n"),
            Err(error) => format!("{error}\n"),
        }
    };
    let router = Router::new().route("/", get(hello)).layer(RateLimitLayer::new(Limiter::new(store, CLIENT), client));

    let listener = listen().await?;
    let url = format!("http://{}", listener.local_addr()?);
    println!("Listening on {url}, limited to 2 per minute and client; proxies at {trusted} are trusted.");
    println!("Try:");
    println!("  curl -i -H 'X-Forwarded-For: 1.1.1.1, 203.0.113.7' {url}/");
    serve(listener, router).await
}
