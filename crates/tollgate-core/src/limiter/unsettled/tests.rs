//! Commits through a store that is away, answers late, or loses its answers. Those through servers are in the
//! tests of the workspace.

use tokio::time::sleep;

use super::*;
use crate::{
    Cost, Decision, Key, Limiter, MemoryStore, Policy, Quota, Store,
    reservation::Reservation,
    store::{CheckFuture, StoreFuture, check::CheckParts},
};

const DAY: Duration = Duration::from_secs(86_400);

/// Does what a store does to a commit.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    Answered,
    /// The store is away.
    Refused(ErrorKind),
    /// The store settles, and the answer is lost.
    Lost,
    /// Nobody answers.
    Silent,
}

/// Wraps a store whose commits fail, and records what reaches it.
#[derive(Clone)]
struct Away(Arc<Inner>);

struct Inner {
    store: MemoryStore,
    fate: Lock<Fate>,
    /// The key that is away alone.
    away: Lock<Option<&'static str>>,
    /// The commits that were sent, and what the store said.
    sent: Lock<Vec<Option<Settlement>>>,
}

impl Away {
    fn new(fate: Fate) -> Self {
        Self(Arc::new(Inner {
            store: MemoryStore::new(),
            fate: Lock::new(fate),
            away: Lock::default(),
            sent: Lock::default(),
        }))
    }

    fn set(&self, fate: Fate) {
        *self.0.fate.lock() = fate;
    }

    fn sent(&self) -> Vec<Option<Settlement>> {
        self.0.sent.lock().clone()
    }

    fn limiter(&self) -> Limiter {
        Limiter::new(
            self.clone(),
            Policy::fixed_window("tokens", Quota::new(1_000, DAY * 3_650)),
        )
    }
}

impl Store for Away {
    fn check(&self, check: Check<'_>) -> CheckFuture {
        self.0.store.check(check)
    }

    fn refund(&self, check: Check<'_>, decision: Option<&Decision>) -> StoreFuture<()> {
        self.0.store.refund(check, decision)
    }

    fn reset(&self, check: Check<'_>) -> StoreFuture<()> {
        self.0.store.reset(check)
    }

    fn inner(&self) -> Option<&dyn Store> {
        Some(&self.0.store)
    }

    fn is_in_process(&self) -> bool {
        false
    }

    fn commit(&self, check: Check<'_>, id: &ReservationId) -> StoreFuture<Settlement> {
        let away = *self.0.away.lock();
        let fate = match away.is_none_or(|key| *check.key == Key::new(key)) {
            true => *self.0.fate.lock(),
            false => Fate::Answered,
        };
        let settle = || self.0.store.commit_now(check, id, check.number());
        let lost = |kind| StoreFuture::ready(Err(Error::new(kind, "away")));
        let (said, answer) = match fate {
            Fate::Answered => {
                let settlement = settle();
                (Some(settlement), StoreFuture::ready(Ok(settlement)))
            }
            Fate::Refused(kind) => (None, lost(kind)),
            Fate::Lost => (Some(settle()), lost(ErrorKind::ConnectionLost)),
            Fate::Silent => (None, StoreFuture::pending(std::future::pending())),
        };
        self.0.sent.lock().push(said);
        answer
    }
}

const REFUSED: Fate = Fate::Refused(ErrorKind::ConnectionRefused);

async fn reserve(limiter: &Limiter, key: impl Into<Key>, units: u64) -> Reservation {
    let reserved = limiter.reserve(key, Cost::new(units)).await;
    reserved.expect("a decision")
}

async fn left(limiter: &Limiter, key: &'static str) -> u64 {
    let state = limiter.peek(key).await.expect("a state");
    state.state("tokens").expect("a state").remaining()
}

fn repeats(limiter: &Limiter) -> &Repeats {
    let repeats = limiter.inner.unsettled.0.get();
    repeats.expect("a commit that has waited")
}

/// Returns whether no commit waits.
fn is_settled(limiter: &Limiter) -> bool {
    let repeats = limiter.inner.unsettled.0.get();
    repeats.is_none_or(|repeats| repeats.is_empty())
}

