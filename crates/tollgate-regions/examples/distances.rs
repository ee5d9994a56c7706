//! Measures one limit of 1 000 requests a second in three regions that are 80 ms from their home: how
//! much of it is used, how often the home is called, and that no span of time has more than the bound.
//!
//! ```text
//! cargo run --release -p tollgate-regions --example distances            # all scenes
//! cargo run --release -p tollgate-regions --example distances lost       # those with the word in their name
//! ```
//!
//! It starts four servers, and lines that delay every answer of the home. Each scene takes `SECONDS`
//! (30), of which the first five do not count, but for the bound. The ideal is what one server without
//! a distance would admit: the limit, or what is asked for. A busy machine admits less.

use std::{
    env,
    error::Error,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::time::{Instant, interval, sleep};
use tollgate_core::{Lease, Limiter, Policy, Quota};
use tollgate_regions::{Durability, RegionFigures, RegionalStore};
use tollgate_tests::{
    RedisServer,
    proxy::{Mode, Proxy},
    spans::{self, Admitted},
};

const TRIP: Duration = Duration::from_millis(80);

const LIMIT: u64 = 1_000;

/// The processes of each region.
const PROCESSES: usize = 4;

/// The seconds that do not count.
const WARM_UP: u64 = 5;

const REGIONS: usize = 3;

/// Returns the checks in a second of each region, at a second.
type Load = fn(u64) -> [u64; REGIONS];

/// A load, of a hundred calls and of a hundred answers those that are lost, and the seconds after which
/// all connections to the home are cut.
type Scene = (&'static str, Load, u8, Option<u64>);

const SCENES: [Scene; 13] = [
    ("even, 0.5 of the limit", |_| [167; 3], 0, None),
    ("even, 0.9", |_| [300; 3], 0, None),
    ("even, 2.0", |_| [667; 3], 0, None),
    ("90/9/1, 0.9", |_| [810, 81, 9], 0, None),
    ("90/9/1, 1.2", |_| [1_080, 108, 12], 0, None),
    (
        "90 % moves each 5 s, 0.9",
        |at| moving(at, [810, 45]),
        0,
        None,
    ),
    (
        "90 % moves each 5 s, 1.2",
        |at| moving(at, [1_080, 60]),
        0,
        None,
    ),
    ("20 times the limit in one", |_| [20_000, 30, 30], 0, None),
    ("even, 0.9, a tenth lost", |_| [300; 3], 10, None),
    ("even, 2.0, a tenth lost", |_| [667; 3], 10, None),
    ("90/9/1, 0.9, a tenth lost", |_| [810, 81, 9], 10, None),
    ("90/9/1, 1.2, a tenth lost", |_| [1_080, 108, 12], 10, None),
    ("even, 0.9, cut each 2 s", |_| [300; 3], 0, Some(2)),
];

fn moving(second: u64, [hot, cold]: [u64; 2]) -> [u64; REGIONS] {
    let mut load = [cold; REGIONS];
    load[(second / 5) as usize % REGIONS] = hot;
    load
}

/// Counts the outcomes of the checks of all regions.
#[derive(Default)]
struct Counts {
    asked: [u64; REGIONS],
    used: [u64; REGIONS],
    failed: u64,
    admitted: Vec<Admitted>,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let seconds = env::var("SECONDS").map_or(Ok(30), |text| text.parse::<u64>())?;
    let word = env::args().nth(1).unwrap_or_default();
    println!(
        "| load | used | of each region | above | calls of the home a second, of the busiest region | sent again, given up | \
         without a trip | units lost | no answer |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for (name, load, loss, cuts) in SCENES.into_iter().filter(|it| it.0.contains(&word)) {
        let (home, servers) = (
            RedisServer::start(),
            [(); REGIONS].map(|()| RedisServer::start()),
        );
        let mut processes = Vec::new();
        for (at, server) in servers.iter().enumerate() {
            for _ in 0..PROCESSES {
                let line = Proxy::start(home.addr());
                line.set(Mode::Lose(TRIP, loss));
                let store = RegionalStore::builder(server.url(), line.url())
                    .region(format!("region {at}"))
                    .durability(Durability::Trust)
                    .round_trip(TRIP)
                    .build()?;
                processes.push((at, store, line));
            }
        }
        let counts = Arc::new(Mutex::new(Counts::default()));
        let begun = Instant::now();
        let mut tasks = Vec::new();
        for (at, store, _) in &processes {
            let limiter = Limiter::builder(store.clone())
                .policies(
                    Policy::token_bucket("api", Quota::per_second(LIMIT))
                        .leased(Lease::new().share(2)),
                )
                .deadline(Duration::from_millis(500))
                .try_build()?;
            let (at, counts) = (*at, Arc::clone(&counts));
            tasks.push(tokio::spawn(run(limiter, at, load, seconds, counts, begun)));
        }
        while let Some(pause) = cuts
            && begun.elapsed().as_secs() + pause < seconds
        {
            sleep(Duration::from_secs(pause)).await;
            processes.iter().for_each(|(_, _, line)| line.reset_all());
        }
        for task in tasks {
            task.await?;
        }
        // What is under way ends.
        sleep(Duration::from_secs(1)).await;
        let busiest = (0..REGIONS)
            .map(|at| {
                let of_region = processes.iter().filter(|it| it.0 == at);
                of_region.map(|it| it.1.figures().calls).sum::<u64>()
            })
            .max();
        let counts = std::mem::take(&mut *counts.lock().expect("no panic"));
        let figures: Vec<_> = processes.iter().map(|it| it.1.figures()).collect();
        let calls = busiest.unwrap_or_default() as f64 / seconds as f64;
        print(name, seconds, calls, counts, &figures);
    }
    Ok(())
}

fn print(name: &str, seconds: u64, calls: f64, counts: Counts, figures: &[RegionFigures]) {
    let passed = (seconds - WARM_UP) as f64;
    let (asked, used): (u64, u64) = (counts.asked.iter().sum(), counts.used.iter().sum());
    let ideal = (asked as f64).min(LIMIT as f64 * passed);
    let each = counts.used.iter().zip(counts.asked);
    let each: Vec<_> = each
        .map(|(used, asked)| format!("{:.2}", *used as f64 / asked as f64))
        .collect();
    let sum = |of: fn(&RegionFigures) -> u64| figures.iter().map(of).sum::<u64>();
    println!(
        "| {name} | {:.3} | {} | {} | {calls:.1} | {}, {} | {:.2} | {} | {} |",
        used as f64 / ideal,
        each.join(", "),
        spans::above(counts.admitted, LIMIT, LIMIT),
        sum(|it| it.resent),
        sum(|it| it.given_up),
        sum(|it| it.trips_saved) as f64 / (asked as f64 / passed * seconds as f64),
        sum(|it| it.lost),
        counts.failed,
    );
}

/// Asks as often as a process of this region does.
async fn run(
    limiter: Limiter,
    at: usize,
    load: Load,
    seconds: u64,
    counts: Arc<Mutex<Counts>>,
    begun: Instant,
) {
    let mut ticks = interval(Duration::from_millis(1));
    let mut due = 0.0;
    loop {
        ticks.tick().await;
        let second = begun.elapsed().as_secs();
        if second >= seconds {
            return;
        }
        due += load(second)[at] as f64 / PROCESSES as f64 / 1_000.0;
        while due >= fastrand::f64() {
            due -= 1.0;
            let (limiter, counts) = (limiter.clone(), Arc::clone(&counts));
            tokio::spawn(async move {
                let made = begun.elapsed();
                let decision = limiter.check("everybody").await;
                let answered = begun.elapsed();
                let decided = decision.ok().filter(|it| !it.is_degraded());
                let is_admitted = decided.as_ref().is_some_and(|it| it.is_allowed());
                let mut counts = counts.lock().expect("no panic");
                if is_admitted {
                    counts.admitted.push((made, answered));
                }
                if second >= WARM_UP {
                    counts.asked[at] += 1;
                    counts.used[at] += u64::from(is_admitted);
                    counts.failed += u64::from(decided.is_none());
                }
            });
        }
    }
}
