//! Limits each client behind a proxy, by the address that a trusted proxy reports.
//!
//! ```text
//! cargo run --example behind_a_proxy
//! for i in 1 2 3; do curl -i -H 'X-Forwarded-For: 203.0.113.7' http://127.0.0.1:3000/; done
//! curl -i -H 'X-Forwarded-For: 203.0.113.8' http://127.0.0.1:3000/
//! ```
//!
//! The third request for `203.0.113.7` gets 429. `203.0.113.8` is another client and gets 200. Here
//! curl takes the place of the proxy, because connections from this machine are trusted.
//!
//! A proxy appends the address of its client to the header. Addresses to the left of it were
//! written by the client and are ignored: `X-Forwarded-For: 1.1.1.1, 203.0.113.7` still counts for
//! `203.0.113.7`. With `TRUSTED=10.0.0.0/8` this machine is not trusted, and the header is ignored.
//!
//! Features: the defaults of `tollgate` and `tollgate-tower`.

use std::env;

use axum::{Router, extract::Request, routing::get};
use tollgate::{Limiter, Policy, Quota};
use tollgate_examples::{Failure, listen, serve, store};
use tollgate_tower::{
    RateLimitLayer,
    key::{ForwardedIp, TrustedProxies},
};

const CLIENT: Policy = Policy::token_bucket("client", Quota::per_minute(2));

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let store = store()?;
    let trusted = env::var("TRUSTED").unwrap_or_else(|_| "127.0.0.0/8,::1".to_owned());
    let client = ForwardedIp::x_forwarded_for(TrustedProxies::parse(&trusted)?);

    // The extractor also returns the address, for example for a log.
    let extractor = client.clone();
    let hello = move |request: Request| async move {
        match extractor.address(&request.into_parts().0) {
            Ok(address) => format!("you are {address}\n"),
            Err(error) => format!("{error}\n"),
        }
    };
    let router = Router::new()
        .route("/", get(hello))
        .layer(RateLimitLayer::new(Limiter::new(store, CLIENT), client));

    let listener = listen().await?;
    let url = format!("http://{}", listener.local_addr()?);
    println!(
        "Listening on {url}, limited to 2 per minute for each client; proxies at {trusted} are trusted."
    );
    println!("Try:");
    println!("  curl -i -H 'X-Forwarded-For: 1.1.1.1, 203.0.113.7' {url}/");
    serve(listener, router).await
}
