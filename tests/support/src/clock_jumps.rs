//! What quotas do when the server's clock jumps: shared by the test and by the rows that are measured.

use std::time::{Duration, Instant};

pub(crate) use tollgate::testing::ALGORITHMS;
use tollgate::{Algorithm, Key, Limiter, Outage, Policy, Quota, RedisStore};
use tollgate_tests::{RedisServer, WallClock};

/// How far clocks jump.
pub const JUMPS: [Duration; 3] = [Duration::from_secs(1), Duration::from_secs(3_600), Duration::from_secs(86_400)];

/// A start of a day, and of every window that is looked at.
const START: Duration = Duration::from_secs(86_400 * 23_000);

/// Places in a window of [`PERIOD`]: half a second from either edge a jump of a second crosses it.
pub const PHASES: [Duration; 4] = [
    Duration::from_millis(500),
    Duration::from_secs(1_000),
    Duration::from_secs(2_900),
    Duration::from_millis(3_599_500),
];

/// Less than from any of them to an edge.
const TO_AN_EDGE: Duration = Duration::from_millis(450);

const PERIOD: Duration = Duration::from_secs(3_600);
const BURST: u64 = 20;

/// Half of a burst, and all of it.
pub const SPENT: [u64; 2] = [BURST / 2, BURST];

/// Longer than any server stays silent.
const PATIENT: Duration = Duration::from_secs(60);

/// The clock of a server, and a store that does not remember denials beyond a jump.
#[derive(Debug)]
pub struct Jumper {
    store: RedisStore,
    server: RedisServer,
    clock: WallClock,
    next: u64,
}

/// A key after a jump: how far its next unit was away before, and what was admitted at once after.
struct Landed {
    limiter: Limiter,
    key: Key,
    due: Duration,
    after: u64,
}

/// What a key met.
#[derive(Clone, Copy, Debug)]
pub struct Landing {
    /// What was admitted before the jump, and at once after it.
    pub before: u64,
    pub after: u64,
    /// How much longer the next unit was away than it had been before the jump, by the server's clock.
    pub wrongly: Duration,
}

impl Landing {
    /// What was admitted beyond one burst, in bursts.
    pub fn extra(&self) -> f64 {
        (self.before + self.after).saturating_sub(BURST) as f64 / BURST as f64
    }
}

/// The longest that a jump back may deny wrongly: 2·T where units accrue one by one, a period where they come together.
pub fn longest(algorithm: Algorithm) -> Duration {
    match algorithm {
        Algorithm::TokenBucket | Algorithm::LeakyBucket => PERIOD / BURST as u32 * 2,
        _ => PERIOD,
    }
}

impl Jumper {
    pub async fn start() -> Self {
        let clock = WallClock::new();
        let server = RedisServer::builder().clock(&clock).start();
        let store = RedisStore::builder(server.url()).without_deny_cache().connect().await.expect("a store");
        Self { store, server, clock, next: 0 }
    }

    pub fn server(&self) -> &RedisServer {
        &self.server
    }

    /// Spends so much of a fresh key's burst, lets the clock jump, and spends what is left then.
    pub async fn forward(&mut self, algorithm: Algorithm, phase: Duration, spent: u64, by: Duration) -> Landing {
        let Landed { after, .. } = self.land(algorithm, phase, spent, |clock| clock.forward(by)).await;
        Landing { before: spent, after, wrongly: Duration::ZERO }
    }

    /// As [`forward`](Self::forward), the other way; then goes on as a client that waits as it is told.
    pub async fn back(&mut self, algorithm: Algorithm, phase: Duration, spent: u64, by: Duration) -> Landing {
        let Landed { limiter, key, due, after } = self.land(algorithm, phase, spent, |clock| clock.back(by)).await;
        let wait = if after == 0 { self.next_unit(&limiter, &key).await } else { Duration::ZERO };
        Landing { before: spent, after, wrongly: wait.saturating_sub(due) }
    }

    async fn land(&mut self, algorithm: Algorithm, phase: Duration, spent: u64, jump: impl Fn(&WallClock)) -> Landed {
        let policy = Policy::try_new("p", algorithm, Quota::new(BURST as u32, PERIOD)).expect("a policy");
        let limiter = limiter(&self.store, policy);
        for _ in 0..100 {
            self.next += 1;
            let (key, began) = (Key::from(self.next), Instant::now());
            self.clock.set(START + phase);
            let before = drain(&limiter, &key, spent).await;
            assert_eq!(before, spent, "{algorithm:?}: a fresh key has its burst");
            let due = wait(&limiter, &key).await;
            jump(&self.clock);
            let after = drain(&limiter, &key, 10 * BURST).await;
            // A machine that stood still meanwhile has met an edge of the window, which shows nothing.
            if began.elapsed() < TO_AN_EDGE {
                return Landed { limiter, key, due, after };
            }
        }
        panic!("this machine does not manage forty checks within {TO_AN_EDGE:?}")
    }

    /// Goes on by what is told until a unit is admitted, and gives the sum.
    async fn next_unit(&self, limiter: &Limiter, key: &Key) -> Duration {
        let mut waited = Duration::ZERO;
        for _ in 0..100 {
            let Some(wait) = limiter.check(key.clone()).await.expect("a decision").retry_after() else {
                return waited;
            };
            self.clock.forward(wait);
            waited += wait;
        }
        panic!("a client that waits as it is told is denied for ever")
    }
}

fn limiter(store: &RedisStore, policy: Policy) -> Limiter {
    Limiter::builder(store.clone()).policies(policy).deadline(PATIENT).on_outage(Outage::Closed).build()
}

/// Spends at most so much, and gives how much passed.
async fn drain(limiter: &Limiter, key: &Key, most: u64) -> u64 {
    for spent in 0..most {
        if limiter.check(key.clone()).await.expect("a decision").is_denied() {
            return spent;
        }
    }
    most
}

/// How far the next unit is away.
async fn wait(limiter: &Limiter, key: &Key) -> Duration {
    let decision = limiter.peek(key.clone()).await.expect("a decision");
    let state = decision.states().next().expect("a state");
    if state.remaining() > 0 { Duration::ZERO } else { state.more_after() }
}
