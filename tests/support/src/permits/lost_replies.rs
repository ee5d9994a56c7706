//! Calls for permits that the server executes, and whose replies never arrive.

use std::time::{Duration, Instant};

use tollgate::{
    RedisStore,
    permits::{Concurrency, ConcurrencyLimiter, Permit},
};
use tollgate_tests::{Mode, Proxy, RedisServer, wait};

use super::{
    held::{held_by_all, holders},
    replica::{closed_permits, take_permit},
};
use crate::PATIENCE;

/// The permits that two replicas share.
const AT_ONCE: usize = 2;

/// The deadline of the replica whose replies are lost.
const DEADLINE: Duration = Duration::from_millis(500);

/// Selects the call whose reply is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LostReply {
    /// An acquire.
    Acquire,
    /// A renewal.
    Renewal,
    /// A release.
    Release,
}

/// The permits after a reply was lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AfterLoss {
    /// The most permits that the server counted.
    pub most_held: u32,
    /// The most permits that both replicas used at the same time.
    pub most_in_use: usize,
    /// The permits that were lost though the server held them.
    pub lost: usize,
    /// The time from the next reply until the other replica has taken all permits.
    pub free_after: Duration,
}

impl LostReply {
    /// Lists all of them.
    pub const ALL: [Self; 3] = [Self::Acquire, Self::Renewal, Self::Release];

    /// Loses a reply to one of two replicas that share two permits. Then both take what they can,
    /// and give it back.
    ///
    /// # Panics
    ///
    /// When the permits do not come back.
    pub async fn lose(self, life: Duration, is_exact: bool) -> AfterLoss {
        let server = RedisServer::start();
        let proxy = Proxy::start(server.addr());
        let policy = Concurrency::new("jobs", AT_ONCE as u32).with_life(life);
        let policy = if is_exact { policy.exact() } else { policy };
        let (behind, direct) = (
            RedisStore::connect(server.url_at(proxy.addr())),
            RedisStore::connect(server.url()),
        );
        let replicas = [
            closed_permits(behind.await.expect("a store"), policy.clone(), DEADLINE),
            closed_permits(direct.await.expect("a store"), policy, PATIENCE),
        ];
        let mut scene = Scene {
            server,
            replicas,
            in_use: [Vec::new(), Vec::new()],
            after: AfterLoss::default(),
        };
        scene.take(0).await;
        scene.lose_reply(self, &proxy).await;
        scene.share().await;
        scene.take_all().await;
        scene.after
    }
}

/// Two replicas, and the permits that they use.
struct Scene {
    server: RedisServer,
    replicas: [ConcurrencyLimiter; 2],
    in_use: [Vec<Permit>; 2],
    after: AfterLoss,
}

impl Scene {
    async fn take(&mut self, at: usize) {
        self.in_use[at].extend(take_permit(&self.replicas[at]).await);
        self.look();
    }

    fn look(&mut self) {
        self.after.most_held = self.after.most_held.max(held_by_all(&self.server));
        let permits = || self.in_use.iter().flatten();
        self.after.most_in_use = self
            .after
            .most_in_use
            .max(permits().filter(|permit| !permit.is_lost()).count());
        self.after.lost = self
            .after
            .lost
            .max(permits().filter(|permit| permit.is_lost()).count());
    }

    /// Lets the first replica make a call that the server executes, and ends the connection before
    /// the reply.
    async fn lose_reply(&mut self, call: LostReply, proxy: &Proxy) {
        let executed =
            |server: &RedisServer| holders(server).iter().map(|holder| holder.number).max();
        let before = executed(&self.server);
        proxy.set(Mode::Mute);
        match call {
            LostReply::Acquire => {
                let acquired = self.replicas[0].acquire("acme").await;
                // A pool has an idle permit.
                self.in_use[0].extend(acquired.ok().and_then(Result::ok));
            }
            LostReply::Renewal => {}
            LostReply::Release => self.in_use[0].clear(),
        }
        wait::until_async("the server to execute the call", PATIENCE, async || {
            executed(&self.server) != before
        })
        .await;
        proxy.lose_replies();
        self.look();
    }

    /// Lets both replicas take permits until all are in use, and once more.
    async fn share(&mut self) {
        let began = Instant::now();
        while self.in_use.iter().map(Vec::len).sum::<usize>() < AT_ONCE {
            assert!(
                began.elapsed() < PATIENCE,
                "not all permits came back: {:?}",
                self.after
            );
            self.take(1).await;
            self.take(0).await;
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        self.take(1).await;
        self.take(0).await;
    }

    /// Lets the second replica take all permits when both have given back theirs.
    async fn take_all(&mut self) {
        self.in_use = [Vec::new(), Vec::new()];
        let began = Instant::now();
        while self.in_use[1].len() < AT_ONCE {
            assert!(
                began.elapsed() < PATIENCE,
                "not all permits came back: {:?}",
                self.after
            );
            self.take(1).await;
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        self.after.free_after = began.elapsed();
        self.take(1).await;
    }
}
