//! Reservations and commits that the server executes, and whose replies never arrive.

use tollgate::{
    Costs, Key, Limiter, Policy, Quota, RedisStore,
    reservation::{ReservationId, Settlement},
};
use tollgate_tests::{Mode, Proxy, RedisServer, wait};

use crate::{PATIENCE, calls::Script, patient_limiter, remaining_of_each};

/// The units of both policies.
pub const AMOUNTS: [u64; 2] = [10_000, 1_000_000];

/// The tokens that each request reserves, and those that it commits.
pub const RESERVED: u64 = 100;
/// See [`RESERVED`].
pub const COMMITTED: u64 = 40;

/// A limiter of requests and tokens behind a proxy that loses replies.
#[derive(Debug)]
pub struct LostSettlements {
    server: RedisServer,
    proxy: Proxy,
    limiter: Limiter,
    rounds: u64,
}

impl LostSettlements {
    /// Starts the server, and sends the scripts to it.
    ///
    /// # Panics
    ///
    /// When the server does not answer.
    pub async fn start() -> Self {
        let server = RedisServer::start();
        let proxy = Proxy::start(server.addr());
        let store = RedisStore::builder(proxy.url())
            .connect_timeout(PATIENCE)
            .connect()
            .await
            .expect("a store");
        let policies = [("requests", AMOUNTS[0]), ("tokens", AMOUNTS[1])]
            .map(|(name, amount)| Policy::fixed_window(name, Quota::per_day(amount)));
        let limiter = patient_limiter(store, policies);
        let first = limiter
            .reserve("first", costs(1))
            .await
            .expect("a decision");
        assert_eq!(first.cancel().await.expect("settled"), Settlement::Settled);
        Self {
            server,
            proxy,
            limiter,
            rounds: 0,
        }
    }

    /// Reserves tokens of `acme` and commits fewer. The reply to each call is lost with its
    /// connection. Returns what the commit and a second commit of the same reservation say.
    ///
    /// # Panics
    ///
    /// When the store does not answer, or a call is not executed.
    pub async fn round(&mut self) -> [Settlement; 2] {
        self.rounds += 1;
        let name = self.rounds.to_string();
        let id = ReservationId::try_new(&name).expect("an id");
        let record =
            Script::new(self.limiter.policies().clone()).record_key(&Key::from("acme"), &id);
        self.proxy.set(Mode::Mute);
        let reserve = self.limiter.reserve("acme", costs(RESERVED)).id(id.clone());
        let reserve = tokio::spawn(async move { reserve.await });
        self.lose_reply(|server| server.command(&["EXISTS", &record]).int() == 1)
            .await;
        let reservation = reserve
            .await
            .expect("a task")
            .expect("the call was sent again");
        assert!(reservation.is_allowed());
        self.proxy.set(Mode::Mute);
        let commit = tokio::spawn(async move { reservation.commit(costs(COMMITTED)).await });
        self.lose_reply(|server| {
            server.command(&["GETRANGE", &record, "8", "15"]).bytes() != [0; 8]
        })
        .await;
        let settled = commit
            .await
            .expect("a task")
            .expect("the call was sent again");
        [
            settled,
            self.limiter
                .commit("acme", &id, costs(0))
                .await
                .expect("a no-op"),
        ]
    }

    /// Returns the requests and the tokens that are spent, and those that the rounds so far should
    /// have spent.
    pub async fn spent(&self) -> [[u64; 2]; 2] {
        let left = remaining_of_each(&self.limiter, "acme").await;
        [
            [AMOUNTS[0] - left[0], AMOUNTS[1] - left[1]],
            [self.rounds, self.rounds * COMMITTED],
        ]
    }

    /// Returns the server.
    #[must_use]
    pub fn server(&self) -> &RedisServer {
        &self.server
    }

    /// Waits until the server has executed a call, and ends the connection before the reply is
    /// delivered.
    async fn lose_reply(&self, is_executed: impl Fn(&RedisServer) -> bool) {
        wait::until_async("the server to execute the call", PATIENCE, async || {
            is_executed(&self.server)
        })
        .await;
        self.proxy.lose_replies();
    }
}

fn costs(tokens: u64) -> Costs {
    [("requests", 1), ("tokens", tokens)].into()
}
