//! Shows what rate limits do, on a page.
//!
//! ```text
//! cargo run --example playground
//! cargo run --example playground -- --redis-server
//! ```
//!
//! Open <http://127.0.0.1:3000>. Choose an algorithm and a quota in each of the two panes, and send
//! requests: one, a burst, or a steady stream. Both panes get the same requests. The plots show
//! which were admitted and which were denied, and the meters show what each policy has left.
//!
//! The counts are in this process. With `REDIS_URL` they are in Redis, and all instances with the
//! same URL share them: start a second one with another `LISTEN`, open both pages, and send
//! requests in one of them. With `--redis-server` the program starts a Redis server of its own,
//! which the page stops and starts again: so one sees how a limiter answers in an outage.
//! `REDIS_SERVER` names the server program, `redis-server` by default.
//!
//! Everything that the page does is one HTTP request, so it works from a shell, too:
//!
//! ```text
//! curl -i http://127.0.0.1:3000/limited/left
//! curl -i -H 'X-Key: ann' -H 'X-Cost: 3' http://127.0.0.1:3000/limited/right
//! curl -N 'http://127.0.0.1:3000/work?seconds=5'
//! curl -N http://127.0.0.1:3000/api/events
//! ```
//!
//! Features: the defaults of `tollgate` and `tollgate-tower`.

mod api;
mod assets;
mod feed;
mod host;
mod keys;
mod pane;
mod playground;
mod problem;
mod redis_server;
mod reservations;
mod settings;
mod tally;
mod timed_store;
mod work;

use std::{env, sync::Arc};

use axum::middleware::{from_fn_with_state, map_response};
use tollgate::Store;
use tollgate_examples::{Failure, listen, serve, stopped, store};

use crate::{
    host::Hosts,
    playground::{Counts, Playground},
    redis_server::RedisServer,
};

/// Opens the store that the arguments and the environment name.
fn counts() -> Result<(Arc<dyn Store>, Counts), Failure> {
    let arguments: Vec<_> = env::args().skip(1).collect();
    let has_url = env::var("REDIS_URL").is_ok_and(|url| !url.is_empty());
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => Ok((
            store()?,
            if has_url {
                Counts::Redis
            } else {
                Counts::Process
            },
        )),
        ["--redis-server"] if has_url => {
            Err("--redis-server and REDIS_URL exclude each other: use one of them".into())
        }
        ["--redis-server"] => {
            let server = RedisServer::start()?;
            println!("Started a Redis server. A second instance shares its counts:");
            println!(
                "  REDIS_URL={} LISTEN=127.0.0.1:3001 cargo run --example playground",
                server.url()
            );
            Ok((tollgate::open(server.url())?, Counts::OwnRedis(server)))
        }
        _ => Err(format!(
            "the only argument is --redis-server, got {}",
            arguments.join(" ")
        )
        .into()),
    }
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let (store, counts) = counts()?;
    let playground = Playground::new(&store, counts).map_err(|refused| format!("{refused:?}"))?;
    let playground = Arc::new(playground);
    let hosts = Hosts::new(env::var("LISTEN").ok().as_deref());
    let router = assets::routes().merge(api::routes(Arc::clone(&playground)));
    let router = router
        .layer(from_fn_with_state(hosts, host::guard))
        .layer(map_response(secured));

    tokio::spawn(Arc::clone(&playground).run());
    let closing = Arc::clone(&playground);
    let stopped = stopped();
    tokio::spawn(async move {
        stopped.await;
        closing.close();
    });

    let listener = listen().await?;
    println!("Open http://{} in a browser.", listener.local_addr()?);
    serve(listener, router).await?;
    if let Counts::OwnRedis(server) = &playground.counts {
        server.stop();
    }
    Ok(())
}

async fn secured(response: axum::response::Response) -> axum::response::Response {
    assets::secured(response)
}
