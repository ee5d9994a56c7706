//! Customers that ask several replicas for units of one limit.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
    num::NonZeroU32,
    sync::{Arc, Mutex, PoisonError},
};

use tollgate::{
    Cost, Costs, Customer, Decision, Limiter, MemoryStore, Policy, Quota, Store,
    store::{Check, CheckFuture, Clock, ReplicaGroup, Spending, StoreFuture},
};

use super::ideal::{self, Demand};
use crate::random::Random;

const SECOND: u64 = 1_000_000;

/// Says what a replica knows of what customers were admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Knows {
    /// Nothing: first come, first served.
    Nothing,
    /// The measure of what it admitted itself.
    Own,
    /// Also what the others told it about their heaviest customers.
    Told,
}

/// The store that replicas share, and what they tell each other.
struct Shared(MemoryStore, Mutex<Option<Spending>>);

impl Store for Shared {
    fn check(&self, check: Check<'_>) -> CheckFuture {
        self.0.check(check)
    }

    fn refund(&self, check: Check<'_>, decision: Option<&Decision>) -> StoreFuture<()> {
        self.0.refund(check, decision)
    }

    fn reset(&self, check: Check<'_>) -> StoreFuture<()> {
        self.0.reset(check)
    }

    fn inner(&self) -> Option<&dyn Store> {
        Some(&self.0)
    }

    fn exchange(&self, _: ReplicaGroup, spending: &Spending) {
        *self.1.lock().unwrap_or_else(PoisonError::into_inner) = Some(spending.clone());
    }
}

/// A replica with its limiter.
struct Replica {
    limiter: Limiter,
    store: Arc<Shared>,
    /// The report that it told last, and when it tells and hears next.
    report: String,
    next: u64,
}

impl Replica {
    fn new(scene: &Scene, knows: Knows, store: MemoryStore, clock: &Clock, at: u64) -> Self {
        let store = Arc::new(Shared(store, Mutex::default()));
        let quota = Quota::per_second(scene.limit).with_burst(scene.burst);
        let builder = Limiter::builder(Arc::clone(&store))
            .policies(Policy::token_bucket("service", quota))
            .outage_clock(clock.clone());
        let limiter = match knows {
            Knows::Nothing => builder.build(),
            Knows::Own | Knows::Told => builder.fair_shares().build(),
        };
        let (report, next) = (String::new(), at * 100_000);
        Self {
            limiter,
            store,
            report,
            next,
        }
    }

