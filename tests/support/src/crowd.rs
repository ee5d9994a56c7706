//! Callers of several processes that wait for turns in one queue: more than there are turns.

use std::{
    env, io,
    process::Command,
    str::FromStr,
    time::{Duration, Instant},
};

use tollgate::{Limiter, Policy, Quota, RedisStore};
use tollgate_tests::Process;

use crate::{PATIENCE, patient_limiter, permits::now_us};

/// The turns of a second.
const PER_SECOND: u64 = 50;

/// The time between two turns, in microseconds.
const TURN_US: u64 = 1_000_000 / PER_SECOND;

/// More places than any caller waits for.
const BURST: u64 = 1_000;

/// The variables of the environment: the callers of a process, and times in milliseconds.
const CALLERS: &str = "CALLERS";
const MAX_WAIT: &str = "MAX_WAIT_MS";
const PAUSE: &str = "PAUSE_MS";
const SPAN: &str = "SPAN_MS";

/// Callers that wait for turns, and come back after `retry_after` when they are refused.
#[derive(Clone, Copy, Debug)]
pub struct Crowd {
    /// The processes.
    pub processes: usize,
    /// The callers of all processes together.
    pub callers: usize,
    /// The longest wait of a caller.
    pub max_wait: Duration,
    /// The pause of a caller after its turn.
    pub pause: Duration,
    /// The time after which no caller asks any more: at most 25 s, since a process is waited for 30
    /// s.
    pub span: Duration,
}

/// Holds the answers to the callers of a crowd. Times are those of the machine's monotonic clock,
/// in microseconds.
#[derive(Debug, Default)]
pub struct Turns {
    processes: usize,
    /// The turns in order, each with its process.
    turns: Vec<(u64, usize)>,
    /// The spans in which the queue was not empty, in order and apart.
    full: Vec<(u64, u64)>,
    refused: u64,
}

/// Holds the answers to the callers of one process.
#[derive(Debug, Default)]
struct Answers {
    turns: Vec<u64>,
    full: Vec<(u64, u64)>,
    refused: u64,
}

impl Crowd {
    /// Returns the pause after a turn with which this many callers ask for `demand` times the turns
    /// that there are.
    #[must_use]
    pub fn pause_of(callers: usize, demand: f64) -> Duration {
        Duration::from_secs_f64(callers as f64 / (PER_SECOND as f64 * demand))
    }

    /// Starts the processes, lets their callers ask at the same time, and returns the answers.
    ///
    /// Each command has to call [`run_crowd`] with the URL of the server.
    ///
    /// # Panics
    ///
    /// When a process does not start or does not end.
    #[must_use]
    pub fn run(self, program: impl Fn() -> Command) -> Turns {
        let start = |_| {
            let mut command = program();
            command.env(CALLERS, (self.callers / self.processes).to_string());
            command.env(MAX_WAIT, self.max_wait.as_millis().to_string());
            command.env(PAUSE, self.pause.as_millis().to_string());
            command.env(SPAN, self.span.as_millis().to_string());
            Process::start_listening(command, "ready")
        };
        let mut processes: Vec<_> = (0..self.processes).map(start).collect();
        processes.iter().for_each(|process| process.tell("begin"));
        let mut turns = Turns {
            processes: self.processes,
            ..Turns::default()
        };
        for (at, process) in processes.iter_mut().enumerate() {
            process.wait_for_line("done");
            process
                .output()
                .lines()
                .for_each(|line| turns.read(at, line));
        }
        turns.turns.sort_unstable();
        turns.full = union(turns.full);
        turns
    }
}

/// Runs one of the processes of a crowd.
///
/// # Panics
///
/// When the server does not answer.
pub fn run_crowd(url: &str) {
    let max_wait = Duration::from_millis(variable(MAX_WAIT));
    let pause = Duration::from_millis(variable(PAUSE));
    let span = Duration::from_millis(variable(SPAN));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(async {
        let store = RedisStore::builder(url)
            .prefix("crowd")
            .connect_timeout(PATIENCE)
            .connect()
            .await
            .expect("a store");
        let quota = Quota::per_second(PER_SECOND).with_burst(BURST);
        let limiter = patient_limiter(store, Policy::leaky_bucket("queue", quota));
        println!("ready");
        wait_for_input();
        let until = Instant::now() + span;
        let callers: Vec<_> = (0..variable::<usize>(CALLERS))
            .map(|_| tokio::spawn(ask_until(until, limiter.clone(), max_wait, pause)))
            .collect();
        let mut all = Answers::default();
        for caller in callers {
            let answers = caller.await.expect("a caller");
            all.turns.extend(answers.turns);
            all.full.extend(answers.full);
            all.refused += answers.refused;
        }
        all.turns.iter().for_each(|turn| println!("turn {turn}"));
        union(all.full)
            .iter()
            .for_each(|(from, to)| println!("full {from} {to}"));
        println!("refused {}", all.refused);
        println!("done");
        // The parent reads the output and then ends this process.
        wait_for_input();
    });
}

