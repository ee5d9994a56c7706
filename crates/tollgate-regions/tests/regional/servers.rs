//! Real servers, 80 ms from their home: what is admitted in all regions together, whatever fails.
//! Regions that are cut off, and processes that stand still, are in `outages.rs`.

use tollgate_core::Key;
use tollgate_regions::{Durability, inspect::StoredPurse};
use tollgate_tests::{RedisSentinels, RedisServer, no_server};

use super::region::{PATIENCE, Region, UNITS, assert_bound, copy, delayed, drain, spend, stored};

#[tokio::test(flavor = "multi_thread")]
async fn three_regions_never_admit_more_than_the_limit() {
    if no_server() {
        return;
    }
    let (home, servers) = (RedisServer::start(), [(); 3].map(|()| RedisServer::start()));
    let lines = [(); 3].map(|()| delayed(&home));
    let regions: Vec<_> = (0..3)
        .map(|at| {
            let name = format!("region {at}");
            Region::new(
                &name,
                &servers[at].url(),
                &lines[at].url(),
                Durability::Trust,
            )
        })
        .collect();
    spend(&regions, UNITS / 2).await;
    drain(&regions).await;
    assert_bound(&regions);
    assert!(regions.iter().all(|region| region.admitted() > 0));
    let calls: u64 = regions
        .iter()
        .map(|region| region.store.figures().calls)
        .sum();
    assert!(
        calls < UNITS / 10,
        "{calls} calls of the home for {UNITS} units"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_promoted_copy_of_a_region_spends_nothing_that_its_old_master_spends_too() {
    if no_server() {
        return;
    }
    let (home, old, new) = (
        RedisServer::start(),
        RedisServer::start(),
        RedisServer::start(),
    );
    let line = delayed(&home);
    copy(&new, &old);
    let before = Region::new("eu", &old.url(), &line.url(), Durability::Trust);
    spend(std::slice::from_ref(&before), 200).await;
    // What the old master holds now is copied, and it lives on.
    let held = before.limiter.peek("acme").await.expect("a look");
    let held = held.state("all").expect("the policy").remaining();
    let purse = |server: &RedisServer| stored(server, StoredPurse::SUFFIX);
    let is_same = || purse(&old).is_some_and(|it| purse(&new) == Some(it));
    tollgate_tests::wait::until("the purse at the copy", PATIENCE, is_same);
    new.command(&["REPLICAOF", "NO", "ONE"]);
    let after = Region::new("eu", &new.url(), &line.url(), Durability::Trust);
    let regions = [before, after];
    spend(&regions, UNITS / 2).await;
    drain(&regions).await;
    assert!(held > 0, "the copy had nothing to lose");
    assert_bound(&regions);
}

/// The server of the region fails over to its copy and back again. The number of a server would be the
/// same at the end, and the purse of the first reign is still there.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_leads_again_spends_nothing_of_its_first_reign() {
    if no_server() {
        return;
    }
    let (home, one, other) = (
        RedisServer::start(),
        RedisServer::start(),
        RedisServer::start(),
    );
    let line = delayed(&home);
    let region =
        |server: &RedisServer| Region::new("eu", &server.url(), &line.url(), Durability::Trust);
    copy(&other, &one);
    let first = region(&one);
    spend(std::slice::from_ref(&first), 200).await;
    let purse = stored(&one, StoredPurse::SUFFIX).expect("a purse");
    let free = StoredPurse::decode(&purse).expect("a purse").free(0);
    let held = tollgate_tests::wait::until_some("the purse at the copy", PATIENCE, || {
        let copied = stored(&other, StoredPurse::SUFFIX)?;
        (Some(&copied) == stored(&one, StoredPurse::SUFFIX).as_ref()).then_some(copied)
    });
    other.command(&["REPLICAOF", "NO", "ONE"]);
    let second = region(&other);
    spend(std::slice::from_ref(&second), 100).await;
    // The first one gets the data of the second one, and then those of its own reign once more.
    copy(&one, &other);
    let name = one.command(&["KEYS", "*:purse2"]).items()[0].text();
    one.command(&["REPLICAOF", "NO", "ONE"]);
    let set: [&[u8]; 3] = [b"SET", name.as_bytes(), &held];
    assert_eq!(one.command(&set).text(), "OK");
    let third = region(&one);
    let regions = [first, second, third];
    spend(&regions[2..], 300).await;
    drain(&regions).await;
    assert!(free > 0, "the first reign had nothing to lose");
    assert!(
        regions[2].store.figures().lost > 0,
        "{:?}",
        regions[2].store.figures()
    );
    assert_bound(&regions);
}

/// The home is found through Sentinels, which let a replica take over.
#[tokio::test(flavor = "multi_thread")]
async fn a_home_that_sentinels_fail_over_admits_no_more_than_the_limit() {
    if no_server() {
        return;
    }
    let home = RedisSentinels::start(false);
    let servers = [RedisServer::start(), RedisServer::start()];
    let url = format!("{}?connect_timeout=1m", home.url());
    let regions: Vec<_> = (0..2)
        .map(|at| {
            let name = format!("region {at}");
            // Both replicas may be promoted.
            let guard = Durability::Replicas(2);
            Region::new(&name, &servers[at].url(), &url, guard)
        })
        .collect();
    spend(&regions, UNITS / 2).await;
    home.old().kill();
    tollgate_tests::wait::until_async("a new master", PATIENCE, async || home.risen().is_some())
        .await;
    let risen = home.risen().expect("it has risen");
    // The other replica alone follows it. Nothing is granted until a second one does.
    let third = RedisServer::start();
    copy(&third, risen);
    spend(&regions, UNITS / 2 + 100).await;
    drain(&regions).await;
    assert_bound(&regions);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_home_that_fails_over_has_every_grant_that_its_replica_confirmed() {
    if no_server() {
        return;
    }
    let (old, new) = (RedisServer::start(), RedisServer::start());
    let servers = [RedisServer::start(), RedisServer::start()];
    let lines = [delayed(&old), delayed(&old)];
    let regions: Vec<_> = (0..2)
        .map(|at| {
            let name = format!("region {at}");
            let guard = Durability::Replicas(1);
            Region::new(&name, &servers[at].url(), &lines[at].url(), guard)
        })
        .collect();
    // Without a replica nothing is granted.
    for region in &regions {
        assert!(!region.check().await);
    }
    new.command(&["REPLICAOF", "127.0.0.1", &old.port().to_string()]);
    spend(&regions, UNITS / 2).await;
    // The old one is gone with what it did last.
    old.kill();
    new.command(&["REPLICAOF", "NO", "ONE"]);
    let third = RedisServer::start();
    third.command(&["REPLICAOF", "127.0.0.1", &new.port().to_string()]);
    for line in &lines {
        line.set_target(new.addr());
        line.reset_all();
    }
    spend(&regions, UNITS / 2 + 100).await;
    drain(&regions).await;
    assert_bound(&regions);
}

#[tokio::test]
async fn a_reset_makes_the_key_fresh_and_a_peek_shows_what_the_region_holds() {
    if no_server() {
        return;
    }
    let (home, server) = (RedisServer::start(), RedisServer::start());
    let region = Region::new("eu", &server.url(), &home.url(), Durability::Trust);
    drain(std::slice::from_ref(&region)).await;
    assert!(!region.check().await);
    let state = region.limiter.peek("acme").await.expect("a look");
    assert_eq!(state.state("all").expect("the policy").remaining(), 0);
    region
        .limiter
        .reset(&Key::new("acme"))
        .await
        .expect("a reset");
    assert!(region.check().await);
}
