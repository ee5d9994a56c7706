//! One of the processes that lease the units of one key: its quota, its load and its output.

use std::{env, io, thread, time::Duration};

use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, sleep, sleep_until},
};
use tollgate::{Lease, Limiter, Outage, Policy, Quota, RedisStore};

use crate::permits::now_us;

/// The burst of the key, and the units that accrue in a second.
pub const LEASED_PER_SECOND: u64 = 400;

/// The most units that all processes together may hold.
pub const MOST_LEASED: u64 = LEASED_PER_SECOND / SHARE as u64;

const SHARE: u8 = 2;

/// The tasks of a process that check at the same time.
const TASKS: u64 = 4;

/// The pause between two checks of a task while a process gathers units, and after a denial: the
/// four processes together ask for less than accrues.
const PAUSE: Duration = Duration::from_millis(50);

/// The variable of the environment for the length of a generation, in milliseconds.
pub(super) const GENERATION: &str = "LEASE_GENERATION_MS";

/// Names the work of a process, until it is told something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Load {
    /// Checks at a moderate rate, so that it is granted units and holds some.
    Gather,
    /// Asks nothing of the key. Only looks at another one, to learn whether the store is there.
    Rest,
    /// Spends at once what it can get.
    Spend,
}

impl Load {
    const ALL: [Self; 3] = [Self::Gather, Self::Rest, Self::Spend];

    /// Returns the word on the standard input of the process.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Gather => "gather",
            Self::Rest => "rest",
            Self::Spend => "spend",
        }
    }
}

/// A line of the output: a check that the store or a leased unit decided, or a look at another key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// The check was admitted. The number of units that the process holds is there when a leased
    /// unit decided it.
    Admitted {
        from_us: u64,
        to_us: u64,
        holds: Option<u64>,
    },
    /// The store denied the check.
    Denied { from_us: u64 },
    /// The store has answered a look at another key.
    Reached { from_us: u64 },
}

impl Line {
    /// Reads a line. Returns `None` when it tells something else.
    pub(super) fn read(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let word = words.next()?;
        let mut number = || words.next()?.parse::<u64>().ok();
        match word {
            "admitted" => Some(Self::Admitted {
                from_us: number()?,
                to_us: number()?,
                holds: number(),
            }),
            "denied" => Some(Self::Denied { from_us: number()? }),
            "reached" => Some(Self::Reached { from_us: number()? }),
            _ => None,
        }
    }

    /// Returns the time at which the check began, in microseconds of the machine's monotonic clock.
    pub(super) fn began_us(self) -> u64 {
        match self {
            Self::Admitted { from_us, .. }
            | Self::Denied { from_us }
            | Self::Reached { from_us } => from_us,
        }
    }

    fn print(self) {
        match self {
            Self::Admitted {
                from_us,
                to_us,
                holds: Some(holds),
            } => println!("admitted {from_us} {to_us} {holds}"),
            Self::Admitted {
                from_us,
                to_us,
                holds: None,
            } => println!("admitted {from_us} {to_us}"),
            Self::Denied { from_us } => println!("denied {from_us}"),
            Self::Reached { from_us } => println!("reached {from_us}"),
        }
    }
}

/// Runs one of the processes, until it is killed.
///
/// # Panics
///
/// When the server cannot be reached at the start.
pub fn run_lease_replica(url: &str) {
    let generation = env::var(GENERATION)
        .ok()
        .and_then(|word| word.parse().ok())
        .expect("a length in milliseconds");
    let lease = Lease::new()
        .generation(Duration::from_millis(generation))
        .share(SHARE);
    let policy = Policy::token_bucket("shared", Quota::per_second(LEASED_PER_SECOND)).leased(lease);
    let (sender, load) = watch::channel(Load::Gather);
    thread::spawn(move || {
        for line in io::stdin().lines().map_while(Result::ok) {
            if let Some(load) = Load::ALL.into_iter().find(|load| load.word() == line) {
                sender.send_replace(load);
            }
        }
    });
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(async {
        let store = RedisStore::builder(url)
            .prefix("leases")
            .connect()
            .await
            .expect("a store");
        // A check that the store does not decide is no admission.
        let limiter = Limiter::builder(store)
            .policies(policy)
            .on_outage(Outage::Closed)
            .build();
        println!("ready");
        let mut tasks = JoinSet::new();
        for task in 0..TASKS {
            tasks.spawn(run(limiter.clone(), load.clone(), task));
        }
        tasks.join_all().await;
    });
}

async fn run(limiter: Limiter, load: watch::Receiver<Load>, task: u64) {
    sleep(PAUSE * task as u32 / TASKS as u32).await;
    // An error: nobody tells this process anything any more.
    while load.has_changed().is_ok() {
        let next = Instant::now() + PAUSE;
        let now = *load.borrow();
        let line = if now == Load::Rest {
            look(&limiter).await
        } else {
            check(&limiter).await
        };
        if let Some(line) = line {
            line.print();
        }
        if now != Load::Spend || !matches!(line, Some(Line::Admitted { .. })) {
            sleep_until(next).await;
        }
    }
}

/// Checks once. Returns `None` when neither the store nor a leased unit decides.
async fn check(limiter: &Limiter) -> Option<Line> {
    let from_us = now_us();
    let decided = limiter.check("hot").await;
    let to_us = now_us();
    let decision = decided.ok()?;
    // A leased decision tells the units that are left in this process.
    let holds = decision
        .states()
        .next()
        .filter(|_| decision.is_leased())
        .map(|state| state.remaining());
    Some(if decision.is_allowed() {
        Line::Admitted {
            from_us,
            to_us,
            holds,
        }
    } else {
        Line::Denied { from_us }
    })
}

/// Looks at another key. Returns `None` when the store does not answer.
async fn look(limiter: &Limiter) -> Option<Line> {
    let from_us = now_us();
    limiter
        .peek("other")
        .await
        .ok()
        .map(|_| Line::Reached { from_us })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read() {
        let leased = Line::Admitted {
            from_us: 7,
            to_us: 9,
            holds: Some(0),
        };
        assert_eq!(Line::read("admitted 7 9 0"), Some(leased));
        assert_eq!(
            Line::read("admitted 7 9"),
            Some(Line::Admitted {
                from_us: 7,
                to_us: 9,
                holds: None
            })
        );
        assert_eq!(Line::read("denied 7"), Some(Line::Denied { from_us: 7 }));
        assert_eq!(Line::read("reached 7"), Some(Line::Reached { from_us: 7 }));
        for other in ["ready", "", "admitted 7", "admitted 7 x"] {
            assert_eq!(Line::read(other), None, "{other}");
        }
    }
}