async fn ask_until(
    until: Instant,
    limiter: Limiter,
    max_wait: Duration,
    pause: Duration,
) -> Answers {
    let mut answers = Answers::default();
    while Instant::now() < until {
        let asked = now_us();
        let decision = limiter
            .check("hot")
            .wait(max_wait)
            .await
            .expect("a decision");
        let (came, delay) = (now_us(), decision.delay().as_micros() as u64);
        let Some(retry) = decision.retry_after() else {
            answers.turns.push(asked + delay);
            answers.full.push((came - delay, asked + delay + TURN_US));
            tokio::time::sleep(pause).await;
            continue;
        };
        // A caller is refused while its turn would come after its longest wait.
        answers
            .full
            .push((came, asked + (retry + max_wait).as_micros() as u64));
        answers.refused += 1;
        tokio::time::sleep(retry).await;
    }
    answers
}

/// Returns what these spans cover together, in spans that lie apart. Leaves out those that end
/// before they begin.
fn union(mut spans: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    spans.retain(|(from, to)| from < to);
    spans.sort_unstable();
    let mut union: Vec<(u64, u64)> = Vec::new();
    for (from, to) in spans {
        match union.last_mut() {
            Some((_, end)) if from <= *end => *end = to.max(*end),
            _ => union.push((from, to)),
        }
    }
    union
}

fn wait_for_input() {
    io::stdin()
        .read_line(&mut String::new())
        .expect("a line or the end");
}

fn variable<T: FromStr>(name: &str) -> T {
    let value = env::var(name).unwrap_or_else(|_| panic!("{name} is not set"));
    value
        .parse()
        .unwrap_or_else(|_| panic!("{name} is {value}"))
}

impl Turns {
    fn read(&mut self, process: usize, line: &str) {
        let mut words = line.split(' ');
        let word = words.next();
        let mut number = || {
            words
                .next()
                .and_then(|word| word.parse().ok())
                .expect("a number")
        };
        match word {
            Some("turn") => self.turns.push((number(), process)),
            Some("full") => self.full.push((number(), number())),
            Some("refused") => self.refused += number(),
            _ => {}
        }
    }

    /// Returns the number of turns that a caller got.
    #[must_use]
    pub fn used(&self) -> usize {
        self.turns.len()
    }

    /// Returns the number of refusals.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Returns the share of the places in the queue whose turn somebody used, in percent.
    ///
    /// Each answer shows how long the queue is. The time in which it is not empty is the time of
    /// all turns that were given away. Each answer is taken for as late as it can be and each queue
    /// for as short, so a slow machine raises the share and never lowers it.
    #[must_use]
    pub fn share_of_places(&self) -> f64 {
        let given_us: u64 = self.full.iter().map(|(from, to)| to - from).sum();
        100.0 * self.used() as f64 * TURN_US as f64 / given_us.max(1) as f64
    }

    /// Returns the share of the turns between the first and the last one that somebody used, in
    /// percent.
    #[must_use]
    pub fn share_of_time(&self) -> f64 {
        let span = self
            .turns
            .last()
            .zip(self.turns.first())
            .map_or(0, |((last, _), (first, _))| last - first);
        100.0 * self.used() as f64 * TURN_US as f64 / (span + TURN_US) as f64
    }

    /// Returns the least share of the turns that a process got in any span of this length, in
    /// percent. It is 0 when the turns do not fill one.
    #[must_use]
    pub fn least_share(&self, span: Duration) -> f64 {
        let span_us = span.as_micros() as u64;
        let is_whole = |from: u64| {
            self.turns
                .last()
                .is_some_and(|(last, _)| last - from >= span_us)
        };
        let within = |at: usize, from: u64| {
            let end = self
                .turns
                .partition_point(|(turn, _)| *turn < from + span_us);
            let within = &self.turns[at..end];
            let of = |process: usize| within.iter().filter(|(_, of)| *of == process).count();
            let least = (0..self.processes).map(of).min().unwrap_or_default();
            100.0 * least as f64 / within.len() as f64
        };
        let spans = self
            .turns
            .iter()
            .enumerate()
            .filter(|(_, (from, _))| is_whole(*from));
        spans
            .map(|(at, (from, _))| within(at, *from))
            .reduce(f64::min)
            .unwrap_or_default()
    }
}
