//! Options of a layer in combination: each scenario draws them all, sends requests through a real
//! service, and compares every answer and the units that are left with a small model.
//!
//! A failure prints its seed and the smallest scenario that still fails. The variable
//! `PAIRS_REQUESTS` names another number of requests, and `PAIRS_SEED` the first seed.

mod model;
mod rules;
mod scenario;
mod service;
mod spent;

use std::{
    cell::RefCell,
    env,
    panic::{self, AssertUnwindSafe},
    str::FromStr,
    sync::Arc,
    time::Duration,
};

use tokio::runtime::Builder;
use tollgate::{Enforcement, Key, MemoryStore, RedisStore, Store, store::Clock};
use tollgate_test_support::{PATIENCE, START_US};
use tollgate_tests::RedisServer;

use model::{Answer, Enforced, Model};
use scenario::{CostOption, HOST, Scenario, Source};
use service::{ADDRESSES, Seen, Subject};

/// The longest time by which a request waits too long: timers count milliseconds, and callers that
/// were denied come back up to 10 ms later.
const LATE: Duration = Duration::from_millis(12);

fn number<T: FromStr>(variable: &str, default: T) -> T {
    env::var(variable).map_or(default, |value| {
        value
            .parse()
            .unwrap_or_else(|_| panic!("{variable} is no number"))
    })
}

/// Lists the combinations whose promise is known to be broken. They are not run.
const KNOWN: &[fn(&Scenario) -> bool] = &[
    // One cost for several policies is cut to the least share of a replica, for all of them.
    |scenario| {
        let is_one =
            scenario.options.cost == CostOption::OfRequest || scenario.options.charges_more;
        scenario.is_local() && is_one && scenario.sets.iter().any(|set| set.len() > 1)
    },
];

fn is_known(scenario: &Scenario) -> bool {
    KNOWN.iter().any(|is_known| is_known(scenario))
}

/// Draws scenarios until they have sent as many requests as the environment says, or a part of
/// them, and runs each.
fn run_all(part: usize, is_in_redis: bool, run: impl Fn(&Scenario) -> Result<(), String>) {
    let failure = RefCell::new(String::new());
    let fails = |scenario: &Scenario| {
        let caught = panic::catch_unwind(AssertUnwindSafe(|| run(scenario)));
        let failed = caught.unwrap_or_else(|_| Err("panicked".to_owned())).err();
        failed
            .map(|failed| *failure.borrow_mut() = failed)
            .is_some()
    };
    let (most, mut seed, mut sent) = (
        number("PAIRS_REQUESTS", 600_usize) / part,
        number("PAIRS_SEED", 0),
        0,
    );
    while sent < most {
        let scenario = Scenario::draw(seed, is_in_redis);
        seed += 1;
        if is_known(&scenario) {
            continue;
        }
        sent += scenario.steps.len();
        if fails(&scenario) {
            let smallest = scenario.shrunk(|smaller| !is_known(smaller) && fails(smaller));
            panic!("seed {}: {}\n{smallest}", smallest.seed, failure.borrow());
        }
    }
}

