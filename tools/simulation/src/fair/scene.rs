//! Customers that ask several replicas for units of one limit.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
};

use tollgate::{Cost, Costs, Limiter, MemoryStore, Policy, Priority, Quota, store::Clock};

use super::{
    ideal::{self, Demand},
    meter::Meter,
};
use crate::random::Random;

const SECOND: u64 = 1_000_000;

/// The time in which what was spent fades to a third.
const TIME_CONSTANT: u64 = 5 * SECOND;

/// A customer that has spent the whole limit lately leaves this share of the burst to others, in percent.
const MOST_LEFT: f64 = 60.0;

/// Says who measures what customers have spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meters {
    /// Nobody: first come, first served.
    None,
    /// Each replica, for the requests that it sees.
    EachReplica,
    /// One place for all replicas.
    One,
}

/// Describes customers of one kind.
#[derive(Clone, Copy, Debug)]
pub(super) struct Class {
    pub(super) title: &'static str,
    pub(super) customers: u64,
    /// Requests of each customer in a second, while it is active.
    pub(super) rate: f64,
    pub(super) weight: f64,
    pub(super) traffic: Traffic,
    /// Sends all requests of a customer to one replica.
    pub(super) is_pinned: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Traffic {
    /// From this second on.
    From(u64),
    /// For so many seconds, and then pauses as long.
    OnOff(u64),
    /// Sends one request, and the next customer of the class sends the next one.
    Once,
}

/// Describes a run.
#[derive(Clone, Debug)]
pub(super) struct Scene {
    pub(super) title: &'static str,
    pub(super) classes: Vec<Class>,
    /// Units a second, and the burst.
    pub(super) limit: u64,
    pub(super) replicas: usize,
    /// The second from which on the figures count.
    pub(super) from: u64,
    pub(super) until: u64,
}

/// Holds the figures of a run.
#[derive(Clone, Debug, Default)]
pub(super) struct Figures {
    pub(super) classes: Vec<ClassFigures>,
    /// The units that were admitted, as a share of the limit or of all requests.
    pub(super) used: f64,
    /// Requests that were admitted beyond what the limit has.
    pub(super) excess: u64,
}

/// Holds the figures of a class, in units a second.
#[derive(Clone, Debug, Default)]
pub(super) struct ClassFigures {
    pub(super) ideal: f64,
    pub(super) admitted: f64,
    /// The units of the customer that fares worst, as a share of its ideal. Customers with few requests count together.
    pub(super) least: f64,
    /// The units of all of them in each second, as a share of their ideal.
    pub(super) course: Vec<f64>,
}

/// Counts the requests of a customer.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    class: usize,
    asked: f64,
    ideal: f64,
    admitted: f64,
}

/// A request that will arrive: its time, the class and the number of the customer within it.
type Arrival = Reverse<(u64, usize, u64)>;

impl Class {
    /// Returns when the next request arrives after `now`, in microseconds.
    fn next(&self, now: u64, random: &mut Random) -> u64 {
        let rate = if let Traffic::Once = self.traffic { self.rate * self.customers as f64 } else { self.rate };
        let wait = (random.exponential(1.0 / rate) * SECOND as f64) as u64;
        match self.traffic {
            Traffic::Once => now + wait,
            Traffic::From(second) => now.max(second * SECOND) + wait,
            Traffic::OnOff(seconds) => {
                // The time of activity goes on where it stopped.
                let (length, period) = (seconds * SECOND, 2 * seconds * SECOND);
                let active = now / period * length + (now % period).min(length) + wait;
                active / length * period + active % length
            }
        }
    }
}

impl Scene {
    /// Runs the scene. Each run gives the same figures.
    pub(super) fn run(&self, meters: Meters) -> Figures {
        let mut random = Random::new(42);
        let clock = Clock::manual(0);
        let policy = Policy::token_bucket("service", Quota::per_second(self.limit));
        let limiter = Limiter::new(MemoryStore::builder().clock(clock.clone()).build(), policy);
        let mut spent = vec![Meter::new(TIME_CONSTANT); if meters == Meters::EachReplica { self.replicas } else { 1 }];
        let mut arrivals: BinaryHeap<Arrival> = BinaryHeap::new();
        for (at, class) in self.classes.iter().enumerate() {
            let customers = if let Traffic::Once = class.traffic { 1 } else { class.customers };
            arrivals.extend((0..customers).map(|number| Reverse((class.next(0, &mut random), at, number))));
        }
        let mut record = Record::new(self);
        while let Some(Reverse((now, at, number))) = arrivals.pop()
            && now < self.until * SECOND
        {
            let class = &self.classes[at];
            let next_number = if let Traffic::Once = class.traffic { number + 1 } else { number };
            arrivals.push(Reverse((class.next(now, &mut random), at, next_number)));
            let customer = (at as u64) << 32 | number;
            let anywhere = random.below(self.replicas as u64) as usize;
            let replica = if class.is_pinned { number as usize % self.replicas } else { anywhere };
            let meter = &mut spent[if meters == Meters::EachReplica { replica } else { 0 }];
            let priority = match meters {
                Meters::None => Priority::CRITICAL,
                _ => self.priority(meter.spent(customer, now) / class.weight, random.share()),
            };
            clock.set(now);
            let is_allowed = is_allowed(&limiter, priority);
            if is_allowed {
                meter.add(customer, 1.0, now);
            }
            record.add(customer, at, now, is_allowed);
        }
        record.finish()
    }

