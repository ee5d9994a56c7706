//! Measures streams of unknown length under one limit of tokens, in two processes over Redis: what
//! reservations that grow use of the budget, beside estimates. One call that reserves is in
//! `throughput.rs`.

use std::{
    collections::{HashMap, HashSet},
    io::Read,
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use tokio::{
    task::JoinSet,
    time::{Instant, sleep, sleep_until},
};
use tollgate::{
    Decision, Limiter, Outage, Policy, Quota, RedisStore, Store,
    reservation::{ReservationId, Settlement},
    store::{Check, CheckFuture, StoreFuture},
};

use crate::{
    keys::Random,
    load, machine,
    pace::Pace,
    report::{Findings, Table, Target, figure},
    server::Server,
};

/// The word of a process that streams.
pub(crate) const PROBE: &str = "streams";

const BUDGET: u64 = 100_000;
const TOKENS: Policy = Policy::window_from_first_hit("tokens", Quota::per_minute(BUDGET));
const SLICE: u64 = 256;
const SHORTEST: u64 = 10;
const LONGEST: u64 = 4_000;
const MEAN: u64 = (SHORTEST + LONGEST) / 2;

const PROCESSES: u64 = 2;
const STREAMS: u64 = 32;

/// A model writes some 40 tokens a second. Here it is ten times faster, and the minute of the budget
/// passes in six seconds.
const BETWEEN: Duration = Duration::from_micros(2_500);
const MINUTE: Duration = Duration::from_secs(6);

/// Names the way in which a stream is limited, by its word.
const GROWS: &str = "slices";
const CHARGES_MOST: &str = "most";
const CHARGES_MEAN: &str = "mean";

pub(crate) fn run(pace: &Pace) -> Findings {
    let (server, runtime) = (Server::start(), load::runtime());
    let about = format!(
        "Two processes with 32 streams each, of {SHORTEST} to {LONGEST} tokens, under {BUDGET} tokens a minute over one \
         server. No stream knows its length, and the next one follows at once. A stream has 400 tokens a second instead of \
         40, so the minute of the budget passes in 6 s. *Used* is what was written of the budget by its end, *beyond* what \
         was written more than that. *Calls* are those that reserve, for each id that they name. *First token* is the time until the reservation of one stream is made, in this process, when no other one runs."
    );
    let heads = [
        "",
        "used",
        "beyond",
        "streams",
        "calls per slice",
        "first token µs",
    ];
    let mut table = Table::new("Streams of unknown length", &about, &heads);
    let mut findings = Findings::default();
    let contestants = [
        (GROWS, "slices of 256 tokens"),
        (CHARGES_MOST, "an estimate of 4000 tokens"),
        (CHARGES_MEAN, "an estimate of 2005 tokens"),
    ];
    let mut turns: [Vec<Turn>; 3] = Default::default();
    for round in 0..pace.load.count as u64 {
        for ((word, _), turns) in contestants.iter().zip(&mut turns) {
            turns.push(Turn::run(&server, &runtime, word, round));
        }
    }
    let firsts = runtime.block_on(first_tokens(&server.url()));
    for (((_, name), turns), first) in contestants.iter().zip(&turns).zip(firsts) {
        table.row([
            (*name).to_owned(),
            figure(median(turns.iter().map(Turn::used))),
            figure(most(turns, Turn::beyond)),
            figure(median(turns.iter().map(|turn| turn.sum("streams")))),
            figure(median(turns.iter().map(Turn::calls))),
            figure(first),
        ]);
    }
    let [growing, ..] = &turns;
    let used = growing.iter().map(Turn::used).fold(f64::MAX, f64::min);
    let first = firsts[0] / firsts[1];
    let beyond = most(growing, Turn::beyond);
    for (measure, target, value, unit) in [
        ("tokens beyond the limit", Target::AtMost(0.0), beyond, ""),
        ("share of the budget", Target::AtLeast(0.95), used, ""),
        (
            "calls per slice",
            Target::AtMost(1.0),
            most(growing, Turn::calls),
            "",
        ),
        (
            "first token, to an estimate",
            Target::AtMost(1.2),
            first,
            " ×",
        ),
    ] {
        findings.goal(format!("streams that grow, {measure}"), target, value, unit);
    }
    findings.tables.push(table);
    findings
}

/// Returns the median time of a reservation that grows, and of both estimates, in microseconds.
async fn first_tokens(url: &str) -> [f64; 3] {
    let limiter = limiter(url).await.limiter;
    let mut times: [Vec<f64>; 3] = Default::default();
    for _ in 0..500 {
        let asked = Instant::now();
        let stream = limiter.reserve("grows", 0).growing(SLICE).await;
        times[0].push(asked.elapsed().as_secs_f64() * 1e6);
        let _ = stream.expect("a slice").commit().await.expect("settled");
        for (estimate, times) in [LONGEST, MEAN].into_iter().zip(&mut times[1..]) {
            let asked = Instant::now();
            let stream = limiter.reserve("estimated", estimate).await;
            times.push(asked.elapsed().as_secs_f64() * 1e6);
            let _ = stream
                .expect("an estimate")
                .cancel()
                .await
                .expect("settled");
        }
    }
    times.map(|times| median(times.into_iter()))
}

fn median(of: impl Iterator<Item = f64>) -> f64 {
    let mut each: Vec<f64> = of.collect();
    each.sort_by(f64::total_cmp);
    each[each.len() / 2]
}

fn most(turns: &[Turn], of: fn(&Turn) -> f64) -> f64 {
    turns.iter().map(of).fold(f64::MIN, f64::max)
}

/// Counts of the processes of one turn, by word.
struct Turn(Vec<HashMap<String, f64>>);

impl Turn {
    fn run(server: &Server, runtime: &tokio::runtime::Runtime, word: &str, turn: u64) -> Self {
        // Each turn has a key, and so a window, of its own.
        let key = format!("{word}{turn}");
        let limiter = runtime.block_on(limiter(&server.url()));
        // Opens the window, so that both processes stream within it.
        let opened = runtime.block_on(limiter.limiter.check(key.clone()).into_future());
        assert!(opened.is_ok_and(|decision| decision.is_allowed()));
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
        let begin = since_epoch.unwrap_or_default() + Duration::from_millis(500);
        let start = |process: u64| {
            let seed = turn * PROCESSES + process;
            machine::on_every_core(|| {
                Command::new(std::env::current_exe().expect("the path of this program"))
                    .args(["probe", PROBE, &server.url(), word, &key])
                    .args([seed.to_string(), begin.as_millis().to_string()])
                    .stdout(Stdio::piped())
                    .spawn()
                    .expect("this program starts")
            })
        };
        let processes: Vec<Child> = (0..PROCESSES).map(start).collect();
        Self(processes.into_iter().map(counts).collect())
    }

    fn sum(&self, word: &str) -> f64 {
        self.0.iter().map(|process| process[word]).sum()
    }

    fn used(&self) -> f64 {
        self.sum("written").min(BUDGET as f64) / BUDGET as f64
    }

    fn beyond(&self) -> f64 {
        (self.sum("written") - BUDGET as f64).max(0.0)
    }

    fn calls(&self) -> f64 {
        self.sum("calls") / self.sum("slices")
    }
}

/// Reads the counts that a process prints: words and numbers in turn.
fn counts(mut process: Child) -> HashMap<String, f64> {
    let mut text = String::new();
    let mut output = process.stdout.take().expect("its output is a pipe");
    output
        .read_to_string(&mut text)
        .expect("its output is text");
    assert!(process.wait().expect("it ends").success(), "{text}");
    let words: Vec<&str> = text.split_whitespace().collect();
    let pairs = words.chunks_exact(2);
    pairs
        .map(|pair| (pair[0].to_owned(), pair[1].parse().expect("a number")))
        .collect()
}

/// Streams until the minute is over, and returns what was counted, as text. Runs in a process of its
/// own.
pub(crate) fn probe(words: &[&str]) -> String {
    let [url, word, key, seed, begin] = words else {
        panic!("a stream has a URL, a word, a key, a seed and a time: {words:?}");
    };
    let seed: u64 = seed.parse().expect("a seed");
    let begin = Duration::from_millis(begin.parse().expect("a time"));
    load::runtime().block_on(async {
        let counted = limiter(url).await;
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        sleep(begin.saturating_sub(now)).await;
        let ends = Instant::now() + MINUTE;
        let mut lanes = JoinSet::new();
        for lane in 0..STREAMS {
            let lane = Lane {
                limiter: counted.limiter.clone(),
                key: (*key).to_owned(),
                word: (*word).to_owned(),
                random: Random::new(seed << 32 | lane),
                ends,
                sums: Sums::default(),
            };
            lanes.spawn(lane.run());
        }
        let mut all = Sums::default();
        while let Some(lane) = lanes.join_next().await {
            let lane = lane.expect("no stream panics");
            all.written += lane.written;
            all.streams += lane.streams;
        }
        format!(
            "written {} streams {} slices {} calls {}",
            all.written,
            all.streams,
            counted.calls.slices(),
            counted.calls.all.load(Ordering::Relaxed)
        )
    })
}

#[derive(Default)]
struct Sums {
    written: u64,
    streams: u64,
}

/// One stream after the other.
struct Lane {
    limiter: Limiter,
    key: String,
    word: String,
    random: Random,
    ends: Instant,
    sums: Sums,
}

impl Lane {
    async fn run(mut self) -> Sums {
        while Instant::now() < self.ends {
            let length = SHORTEST + self.random.below((LONGEST - SHORTEST + 1) as usize) as u64;
            let admitted = match &*self.word {
                GROWS => self.grow(length).await,
                CHARGES_MOST => self.settle(length, LONGEST).await,
                CHARGES_MEAN => self.settle(length, MEAN).await,
                word => panic!("there is no such word: {word}"),
            };
            match admitted {
                true => self.sums.streams += 1,
                // A client comes again.
                false => sleep(20 * BETWEEN).await,
            }
        }
        self.sums
    }

    /// Writes a stream that grows. Returns whether it began.
    async fn grow(&mut self, length: u64) -> bool {
        let stream = self.limiter.reserve(&*self.key, 0).growing(SLICE).await;
        let stream = stream.expect("the store decides");
        if stream.is_denied() {
            return false;
        }
        let mut next = Instant::now();
        for _ in 0..length {
            if next >= self.ends || stream.growth().take(1).await.is_err() {
                break;
            }
            self.sums.written += 1;
            next += BETWEEN;
            sleep_until(next).await;
        }
        let _ = stream.commit().await.expect("the store answers");
        true
    }

    /// Writes a stream that charges an estimate. Returns whether it began.
    async fn settle(&mut self, length: u64, estimate: u64) -> bool {
        let stream = self.limiter.reserve(&*self.key, estimate).await;
        let stream = stream.expect("the store decides");
        if stream.is_denied() {
            return false;
        }
        let (mut next, mut written) = (Instant::now(), 0);
        for _ in 0..length {
            if next >= self.ends {
                break;
            }
            written += 1;
            next += BETWEEN;
            sleep_until(next).await;
        }
        self.sums.written += written;
        let _ = stream.commit(written).await.expect("the store answers");
        true
    }
}

/// A limiter, and the calls that reserve.
struct Counted {
    limiter: Limiter,
    calls: Arc<Calls>,
}

async fn limiter(url: &str) -> Counted {
    let store = RedisStore::builder(url).connect().await;
    let calls = Arc::new(Calls::default());
    let store = CountedStore {
        store: store.expect("the server answers"),
        calls: Arc::clone(&calls),
    };
    // A late answer on a busy machine is no overspending.
    let limiter = Limiter::builder(store)
        .policies(TOKENS)
        .deadline(Duration::from_secs(5))
        .on_outage(Outage::Closed)
        .build();
    Counted { limiter, calls }
}

/// Counts the calls that reserve, and the slices that they name.
struct CountedStore {
    store: RedisStore,
    calls: Arc<Calls>,
}

#[derive(Default)]
struct Calls {
    all: AtomicU64,
    slices: Mutex<HashSet<String>>,
}

impl Calls {
    fn slices(&self) -> usize {
        self.slices.lock().expect("no holder panics").len()
    }
}

impl Store for CountedStore {
    fn check(&self, check: Check<'_>) -> CheckFuture {
        self.store.check(check)
    }

    fn inner(&self) -> Option<&dyn Store> {
        Some(&self.store)
    }

    fn refund(&self, check: Check<'_>, decision: Option<&Decision>) -> StoreFuture<()> {
        self.store.refund(check, decision)
    }

    fn reset(&self, check: Check<'_>) -> StoreFuture<()> {
        self.store.reset(check)
    }

    fn reserve(&self, check: Check<'_>, id: &ReservationId, time_to_live: Duration) -> CheckFuture {
        self.calls.all.fetch_add(1, Ordering::Relaxed);
        let mut slices = self.calls.slices.lock().expect("no holder panics");
        slices.insert(id.as_str().to_owned());
        drop(slices);
        self.store.reserve(check, id, time_to_live)
    }

    fn commit(&self, check: Check<'_>, id: &ReservationId) -> StoreFuture<Settlement> {
        self.store.commit(check, id)
    }
}