/// Runs a scenario on an empty store that follows the clock.
async fn run(scenario: &Scenario, store: Arc<dyn Store>, clock: Clock) -> Result<(), String> {
    let subject = Subject::new(scenario, store, clock.clone());
    // A refund of a token bucket has a least and a most: where these lead to different answers, the
    // scenario ends.
    let mut models = [false, true].map(|is_least| Model::new(scenario, clock.now_us(), is_least));
    let enforcement = Enforcement::share(scenario.options.enforced.unwrap_or(100));
    for (at, step) in scenario.steps.iter().enumerate() {
        clock.advance(step.pause);
        models
            .iter_mut()
            .for_each(|model| model.now = clock.now_us());
        let key = if scenario.options.is_layer() {
            step.key
        } else {
            step.key.or(Some(0))
        };
        let text = key.map(|key| format!("{}-{key}", scenario.seed));
        let is_by_rules = scenario.options.source == Source::Rules;
        let key_of = |set: usize, text: &str| {
            if is_by_rules {
                rules::key_of(scenario, set, text)
            } else {
                Key::new(text)
            }
        };
        let enforced = Enforced {
            key: text
                .as_deref()
                .is_none_or(|text| enforcement.applies_to(&key_of(0, text))),
            network: enforcement
                .applies_to(&Key::network(ADDRESSES[usize::from(step.network)], 64)),
            host: is_by_rules && enforcement.applies_to(&key_of(1, &HOST.to_string())),
        };
        let [mut expected, least] = models.each_mut().map(|model| model.answer(step, enforced));
        if expected != least {
            return Ok(());
        }
        let seen = subject.send(step, text.clone()).await;
        let late = clock
            .now_us()
            .checked_sub(models[0].now)
            .map(Duration::from_micros);
        let is_timely = scenario.is_in_redis || late.is_some_and(|late| late <= LATE);
        models
            .iter_mut()
            .for_each(|model| model.now = clock.now_us());
        if !scenario.is_in_redis && late != Some(Duration::ZERO) {
            // The fields are those of a later time.
            expected
                .fields
                .retain(|(name, _)| !name.contains("ratelimit") && *name != "retry-after");
        }
        let found = Answer {
            status: seen.response.status.as_u16(),
            is_called: seen.is_called,
            fields: expected
                .fields
                .iter()
                .map(|(name, _)| (*name, field(&seen, name)))
                .collect(),
        };
        if found != expected || !is_timely {
            return Err(format!(
                "request {at}: {found:?} after {:?}, not {expected:?}, {late:?} late",
                seen.waited
            ));
        }
        let text_of = |set| {
            if is_by_rules && set == 1 {
                Some((HOST, HOST.to_string()))
            } else {
                key.zip(text.clone())
            }
        };
        let places = [false, true]
            .into_iter()
            .take(1 + usize::from(scenario.is_local() && step.is_away));
        for (set, is_away) in places.flat_map(|is_away| [(0, is_away), (1, is_away)]) {
            let Some((key, text)) = text_of(set) else {
                continue;
            };
            let limiter = if is_away {
                &subject.limiters[set]
            } else {
                &subject.healthy[set]
            };
            let state = limiter
                .peek(key_of(set, &text))
                .await
                .map_err(|error| error.to_string())?;
            let left: Vec<_> = state.states().map(|state| state.remaining()).collect();
            let [most, least] = models
                .each_mut()
                .map(|model| model.remaining((set, key), is_away));
            if (0..left.len()).any(|at| !(least[at]..=most[at]).contains(&left[at])) {
                let place = if is_away {
                    "in the process"
                } else {
                    "at the store"
                };
                return Err(format!(
                    "request {at}: {left:?} left {place}, not {least:?} to {most:?}"
                ));
            }
        }
    }
    Ok(())
}

/// Returns the value of a field that has at most one line.
fn field(seen: &Seen, name: &str) -> Option<String> {
    let lines: Vec<_> = seen
        .response
        .headers
        .get_all(name)
        .iter()
        .map(|line| line.to_str().unwrap_or("?"))
        .collect();
    (!lines.is_empty()).then(|| lines.join(" and "))
}

fn runtime() -> Builder {
    let mut builder = Builder::new_current_thread();
    builder.enable_all();
    builder
}

#[test]
fn options_in_combination_keep_their_promises_in_process() {
    run_all(1, false, |scenario| {
        let clock = Clock::manual(START_US);
        let store = MemoryStore::builder().clock(clock.clone()).build();
        // The time of tokio moves by itself while a request waits, and the clock with it.
        let runtime = runtime().start_paused(true).build().expect("a runtime");
        runtime.block_on(run(scenario, Arc::new(store), clock))
    });
}

#[test]
fn options_in_combination_keep_their_promises_over_redis() {
    let server = RedisServer::start();
    let runtime = runtime().build().expect("a runtime");
    let clock = Clock::manual(START_US);
    let builder = RedisStore::builder(server.url())
        .clock(clock.clone())
        .deny_cache_cap(Duration::ZERO);
    let store = runtime
        .block_on(builder.connect_timeout(PATIENCE).connect())
        .expect("a store");
    run_all(6, true, |scenario| {
        server.command(&["FLUSHALL"]);
        clock.set(START_US);
        runtime.block_on(run(scenario, Arc::new(store.clone()), clock.clone()))
    });
}