/// Waits until no commit waits. The clock of tokio stands still, and jumps to the next pause.
async fn settled(limiter: &Limiter) {
    let begun = Instant::now();
    while !is_settled(limiter) {
        assert!(begun.elapsed() < DAY, "commits wait for ever");
        sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_commit_whose_store_is_away_is_charged_once_when_it_is_back() {
    let store = Away::new(REFUSED);
    let limiter = store.limiter();
    let job = reserve(&limiter, "acme", 100).await;
    let error = job.commit(Cost::new(30)).await.expect_err("it is away");
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    // A minute later it is still away, and what was reserved stays charged.
    sleep(Duration::from_secs(60)).await;
    assert!(store.sent().len() > 10, "{}", store.sent().len());
    assert_eq!(left(&limiter, "acme").await, 900);
    store.set(Fate::Answered);
    settled(&limiter).await;
    assert_eq!(left(&limiter, "acme").await, 970);
    // Nobody sends it again.
    let sent = store.sent().len();
    sleep(Duration::from_secs(60)).await;
    assert_eq!(store.sent().len(), sent);
    assert_eq!(
        job.commit(Cost::ZERO).await.expect("no change"),
        Settlement::AlreadySettled
    );
    assert_eq!(left(&limiter, "acme").await, 970);
}

#[tokio::test(start_paused = true)]
async fn a_commit_whose_answer_is_lost_is_known_again_by_its_number() {
    let store = Away::new(Fate::Lost);
    let limiter = store.limiter();
    let job = reserve(&limiter, "acme", 100).await;
    job.commit(Cost::new(150)).await.expect_err("lost");
    assert_eq!(left(&limiter, "acme").await, 850);
    store.set(Fate::Answered);
    settled(&limiter).await;
    assert_eq!(store.sent(), [Some(Settlement::Settled); 2]);
    assert_eq!(left(&limiter, "acme").await, 850);
    // Another commit has another number.
    let other = limiter.commit("acme", job.id(), Cost::new(150)).await;
    assert_eq!(other.expect("no change"), Settlement::AlreadySettled);
}

#[tokio::test(start_paused = true)]
async fn a_silent_store_keeps_a_caller_until_the_deadline_and_no_longer() {
    let store = Away::new(Fate::Silent);
    let limiter = store.limiter();
    let job = reserve(&limiter, "acme", 100).await;
    let begun = Instant::now();
    let error = job.commit(Cost::ZERO).await.expect_err("nobody answers");
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert_eq!(begun.elapsed(), limiter.timeout());
    store.set(Fate::Answered);
    settled(&limiter).await;
    assert_eq!(left(&limiter, "acme").await, 1_000);
}

#[tokio::test(start_paused = true)]
async fn a_commit_is_dropped_when_its_reservation_has_lapsed() {
    let store = Away::new(REFUSED);
    let limiter = store.limiter();
    let life = Duration::from_secs(30);
    let job = limiter.reserve("acme", Cost::new(100)).time_to_live(life);
    let job = job.await.expect("a decision");
    let begun = Instant::now();
    job.commit(Cost::ZERO).await.expect_err("it is away");
    settled(&limiter).await;
    assert!(begun.elapsed() >= life, "{:?}", begun.elapsed());
    assert!(begun.elapsed() < life * 2, "{:?}", begun.elapsed());
    let sent = store.sent().len();
    store.set(Fate::Answered);
    sleep(life).await;
    assert_eq!(store.sent().len(), sent);
    assert_eq!(left(&limiter, "acme").await, 900);
}

#[tokio::test(start_paused = true)]
async fn only_the_first_commit_of_a_reservation_waits() {
    let store = Away::new(REFUSED);
    let limiter = store.limiter();
    let job = reserve(&limiter, "acme", 100).await;
    for last in [40, 0, 90] {
        job.commit(Cost::new(last)).await.expect_err("it is away");
    }
    // One by its id alone is the same.
    let again = limiter.commit("acme", job.id(), Cost::new(7)).await;
    again.expect_err("it is away");
    assert_eq!(repeats(&limiter).queue.lock().commits.len(), 1);
    store.set(Fate::Answered);
    settled(&limiter).await;
    assert_eq!(left(&limiter, "acme").await, 960);
}

#[tokio::test(start_paused = true)]
async fn commits_that_find_no_room_push_out_the_oldest() {
    let store = Away::new(REFUSED);
    let limiter = store.limiter();
    let (more, most) = (3, MOST_COMMITS as u64);
    for at in 0..most + more {
        let job = reserve(&limiter, at, 100).await;
        job.commit(Cost::ZERO).await.expect_err("it is away");
        let queue = repeats(&limiter).queue.lock();
        assert_eq!(queue.commits.len() as u64, (at + 1).min(most));
        assert_eq!(queue.given_up, (at + 1).saturating_sub(most));
    }
    store.set(Fate::Answered);
    settled(&limiter).await;
    for at in 0..most + more {
        let state = limiter.peek(at).await.expect("a state");
        let left = state.state("tokens").expect("a state").remaining();
        assert_eq!(left, if at < more { 900 } else { 1_000 }, "{at}");
    }
    assert_eq!(repeats(&limiter).queue.lock().given_up, 0);
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_away_keeps_no_other_waiting() {
    let store = Away::new(REFUSED);
    let limiter = store.limiter();
    for _ in 0..3 * MISSES {
        let job = reserve(&limiter, "away", 1).await;
        job.commit(Cost::ZERO).await.expect_err("it is away");
    }
    let job = reserve(&limiter, "acme", 100).await;
    job.commit(Cost::ZERO).await.expect_err("it is away");
    *store.0.away.lock() = Some("away");
    let begun = Instant::now();
    while left(&limiter, "acme").await < 1_000 {
        assert!(begun.elapsed() < DAY, "the commit waits for ever");
        sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(repeats(&limiter).queue.lock().commits.len(), 3 * MISSES);
}

#[tokio::test(start_paused = true)]
async fn what_no_later_call_mends_is_not_repeated() {
    let store = Away::new(Fate::Refused(ErrorKind::WrongType));
    let limiter = store.limiter();
    let job = reserve(&limiter, "acme", 100).await;
    job.commit(Cost::ZERO).await.expect_err("a mistake");
    assert!(is_settled(&limiter));
    // Also where the first attempt failed otherwise.
    store.set(REFUSED);
    job.commit(Cost::ZERO).await.expect_err("it is away");
    assert!(!is_settled(&limiter));
    store.set(Fate::Refused(ErrorKind::WrongType));
    settled(&limiter).await;
    assert_eq!(left(&limiter, "acme").await, 900);
}

#[test]
fn a_runtime_that_ends_leaves_its_commits_to_the_next() {
    let store = Away::new(REFUSED);
    let limiter = store.limiter();
    let runtime = || {
        let builder = &mut tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_time().start_paused(true).build();
        runtime.expect("a runtime")
    };
    let first = runtime();
    first.block_on(async {
        let job = reserve(&limiter, "acme", 100).await;
        job.commit(Cost::ZERO).await.expect_err("it is away");
    });
    drop(first);
    store.set(Fate::Answered);
    runtime().block_on(async {
        let job = reserve(&limiter, "bob", 100).await;
        job.commit(Cost::ZERO).await.expect("settled");
        settled(&limiter).await;
        assert_eq!(left(&limiter, "acme").await, 1_000);
    });
}