    /// Returns the priority of a customer that has spent so much lately. The more it is, the more the customer leaves to
    /// others.
    ///
    /// The logarithm makes a percent of the burst the same step for all customers, a sixth more or less.
    fn priority(&self, spent: f64, random: f64) -> Priority {
        let whole = (self.limit * TIME_CONSTANT / SECOND) as f64;
        // Rounded at random, so that customers that differ by less than a percent differ on average.
        let left = (MOST_LEFT * spent.ln_1p() / whole.ln_1p() + random).min(99.0);
        Priority::percent(100 - left as u8)
    }
}

fn is_allowed(limiter: &Limiter, priority: Priority) -> bool {
    let check = limiter.check("all").cost(Costs::new(Cost::ONE).with_priority(priority));
    matches!(check.into_future().into_ready(), Ok(Ok(decision)) if decision.is_allowed())
}

/// Counts what is admitted, beside the ideal of each second.
struct Record<'a> {
    scene: &'a Scene,
    second: u64,
    now: BTreeMap<u64, Count>,
    sums: BTreeMap<u64, Count>,
    figures: Figures,
    /// The units left in a bucket of its own, and its time: no limiter may admit more.
    left: f64,
    at: u64,
}

/// Customers with fewer requests do not count alone.
const MANY: f64 = 100.0;

impl<'a> Record<'a> {
    fn new(scene: &'a Scene) -> Self {
        let classes = vec![ClassFigures::default(); scene.classes.len()];
        let figures = Figures { classes, ..Figures::default() };
        Self { scene, second: 0, now: BTreeMap::new(), sums: BTreeMap::new(), figures, left: scene.limit as f64, at: 0 }
    }

    fn add(&mut self, customer: u64, class: usize, now: u64, is_allowed: bool) {
        while now >= (self.second + 1) * SECOND {
            self.end_second();
        }
        let count = self.now.entry(customer).or_insert(Count { class, ..Count::default() });
        count.asked += 1.0;
        if is_allowed {
            count.admitted += 1.0;
            let limit = self.scene.limit as f64;
            self.left = (self.left + (now - self.at) as f64 * limit / SECOND as f64).min(limit) - 1.0;
            self.at = now;
            self.figures.excess += u64::from(self.left < -1e-6);
        }
    }

    fn end_second(&mut self) {
        let weight = |count: &Count| self.scene.classes[count.class].weight;
        let demand = |count: &Count| Demand { asked: count.asked, weight: weight(count) };
        let level = ideal::level(&self.now.values().map(demand).collect::<Vec<_>>(), self.scene.limit as f64);
        let mut classes = vec![(0.0, 0.0); self.scene.classes.len()];
        for (customer, count) in std::mem::take(&mut self.now) {
            let ideal = demand(&count).share(level);
            classes[count.class].0 += count.admitted;
            classes[count.class].1 += ideal;
            if self.second >= self.scene.from {
                let sum = self.sums.entry(customer).or_insert(Count { class: count.class, ..Count::default() });
                sum.asked += count.asked;
                sum.admitted += count.admitted;
                sum.ideal += ideal;
            }
        }
        for (figures, (admitted, ideal)) in self.figures.classes.iter_mut().zip(classes) {
            figures.course.push(if ideal > 0.0 { admitted / ideal } else { f64::NAN });
        }
        self.second += 1;
    }

    fn finish(mut self) -> Figures {
        while self.second < self.scene.until {
            self.end_second();
        }
        let seconds = (self.scene.until - self.scene.from) as f64;
        let (mut admitted, mut asked) = (0.0, 0.0);
        for (at, figures) in self.figures.classes.iter_mut().enumerate() {
            let counts = || self.sums.values().filter(|count| count.class == at);
            figures.ideal = counts().map(|count| count.ideal).sum::<f64>() / seconds;
            figures.admitted = counts().map(|count| count.admitted).sum::<f64>() / seconds;
            let least = counts().filter(|count| count.asked >= MANY).map(|count| count.admitted / count.ideal);
            figures.least = least.fold(f64::INFINITY, f64::min).min(figures.admitted / figures.ideal);
            admitted += figures.admitted;
            asked += counts().map(|count| count.asked).sum::<f64>() / seconds;
        }
        self.figures.used = admitted / asked.min(self.scene.limit as f64);
        self.figures
    }
}
