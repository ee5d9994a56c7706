//! The end of the time to live of reservations that grow: what a living process has left goes back, what a dead one held
//! stays charged, and nothing is counted that is not charged. A model of processes in paused time, and dead ones by hand.
//! `growing.rs` has what else holds on every store, also at that end.

use std::{
    future::Future,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    runtime::{Builder, Runtime},
    time::{Instant, sleep, sleep_until},
};
use tollgate::{
    Cost, Decision, Error, ErrorKind, Key, Limiter, MemoryStore, Outage, Policy, Quota, Store,
    reservation::{GrowingReservation, Growth, GrowthError, ReservationId, Settlement},
    store::{Check, CheckFuture, Clock, StoreFuture},
};
use tollgate_postgres::{Durability, PostgresStore};
use tollgate_test_support::{
    Deployment, Dice, Kind, PATIENCE, POSTGRES, START_US, new_table, patient_limiter,
};
use tollgate_tests::wait;

use crate::{growing, suite::run};

const YEAR: Duration = Duration::from_secs(365 * 86_400);
const AMOUNT: u64 = 1_500;

/// All streams share this one.
const POOL: Policy = Policy::fixed_window("pool", Quota::new(AMOUNT, YEAR)).at_level(1);
/// The units of one stream.
const OWN: Policy = Policy::fixed_window("own", Quota::new(10 * AMOUNT, YEAR));

/// The time of a call of the store.
const TRIP: Duration = Duration::from_millis(20);
/// The most units that are counted at once. No slice has fewer, so at most two of them are held.
const LARGEST: u64 = 20;
/// The clock of the store is behind that of a process by one operation at most.
const TICK: Duration = Duration::from_millis(50);

/// In the place of a number of calls: each answer is lost.
const ANSWERS: u64 = u64::MAX;

/// A store that is far away, and may lose answers. Each process has its own, over the same states.
#[derive(Clone)]
struct FarStore {
    store: MemoryStore,
    dice: Arc<Mutex<Dice>>,
    /// One of so many calls is lost, and one of so many answers; 0 for none.
    loses: Arc<AtomicU64>,
}

impl FarStore {
    fn new(store: &MemoryStore, seed: u64, loses: u64) -> Self {
        Self {
            store: store.clone(),
            dice: Arc::new(Mutex::new(Dice::new(seed))),
            loses: Arc::new(AtomicU64::new(loses)),
        }
    }

    fn call<T: Send + Unpin + 'static>(
        &self,
        call: impl FnOnce(&MemoryStore) -> StoreFuture<T>,
    ) -> StoreFuture<T> {
        let die = match self.loses.load(Ordering::Relaxed) {
            0 => u64::MAX,
            ANSWERS => 1,
            loses => self.dice.lock().expect("no holder panics").below(loses),
        };
        let answer = (die > 0).then(|| call(&self.store));
        StoreFuture::pending(async move {
            sleep(TRIP).await;
            match answer {
                Some(answer) if die > 1 => answer.await,
                _ => Err(Error::new(ErrorKind::Timeout, "the answer is lost")),
            }
        })
    }

    /// Loses each answer, but no call.
    fn loses_answers(&self) {
        self.loses.store(ANSWERS, Ordering::Relaxed);
    }

    fn limiter(self) -> Limiter {
        Limiter::builder(self)
            .policies([POOL, OWN])
            .on_outage(Outage::Closed)
            .build()
    }
}

impl Store for FarStore {
    fn check(&self, check: Check<'_>) -> CheckFuture {
        self.store.check(check)
    }

    fn refund(&self, check: Check<'_>, decision: Option<&Decision>) -> StoreFuture<()> {
        self.store.refund(check, decision)
    }

    fn reset(&self, check: Check<'_>) -> StoreFuture<()> {
        self.store.reset(check)
    }

    fn reserve(&self, check: Check<'_>, id: &ReservationId, time_to_live: Duration) -> CheckFuture {
        self.call(|store| store.reserve(check, id, time_to_live))
    }

    fn commit(&self, check: Check<'_>, id: &ReservationId) -> StoreFuture<Settlement> {
        self.call(|store| store.commit(check, id))
    }
}

/// A process, with a runtime and a time of its own.
struct Process {
    runtime: Runtime,
    began: Instant,
    store: FarStore,
    limiter: Limiter,
}

