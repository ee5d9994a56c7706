//! Measures what quotas admit and deny after the server's clock jumped: for the test and for the
//! fault suite.

use crate::limiters::decided;
use std::time::{Duration, Instant};

use tollgate::{Algorithm, Key, Limiter, Policy, Quota, RedisStore};
use tollgate_tests::{RedisServer, WallClock};

use crate::patient_limiter;

/// The lengths of the jumps.
pub const JUMPS: [Duration; 3] = [
    Duration::from_secs(1),
    Duration::from_secs(3_600),
    Duration::from_secs(86_400),
];

/// The start of a day, and of every window that is measured.
const START: Duration = Duration::from_secs(86_400 * 23_000);

/// Times since the start of the window of an hour. Half a second from an edge, a jump of one second
/// crosses it.
pub const PHASES: [Duration; 4] = [
    Duration::from_millis(500),
    Duration::from_secs(1_000),
    Duration::from_secs(2_900),
    Duration::from_millis(3_599_500),
];

/// Less than the time from any of them to an edge.
const TO_AN_EDGE: Duration = Duration::from_millis(450);

const PERIOD: Duration = Duration::from_secs(3_600);
const BURST: u64 = 20;

/// The units spent before the jump: half of a burst, and all of it.
pub const SPENT: [u64; 2] = [BURST / 2, BURST];

/// A server whose clock jumps, and a store without a cache of denials.
#[derive(Debug)]
pub struct JumpingServer {
    store: RedisStore,
    server: RedisServer,
    clock: WallClock,
    next: u64,
}

/// A key after a jump: the time to its next unit before the jump, and the units admitted at once
/// after it.
struct Landed {
    limiter: Limiter,
    key: Key,
    due: Duration,
    after: u64,
}

/// Holds the answers for a key around a jump of the clock.
#[derive(Clone, Copy, Debug)]
pub struct Landing {
    /// The units admitted before the jump.
    pub before: u64,
    /// The units admitted at once after it.
    pub after: u64,
    /// The time by which the wait for the next unit was longer than before the jump, by the
    /// server's clock.
    pub wrongly: Duration,
}

impl Landing {
    /// Returns the units admitted beyond one burst, in bursts.
    #[must_use]
    pub fn extra(&self) -> f64 {
        (self.before + self.after).saturating_sub(BURST) as f64 / BURST as f64
    }
}

/// Returns the longest time for which a jump back may deny wrongly: the time of two units where
/// units accrue one by one, a period where they accrue together.
#[must_use]
pub fn longest_wrong_denial(algorithm: Algorithm) -> Duration {
    match algorithm.is_continuous() {
        true => PERIOD / BURST as u32 * 2,
        false => PERIOD,
    }
}

impl JumpingServer {
    /// Starts the server.
    ///
    /// # Panics
    ///
    /// When it does not start.
    pub async fn start() -> Self {
        let clock = WallClock::new();
        let server = RedisServer::builder().clock(&clock).start();
        let store = RedisStore::builder(server.url())
            .deny_cache_cap(Duration::ZERO)
            .connect()
            .await
            .expect("a store");
        Self {
            store,
            server,
            clock,
            next: 0,
        }
    }

    /// Returns the server.
    #[must_use]
    pub fn server(&self) -> &RedisServer {
        &self.server
    }

    /// Spends this much of a fresh key's burst, lets the clock jump forward, and spends the rest.
    ///
    /// # Panics
    ///
    /// When the store does not decide.
    pub async fn forward(
        &mut self,
        algorithm: Algorithm,
        phase: Duration,
        spent: u64,
        by: Duration,
    ) -> Landing {
        let Landed { after, .. } = self
            .land(algorithm, phase, spent, |clock| clock.forward(by))
            .await;
        Landing {
            before: spent,
            after,
            wrongly: Duration::ZERO,
        }
    }

    /// The same with a jump back; then continues as a client that waits as the answers say.
    ///
    /// # Panics
    ///
    /// When the store does not decide, and when such a client is denied for ever.
    pub async fn back(
        &mut self,
        algorithm: Algorithm,
        phase: Duration,
        spent: u64,
        by: Duration,
    ) -> Landing {
        let Landed {
            limiter,
            key,
            due,
            after,
        } = self
            .land(algorithm, phase, spent, |clock| clock.back(by))
            .await;
        let wait = if after == 0 {
            self.next_unit(&limiter, &key).await
        } else {
            Duration::ZERO
        };
        Landing {
            before: spent,
            after,
            wrongly: wait.saturating_sub(due),
        }
    }

    async fn land(
        &mut self,
        algorithm: Algorithm,
        phase: Duration,
        spent: u64,
        jump: impl Fn(&WallClock),
    ) -> Landed {
        let policy = Policy::try_new("p", algorithm, Quota::new(BURST, PERIOD)).expect("a policy");
        let limiter = patient_limiter(self.store.clone(), policy);
        for _ in 0..100 {
            self.next += 1;
            let (key, began) = (Key::from(self.next), Instant::now());
            self.clock.set(START + phase);
            let before = drain(&limiter, &key, spent).await;
            assert_eq!(before, spent, "{algorithm:?}: a fresh key has its burst");
            let due = wait(&limiter, &key).await;
            jump(&self.clock);
            let after = drain(&limiter, &key, 10 * BURST).await;
            // On a machine that stood still meanwhile the window may have ended: the measurement is
            // repeated.
            if began.elapsed() < TO_AN_EDGE {
                return Landed {
                    limiter,
                    key,
                    due,
                    after,
                };
            }
        }
        panic!("forty checks took longer than {TO_AN_EDGE:?} a hundred times in a row")
    }

    /// Waits as the answers say until a unit is admitted, and returns the sum of the waits.
    async fn next_unit(&self, limiter: &Limiter, key: &Key) -> Duration {
        let mut waited = Duration::ZERO;
        for _ in 0..100 {
            let Some(wait) = decided(limiter, key.clone()).await.retry_after() else {
                return waited;
            };
            self.clock.forward(wait);
            waited += wait;
        }
        panic!("a client that waits as the answers say was denied a hundred times")
    }
}

/// Spends up to `most` units, and returns how many were admitted.
async fn drain(limiter: &Limiter, key: &Key, most: u64) -> u64 {
    for spent in 0..most {
        if decided(limiter, key.clone()).await.is_denied() {
            return spent;
        }
    }
    most
}

/// Returns the time to the next unit.
async fn wait(limiter: &Limiter, key: &Key) -> Duration {
    let decision = limiter.peek(key.clone()).await.expect("a decision");
    let state = decision.states().next().expect("a state");
    if state.remaining() > 0 {
        Duration::ZERO
    } else {
        state.next_unit_after()
    }
}
