//! Regions that are cut off from their home for a while, and processes that stand still in the middle
//! of a call: never above the limit, and they go on.

use std::time::{Duration, Instant};

use tollgate_core::Lease;
use tollgate_regions::{
    Durability,
    inspect::{StoredHome, StoredPurse},
};
use tollgate_tests::{
    RedisServer, no_server,
    proxy::{Mode, Proxy},
    wait,
};

use super::region::{PATIENCE, Region, UNITS, assert_bound, delayed, drain, policy, spend, stored};

/// The length of a generation, in microseconds.
const GENERATION_US: u64 = 400_000;

fn terms() -> Lease {
    Lease::new().generation(Duration::from_micros(GENERATION_US))
}

/// Returns the time of a server in microseconds.
fn now_us(server: &RedisServer) -> u64 {
    let time = server.command(&["TIME"]);
    let word = |at: usize| time.items()[at].text().parse::<u64>().expect("a number");
    word(0) * 1_000_000 + word(1)
}

/// Waits until units that were granted before now have lapsed at the home.
fn until_lapsed(home: &RedisServer) {
    let begun = now_us(home) / GENERATION_US;
    wait::until("two generations", PATIENCE, || {
        now_us(home) / GENERATION_US > begun + 2
    });
}

#[tokio::test]
async fn a_region_that_is_cut_off_spends_what_it_holds_and_then_denies() {
    if no_server() {
        return;
    }
    let (home, server) = (RedisServer::start(), RedisServer::start());
    let line = delayed(&home);
    let region = Region::new("eu", &server.url(), &line.url(), Durability::Trust);
    spend(std::slice::from_ref(&region), 300).await;
    line.set(Mode::Refuse);
    let before = region.admitted();
    let begun = Instant::now();
    while region.check().await {
        assert!(begun.elapsed() < PATIENCE);
    }
    assert!(region.admitted() < UNITS && before >= 300);
    let denied = region.limiter.check("acme").await.expect("no outage");
    assert!(denied.is_denied() && denied.retry_after().is_some());
    line.set(Mode::Pass);
    let more = region.admitted() + 100;
    spend(std::slice::from_ref(&region), more).await;
}

/// Cuts a region off until something has happened, and compares what was admitted in all regions.
async fn cut(terms: Lease, until: impl AsyncFn(&Region, &RedisServer)) {
    let home = RedisServer::start();
    let servers = [RedisServer::start(), RedisServer::start()];
    let lines = [delayed(&home), delayed(&home)];
    let regions: Vec<_> = (0..2)
        .map(|at| {
            let (name, guard) = (format!("region {at}"), Durability::Trust);
            Region::with(
                &name,
                &servers[at].url(),
                &lines[at].url(),
                guard,
                policy(terms),
            )
        })
        .collect();
    spend(&regions, 400).await;
    lines[0].set(Mode::Stall);
    until(&regions[0], &home).await;
    lines[0].set(Mode::Delay(super::region::TRIP));
    drain(&regions).await;
    assert_bound(&regions);
}

/// Checks in a region until a check is denied.
async fn until_denied(region: &Region) {
    let begun = Instant::now();
    while region.check().await {
        assert!(begun.elapsed() < PATIENCE);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_line_that_stands_still_for_a_moment_delays_a_call_alone() {
    if no_server() {
        return;
    }
    cut(Lease::new(), async |region, _| until_denied(region).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_line_that_stands_still_until_calls_are_given_up_loses_their_units_alone() {
    if no_server() {
        return;
    }
    cut(terms(), async |region, _| {
        let given_up = region.store.figures().given_up;
        wait::until_async("a call that is given up", PATIENCE, async || {
            region.check().await;
            region.store.figures().given_up > given_up
        })
        .await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_line_that_stands_still_until_all_units_have_lapsed_brings_none_of_them_back() {
    if no_server() {
        return;
    }
    cut(terms(), async |region, home| {
        until_denied(region).await;
        until_lapsed(home);
    })
    .await;
}

/// Selects what a process stands still before while it carries a call.
#[derive(Clone, Copy, Debug)]
enum Before {
    /// The call has not left.
    Call,
    /// The home has granted, and the answer has not come.
    Answer,
    /// The answer has come, and the deposit has not left.
    Deposit,
}

/// Lets a process stand still in the middle of its call for longer than units live, while another one
/// of the region goes on.
async fn stand_still(place: Before) {
    let (home, server) = (RedisServer::start(), RedisServer::start());
    let (to_home, to_server) = (delayed(&home), Proxy::start(server.addr()));
    let region = |local: &str, home: &str| {
        Region::with("eu", local, home, Durability::Trust, policy(terms()))
    };
    let one = region(&to_server.url(), &to_home.url());
    let other = region(&server.url(), &home.url());
    spend(std::slice::from_ref(&one), 200).await;
    match place {
        Before::Call => to_home.set(Mode::Stall),
        Before::Answer => to_home.set(Mode::Mute),
        Before::Deposit => {}
    }
    // The first process alone carries a call now.
    let calls = one.store.figures().calls;
    wait::until_async("a call of the first process", PATIENCE, async || {
        one.check().await;
        one.store.figures().calls > calls
    })
    .await;
    if matches!(place, Before::Deposit) {
        to_server.set(Mode::Stall);
    }
    let before = stored(&home, StoredHome::SUFFIX);
    until_lapsed(&home);
    spend(std::slice::from_ref(&other), 100).await;
    to_server.set(Mode::Pass);
    to_home.set(Mode::Delay(super::region::TRIP));
    let regions = [one, other];
    drain(&regions).await;
    assert_bound(&regions);
    assert!(before.is_some() && stored(&server, StoredPurse::SUFFIX).is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_stands_still_before_its_call_admits_nothing_twice() {
    if no_server() {
        return;
    }
    stand_still(Before::Call).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_stands_still_before_the_answer_admits_nothing_twice() {
    if no_server() {
        return;
    }
    stand_still(Before::Answer).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_stands_still_before_its_deposit_admits_nothing_twice() {
    if no_server() {
        return;
    }
    stand_still(Before::Deposit).await;
}