impl Process {
    /// Starts a process when so much time has passed.
    fn start(store: FarStore, passed: Duration) -> Self {
        let mut runtime = Builder::new_current_thread();
        let runtime = runtime.enable_time().start_paused(true).build();
        let runtime = runtime.expect("a runtime");
        let began = runtime.block_on(async {
            let began = Instant::now();
            sleep(passed).await;
            began
        });
        Self {
            runtime,
            began,
            limiter: store.clone().limiter(),
            store,
        }
    }

    /// Runs work in the time of this process. A future that asks for the time when it is created is
    /// created inside.
    fn run<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }
}

/// Processes over one store, whose times go side by side.
struct World {
    clock: Clock,
    store: MemoryStore,
    processes: Vec<Process>,
    passed: Duration,
}

impl World {
    fn new(processes: u64, seed: u64, loses: u64) -> Self {
        let clock = Clock::manual(START_US);
        let store = MemoryStore::builder().clock(clock.clone()).build();
        let start = |at| Process::start(FarStore::new(&store, seed ^ at, loses), Duration::ZERO);
        Self {
            processes: (0..processes).map(start).collect(),
            clock,
            store,
            passed: Duration::ZERO,
        }
    }

    /// Ends a process in the middle of what it does, and starts another one in its place.
    fn restart(&mut self, at: usize) {
        let store = self.processes[at].store.clone();
        self.pass(Duration::ZERO);
        self.processes[at] = Process::start(store, self.passed);
    }

    /// Lets time pass in all processes, and for the store.
    fn pass(&mut self, time: Duration) {
        let of = |process: &Process| process.run(async { process.began.elapsed() });
        let latest = self.processes.iter().map(of).max().unwrap_or_default();
        let goal = latest.max(self.passed) + time;
        while self.passed < goal {
            let tick = TICK.min(goal - self.passed);
            self.passed += tick;
            self.clock.advance(tick);
            for process in &self.processes {
                process.run(async { sleep_until(process.began + self.passed).await });
            }
        }
    }

    /// Returns what the pool and the stream of this number have spent.
    fn spent(&self, stream: usize) -> (u64, u64) {
        let limiter = Limiter::new(self.store.clone(), [POOL, OWN]);
        let peek = limiter.peek(key(stream));
        let peek = self.processes[0].run(async { peek.await });
        let peek = peek.expect("the store decides");
        let spent = |name| peek.state(name).expect("a state").spent();
        (spent("pool"), spent("own"))
    }
}

fn key(stream: usize) -> Key {
    Key::new("acme").child(format!("stream{stream}"))
}

/// A stream, as the test remembers it.
struct Stream {
    process: usize,
    growth: Growth,
    /// `None` when it has ended.
    held: Option<GrowingReservation>,
    prompt: u64,
    slice: u64,
    end: End,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Open,
    Denied,
    Settled,
    /// The estimate came back.
    Cancelled,
    /// Its process has died, with nothing on its way or not.
    Killed {
        was_still: bool,
    },
}

impl Stream {
    /// Asserts what its policy has spent at the end.
    fn assert_spent(&self, spent: u64, about: &str) {
        let (counted, prompt) = (self.growth.counted(), self.prompt);
        match self.end {
            End::Denied => assert_eq!(spent, 0, "{about}"),
            End::Open | End::Settled => assert_eq!(spent, prompt + counted, "{about}"),
            End::Cancelled => assert_eq!(spent, counted, "{about}"),
            End::Killed { was_still } => {
                let held = self.growth.reserved();
                assert!(held <= counted + 2 * self.slice, "{about}");
                assert!(spent >= prompt + held, "{about}: {spent}");
                assert!(!was_still || spent == prompt + held, "{about}: {spent}");
            }
        }
    }
}

