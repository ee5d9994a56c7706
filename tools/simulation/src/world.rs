//! Runs the events: a server, and the processes that call it.

use std::{cmp::Reverse, collections::BinaryHeap};

use crate::{
    process::{Client, Process},
    random::Random,
    results::{Results, Samples},
    time::{Nanos, SECOND, STEP},
};

/// Describes the server: the time of a call, and of each key in it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Server {
    pub(crate) call: Nanos,
    pub(crate) key: Nanos,
    /// The share by which the time of a call varies, up and down.
    pub(crate) jitter: f64,
}

/// Describes a run.
#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) server: Server,
    pub(crate) clients: Vec<Client>,
    /// The begin of the time that counts, and its end.
    pub(crate) from: Nanos,
    pub(crate) until: Nanos,
}

/// The time between two looks at the deadlines.
const TICK: Nanos = 1_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A process begins.
    Begin(usize),
    /// Callers of a process ask.
    Ask(usize, usize),
    /// A call reaches the server.
    Call {
        process: usize,
        number: u64,
        keys: usize,
    },
    /// An answer reaches the process.
    Answer(usize, u64),
    /// Deadlines are looked at.
    Tick,
    /// A step of the course begins.
    Step,
}

impl Server {
    /// Returns the most decisions per second, with full batches.
    pub(crate) fn capacity(&self) -> f64 {
        64.0 * SECOND as f64 / (self.call + 64 * self.key) as f64
    }

    fn time(&self, keys: usize, random: &mut Random) -> Nanos {
        let time = (self.call + self.key * keys as Nanos) as f64;
        (time * (1.0 + self.jitter * (2.0 * random.share() - 1.0))) as Nanos
    }
}

impl World {
    /// Runs until the end, and returns the figures.
    pub(crate) fn run(&self) -> Results {
        Run::new(self).run()
    }
}

struct Run<'a> {
    world: &'a World,
    /// The events with their times. The number keeps the order of events at the same time.
    events: BinaryHeap<Reverse<(Nanos, u64, Event)>>,
    next: u64,
    processes: Vec<Option<Process>>,
    /// The time from which the server is free.
    free_at: Nanos,
    random: Random,
    samples: Vec<Samples>,
    waits: Vec<Nanos>,
    /// The decisions in each step.
    course: Vec<usize>,
}

impl<'a> Run<'a> {
    fn new(world: &'a World) -> Self {
        let count = world.clients.len();
        let mut run = Self {
            world,
            events: BinaryHeap::new(),
            next: 0,
            processes: (0..count).map(|_| None).collect(),
            free_at: 0,
            random: Random::new(0),
            samples: vec![Samples::default(); count],
            waits: Vec::new(),
            course: vec![0],
        };
        for (at, client) in world.clients.iter().enumerate() {
            run.at(client.from, Event::Begin(at));
        }
        run.at(TICK, Event::Tick);
        run.at(STEP, Event::Step);
        run
    }

    fn at(&mut self, time: Nanos, event: Event) {
        self.next += 1;
        self.events.push(Reverse((time, self.next, event)));
    }

    fn run(mut self) -> Results {
        while let Some(Reverse((now, _, event))) = self.events.pop() {
            if now >= self.world.until {
                break;
            }
            self.handle(now, event);
        }
        let World { from, until, .. } = *self.world;
        Results::new(self.samples, self.waits, self.course, until - from)
    }

    fn handle(&mut self, now: Nanos, event: Event) {
        match event {
            Event::Begin(at) => {
                let client = self.world.clients[at].clone();
                let callers = client.callers;
                let wait = self.free_at.saturating_sub(now) + self.world.server.call;
                self.processes[at] = Some(Process::new(at, client, now, wait));
                self.ask(now, at, callers);
            }
            Event::Ask(at, checks) => self.ask(now, at, checks),
            Event::Call {
                process,
                number,
                keys,
            } => {
                let wait = self.free_at.saturating_sub(now);
                if now >= self.world.from {
                    self.waits.push(wait);
                }
                self.free_at = now + wait + self.world.server.time(keys, &mut self.random);
                let done = self.free_at;
                if let Some(it) = &mut self.processes[process] {
                    let arrival = it.back.arrival(done);
                    self.at(arrival, Event::Answer(process, number));
                }
            }
            Event::Answer(at, number) => self.answer(now, at, number),
            Event::Tick => {
                self.tick(now);
                self.at(now + TICK, Event::Tick);
            }
            Event::Step => {
                self.course.push(0);
                self.at(now + STEP, Event::Step);
            }
        }
    }

    fn ask(&mut self, now: Nanos, at: usize, checks: usize) {
        if let Some(process) = &mut self.processes[at] {
            process.ask(now, checks);
        }
        self.send(now, at);
    }

    fn send(&mut self, now: Nanos, at: usize) {
        while let Some(process) = &mut self.processes[at] {
            let number = self.next;
            let Some(keys) = process.send(now, number) else {
                return;
            };
            let arrival = process.to_server.arrival(now);
            self.at(
                arrival,
                Event::Call {
                    process: at,
                    number,
                    keys,
                },
            );
        }
    }

    fn answer(&mut self, now: Nanos, at: usize, number: u64) {
        let Some(process) = &mut self.processes[at] else {
            return;
        };
        let answered = process.answer(now, number);
        let checks = answered.latencies.len();
        if now >= self.world.from {
            self.samples[at].latencies.extend(&answered.latencies);
        }
        if let Some(step) = self.course.last_mut() {
            *step += checks;
        }
        self.at(answered.again, Event::Ask(at, checks));
        self.send(now, at);
    }

    fn tick(&mut self, now: Nanos) {
        for at in 0..self.processes.len() {
            let Some(process) = &mut self.processes[at] else {
                continue;
            };
            let late = process.expire(now);
            if now >= self.world.from {
                self.samples[at].late += late;
            }
            self.ask(now, at, late);
        }
    }
}