    fn spending(&self) -> Option<Spending> {
        self.store
            .1
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// Lets the replicas whose time has come tell and hear, as the task of a store does.
fn exchange(replicas: &mut [Replica], now: u64, random: &mut Random) {
    for at in 0..replicas.len() {
        if replicas[at].next > now {
            continue;
        }
        replicas[at].next = now + SECOND * 8 / 10 + random.below(SECOND * 4 / 10);
        if let Some(spending) = replicas[at].spending() {
            replicas[at].report = spending.report();
            let others = replicas
                .iter()
                .enumerate()
                .filter(|(other, _)| *other != at);
            let others = others.map(|(_, replica)| &*replica.report);
            spending.hear(&others.collect::<Vec<_>>().join("\n"));
        }
    }
}

/// Describes customers of one kind.
#[derive(Clone, Copy, Debug)]
pub(super) struct Class {
    pub(super) title: &'static str,
    pub(super) customers: u64,
    /// Requests of each customer in a second, while it is active.
    pub(super) rate: f64,
    pub(super) weight: NonZeroU32,
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
    /// Units a second.
    pub(super) limit: u64,
    pub(super) burst: u64,
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
    /// Jain's index over what customers got of their ideal.
    pub(super) jain: f64,
}

/// Holds the figures of a class, in units a second.
#[derive(Clone, Debug, Default)]
pub(super) struct ClassFigures {
    pub(super) ideal: f64,
    pub(super) admitted: f64,
    /// The share of the customer that fares worst, as a part of its ideal. Customers with few requests count together.
    pub(super) least: f64,
    /// The share of all of them in each second, as a part of their ideal.
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
        let rate = if let Traffic::Once = self.traffic {
            self.rate * self.customers as f64
        } else {
            self.rate
        };
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
    pub(super) fn run(&self, knows: Knows) -> Figures {
        fastrand::seed(42);
        let mut random = Random::new(42);
        let clock = Clock::manual(0);
        let store = MemoryStore::builder().clock(clock.clone()).build();
        let mut replicas: Vec<Replica> = (0..self.replicas)
            .map(|at| Replica::new(self, knows, store.clone(), &clock, at as u64))
            .collect();
        let mut arrivals: BinaryHeap<Arrival> = BinaryHeap::new();
        for (at, class) in self.classes.iter().enumerate() {
            let customers = if let Traffic::Once = class.traffic {
                1
            } else {
                class.customers
            };
            arrivals.extend(
                (0..customers).map(|number| Reverse((class.next(0, &mut random), at, number))),
            );
        }
        let mut record = Record::new(self);
        while let Some(Reverse((now, at, number))) = arrivals.pop()
            && now < self.until * SECOND
        {
            let class = &self.classes[at];
            let next_number = if let Traffic::Once = class.traffic {
                number + 1
            } else {
                number
            };
            arrivals.push(Reverse((class.next(now, &mut random), at, next_number)));
            clock.set(now);
            if knows == Knows::Told {
                exchange(&mut replicas, now, &mut random);
            }
            let anywhere = random.below(self.replicas as u64) as usize;
            let replica = if class.is_pinned {
                number as usize % self.replicas
            } else {
                anywhere
            };
            let customer = (at as u64) << 32 | number;
            let weighed = Customer::new(customer).weighing(class.weight);
            let costs = Costs::new(Cost::ONE).with_customer(weighed);
            let check = replicas[replica]
                .limiter
                .check("all")
                .cost(costs)
                .into_future();
            let is_allowed =
                matches!(check.into_ready(), Ok(Ok(decision)) if decision.is_allowed());
            record.add(customer, at, now, is_allowed);
        }
        record.finish()
    }
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
        let figures = Figures {
            classes,
            ..Figures::default()
        };
        Self {
            scene,
            second: 0,
            now: BTreeMap::new(),
            sums: BTreeMap::new(),
            figures,
            left: scene.burst as f64,
            at: 0,
        }
    }

    fn add(&mut self, customer: u64, class: usize, now: u64, is_allowed: bool) {
        while now >= (self.second + 1) * SECOND {
            self.end_second();
        }
        let count = self.now.entry(customer).or_insert(Count {
            class,
            ..Count::default()
        });
        count.asked += 1.0;
        if is_allowed {
            count.admitted += 1.0;
            let limit = self.scene.limit as f64;
            let burst = self.scene.burst as f64;
            let accrued = (now - self.at) as f64 * limit / SECOND as f64;
            self.left = (self.left + accrued).min(burst) - 1.0;
            self.at = now;
            self.figures.excess += u64::from(self.left < -1e-6);
        }
    }

    fn end_second(&mut self) {
        let weight = |count: &Count| f64::from(self.scene.classes[count.class].weight.get());
        let demand = |count: &Count| Demand {
            asked: count.asked,
            weight: weight(count),
        };
        let level = ideal::level(
            &self.now.values().map(demand).collect::<Vec<_>>(),
            self.scene.limit as f64,
        );
        let mut classes = vec![(0.0, 0.0); self.scene.classes.len()];
        for (customer, count) in std::mem::take(&mut self.now) {
            let ideal = demand(&count).share(level);
            classes[count.class].0 += count.admitted;
            classes[count.class].1 += ideal;
            if self.second >= self.scene.from {
                let sum = self.sums.entry(customer).or_insert(Count {
                    class: count.class,
                    ..Count::default()
                });
                sum.asked += count.asked;
                sum.admitted += count.admitted;
                sum.ideal += ideal;
            }
        }
        for (figures, (admitted, ideal)) in self.figures.classes.iter_mut().zip(classes) {
            figures.course.push(if ideal > 0.0 {
                admitted / ideal
            } else {
                f64::NAN
            });
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
            let least = counts()
                .filter(|count| count.asked >= MANY)
                .map(|count| count.admitted / count.ideal);
            figures.least = least
                .fold(f64::INFINITY, f64::min)
                .min(figures.admitted / figures.ideal);
            admitted += figures.admitted;
            asked += counts().map(|count| count.asked).sum::<f64>() / seconds;
        }
        self.figures.used = admitted / asked.min(self.scene.limit as f64);
        let parts = self.sums.values().filter(|count| count.asked >= MANY);
        let parts: Vec<f64> = parts.map(|count| count.admitted / count.ideal).collect();
        let squares: f64 = parts.iter().map(|part| part * part).sum();
        self.figures.jain = parts.iter().sum::<f64>().powi(2) / (parts.len() as f64 * squares);
        self.figures
    }
}