/// Runs streams that stall, end and lose answers, in processes that die. Returns how often something
/// went back because a time to live ended, and how many streams died.
fn streams(seed: u64, loses: u64) -> (u64, u64) {
    let mut dice = Dice::new(seed);
    let mut world = World::new(2, seed, loses);
    let mut all: Vec<Stream> = Vec::new();
    let (mut returned, mut died) = (0, 0);
    for step in 0..150 {
        let about = format!("seed {seed}, loses {loses}, step {step}");
        let open: Vec<usize> = (0..all.len())
            .filter(|&at| all[at].end == End::Open)
            .collect();
        let at = (!open.is_empty()).then(|| dice.pick(&open));
        match (dice.below(16), at) {
            (0..=2, _) | (_, None) => {
                let process = dice.below(2) as usize;
                let (prompt, slice) = (dice.below(20), LARGEST + dice.below(32));
                // A commit that is lost is repeated within the last eighth.
                let time_to_live =
                    Duration::from_secs(if loses > 0 { 40 } else { 4 } + dice.below(40));
                let id = ReservationId::random();
                // A request that gets no answer is sent again under its id.
                let stream = loop {
                    let reserve = world.processes[process]
                        .limiter
                        .reserve(key(all.len()), Cost::new(prompt))
                        .time_to_live(time_to_live)
                        .id(id.clone())
                        .growing(slice);
                    match world.processes[process].run(async { reserve.await }) {
                        Ok(stream) => break stream,
                        Err(error) => assert!(loses > 0, "{about}: {error}"),
                    }
                };
                all.push(Stream {
                    process,
                    growth: stream.growth().clone(),
                    end: if stream.is_allowed() {
                        End::Open
                    } else {
                        End::Denied
                    },
                    held: Some(stream),
                    prompt,
                    slice,
                });
            }
            (3..=8, Some(at)) => {
                let (stream, units) = (&all[at], 1 + dice.below(LARGEST));
                let before = stream.growth.counted();
                let process = &world.processes[stream.process];
                let outcome = process.run(async { stream.growth.take(units).await });
                let taken = if outcome.is_ok() { units } else { 0 };
                assert_eq!(stream.growth.counted(), before + taken, "{about}");
                assert!(!matches!(outcome, Err(GrowthError::Settled)), "{about}");
            }
            (9..=11, Some(at)) => {
                let held = all[at].growth.left();
                world.pass(Duration::from_millis(dice.below(30_000)));
                returned += u64::from(all[at].growth.left() < held);
            }
            (12, Some(at)) => {
                let held = all[at].held.take();
                world.processes[all[at].process].run(async { drop(held) });
                all[at].end = End::Settled;
            }
            (13, Some(at)) => {
                let held = all[at].held.take().expect("it is open");
                let settled = world.processes[all[at].process].run(held.commit());
                assert!(loses > 0 || settled.is_ok(), "{about}: {settled:?}");
                all[at].end = End::Settled;
            }
            (14, Some(at)) if loses == 0 => {
                let held = all[at].held.take().expect("it is open");
                let settled = world.processes[all[at].process].run(held.cancel());
                all[at].end = match settled.expect("the store answers") {
                    Settlement::Settled => End::Cancelled,
                    // The estimate was settled when the time to live of its slice ended.
                    _ => End::Settled,
                };
            }
            (15, Some(at)) if step % 4 == 0 => {
                let was_still = loses == 0 && dice.below(2) == 0;
                if was_still {
                    world.pass(20 * TRIP);
                }
                let process = all[at].process;
                for (at, stream) in all.iter_mut().enumerate() {
                    if stream.process != process {
                        continue;
                    }
                    // Nobody settles it.
                    std::mem::forget(stream.held.take());
                    let is_settled = world.spent(at).1 == stream.prompt + stream.growth.counted();
                    match stream.end {
                        End::Open => died += 1,
                        // Its commit was lost, and is not repeated any more.
                        End::Settled if loses > 0 && !is_settled => {}
                        _ => continue,
                    }
                    stream.end = End::Killed { was_still };
                }
                world.restart(process);
            }
            _ => {}
        }
        // Whatever was lost: nothing is counted that the store has not charged.
        let each: Vec<_> = (0..all.len()).map(|at| world.spent(at)).collect();
        let own: u64 = each.iter().map(|(_, own)| own).sum();
        assert!(each.iter().all(|(pool, _)| *pool == own), "{about}");
        assert!(own <= AMOUNT, "{about}: {own}");
        for (stream, (_, own)) in all.iter().zip(each) {
            assert!(stream.growth.counted() <= own, "{about}");
        }
    }
    for process in &world.processes {
        process.store.loses.store(0, Ordering::Relaxed);
    }
    for stream in &mut all {
        let held = stream.held.take();
        world.processes[stream.process].run(async { drop(held) });
    }
    // Also long after each time to live has ended.
    for _ in 0..2 {
        world.pass(Duration::from_secs(100));
        for (at, stream) in all.iter().enumerate() {
            let about = format!("seed {seed}, loses {loses}, stream {at}: {:?}", stream.end);
            stream.assert_spent(world.spent(at).1, &about);
        }
    }
    (returned, died)
}

