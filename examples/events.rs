//! Writes an audit log of denials and outages, and one mail per customer and day.
//!
//! ```text
//! cargo run --example events
//! for i in $(seq 8); do curl -s -o /dev/null -w '%{http_code} ' -H 'X-Customer: acme' http://127.0.0.1:3000/; done
//! ```
//!
//! Each customer has five requests a day. The fifth one goes beyond 80 % of them, the next three
//! are denied. The program prints a line of JSON for each event, in place of an audit log: with its
//! output in a file, `tollgate why acme --log FILE` explains the denials. And it prints one mail,
//! however often the customer comes near the limit and whichever instance it asks: that a customer
//! gets one mail a day is a limit of its own, in the same store.
//!
//! The observer of the limiter hands the events to a task, through a queue of 1 000. When the task
//! is slow, events are dropped and counted, and no request waits. Customers are personal data,
//! maybe: an audit log that must not name them has `LogLine::with_digest`.
//!
//! Features: the defaults of `tollgate` and `tollgate-tower`.

use std::time::SystemTime;

use axum::{Router, routing::get};
use tollgate::{
    Key, Limiter, Outage, Policy, Quota,
    limiter::events::{self, Event, EventReceiver, LogLine},
};
use tollgate_examples::{Failure, listen, serve, store};
use tollgate_tower::{RateLimitLayer, key::Header};

const REQUESTS: Policy = Policy::fixed_window("requests", Quota::per_day(5));

const MAIL: Policy = Policy::fixed_window("mail", Quota::per_day(1));

/// Writes the audit log and the mails until no limiter raises events any more.
async fn audit(mut events: EventReceiver, mails: Limiter) {
    let mut dropped = 0;
    while let Some(event) = events.recv().await {
        println!("{}", LogLine::new(&event, SystemTime::now()));
        if let Event::Denied(of) | Event::NearLimit(of) | Event::LockedOut(of) = &event {
            mail(&mails, of.key(), of.policy().name()).await;
        }
        if events.dropped() > dropped {
            println!(
                "audit: {} events are missing here",
                events.dropped() - dropped
            );
            dropped = events.dropped();
        }
    }
}

/// Sends a mail to a customer, unless it got one today.
async fn mail(mails: &Limiter, customer: &Key, policy: &str) {
    match mails.check(customer).await {
        Ok(decision) if decision.is_allowed() => {
            println!(
                "mail: dear {}, you have nearly used up your {policy} of today",
                customer.encoded()
            );
        }
        Ok(_) => {}
        Err(error) => println!("audit: no mail was sent: {error}"),
    }
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let store = store()?;
    let (observer, events) = events::channel(1_000);
    let requests = Limiter::builder(store.clone())
        .policies(REQUESTS)
        .observer(observer)
        .build();
    // In an outage nobody gets a mail: each instance would send one.
    let mails = Limiter::builder(store)
        .policies(MAIL)
        .on_outage(Outage::Closed)
        .build();
    let audit = tokio::spawn(audit(events, mails));
    let router = Router::new()
        .route("/", get(|| async { "hello\n" }))
        .layer(RateLimitLayer::builder(requests, Header::new("x-customer")).build());

    let listener = listen().await?;
    let url = format!("http://{}", listener.local_addr()?);
    println!("Listening on {url}: five requests a day for each X-Customer.");
    println!("Try:");
    println!(
        "  for i in $(seq 8); do curl -s -o /dev/null -w '%{{http_code}} ' -H 'X-Customer: acme' {url}/; done"
    );
    serve(listener, router).await?;
    // The service and its limiter are gone, so the task ends behind the last event.
    audit.await?;
    Ok(())
}
