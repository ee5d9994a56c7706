//! Measures one limit of 1 000 requests a second in three regions that are 80 ms from their home: how
//! much of it is used, and how often the home is called.
//!
//! ```text
//! cargo run --release -p tollgate-regions --example distances
//! ```
//!
//! It starts four servers, and lines that delay every answer of the home. Each scene takes `SECONDS`
//! (30), of which the first five do not count. The ideal is what one server without a distance would
//! admit: the limit, or what is asked for. A busy machine admits less.

use std::{
    env,
    error::Error,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::time::{Instant, interval, sleep};
use tollgate_core::{Lease, Limiter, Policy, Quota};
use tollgate_regions::{Durability, RegionalStore};
use tollgate_tests::{
    RedisServer,
    proxy::{Mode, Proxy},
};

const TRIP: Duration = Duration::from_millis(80);

const LIMIT: u64 = 1_000;

/// The processes of each region.
const PROCESSES: usize = 4;

/// The seconds that do not count.
const WARM_UP: u64 = 5;

/// Returns the checks in a second of each region, at a second.
type Load = fn(u64) -> [u64; 3];

const SCENES: [(&str, Load); 8] = [
    ("even, 0.5 of the limit", |_| [167; 3]),
    ("even, 0.9", |_| [300; 3]),
    ("even, 2.0", |_| [667; 3]),
    ("90/9/1, 0.9", |_| [810, 81, 9]),
    ("90/9/1, 1.2", |_| [1_080, 108, 12]),
    ("90 % moves each 5 s, 0.9", |second| {
        moving(second, [810, 45])
    }),
    ("90 % moves each 5 s, 1.2", |second| {
        moving(second, [1_080, 60])
    }),
    ("one region asks for 20 times the limit", |_| {
        [20_000, 30, 30]
    }),
];

fn moving(second: u64, [hot, cold]: [u64; 2]) -> [u64; 3] {
    let mut load = [cold; 3];
    load[(second / 5) as usize % 3] = hot;
    load
}

#[derive(Default)]
struct Counts {
    asked: AtomicU64,
    admitted: AtomicU64,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let seconds = env::var("SECONDS").map_or(Ok(30), |text| text.parse::<u64>())?;
    println!("| load | used | calls of the home a second | sent again | without a trip | lost |");
    println!("|---|---|---|---|---|---|");
    for (name, load) in SCENES {
        let (home, servers) = (RedisServer::start(), [(); 3].map(|()| RedisServer::start()));
        let mut processes = Vec::new();
        for (at, server) in servers.iter().enumerate() {
            for _ in 0..PROCESSES {
                let line = Proxy::start(home.addr());
                line.set(Mode::Delay(TRIP));
                let store = RegionalStore::builder(server.url(), line.url())
                    .region(format!("region {at}"))
                    .durability(Durability::Trust)
                    .round_trip(TRIP)
                    .build()?;
                processes.push((at, store, line));
            }
        }
        let counts = Arc::new(Counts::default());
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
        for task in tasks {
            task.await?;
        }
        // What is under way ends.
        sleep(Duration::from_secs(1)).await;
        let passed = (seconds - WARM_UP) as f64;
        let asked = counts.asked.load(Relaxed) as f64;
        let ideal = asked.min(LIMIT as f64 * passed);
        let figures: Vec<_> = processes.iter().map(|it| it.1.figures()).collect();
        let sum =
            |of: fn(&tollgate_regions::RegionFigures) -> u64| figures.iter().map(of).sum::<u64>();
        println!(
            "| {name} | {:.3} | {:.1} | {} | {:.2} | {} |",
            counts.admitted.load(Relaxed) as f64 / ideal,
            sum(|it| it.calls) as f64 / seconds as f64,
            sum(|it| it.resent),
            sum(|it| it.trips_saved) as f64 / (asked / passed * seconds as f64),
            sum(|it| it.lost),
        );
    }
    Ok(())
}

/// Asks as often as a process of this region does.
async fn run(
    limiter: Limiter,
    at: usize,
    load: Load,
    seconds: u64,
    counts: Arc<Counts>,
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
                let decision = limiter.check("everybody").await;
                let is_admitted = decision.is_ok_and(|it| it.is_allowed() && !it.is_degraded());
                if second >= WARM_UP {
                    counts.asked.fetch_add(1, Relaxed);
                    counts.admitted.fetch_add(u64::from(is_admitted), Relaxed);
                }
            });
        }
    }
}