#[test]
fn what_living_processes_have_left_comes_back_when_the_time_to_live_ends_and_what_dead_ones_held_does_not()
 {
    for loses in [0, 10] {
        let runs = (0..25).map(|seed| streams(seed, loses));
        let (returned, died) = runs.fold((0, 0), |sum, run| (sum.0 + run.0, sum.1 + run.1));
        assert!(returned > 25 && died > 25, "{returned} and {died}");
    }
}

/// A stream that stands still holds nothing for longer than its time to live, and goes on afterwards.
#[test]
fn a_stream_that_stands_still_gives_back_what_it_has_left_and_asks_again() {
    let mut world = World::new(1, 0, 0);
    let limiter = world.processes[0].limiter.clone();
    let stream = limiter.reserve(key(0), Cost::new(3));
    let stream = stream.time_to_live(Duration::from_secs(8)).growing(10);
    let stream = world.processes[0].run(async { stream.await });
    let stream = stream.expect("a decision");
    let growth = stream.growth();
    world.pass(Duration::from_secs(4));
    world.processes[0]
        .run(async { growth.take(4).await })
        .expect("reserved");
    world.pass(Duration::from_millis(2_900));
    assert_eq!((world.spent(0).1, growth.left()), (13, 6));

    // A second before the store forgets the slice.
    world.pass(Duration::from_millis(300));
    assert_eq!((world.spent(0).1, growth.left()), (7, 0));
    assert_eq!((growth.reserved(), growth.counted()), (4, 4));
    world.pass(Duration::from_secs(3_600));
    world.processes[0]
        .run(async { growth.take(2).await })
        .expect("reserved");
    assert_eq!((world.spent(0).1, growth.left()), (17, 8));

    // The estimate was settled with its slice.
    let settled = world.processes[0].run(stream.cancel());
    assert_eq!(settled.expect("an answer"), Settlement::AlreadySettled);
    assert_eq!(world.spent(0).1, 3 + 6);
}

/// Its id is not asked for again, because the store would answer that it is charged.
#[test]
fn a_slice_whose_answer_was_lost_goes_back_when_its_time_to_live_ends() {
    for is_asked_meanwhile in [false, true] {
        let mut world = World::new(1, 0, 0);
        let (limiter, store) = {
            let process = &world.processes[0];
            (process.limiter.clone(), process.store.clone())
        };
        let stream = limiter.reserve(key(0), 0);
        let stream = stream.time_to_live(Duration::from_secs(8)).growing(10);
        let stream = world.processes[0].run(async { stream.await });
        let stream = stream.expect("a decision");
        let growth = stream.growth();
        world.pass(Duration::from_secs(4));
        store.loses_answers();
        world.processes[0]
            .run(async { growth.take(10).await })
            .expect("reserved");
        let lost = world.processes[0].run(async { growth.take(5).await });
        assert!(matches!(lost, Err(GrowthError::Failed(_))), "{lost:?}");
        store.loses.store(0, Ordering::Relaxed);
        assert_eq!((world.spent(0).1, growth.reserved()), (20, 10));
        // The store forgets it 8 s after the first call, and it goes back a second before.
        let rest = if is_asked_meanwhile {
            world.pass(Duration::from_secs(4));
            world.processes[0]
                .run(async { growth.take(5).await })
                .expect("reserved");
            assert_eq!(growth.counted(), 15);
            3_500
        } else {
            7_500
        };
        world.pass(Duration::from_millis(rest));
        let counted = growth.counted();
        // The one that was asked for in advance is younger.
        let left = if is_asked_meanwhile { 10 } else { 0 };
        assert_eq!((world.spent(0).1, growth.left()), (counted + left, left));
        world.processes[0]
            .run(async { growth.take(7).await })
            .expect("reserved");
        world.pass(Duration::from_secs(1));
        assert_eq!(world.spent(0).1, growth.reserved());
        world.processes[0].run(async { drop(stream) });
        assert_eq!(world.spent(0).1, counted + 7);
    }
}

