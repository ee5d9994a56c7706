//! Simulates a service with a fixed number of workers and a queue, in simulated time.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap, VecDeque},
    time::Duration,
};

use tollgate::store::Clock;
use tollgate_overload::{AdaptiveLimiter, AdaptiveLimiterBuilder, Class, Signal, Slot};

/// Sends requests of several classes through a limiter to a service.
pub(crate) struct Simulation {
    pub(crate) limiter: AdaptiveLimiter,
    /// The number of requests that the service works on at a time. Others wait in it.
    pub(crate) workers: usize,
    /// The time that the service takes for a request.
    pub(crate) service_time: Duration,
    /// The requests per second of each class.
    pub(crate) load: Vec<f64>,
    pub(crate) counts: Vec<Count>,
    clock: Clock,
    random: fastrand::Rng,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    next_id: u64,
    slots: HashMap<u64, Slot>,
    waiting: VecDeque<u64>,
    working: usize,
}

/// Counts the requests of a class.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Count {
    pub(crate) offered: u32,
    pub(crate) admitted: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrival(usize),
    Done(u64),
}

impl Count {
    pub(crate) fn share(self) -> f64 {
        f64::from(self.admitted) / f64::from(self.offered)
    }
}

impl Simulation {
    pub(crate) fn new(limiter: AdaptiveLimiterBuilder, workers: usize, load: &[f64]) -> Self {
        let clock = Clock::manual(1_000_000);
        let mut simulation = Self {
            limiter: limiter.clock(clock.clone()).build(),
            workers,
            service_time: Duration::from_millis(10),
            load: load.to_vec(),
            counts: vec![Count::default(); load.len()],
            clock,
            random: fastrand::Rng::with_seed(7),
            events: BinaryHeap::new(),
            next_id: 0,
            slots: HashMap::new(),
            waiting: VecDeque::new(),
            working: 0,
        };
        (0..load.len()).for_each(|class| simulation.plan_arrival(class));
        simulation
    }

    /// Returns the requests per second that the service can do.
    pub(crate) fn capacity(&self) -> f64 {
        self.workers as f64 / self.service_time.as_secs_f64()
    }

    pub(crate) fn run(&mut self, seconds: f64) {
        let end = self.clock.now_us() + (seconds * 1e6) as u64;
        while let Some(Reverse((at, _, event))) = self.events.pop() {
            if at > end {
                self.events.push(Reverse((at, 0, event)));
                break;
            }
            self.clock.set(at);
            match event {
                Event::Arrival(class) => self.arrive(class),
                Event::Done(id) => self.finish(id),
            }
        }
        self.clock.set(end);
    }

    /// Runs in steps of 100 ms, and returns the mean limit.
    pub(crate) fn mean_limit(&mut self, seconds: u32) -> f64 {
        let mut sum = 0;
        for _ in 0..seconds * 10 {
            self.run(0.1);
            sum += self.limiter.limit();
        }
        f64::from(sum) / f64::from(seconds * 10)
    }

    /// Returns the counts since the last call.
    pub(crate) fn take_counts(&mut self) -> Vec<Count> {
        std::mem::replace(&mut self.counts, vec![Count::default(); self.load.len()])
    }

    fn plan(&mut self, after_us: u64, event: Event) {
        self.next_id += 1;
        self.events.push(Reverse((
            self.clock.now_us() + after_us,
            self.next_id,
            event,
        )));
    }

    fn plan_arrival(&mut self, class: usize) {
        let wait = -(1.0 - self.random.f64()).ln() / self.load[class];
        self.plan((wait * 1e6) as u64, Event::Arrival(class));
    }

    fn arrive(&mut self, class: usize) {
        self.plan_arrival(class);
        self.counts[class].offered += 1;
        let Ok(slot) = self.limiter.try_acquire(Class::new(class as u8)) else {
            return;
        };
        self.counts[class].admitted += 1;
        let id = self.next_id;
        self.slots.insert(id, slot);
        if self.working < self.workers {
            self.start(id);
        } else {
            self.waiting.push_back(id);
        }
    }

    fn start(&mut self, id: u64) {
        self.working += 1;
        // Between half and one and a half of the mean.
        let time = self.service_time.mul_f64(0.5 + self.random.f64());
        self.plan(time.as_micros() as u64, Event::Done(id));
    }

    fn finish(&mut self, id: u64) {
        self.slots.remove(&id).unwrap().finish(Signal::Success);
        self.working -= 1;
        while self.working < self.workers
            && let Some(next) = self.waiting.pop_front()
        {
            self.start(next);
        }
    }
}
