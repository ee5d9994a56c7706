//! A state of permits that an older copy replaces, as after a fail-over to a replica that is
//! behind.

use std::time::Duration;

use tollgate::permits::Concurrency;
use tollgate_tests::{RedisServer, wait};

use super::{
    held::{PERMITS_KEY, held_by_all, holders},
    replica::{closed_permits, take_permit},
};
use crate::{PATIENCE, connected_store};

/// The permits that three replicas share. They use four of them.
const AT_ONCE: u32 = 5;

/// The permits after an older copy took over, which knows one of three replicas.
#[derive(Clone, Copy, Debug)]
pub struct OlderCopy {
    /// The permits that are lost though they fit.
    pub lost: usize,
    /// The most permits that the server counted.
    pub most_held: u32,
}

impl OlderCopy {
    /// Lets the older copy take over, and waits until all replicas have renewed what they hold.
    ///
    /// # Panics
    ///
    /// When no permit is granted, or none is renewed.
    pub async fn take_over(life: Duration, is_exact: bool) -> Self {
        let server = RedisServer::start();
        let policy = Concurrency::new("jobs", AT_ONCE).with_life(life);
        let policy = if is_exact { policy.exact() } else { policy };
        let store = connected_store(server.url()).await;
        let replicas = [(); 3].map(|()| closed_permits(store.clone(), policy.clone(), PATIENCE));
        let mut permits = vec![take_permit(&replicas[0]).await.expect("a permit")];
        server.command(&["COPY", PERMITS_KEY, "older"]);
        for at in [1, 1, 2] {
            permits.push(take_permit(&replicas[at]).await.expect("a permit"));
        }
        server.command(&["RENAME", "older", PERMITS_KEY]);
        let mut most_held = 0;
        wait::until_async(
            "the replicas to renew their permits",
            PATIENCE,
            async || {
                most_held = most_held.max(held_by_all(&server));
                holders(&server).len() == replicas.len()
                    || permits.iter().any(|permit| permit.is_lost())
            },
        )
        .await;
        let lost = permits.iter().filter(|permit| permit.is_lost()).count();
        Self { lost, most_held }
    }
}