/// Over a store in the process, the end is that of a task of the runtime in which it was reserved.
#[tokio::test(start_paused = true)]
async fn what_is_left_in_process_goes_back_when_the_time_to_live_ends() {
    let clock = Clock::manual(START_US);
    let store = MemoryStore::builder().clock(clock.clone()).build();
    let limiter = Limiter::new(store, [POOL, OWN]);
    let stream = limiter
        .reserve(key(0), 0)
        .time_to_live(Duration::from_secs(8));
    let stream = stream.growing(10).await.expect("a decision");
    stream.growth().take(14).await.expect("reserved");
    sleep(Duration::from_secs(7)).await;
    clock.advance(Duration::from_secs(7));
    tokio::time::advance(Duration::from_millis(1)).await;
    tokio::task::yield_now().await;
    let spent = limiter.peek(key(0)).await.expect("a decision");
    assert_eq!(spent.state("own").expect("a state").spent(), 14);
    assert_eq!(stream.growth().left(), 0);
    stream.growth().take(1).await.expect("reserved");
    drop(stream);
    let spent = limiter.peek(key(0)).await.expect("a decision");
    assert_eq!(spent.state("own").expect("a state").spent(), 15);
}

/// Streams of a process that dies: nobody settles them.
async fn killed(store: Arc<dyn Store>) {
    let limiter = patient_limiter(store, growing::MANY);
    let id_of = |id: String| ReservationId::try_new(id).expect("an id");
    let job = limiter
        .reserve(growing::key(), 0)
        .id(id_of("job".to_owned()));
    let job = job.growing(100).await.expect("a decision");
    job.growth().take(100).await.expect("reserved");
    // So that no slice is on its way.
    job.growth().grow().await.expect("reserved");
    let slices = job.growth().reserved() / 100;
    assert!(slices >= 2, "{slices}");
    std::mem::forget(job);
    assert_eq!(growing::spent(&limiter).await.0, 100 * slices);

    // Whoever knows the id, and what was counted, settles its slices.
    for number in 0..slices {
        let (id, counted) = match number {
            0 => (id_of("job".to_owned()), 100),
            _ => (id_of(format!("job..{number}")), 0),
        };
        let settled = limiter
            .commit(growing::key(), &id, Cost::new(counted))
            .await;
        assert_eq!(settled.expect("an answer"), Settlement::Settled);
    }
    assert_eq!(growing::spent(&limiter).await.0, 100);

    // The end of the time to live returns nothing: a slice that nobody settles is such a reservation,
    // and its id is charged anew when it has lapsed.
    let id = id_of("lapsed".to_owned());
    let again = async || {
        let slice = limiter.reserve(growing::key(), 100).id(id.clone());
        let slice = slice.time_to_live(Duration::from_millis(1)).await;
        slice.expect("a decision").is_allowed()
    };
    assert!(again().await);
    assert_eq!(growing::spent(&limiter).await.0, 200);
    wait::until_async("the reservation to lapse", PATIENCE, async || {
        again().await && growing::spent(&limiter).await.0 > 200
    })
    .await;
    assert_eq!(growing::spent(&limiter).await.0, 300);
}

#[tokio::test]
async fn slices_of_a_dead_process_are_settled_by_their_ids_and_not_by_the_time_to_live() {
    killed(Arc::new(MemoryStore::new())).await;
}

async fn killed_on_redis(deployment: &Deployment) {
    let store = deployment.builder("killed").connect().await;
    killed(Arc::new(store.expect("a store"))).await;
}

#[tokio::test]
async fn slices_of_a_dead_process_are_settled_by_their_ids_and_not_by_the_time_to_live_in_redis() {
    run(Kind::Server, "", killed_on_redis).await;
}

#[tokio::test]
async fn slices_of_a_dead_process_are_settled_by_their_ids_and_not_by_the_time_to_live_in_postgres()
{
    let builder = PostgresStore::builder(POSTGRES.url());
    let builder = builder.table(new_table()).create(Durability::Unlogged);
    killed(Arc::new(builder.connect().await.expect("a store"))).await;
}
